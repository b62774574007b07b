// SPDX-License-Identifier: Apache-2.0
// Calls main() of main.js (main.mjs) in the working directory: call.js ARGUMENTS RESULT. See call.py.
'use strict';
const fs = require('fs');
const Module = require('module');
const path = require('path');
const { pathToFileURL } = require('url');

const [argumentsPath, resultPath] = process.argv.slice(2, 4);
const here = process.cwd();
const { writeFileSync } = fs;
const { stringify, parse } = JSON;
const RESULT_MAX = 16 << 20;

function refuse(why) {
  writeFileSync(`${resultPath}.error`, why);
  process.stderr.write(`${why}\n`);
  process.exitCode = 1;
}

async function load() {
  const esm = path.join(here, 'main.mjs');
  if (fs.existsSync(esm)) {
    const found = await import(pathToFileURL(esm));
    return [found.default, found.main];
  }
  const filename = path.join(here, 'main.js');
  const module = new Module('.', null);
  module.filename = filename;
  module.paths = Module._nodeModulePaths(here);
  process.mainModule = module;
  Module._cache[filename] = module;
  module._compile(`${fs.readFileSync(filename, 'utf8')}\n;typeof main === "function" && (module.main = main);`, filename);
  module.loaded = true;
  return [module.exports, module.exports?.main, module.exports?.default, module.main];
}

async function start() {
  const values = parse(fs.readFileSync(argumentsPath, 'utf8'));
  process.argv = [process.execPath, path.join(here, 'main.js')];
  const main = (await load()).find((found) => typeof found === 'function');
  if (!main) return refuse('the program defines no function main(), which arguments are for');
  let returned = false;
  process.once('beforeExit', () => returned || refuse('the program ended before main() returned'));
  const value = await main(values);
  returned = true;
  if (value === undefined) return refuse('main() must return a value. Use null for an empty result.');
  let text;
  try {
    text = stringify(value);
  } catch (error) {
    return refuse(`main() returned a value that is not JSON: ${error.name}: ${error.message}`);
  }
  if (text === undefined) return refuse(`main() returned a value that is not JSON: ${typeof value}`);
  if (Buffer.byteLength(text) > RESULT_MAX)
    return refuse(`main() returned a value of ${Buffer.byteLength(text)} bytes as JSON, more than ${RESULT_MAX}`);
  return writeFileSync(resultPath, text);
}

start().catch((error) => {
  writeFileSync(`${resultPath}.error`, `the program ended by ${error?.name ?? typeof error} before main() returned`);
  console.error(error);
  process.exitCode = 1;
});
