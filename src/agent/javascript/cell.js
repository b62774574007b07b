// SPDX-License-Identifier: Apache-2.0
/*
 * A context: a Node process in a kept guest that runs one cell after the other and keeps its state. Started with its
 * own source as the first frame of descriptor 3, the channel (docs/protocol/driver.md, "Cells"):
 *
 *     SOURCE... -> READY -> CELL -> OUT... SHOW... -> DONE -> CELL ...
 *
 * Cells are evaluated by V8's inspector in its REPL mode: names can be declared again, await works at the top level,
 * and the last expression's value comes back. The session is our own, in this thread.
 *
 * Interrupts need a second thread (cell_control.js): it alone reads the channel, and ends what runs here by the
 * inspector's terminateExecution, which reaches loops in cells, timers and promises alike, and keeps the state. Since
 * that ends *any* code of this thread, the driver's too, nothing here relies on having come to its end: a frame is one
 * write of at most 16 KiB, which the kernel takes whole, streams have no state, and the end of a cell, `finish`, can be
 * done again; the other thread sees to it (`shared`: see there).
 *
 * Everything here is the program's own claim: it runs in the same thread and may send what it likes.
 */
'use strict';
const fs = require('fs');
const inspector = require('inspector');
const util = require('util');
const { EventEmitter } = require('events');
const { Worker } = require('worker_threads');

const CHANNEL = 3;
const HEADER = 8;
const CELL = 2, SYNC = 4;
const READY = 68, OUT = 69, PART = 70, SHOW = 71, DONE = 72, SYNCED = 73;
const FIELD_NUMBER = 1, FIELD_CODE = 2, FIELD_ENV = 4;
const FRAME_MAX = 16384 - HEADER;
const IDLE_MAX = 65536, TEXT_MAX = 65536, LINES_MAX = 2000;
const TAKE = Symbol.for('cordon.take'), IMPORT = Symbol.for('cordon.import');

const { writeSync, readSync } = fs; // the program may replace them
const { stringify } = JSON;
const sources = {};
const shared = new Int32Array(new SharedArrayBuffer(8));
const session = new inspector.Session();
let current = null; // the cell that runs
let last = 0; // number of the one before
let idle = [], idleSize = 0, idleLost = 0;

// --- sending ---

function send(type, ...payload) {
  const size = payload.reduce((sum, part) => sum + part.length, 0), header = Buffer.alloc(HEADER);
  header[0] = type;
  header.writeUInt32LE(size, 4);
  writeSync(CHANNEL, Buffer.concat([header, ...payload]));
}

// JSON in as many frames as it takes; the last one has the type.
function sendObject(type, value) {
  const data = Buffer.from(stringify(value));
  let at = 0;
  for (; data.length - at > FRAME_MAX; at += FRAME_MAX) send(PART, data.subarray(at, at + FRAME_MAX));
  send(type, data.subarray(at));
}

function emitOutput(stream, data) {
  if (!current) keep(stream, data);
  else for (let at = 0; at < data.length; at += FRAME_MAX - 1)
    send(OUT, Buffer.of(stream), data.subarray(at, at + FRAME_MAX - 1));
}

// Nobody reads between cells: what is printed then is kept for the next one.
function keep(stream, data) {
  const room = Math.max(0, IDLE_MAX - idleSize);
  idleLost += Math.max(0, data.length - room);
  if (!room) return;
  idle.push([stream, Buffer.from(data.subarray(0, room))]);
  idleSize += Math.min(data.length, room);
}

function emitKept() {
  const kept = idle, lost = idleLost;
  idle = [];
  idleSize = idleLost = 0;
  for (const [stream, data] of kept) emitOutput(stream, data);
  if (lost) emitOutput(2, Buffer.from(`[${lost} bytes that were printed between cells were dropped]\n`));
}

