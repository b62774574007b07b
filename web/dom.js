// SPDX-License-Identifier: Apache-2.0
/* Elements and small things that every page needs. Text is always set as text: nothing that a program, a provider or a
 * file name says is ever read as HTML. */

export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'value') element.value = value;
    else if (key === 'checked') element.checked = value;
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...shown(children));
  return element;
}

const shown = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);

/* These instead of what is there. */
export function fill(element, ...children) {
  element.replaceChildren(...shown(children));
}

export function svg(name, attributes) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

export function banner(kind, ...text) {
  return h('div', { class: `banner ${kind}`, role: kind === 'bad' ? 'alert' : null }, ...text);
}

export function note(kind, text) {
  const element = banner(kind, text);
  document.getElementById('notes').append(element);
  setTimeout(() => element.remove(), 6000);
}

export function empty(...text) {
  return h('p', { class: 'empty' }, ...text);
}

/* Below a page's title: what it is for, and what can be done with the whole of it. */
export function intro(main, text, ...controls) {
  main.append(h('div', { class: 'intro' }, h('p', {}, text), controls.length ? h('div', { class: 'tags' }, ...controls) : null));
}

export function tag(text, kind = '') {
  return h('span', { class: `tag ${kind}` }, text);
}

export function isolationTag(isolation) {
  return isolation === 'none' ? tag('no isolation', 'warn') : tag(isolation);
}

/* What may break between lines where there is no room. */
const isLong = (cell) => cell instanceof HTMLElement ? ['DIV', 'P'].includes(cell.tagName) : String(cell ?? '').length > 24;

/* Titles of columns of numbers begin with #. Where it is narrow a row becomes a list of titles and values (style.css). */
export function table(name, titles, rows) {
  return h('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': name }, h('table', {},
    h('thead', {}, h('tr', {}, titles.map((title) => h('th', { scope: 'col', class: title.startsWith('#') ? 'number' : null },
      title.replace('#', ''))))),
    h('tbody', {}, rows.map((cells) => h('tr', {}, cells.map((cell, i) => h('td',
      { class: titles[i].startsWith('#') ? 'number' : isLong(cell) ? 'long' : null, 'data-title': titles[i].replace('#', '') }, cell ?? '')))))));
}

/* active: the one in use, if that is told. */
export function backendTable(backends, active) {
  const state = (row) => row.name === active ? tag('in use', row.able ? 'good' : 'bad') : row.able ? tag('ready', 'good') : tag('not ready');
  const order = (row) => row.name === active ? 0 : row.able ? 1 : 2;
  return table('Backends', ['Backend', 'State', 'Isolation', 'What is lacking'], backends.sort((a, b) => order(a) - order(b))
    .map((row) => [row.name, state(row), isolationTag(row.capabilities.isolation), row.able ? '' : h('div', { class: 'soft' }, row.reason)]));
}

export function button(text, onclick, kind = '') {
  return h('button', { type: 'button', class: kind, onclick: guarded(onclick) }, text);
}

/* While it works it can't be pressed again; what goes wrong is told. */
export function guarded(work) {
  return async (event) => {
    const pressed = event.currentTarget ?? event.target;
    const control = pressed instanceof HTMLFormElement ? pressed.querySelector('button[type=submit]') : pressed;
    const busy = (is) => { control.disabled = is; control.setAttribute('aria-busy', is); };
    const focused = document.activeElement === control;
    event.preventDefault?.();
    busy(true);
    try {
      await work(event);
    } catch (error) {
      note('bad', error.message);
    } finally {
      busy(false);
      if (focused && document.activeElement === document.body) control.focus(); // a disabled one loses it
    }
  };
}

/* Asks, and shows what is answered; of answers that overtake each other only the one that was asked for last. */
export function newest(ask, show) {
  let turn = 0;
  return async () => {
    const mine = ++turn, found = await ask();
    if (mine === turn) show(found);
  };
}

/* A modal dialog: the browser keeps the focus in it, Escape closes it. Gone when it is closed. */
export function openDialog(title, kind, ...content) {
  const heading = h('h2', { id: 'dialog-title' }, title);
  const dialog = h('dialog', { class: kind, 'aria-labelledby': 'dialog-title', onclose: () => dialog.remove() }, heading, ...content);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

export function details(title, ...content) {
  const dialog = openDialog(title, '', ...content, h('div', { class: 'row' }, button('Close', () => dialog.close(), 'second')));
  return dialog;
}

/* Asks before what can't be undone. A promise of true only where `yes` was pressed; the focus begins at the other one. */
export function ask(title, text, yes, no = 'Cancel') {
  return new Promise((resolve) => {
    let answer = false;
    const choose = (is) => () => { answer = is; dialog.close(); };
    const dialog = openDialog(title, 'small', text instanceof Node ? text : h('p', {}, text),
      h('div', { class: 'row' }, h('button', { type: 'button', class: 'second', autofocus: true, onclick: choose(false) }, no),
        h('button', { type: 'button', class: 'danger', onclick: choose(true) }, yes)));
    dialog.addEventListener('close', () => resolve(answer));
  });
}

export function pairs(rows) {
  return h('dl', {}, rows.filter(([, value]) => value !== null && value !== undefined && value !== '')
    .map(([name, value]) => [h('dt', {}, name), h('dd', {}, value instanceof Node ? value : String(value))]));
}

/* A name that may be broken behind its underscores, and nowhere else while there is room. */
export function breakable(name) {
  return h('div', {}, name.split(/(?<=_)/).flatMap((part) => [part, h('wbr')]));
}

/* In the reader's words and zone; the machine's beside it. */
const WORDS = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
export function time(ms) {
  const at = new Date(ms);
  return h('time', { datetime: at.toISOString() }, WORDS.format(at));
}

export const milliseconds = (ms) => ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(1)} ms`;

export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let i = 0;
  while (n >= 1024 && i < 3) { n /= 1024; i++; }
  return `${i ? n.toFixed(1) : n} ${units[i]}`;
}
