// SPDX-License-Identifier: Apache-2.0
/*
 * Runs one program in a Node process that is already inside its guest and has already become the code. The agent
 * starts it as `node FLAGS driver.js`; descriptor 3 is the driver channel, 4 the ready pipe (docs/protocol/driver.md):
 *
 *     rehearse -> close 4 -> read the JOB -> run the program -> RESULT -> EXIT -> exit
 *
 * What the program's user waits for is only what comes after the JOB, so what Node loads lazily (streams, console,
 * compiling, errors) is used once before. The program runs as Node's own main module would: it is started by a bound
 * function of Node itself, so that no frame of this file is in its stack, and what it does not catch is reported by
 * Node. The end is told on the channel as soon as the 'exit' handlers ran, since Node takes milliseconds to go.
 *
 * Of a fatal error and of signals nothing is told here: the agent has the exit status.
 */
'use strict';
const fs = require('fs');
const Module = require('module');
const { pathToFileURL } = require('url');

const DRIVER_FD = 3;
const READY_FD = 4;
const HEADER = 8;
const RESEED = 2;
const RESULT = 64, RESULT_ERROR = 65, EXIT = 67;
const FIELD_CODE = 2, FIELD_ARGUMENTS = 3, FIELD_ENV = 4, FIELD_CWD = 5, FIELD_LIMITS = 6;
const LIMITS_MEMORY = 16, LIMITS_CPU_PERCENT = 72;
const RESULT_MAX = 16 << 20;
const TEXT_MAX = 65536;
const CLAIMED = 0o600, READABLE = 0o644; // modes of the program's file, before and after it has the program
const UNSETTLED = 13; // Node's own status for a top-level await that nothing ends
const LOADED_EVENT = 'cordon:loaded';
const THREAD_VARIABLES = ['OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS', 'GOMAXPROCS',
  'RAYON_NUM_THREADS'];

// The program may replace any of these.
const { writeSync, readSync, closeSync, fstatSync, fchmodSync, openSync, truncateSync, unlinkSync,
  writeFileSync } = fs;
const { stringify, parse } = JSON;
const emit = process.emit;
const home = process.cwd();
let reallyExit = process.reallyExit.bind(process);
let put = writeSync; // what a frame is written with. Neither has an effect in a rehearsal.
let channel;
let claimed = -1; // the descriptor of main.js
let told = false;
let evaluating = false; // an ES module's body, which may wait for ever

// --- the channel ---

function readExactly(size) {
  const data = Buffer.allocUnsafe(size);
  for (let at = 0; at < size;) {
    const n = readSync(DRIVER_FD, data, at, size - at, null);
    if (n === 0) reallyExit(0); // the agent is gone, so is the guest
    at += n;
  }
  return data;
}

function readJob() {
  let header = readExactly(HEADER);
  while (header[0] === RESEED) {
    reseed();
    header = readExactly(HEADER);
  }
  return parseJob(readExactly(header.readUInt32LE(4)));
}

// A virtual machine was copied while this waited. Math.random() takes its seed when it is first called, which nobody did
// yet; OpenSSL takes a new one of the kernel since the clock moved on by years (agent/vm.h).
function reseed() {
  const random = openSync('/dev/urandom', 'r'), seed = Buffer.alloc(4);
  readSync(random, seed, 0, seed.length, null);
  closeSync(random);
  require('v8').setFlagsFromString(`--random-seed=${(seed.readUInt32LE(0) >>> 1) || 1}`);
}

function parseJob(payload) {
  const job = { code: '', bytes: Buffer.alloc(0), arguments: undefined, env: [], cwd: undefined, cpus: 0, memory: 0 };
  for (let at = 0; at < payload.length;) {
    const length = payload.readUInt32LE(at + 1);
    readField(job, payload[at], payload.subarray(at + 5, at + 5 + length));
    at += 5 + length;
  }
  return job;
}

function readField(job, tag, data) {
  if (tag === FIELD_CODE) {
    job.bytes = data;
    job.code = data.toString().replace(/^\uFEFF/, '');
  } else if (tag === FIELD_ARGUMENTS) job.arguments = data.toString();
  else if (tag === FIELD_ENV) job.env.push(data.toString());
  else if (tag === FIELD_CWD) job.cwd = data.toString();
  else if (tag === FIELD_LIMITS) {
    job.memory = Number(data.readBigUInt64LE(LIMITS_MEMORY));
    job.cpus = Math.ceil(data.readUInt32LE(LIMITS_CPU_PERCENT) / 100);
  }
}

