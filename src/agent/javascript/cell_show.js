// SPDX-License-Identifier: Apache-2.0
/* A part of cell.js: values in all the forms in which they can be shown. Called with module, require, send. */
'use strict';
const util = require('util');

const TEXT_MAX = 1 << 20, JSON_MAX = 1 << 20, SHOW_MAX = 12 << 20;
const DISPLAY = Symbol.for('Jupyter.display'); // what Deno and others look for
const KEYS = { 'text/plain': 'text', 'text/html': 'html', 'text/markdown': 'markdown', 'image/svg+xml': 'svg',
  'image/png': 'png', 'image/jpeg': 'jpeg', 'application/pdf': 'pdf', 'text/latex': 'latex', 'application/json': 'json',
  'application/javascript': 'javascript', 'e2b/data': 'data', 'e2b/chart': 'chart' };
const BINARY = ['png', 'jpeg', 'pdf'], OBJECTS = ['json', 'data', 'chart'];

function textOf(value) {
  let text;
  try {
    text = util.inspect(value);
  } catch (error) {
    text = `(it can't be shown: ${error?.name})`;
  }
  return text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}… (${text.length} characters in all)` : text;
}

function jsonOf(value) {
  try {
    const text = JSON.stringify(value);
    return text !== undefined && text.length <= JSON_MAX ? text : undefined;
  } catch {
    return undefined;
  }
}

function isPlain(value) {
  if (Array.isArray(value)) return true;
  const above = value !== null && typeof value === 'object' ? Object.getPrototypeOf(value) : undefined;
  return above === Object.prototype || above === null;
}

function add(shown, key, data) {
  if (data === undefined || data === null) return;
  if (ArrayBuffer.isView(data)) {
    const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    data = bytes.toString(BINARY.includes(key) ? 'base64' : 'utf8');
  }
  if (OBJECTS.includes(key) ? jsonOf(data) !== undefined : typeof data === 'string') shown[key] = data;
}

function addBundle(shown, bundle) {
  for (const [mime, data] of Object.entries(bundle ?? {})) {
    if (Object.hasOwn(KEYS, mime)) add(shown, KEYS[mime], data);
    else if (jsonOf(data) !== undefined) (shown.extra ??= {})[mime] = data;
  }
}

// Takes away the largest forms until the rest can be sent, and says so.
function fit(shown) {
  const size = (value) => typeof value === 'string' ? value.length : JSON.stringify(value).length;
  while (Object.values(shown).reduce((sum, value) => sum + size(value), 0) > SHOW_MAX) {
    const largest = Object.keys(shown).reduce((a, b) => size(shown[a]) >= size(shown[b]) ? a : b);
    delete shown[largest];
    (shown.dropped ??= []).push(largest);
  }
  return shown;
}

async function show(value, main) {
  const shown = {};
  const own = value !== null && typeof value === 'object' ? value[DISPLAY] : undefined;
  if (typeof own === 'function') {
    const found = own.call(value);
    addBundle(shown, util.types.isPromise(found) ? await found : found);
  }
  if (isPlain(value) && !shown.json) add(shown, 'json', value);
  shown.text ??= textOf(value);
  send({ ...fit(shown), main });
}

function showAs(key, data) {
  const shown = {};
  add(shown, key, data);
  send({ ...fit(shown), main: false });
}

function showBundle(bundle) {
  const shown = {};
  addBundle(shown, bundle);
  send({ ...fit(shown), main: false });
}

module.exports = { show, showAs, showBundle };
