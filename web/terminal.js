// SPDX-License-Identifier: Apache-2.0
/* A terminal of a kept guest: the view of a screen (vt.js), and what is typed. Loaded when one is opened. */
import { call, lines } from './api.js';
import { banner, button, h } from './dom.js';
import { Screen } from './vt.js';

const KEPT_ROWS = 1000, FRAME_BYTES = 200000, SENT_AT_ONCE = 16000;
const KEYS = { Enter: '\r', Backspace: '\x7f', Tab: '\t', Escape: '\x1b', Insert: '\x1b[2~', Delete: '\x1b[3~', PageUp: '\x1b[5~', PageDown: '\x1b[6~',
  F1: '\x1bOP', F2: '\x1bOQ', F3: '\x1bOR', F4: '\x1bOS', F5: '\x1b[15~', F6: '\x1b[17~', F7: '\x1b[18~', F8: '\x1b[19~', F9: '\x1b[20~', F10: '\x1b[21~',
  F11: '\x1b[23~', F12: '\x1b[24~' };
const CURSOR_KEYS = { ArrowUp: 'A', ArrowDown: 'B', ArrowRight: 'C', ArrowLeft: 'D', Home: 'H', End: 'F' };

const toBase64 = (text) => btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(''));
const fromBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

/* What a key says to the program; null: nothing, or the browser's. */
export function keyText(event, screen) {
  if (event.metaKey || (event.shiftKey && event.key === 'Tab')) return null;
  if (event.ctrlKey && event.shiftKey) return null; // copy and paste
  const alt = event.altKey ? '\x1b' : '';
  if (CURSOR_KEYS[event.key]) return `${alt}\x1b${screen.cursorKeys ? 'O' : '['}${CURSOR_KEYS[event.key]}`;
  if (KEYS[event.key]) return alt + KEYS[event.key];
  if (event.ctrlKey && event.key.length === 1) {
    const code = event.key === ' ' ? 64 : event.key.toUpperCase().charCodeAt(0);
    return code >= 64 && code <= 95 ? alt + String.fromCharCode(code & 31) : null;
  }
  return alt && event.key.length === 1 ? alt + event.key : null; // plain text comes as input
}

/* --- the view --- */

function colour(element, name, value) {
  if (typeof value === 'number') element.classList.add(`${name}${value}`);
  else if (value) element.style[name === 'f' ? 'color' : 'backgroundColor'] = value;
}

function span(text, style, isCursor) {
  const element = h('span', {}, text);
  const [front, back] = style.inverse ? [style.bg, style.fg] : [style.fg, style.bg];
  colour(element, 'f', front);
  colour(element, 'b', back);
  for (const flag of ['bold', 'dim', 'italic', 'underline', 'strike']) if (style[flag]) element.classList.add(flag);
  if (style.inverse) element.classList.add('inverse');
  if (isCursor) element.classList.add('cursor');
  return element;
}

const same = (a, b) => a === b || Object.keys(a).every((name) => a[name] === b[name]);
const isPlain = (style) => Object.values(style).every((value) => value === null || value === false);

/* Cells that look alike are one element, plain ones none at all. */
function fillRow(element, cells, cursorAt) {
  const parts = [];
  let end = cells.length;
  while (end > cursorAt + 1 && cells[end - 1].text === ' ' && isPlain(cells[end - 1].style)) end--;
  for (let x = 0; x < end;) {
    const { style } = cells[x], isCursor = x === cursorAt;
    let text = cells[x++].text;
    while (!isCursor && x < end && x !== cursorAt && same(cells[x].style, style)) text += cells[x++].text;
    parts.push(isPlain(style) && !isCursor ? text : span(text, style, isCursor));
  }
  element.replaceChildren(...parts);
}

class View {
  constructor(screen) {
    this.screen = screen;
    this.past = h('div');
    this.now = h('div');
    this.input = h('textarea', { class: 'typing', 'aria-label': 'Terminal: what is typed goes to the guest; Shift+Tab leaves it', autocomplete: 'off',
      autocapitalize: 'off', spellcheck: 'false', rows: 1 });
    this.probe = h('span', { class: 'probe', 'aria-hidden': 'true' }, 'M'.repeat(20));
    this.element = h('div', { class: 'screen', onclick: () => { if (!String(document.getSelection())) this.input.focus(); } },
      this.probe, this.past, this.now, this.input);
    this.planned = false;
  }

  /* How many cells have room. */
  size() {
    const cell = this.probe.getBoundingClientRect(), style = getComputedStyle(this.element);
    const width = this.element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return [Math.max(10, Math.min(400, Math.floor(width / (cell.width / 20)))), Math.max(5, Math.min(100, Math.floor(this.element.clientHeight / cell.height) - 1))];
  }

  plan() {
    if (this.planned) return;
    this.planned = true;
    requestAnimationFrame(() => this.draw());
  }

  draw() {
    const { screen, element } = this, atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
    this.planned = false;
    for (const cells of screen.history.splice(0)) {
      const row = h('div');
      fillRow(row, cells, -1);
      this.past.append(row);
    }
    while (this.past.childElementCount > KEPT_ROWS) this.past.firstChild.remove();
    while (this.now.childElementCount < screen.rows) this.now.append(h('div'));
    while (this.now.childElementCount > screen.rows) this.now.lastChild.remove();
    for (const y of screen.dirty) {
      if (y < screen.rows) fillRow(this.now.children[y], screen.cells[y], y === screen.y && screen.cursorShown ? screen.x : -1);
    }
    screen.dirty.clear();
    if (atEnd) element.scrollTop = element.scrollHeight;
  }
}