function channelIdentity() {
  const found = fstatSync(DRIVER_FD);
  return `${found.dev}:${found.ino}`;
}

// A frame, if the program left the channel alone. Else the agent still has the exit status.
function send(type, payload) {
  try {
    if (channelIdentity() !== channel) return;
    const frame = makeFrame(type, payload);
    for (let at = 0; at < frame.length;) at += put(DRIVER_FD, frame, at);
  } catch {
    // as above
  }
}

function makeFrame(type, payload) {
  const header = Buffer.alloc(HEADER);
  header[0] = type;
  header.writeUInt32LE(payload.length, 4);
  return Buffer.concat([header, payload]);
}

function exitPayload(code) {
  const payload = Buffer.alloc(4);
  payload.writeInt32LE(code & 0xff);
  return payload;
}

function tellExit(code) {
  if (told) return;
  told = true;
  send(EXIT, exitPayload(code));
}

// --- before the job ---

const REHEARSAL = `
  // await import export: these words make the driver look closer
  class Thing { constructor(name) { this.name = name; } toString() { return 'thing ' + this.name; } }
  module.exports = function main({ values, ...rest }) {
    const things = values.filter((v) => v % 2 === 0).map((v) => new Thing(v));
    const found = new Map(things.map((t) => [t.name, String(t)]));
    return { things: [...found.keys()].sort((a, b) => b - a), text: \`\${things}\`.split(','), ...rest };
  };
  try { null.x } catch (error) { module.exports.stack = error.stack; }
`;

const REHEARSED_ARGUMENTS = '{"values": [1, 2, 3, 4], "rest": [1.5, null, "x"]}';
const HANDLE_WRITES = ['writeBuffer', 'writev', 'writeUtf8String', 'writeLatin1String', 'writeAsciiString'];

// Does what a run does, without its effects: output and frames end before they are written. What is not used here is
// compiled when the program's user waits, 50 to 100 microseconds for each function.
async function rehearse() {
  put = (descriptor, frame, at) => writeSync(descriptor, frame, at, 0) + frame.length - at;
  const exit = reallyExit;
  reallyExit = () => undefined;
  process.chdir(process.cwd());
  for (const values of [undefined, REHEARSED_ARGUMENTS]) {
    claimFile();
    run(rehearsedJob(values));
    await turns(3); // the program, its main, what main returned
    removeFile(`${home}/main.js`);
  }
  for (const stream of [process.stdout, process.stderr]) rehearseOutput(stream);
  await turns(1);
  process.emit('cordon:rehearsed');
  leave(0);
  reallyExit = exit;
  put = writeSync;
  told = false;
  process.removeAllListeners('beforeExit');
  delete Module._cache[process.mainModule.filename];
}

// The first only loads what is loaded lazily. What is compiled meanwhile becomes machine code at once, by V8's baseline
// compiler: the run itself is too short for V8 to find out that this would pay.
async function rehearseAll() {
  const { setFlagsFromString } = require('v8');
  setFlagsFromString('--always-sparkplug');
  for (let times = 0; times < 3; times++) await rehearse();
  setFlagsFromString('--no-always-sparkplug');
}

function rehearsedJob(values) {
  const fields = [[FIELD_CODE, REHEARSAL], [FIELD_ENV, 'REHEARSED=1']];
  if (values !== undefined) fields.push([FIELD_ARGUMENTS, values]);
  return parseJob(Buffer.concat(fields.map(([tag, text]) => {
    const head = Buffer.alloc(5);
    head[0] = tag;
    head.writeUInt32LE(Buffer.byteLength(text), 1);
    return Buffer.concat([head, Buffer.from(text)]);
  })));
}

async function turns(count) {
  while (count-- > 0) await new Promise((resolve) => { setImmediate(() => process.nextTick(resolve)); });
}

// Else what a full pipe could not take yet would be lost in process.exit().
function prepareOutput(stream) {
  stream._handle?.setBlocking?.(true);
}

function rehearseOutput(stream) {
  const handle = stream._handle, log = stream === process.stdout ? console.log : console.error;
  stream.write('');
  if (handle) for (const name of HANDLE_WRITES) handle[name] = () => 0;
  else stream.write = () => true;
  log('value %s of %d', 'x', 1, [1, 2], new Map([[1, { a: 'b' }]]), new Error('rehearsed'));
  log(1);
  if (handle) for (const name of HANDLE_WRITES) delete handle[name];
  else delete stream.write;
}

