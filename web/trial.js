// SPDX-License-Identifier: Apache-2.0
/* "Test connection": what happens is told as it comes, then what came of it. One test at a time. */
import { lines } from './api.js';
import { banner, fill, h } from './dom.js';

const STEPS = {
  probing: (name) => `Looking for ${name}`,
  connected: (name) => `${name} is there, and policy lets the test program run`,
  started: () => 'The test program runs',
};

/* Steps with the seconds since the beginning; the program's own lines as they are. */
class Log {
  constructor() {
    this.element = h('pre', { role: 'log', tabindex: 0, 'aria-label': 'Test log' });
    this.began = performance.now();
  }

  step(text) {
    this.element.append(h('span', { class: 'soft' }, `${((performance.now() - this.began) / 1000).toFixed(1)} s  ${text}\n`));
  }

  output(text, kind) {
    this.element.append(h('span', { class: kind }, text));
  }
}

function take(event, log, name) {
  if (STEPS[event.type]) log.step(STEPS[event.type](name));
  else if (event.type === 'stdout') log.output(event.data ?? '[bytes that are no text]\n');
  else if (event.type === 'stderr') log.output(event.data ?? '[bytes that are no text]\n', 'error');
}

/* The log has the output already. */
const verdict = (outcome) => banner(outcome.passed ? 'good' : 'bad', outcome.message.replace(/ \| (Output|Errors): .*/s, ''));

let running = null;

/* Whoever begins another test, or leaves, ends the one before. */
export const endTest = () => running?.abort();

/* provider: { name }. What is wrong with the form is thrown, before anything is shown. */
export async function runTest(provider, path, body, place) {
  endTest();
  const mine = new AbortController(), log = new Log(), head = h('div');
  const cancel = h('div', { class: 'row' }, h('button', { type: 'button', class: 'second', onclick: () => mine.abort() }, 'Cancel test'));
  let outcome = null;
  running = mine;
  fill(head, banner('', `A test program runs on ${provider.name} with the form as it stands; nothing is saved.`));
  fill(place, head, log.element, cancel);
  try {
    await lines(path, body, mine.signal, (event) => {
      if (event.type === 'outcome') outcome = event;
      else take(event, log, provider.name);
    });
    fill(head, outcome ? verdict(outcome) : banner('bad', 'The answer ended before the test did: is cordon serve running?'));
  } catch (error) {
    if (error.name !== 'AbortError') {
      fill(place);
      throw error;
    }
    fill(head, banner('warn', 'Cancelled: the test was ended.'));
  } finally {
    cancel.remove();
    if (running === mine) running = null;
  }
}