/* --- to the guest --- */

/* As much as goes at once, and no half of a character. */
function head(text) {
  const cut = /[\ud800-\udbff]$/.test(text.slice(0, SENT_AT_ONCE)) ? SENT_AT_ONCE + 1 : SENT_AT_ONCE;
  return text.slice(0, cut);
}

/* One request after the other, so that what is typed comes in its order. */
class Sender {
  constructor(failed) {
    Object.assign(this, { path: null, text: '', size: null, busy: false, failed });
  }

  type(text) {
    this.text += text;
    this.go();
  }

  resize(cols, rows) {
    this.size = { cols, rows };
    this.go();
  }

  async go() {
    if (this.busy || !this.path) return;
    this.busy = true;
    try {
      while (this.path && (this.size || this.text)) {
        const { size } = this, text = size ? '' : head(this.text);
        if (size) this.size = null;
        else this.text = this.text.slice(text.length);
        await call('POST', `${this.path}/${size ? 'resize' : 'input'}`, size ?? { data_b64: toBase64(text) });
      }
    } catch (error) {
      this.failed(error);
    } finally {
      this.busy = false;
    }
  }
}

/* A promise where the browser needs time to show what came. */
function take(event, terminal) {
  if (event.type === 'started') {
    terminal.sender.path = `/v1/guests/${terminal.guest.id}/exec/${event.pid}`;
    terminal.sender.go();
  } else if (event.type === 'output') {
    const bytes = fromBase64(event.data_b64);
    terminal.screen.write(terminal.decoder.decode(bytes, { stream: true }));
    terminal.view.plan();
    terminal.unseen += bytes.length;
    if (terminal.unseen > FRAME_BYTES) {
      terminal.unseen = 0;
      return new Promise((resolve) => { requestAnimationFrame(resolve); });
    }
  } else if (event.type === 'exit') {
    terminal.tell(banner('', event.message || `The shell ended with exit code ${event.exit_code}.`));
  } else if (event.type === 'error') {
    terminal.tell(banner('bad', event.error.message));
  }
  return undefined;
}

function paste(event, terminal) {
  const text = event.clipboardData.getData('text/plain').replace(/\r?\n/g, '\r');
  event.preventDefault(); // what is pasted must not end its own brackets
  terminal.sender.type(terminal.screen.bracketed ? `\x1b[200~${text.replaceAll('\x1b', '')}\x1b[201~` : text);
}

function listen(view, terminal) {
  const { input } = view;
  input.addEventListener('keydown', (event) => {
    if (event.isComposing || (event.ctrlKey && event.key === 'c' && String(document.getSelection()))) return;
    const text = keyText(event, terminal.screen);
    if (text === null) return;
    event.preventDefault();
    terminal.sender.type(text);
  });
  input.addEventListener('input', (event) => {
    if (event.isComposing) return;
    terminal.sender.type(input.value.replace(/\n/g, '\r'));
    input.value = '';
  });
  input.addEventListener('compositionend', () => {
    terminal.sender.type(input.value);
    input.value = '';
  });
  input.addEventListener('paste', (event) => paste(event, terminal));
}

/* Shows a terminal in place; what it returns ends it. */
export function openTerminal(guest, place) {
  const notes = h('div', { 'aria-live': 'polite' }), abort = new AbortController();
  const terminal = { guest, unseen: 0, decoder: new TextDecoder(), tell: (text) => notes.replaceChildren(text) };
  terminal.sender = new Sender((error) => terminal.tell(banner('bad', error.message)));
  terminal.screen = new Screen(80, 24, (text) => terminal.sender.type(text));
  const view = terminal.view = new View(terminal.screen);
  const name = guest.name ?? guest.id;
  let observer = null;
  const end = () => {
    observer?.disconnect();
    terminal.sender.path = null;
    abort.abort();
    place.replaceChildren();
  };
  place.replaceChildren(h('section', { class: 'card terminal', 'aria-label': `Terminal of ${name}` }, h('h2', { class: 'first' }, `Terminal of ${name}`), view.element, notes,
    h('div', { class: 'row' }, button('Close the terminal', end, 'second'),
      h('span', { class: 'soft' }, 'Shift+Tab leaves it. Its programs end when it is closed.'))));
  listen(view, terminal);
  terminal.screen.resize(...view.size());
  observer = new ResizeObserver(() => {
    const [cols, rows] = view.size();
    if (cols === terminal.screen.cols && rows === terminal.screen.rows) return;
    terminal.screen.resize(cols, rows);
    terminal.sender.resize(cols, rows);
    view.plan();
  });
  observer.observe(view.element);
  place.firstChild.scrollIntoView();
  view.input.focus({ preventScroll: true });
  view.draw();
  lines(`/v1/guests/${guest.id}/terminal`, { cols: terminal.screen.cols, rows: terminal.screen.rows }, abort.signal, (event) => take(event, terminal))
    .catch((error) => { if (error.name !== 'AbortError') terminal.tell(banner('bad', error.message)); })
    .finally(() => { terminal.sender.path = null; });
  return end;
}