// process.stdout and process.stderr. Not a Writable: what is ended within one of those never writes again.
class Output extends EventEmitter {
  constructor(fd) {
    super();
    this.fd = fd;
    this.writable = true;
    this.isTTY = false;
    this.setMaxListeners(0); // console leaves one behind when it is ended
  }

  write(chunk, encoding, callback) {
    if (typeof encoding === 'function') callback = encoding;
    emitOutput(this.fd, typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8')
      : Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
    if (callback) process.nextTick(callback, null);
    return true;
  }

  end(chunk, encoding, callback) {
    if (chunk !== undefined && typeof chunk !== 'function') this.write(chunk, encoding);
    const done = [chunk, encoding, callback].find((given) => typeof given === 'function');
    if (done) process.nextTick(done);
    return this;
  }

  cork() {}

  uncork() {}

  getColorDepth() {
    return 1;
  }

  hasColors() {
    return false;
  }
}

function openStreams() {
  const streams = { stdout: new Output(1), stderr: new Output(2) };
  for (const [name, value] of Object.entries(streams))
    Object.defineProperty(process, name, { value, configurable: true, enumerable: true, writable: true });
  globalThis.console = new console.Console({ ...streams, ignoreErrors: true });
}

// --- the cell ---

// What of a cell is no script: imports and exports. Node's own parser finds them.
function withoutImports(code) {
  if (!/\b(?:import|export)\b/.test(code)) return code;
  const acorn = internalModule('internal/deps/acorn/acorn/dist/acorn');
  const walk = internalModule('internal/deps/acorn/acorn-walk/dist/walk');
  if (!acorn || !walk) return code;
  let tree;
  try {
    tree = acorn.parse(code, { ecmaVersion: 'latest', sourceType: 'module', allowAwaitOutsideFunction: true,
      allowHashBang: true });
  } catch {
    return code; // V8 says what is wrong with it
  }
  const changes = [];
  const change = (from, to, text) => changes.push([from, to, text + '\n'.repeat(lines(code, from, to))]);
  const importer = `globalThis[Symbol.for(${stringify(Symbol.keyFor(IMPORT))})]`;
  walk.full(tree, (node) => {
    if (node.type === 'ImportDeclaration') change(node.start, node.end, declaration(node, importer));
    else if (node.type === 'ImportExpression') change(node.start, node.start + 6, importer);
    else if (node.type === 'ExportNamedDeclaration' && node.declaration) change(node.start, node.declaration.start, '');
    else if (node.type === 'ExportNamedDeclaration') change(node.start, node.end, ';');
    else if (node.type === 'ExportDefaultDeclaration') change(node.start, node.declaration.start, '');
  });
  return changes.sort((a, b) => b[0] - a[0])
    .reduce((text, [from, to, by]) => text.slice(0, from) + by + text.slice(to), code);
}

function lines(code, from, to) {
  return code.slice(from, to).split('\n').length - 1;
}

function internalModule(name) {
  const source = process.binding('natives')[name];
  if (!source) return null;
  const module = { exports: {} };
  const find = (wanted) => wanted.endsWith('acorn') ? internalModule('internal/deps/acorn/acorn/dist/acorn') : null;
  Function('exports', 'module', 'require', source)(module.exports, module, find);
  return module.exports;
}

function declaration(node, importer) {
  const names = [], whole = [];
  const text = (found) => found.type === 'Literal' ? stringify(found.value) : found.name;
  for (const found of node.specifiers) {
    if (found.type === 'ImportNamespaceSpecifier') whole.push(found.local.name);
    else names.push(`${found.type === 'ImportDefaultSpecifier' ? 'default' : text(found.imported)}: ${found.local.name}`);
  }
  const call = `await ${importer}(${stringify(node.source.value)})`;
  if (!names.length && !whole.length) return `${call};`;
  const first = whole.length ? `const ${whole[0]} = ${call};` : '';
  return first + (names.length ? `const {${names.join(', ')}} = ${whole[0] || call};` : '');
}

function runCell({ number, code, environment }) {
  const before = environment.map(([name]) => [name, process.env[name]]);
  for (const [name, value] of environment) process.env[name] = value;
  current = { number, code, before, done: null };
  Atomics.store(shared, 0, number);
  emitKept();
  const expression = `${withoutImports(code)}\n//# sourceURL=cell-${number}.js`;
  session.post('Runtime.evaluate', { expression, replMode: true, awaitPromise: true, objectGroup: 'cell' },
    (error, found) => evaluated(number, error, found));
}

function evaluated(number, error, found) {
  if (current?.number !== number) return; // it was ended meanwhile
  if (error || !found) finish(number, interrupted());
  else if (found.exceptionDetails) taken(found.exceptionDetails.exception,
    (thrown) => finish(number, describe(thrown, found.exceptionDetails)));
  else taken(found.result, (value) => settle(number, value));
}

// The value itself, of what the inspector tells about it.
function taken(remote, use) {
  if (!remote) return use(undefined);
  if (!remote.objectId) return use(primitive(remote));
  let value;
  globalThis[TAKE] = (given) => { value = given; };
  session.post('Runtime.callFunctionOn', { arguments: [{ objectId: remote.objectId }], objectId: remote.objectId,
    functionDeclaration: `function (value) { globalThis[Symbol.for(${stringify(Symbol.keyFor(TAKE))})](value); }` });
  delete globalThis[TAKE];
  return use(value);
}

function primitive({ type, value, unserializableValue }) {
  if (unserializableValue === undefined) return type === 'undefined' ? undefined : value;
  return type === 'bigint' ? BigInt(unserializableValue.slice(0, -1)) : Number(unserializableValue);
}

// A promise is waited for, so that what it prints and how it ends belong to the cell.
async function settle(number, value) {
  try {
    const found = util.types.isPromise(value) ? await value : value;
    if (current?.number !== number) return;
    if (found !== undefined) await show(found, true);
    finish(number, null);
  } catch (error) {
    finish(number, describe(error));
  }
}

// The end of a cell; done again by the other thread's wish when it was ended itself.
function finish(number, error) {
  if (current?.number !== number) return;
  current.done ??= { number, ...(error ? { error } : {}) };
  Atomics.store(shared, 0, -number);
  for (const [name, value] of current.before) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  sendObject(DONE, current.done);
  current = null;
  last = number;
  Atomics.store(shared, 1, number);
  Atomics.store(shared, 0, 0);
  session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
}

function interrupted() {
  return { name: 'Interrupted', value: 'the cell was interrupted', traceback: ['Interrupted: the cell was interrupted'] };
}

function describe(error, details) {
  const isError = util.types.isNativeError(error) || error instanceof Error;
  let name = 'Error', value, text;
  try {
    name = isError ? String(error.name) : 'Thrown';
    value = isError ? String(error.message) : util.inspect(error);
    text = isError ? ownStack(String(error.stack ?? `${name}: ${value}`), name, details) : `Thrown: ${value}`;
    if (isError && error.cause !== undefined) text += `\n[cause]: ${util.inspect(error.cause)}`;
  } catch (broken) {
    value ??= `(it can't be shown: ${broken?.name})`;
    text ??= `${name}: ${value}`;
  }
  const all = text.split('\n').slice(0, LINES_MAX).map((line) => line.slice(0, TEXT_MAX));
  return { name, value: value.slice(0, TEXT_MAX), traceback: all };
}

// Without the frames of what evaluates cells; a syntax error has its place instead.
function ownStack(stack, name, details) {
  const all = stack.split('\n'), end = all.findIndex((line) => /^\s+at .*(?:node:inspector|\(?cordon:\d)/.test(line));
  const kept = end < 0 ? all : all.slice(0, end);
  if (name === 'SyntaxError' && details && current && !kept.some((line) => /cell-\d+\.js/.test(line))) {
    const code = current.code.split('\n'), at = Math.min(details.lineNumber, code.length - 1);
    const column = at === details.lineNumber ? details.columnNumber : code[at].length;
    kept.unshift(`cell-${current.number}.js:${at + 1}`, code[at], `${' '.repeat(column)}^`, '');
  }
  return kept.join('\n');
}

// --- showing ---

let shower;

function show(value, main) {
  shower ??= loadShow();
  return shower.show(value, main);
}

function loadShow() {
  const module = { exports: {} };
  Function('module', 'require', 'send', sources.show)(module, require, (shown) => sendObject(SHOW, shown));
  return module.exports;
}

// What a program finds as `display` and, as in other kernels, `$$`.
function makeDisplay() {
  const display = (...values) => values.forEach((value) => { show(value, false); });
  for (const key of ['text', 'html', 'markdown', 'svg', 'png', 'jpeg', 'pdf', 'latex', 'json', 'javascript'])
    display[key] = (data) => { (shower ??= loadShow()).showAs(key, data); };
  display.mime = (bundle) => { (shower ??= loadShow()).showBundle(bundle); };
  return display;
}

// --- from birth to end ---

function readExactly(size) {
  const data = Buffer.alloc(size);
  for (let at = 0; at < size;) {
    const n = readSync(CHANNEL, data, at, size - at);
    if (n === 0) process.kill(process.pid, 'SIGKILL');
    at += n;
  }
  return data;
}

// The other parts, which come before all else; the last one is the other thread's.
function readSources() {
  while (!sources.control) {
    const payload = readExactly(readExactly(HEADER).readUInt32LE(4)), at = payload.indexOf(0);
    sources[payload.toString('utf8', 0, at)] = payload.toString('utf8', at + 1);
  }
}

function readCell(payload) {
  const cell = { number: 0, code: '', environment: [] };
  for (let at = 0; at < payload.length;) {
    const length = payload.readUInt32LE(at + 1), data = payload.subarray(at + 5, at + 5 + length);
    if (payload[at] === FIELD_NUMBER) cell.number = data.readUInt32LE(0);
    else if (payload[at] === FIELD_CODE) cell.code = data.toString();
    else if (payload[at] === FIELD_ENV) cell.environment.push(data.toString().split(/=(.*)/s).slice(0, 2));
    at += 5 + length;
  }
  return cell;
}

function onMessage({ type, payload, interrupt }) {
  if (interrupt) finish(interrupt, interrupted());
  else if (type === CELL) runCell(readCell(Buffer.from(payload)));
  else if (type === SYNC) synced(Buffer.from(payload));
}

function synced(nonce) {
  const number = Buffer.alloc(4);
  number.writeUInt32LE(last);
  send(SYNCED, nonce, number);
}

class ProcessExit extends Error {
  constructor(code) {
    super(String(code));
    this.name = 'ProcessExit';
  }
}

// What nobody catches is told and ends nothing, as in other contexts.
function tell(error) {
  if (error instanceof ProcessExit) return;
  process.stderr.write(`Uncaught ${util.inspect(error)}\n`);
}

function main() {
  readSources();
  openStreams();
  session.connect();
  process.exit = (code = process.exitCode ?? 0) => { throw new ProcessExit(code); };
  process.reallyExit = () => process.kill(process.pid, 'SIGKILL'); // the other thread, in a read, would hold up the exit
  process.on('uncaughtException', tell);
  process.on('unhandledRejection', tell);
  process.on('SIGINT', () => {}); // is for its children
  globalThis.display = globalThis.$$ = makeDisplay();
  Object.defineProperty(globalThis, IMPORT, { value: importer });
  const control = new Worker(sources.control, { eval: true, workerData: shared, execArgv: [] });
  control.on('message', onMessage);
  control.on('error', () => process.kill(process.pid, 'SIGKILL'));
  sendObject(READY, { language: 'javascript', version: process.versions.node, pid: process.pid });
}

main();
