// SPDX-License-Identifier: Apache-2.0
/*
 * What RAGFlow's executor manager refuses of JavaScript source, pattern by pattern, in its words. It reads text, so that
 * comments and strings count too. It is no boundary (require('node:fs') passes): it is for those who had it before.
 */
const START = '(?<![\\p{L}\\p{N}_])'; // of a word, as Python has it
const PATTERNS = [
  ['require\\s*\\(\\s*[\'"`]child_process[\'"`]\\s*\\)', 'Require: child_process'],
  ['require\\s*\\(\\s*[\'"`]fs[\'"`]\\s*\\)', 'Require: fs'],
  ['require\\s*\\(\\s*[\'"`]worker_threads[\'"`]\\s*\\)', 'Require: worker_threads'],
  [`${START}eval\\s*\\(`, 'Call: eval'],
  [`${START}Function\\s*\\(`, 'Call: Function'],
  [`${START}process\\s*\\.\\s*binding\\s*\\(`, 'Call: process.binding'],
];

function lineOf(source, at, from) {
  let line = from.line;
  for (let next = source.indexOf('\n', from.at); next >= 0 && next < at; next = source.indexOf('\n', next + 1)) line++;
  return { at, line };
}

function main({ source }) {
  const found = [];
  for (const [pattern, message] of PATTERNS) {
    let place = { at: 0, line: 1 };
    for (const match of source.matchAll(new RegExp(pattern, 'gu'))) {
      place = lineOf(source, match.index, place);
      found.push(`Line ${place.line}: ${message}`);
    }
  }
  return found;
}