function makeModule(cwd, code) {
  const filename = `${cwd === '/' ? '' : cwd}/main.js`;
  const module = new Module('.', null);
  module.filename = filename;
  module.paths = Module._nodeModulePaths(cwd);
  return { module, start: module._compile.bind(module, code, filename), filename };
}

// --- the program ---

function hostCpus() {
  const os = require('os');
  return os.availableParallelism?.() || os.cpus().length || 1;
}

function applyEnvironment(job) {
  const cpus = String(job.cpus || hostCpus()), places = process.env.NODE_PATH;
  const environment = { HOME: home, PATH: '/usr/local/bin:/usr/bin:/bin', LANG: 'C.UTF-8', TMPDIR: '/tmp' };
  if (places) environment.NODE_PATH = places; // isolate/root.h
  for (const name of THREAD_VARIABLES) environment[name] = cpus;
  for (const entry of job.env) {
    const at = entry.indexOf('=');
    environment[entry.slice(0, at)] = entry.slice(at + 1);
  }
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, environment);
  if (environment.NODE_PATH !== places) Module._initPaths(); // the run's own
}

// The end of the program as Node tells it: 'exit' was emitted and its handlers ran. After an error that nobody
// caught Node still has to print it, so that end is left to Node.
function watchEnd() {
  let fatal = false, dry = false;
  const watchedEmit = function (event, ...values) {
    if (event === 'uncaughtExceptionMonitor') fatal = true;
    if (event === 'beforeExit') dry = true;
    if (event === 'exit' && dry && evaluating) process.exitCode ??= UNSETTLED;
    const handled = Reflect.apply(emit, this, [event, ...values]);
    if (event === 'uncaughtException' && handled) fatal = false;
    if (event === 'exit' && this === process && !fatal) leave(process.exitCode ?? values[0] ?? 0);
    return handled;
  };
  Object.defineProperty(process, 'emit', { value: watchedEmit, writable: true, configurable: true });
  process.reallyExit = leave;
}

function leave(code) {
  tellExit(Number(code) || 0);
  reallyExit(code);
}

// What V8 says of programs that are right as ES modules only. (The last three Node counts among them too.)
const MODULE_ONLY = new RegExp(["import statement outside", "'import\\.meta' outside", "Unexpected token 'export'",
  'await is only valid', 'Unexpected reserved word',
  "Identifier '(?:module|exports|require|__filename|__dirname)' has already been declared"].join('|'));

const PARAMETERS = ['exports', 'require', 'module', '__filename', '__dirname'];

function isModuleSyntax(code, filename) {
  if (!/\b(?:import|export|await)\b/.test(code)) return false;
  try {
    require('vm').compileFunction(code, PARAMETERS, { filename });
    return false;
  } catch (error) {
    return MODULE_ONLY.test(error.message) || isRightAsAsync(code);
  }
}

// What V8 says of `f(await x)` names no await; Node, too, tries again with an async function.
function isRightAsAsync(code) {
  try {
    new (require('vm').Script)(`(async function (${PARAMETERS}) {${code.replace(/^#!.*/, '')}\n})`);
    return true;
  } catch {
    return false;
  }
}

// Makes the file that __filename will name, while parking: the working directory shows no change by us later.
function claimFile() {
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = fs.constants;
  try {
    claimed = openSync(`${home}/main.js`, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, CLAIMED);
    fchmodSync(claimed, CLAIMED); // rehearsed
  } catch {
    // the program runs without
  }
}

// The program, for what reads it by its name: workers, forks. Null: it gets another name. What was put stays.
function writeFile(bytes) {
  if (claimed < 0) return;
  const found = fstatSync(claimed);
  if (found.size === 0 && (found.mode & 0o777) === CLAIMED) fillFile(bytes);
  closeSync(claimed);
}

function fillFile(bytes) {
  try {
    if (bytes === null || writeSync(claimed, bytes) < bytes.length) unlinkSync(`${home}/main.js`);
    fchmodSync(claimed, READABLE);
  } catch { // as when no space is left: half a program is worse than none
    removeFile(`${home}/main.js`);
  }
}

function removeFile(filename) {
  try {
    unlinkSync(filename);
  } catch {
    // it was removed
  }
}

