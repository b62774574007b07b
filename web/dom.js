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
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
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

export function empty(text) {
  return h('p', { class: 'empty' }, text);
}

export function tag(text, kind = '') {
  return h('span', { class: `tag ${kind}` }, text);
}

/* What may break between lines where there is no room. */
const isLong = (cell) => cell instanceof HTMLElement ? ['DIV', 'P'].includes(cell.tagName) : String(cell ?? '').length > 24;

/* Titles of columns of numbers begin with #. Where it is narrow a row becomes a list of titles and values (style.css). */
export function table(titles, rows) {
  return h('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Table' }, h('table', {},
    h('thead', {}, h('tr', {}, titles.map((title) => h('th', { scope: 'col', class: title.startsWith('#') ? 'number' : null },
      title.replace('#', ''))))),
    h('tbody', {}, rows.map((cells) => h('tr', {}, cells.map((cell, i) => h('td',
      { class: titles[i].startsWith('#') ? 'number' : isLong(cell) ? 'long' : null, 'data-title': titles[i].replace('#', '') }, cell ?? '')))))));
}

export function button(text, onclick, kind = '') {
  return h('button', { type: 'button', class: kind, onclick: guarded(onclick) }, text);
}

/* While it works it can't be pressed again; what goes wrong is told. */
export function guarded(work) {
  return async (event) => {
    const pressed = event.currentTarget ?? event.target;
    const control = pressed instanceof HTMLFormElement ? pressed.querySelector('button[type=submit]') : pressed;
    event.preventDefault?.();
    if (control) control.disabled = true;
    try {
      await work(event);
    } catch (error) {
      note('bad', error.message);
    } finally {
      if (control) control.disabled = false;
    }
  };
}

export function details(title, ...content) {
  const dialog = h('dialog', { 'aria-label': title, onclose: () => dialog.remove() }, h('h2', {}, title), ...content,
    h('div', { class: 'row' }, button('Close', () => dialog.close(), 'second')));
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

export function pairs(rows) {
  return h('dl', {}, rows.filter(([, value]) => value !== null && value !== undefined && value !== '')
    .map(([name, value]) => [h('dt', {}, name), h('dd', {}, value instanceof Node ? value : String(value))]));
}

export const time = (ms) => new Date(ms).toLocaleString();
export const milliseconds = (ms) => ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(1)} ms`;

export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let i = 0;
  while (n >= 1024 && i < 3) { n /= 1024; i++; }
  return `${i ? n.toFixed(1) : n} ${units[i]}`;
}
