// SPDX-License-Identifier: Apache-2.0
/*
 * The second thread of a context (cell.js): reads the channel, hands cells over, and ends what runs when it is asked to.
 * It does nothing but wait: in a read, or for the main thread. shared[0]: the cell that runs, negative while it is
 * being ended, 0 between cells; shared[1]: the last one that has ended.
 */
'use strict';
const { readSync } = require('fs');
const inspector = require('inspector');
const { parentPort, workerData: shared } = require('worker_threads');

const CELL = 2, INTERRUPT = 3;
const FIELD_NUMBER = 1;
const HEADER = 8;
const FIRST_MS = 3, NEXT_MS = 25, TRIES = 400;
const nobody = new Int32Array(new SharedArrayBuffer(4));
const session = new inspector.Session();
let handed = 0; // number of the last cell; 0: none
session.connectToMainThread();

function readExactly(size) {
  const data = Buffer.alloc(size);
  for (let at = 0; at < size;) {
    const n = readSync(3, data, at, size - at);
    if (n === 0) process.kill(process.pid, 'SIGKILL'); // the other end is gone
    at += n;
  }
  return data;
}

function numberOf(payload) {
  for (let at = 0; at < payload.length; at += 5 + payload.readUInt32LE(at + 1))
    if (payload[at] === FIELD_NUMBER) return payload.readUInt32LE(at + 5);
  return 0;
}

// Asking is enough while the cell only waits; what computes must be ended first.
function interrupt(number) {
  for (let tries = 0; tries < TRIES && number === handed && Atomics.load(shared, 1) !== number; tries++) {
    parentPort.postMessage({ interrupt: number });
    Atomics.wait(nobody, 0, 0, tries ? NEXT_MS : FIRST_MS);
    if (Atomics.load(shared, 0) === number) {
      session.post('Runtime.terminateExecution');
      Atomics.wait(nobody, 0, 0, FIRST_MS);
    }
  }
}

for (;;) {
  const header = readExactly(HEADER);
  const payload = readExactly(header.readUInt32LE(4));
  if (header[0] === INTERRUPT) {
    interrupt(payload.readUInt32LE(0));
    continue;
  }
  if (header[0] === CELL) handed = numberOf(payload);
  parentPort.postMessage({ type: header[0], payload });
}