function runCommonJs(job, cwd) {
  writeFile(cwd === home ? job.bytes : null);
  const epilogue = job.arguments === undefined ? '' : '\n;typeof main === "function" && (module.main = main);';
  const { module, start, filename } = makeModule(cwd, job.code + epilogue);
  process.mainModule = module;
  Module._cache[filename] = module;
  setImmediate(start);
  setImmediate(() => {
    module.loaded = true;
    callMain(job, () => [module.exports, module.exports?.main, module.exports?.default, module.main]);
  });
}

// The only way to Node's own loader is a file. Its last import, which is evaluated before its body, tells that it was
// read: then only the program is left in it, or, when it could not be the file main.mjs, it is removed.
function runModule(job, cwd) {
  const last = `\nimport "data:text/javascript,process.emit('${LOADED_EVENT}')";\n`;
  writeFile(null);
  const { filename, tidy } = placeModule(cwd, job.bytes, last);
  process.once(LOADED_EVENT, tidy);
  process.argv[1] = filename;
  const loaded = import(pathToFileURL(filename));
  evaluating = true;
  loaded.finally(() => {
    evaluating = false;
    tidy();
  });
  if (job.arguments !== undefined) loaded.then((found) => callMain(job, () => [found.default, found.main]));
}

function placeModule(cwd, bytes, last) {
  const own = `${cwd}/main.mjs`, source = Buffer.concat([bytes, Buffer.from(last)]);
  let error;
  for (const filename of [own, `${cwd}/main-${process.pid}.mjs`, `/tmp/main-${process.pid}.mjs`]) {
    try {
      writeFileSync(filename, source, { flag: 'wx' });
      return { filename, tidy: once(() => filename === own ? truncateSync(own, bytes.length) : removeFile(filename)) };
    } catch (found) {
      error = found;
    }
  }
  throw error;
}

// Of what it fails on nothing is to be told: the program may have removed its file.
function once(call) {
  let called = false;
  return () => {
    if (called) return;
    called = true;
    try {
      call();
    } catch {
      // as above
    }
  };
}

// --- main and its result ---

function refuse(why) {
  send(RESULT_ERROR, Buffer.from(why).subarray(0, TEXT_MAX));
  process.stderr.write(`${why}\n`);
  process.exitCode = 1;
}

function callMain(job, candidates) {
  if (job.arguments === undefined) return;
  let values;
  try {
    values = parse(job.arguments);
  } catch (error) {
    refuse(`the arguments are not JSON: ${error.message}`);
    return;
  }
  if (values === null || typeof values !== 'object' || Array.isArray(values)) {
    refuse('the arguments must be a JSON object');
    return;
  }
  const main = candidates().find((found) => typeof found === 'function');
  if (!main) {
    refuse('the program defines no function main(), which arguments are for');
    return;
  }
  awaitMain(main, values);
}

// As a reaction of a promise, so that no frame of this file is below main's, and what it throws is reported by Node.
function awaitMain(main, values) {
  let returned = false;
  process.once('beforeExit', () => returned || refuse('the program ended before main() returned'));
  Promise.resolve(values).then(main).then((value) => {
    returned = true;
    sendResult(value);
  });
}

function sendResult(value) {
  if (value === undefined) {
    refuse('main() must return a value. Use null for an empty result.');
    return;
  }
  let text;
  try {
    text = stringify(value);
  } catch (error) {
    refuse(`main() returned a value that is not JSON: ${error.name}: ${error.message}`);
    return;
  }
  if (text === undefined) {
    refuse(`main() returned a value that is not JSON: ${typeof value}`);
    return;
  }
  const payload = Buffer.from(text);
  if (payload.length <= RESULT_MAX) send(RESULT, payload);
  else refuse(`main() returned a value of ${payload.length} bytes as JSON, more than ${RESULT_MAX}`);
}

// --- from birth to end ---

async function park() {
  channel = channelIdentity();
  for (const stream of [process.stdout, process.stderr]) prepareOutput(stream);
  // Where a run waits already, a rehearsal takes as long as it spares.
  if (process.argv[2] !== 'awaited') await rehearseAll();
  claimFile();
  writeSync(READY_FD, '1');
  closeSync(READY_FD);
  return readJob();
}

function run(job) {
  if (job.cwd) process.chdir(job.cwd);
  const cwd = process.cwd();
  applyEnvironment(job);
  process.argv = [process.execPath, `${cwd}/main.js`];
  delete Module._cache[__filename];
  watchEnd();
  if (isModuleSyntax(job.code, `${cwd}/main.js`)) runModule(job, cwd);
  else runCommonJs(job, cwd);
}

park().then(run);
