// SPDX-License-Identifier: Apache-2.0
/* A key becomes a session: as the whole page, or over a page whose session is over, which stays as it is. */
import { call, session } from './api.js';
import { guarded, h, openDialog } from './dom.js';

export async function logIn(secret) {
  return Object.assign(session, await call('POST', '/v1/admin/login', secret));
}

/* done: called with a session. */
function form(kind, heading, why, done) {
  const field = h('input', { id: 'key', type: 'password', autocomplete: 'current-password', required: true, spellcheck: 'false',
    autofocus: true, 'aria-describedby': 'wrong' });
  const wrong = h('p', { class: 'error', id: 'wrong', role: 'alert' }, why ?? '');
  const submit = guarded(async () => {
    try {
      await logIn({ key: field.value.trim() });
    } catch (error) {
      wrong.textContent = error.message;
      field.setAttribute('aria-invalid', 'true');
      field.focus();
      return;
    }
    done();
  });
  return h('form', { class: kind, onsubmit: submit }, heading,
    h('p', {}, 'A key of scope admin or view opens this page. ', h('code', {}, 'cordon key create --scope admin'), ' makes one; ',
      h('code', {}, 'cordon key link'), ' makes a link that works once.'),
    h('div', { class: 'field' }, h('label', { for: 'key' }, 'Key'), field, wrong),
    h('div', { class: 'row' }, h('button', { type: 'submit' }, 'Log in')));
}

export function loginPage(main, why, done) {
  main.replaceChildren(form('card login', h('h1', {}, 'Log in'), why, done));
  main.querySelector('#key').focus();
}

/* Many requests may find at once that the session is over: they wait for the same dialog. A promise of whether there is one
 * again; Escape leaves the page as it is, without. */
let waiting = null;
export function loginAgain() {
  if (document.getElementById('key') && !waiting) return Promise.resolve(false);
  waiting ??= new Promise((resolve) => {
    let again = false;
    const dialog = openDialog('The session is over', 'small', h('p', {}, 'Log in again to go on: what is on the page stays as it is.'),
      form('', '', '', () => { again = true; dialog.close(); }));
    dialog.addEventListener('close', () => { waiting = null; resolve(again); });
  });
  return waiting;
}
