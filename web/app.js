// SPDX-License-Identifier: Apache-2.0
/* Login, the menu, and which page is shown. A page is a function that gets its place and may return what ends it. */
import { call, get, onSessionLost, session } from './api.js';
import { banner, guarded, h, note } from './dom.js';
import { providers } from './providers.js';
import { console_ } from './console.js';
import { doctor, quotas, templates } from './host.js';
import { live } from './live.js';
import { audit, guests, history, keys } from './records.js';
import { settings } from './settings.js';
import { verify } from './verify.js';

const pages = {
  providers: ['Sandbox', providers], console: ['Try it', console_], live: ['Live', live], history: ['History', history],
  guests: ['Guests', guests], templates: ['Templates', templates], verify: ['Verify', verify], doctor: ['Doctor', doctor],
  settings: ['Settings', settings], keys: ['Keys', keys], quotas: ['Quotas', quotas], audit: ['Audit', audit],
};
const header = document.querySelector('header'), main = document.getElementById('main');
let end = null;

async function show() {
  const name = location.hash.slice(1).split('?')[0];
  const [title, page] = pages[name] ?? pages.providers;
  end?.();
  end = null;
  for (const link of header.querySelectorAll('nav a')) {
    if (link.textContent === title) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = `${title} - Cordon`;
  main.replaceChildren(h('h1', {}, title));
  main.removeAttribute('data-shown');
  try {
    end = await page(main) ?? null;
  } catch (error) {
    main.append(banner('bad', error.message));
  }
  main.setAttribute('data-shown', title); // all of it is there, for who waits for that
}

function enter(found) {
  Object.assign(session, found);
  header.hidden = false;
  header.querySelector('.who').textContent = `${found.name} (${found.scope})`;
  header.querySelector('nav').replaceChildren(...Object.entries(pages).map(([name, [title]]) => h('a', { href: `#${name}` }, title)));
  show();
}

async function login(secret) {
  enter(await call('POST', '/v1/admin/login', secret));
}

function askForKey(why) {
  end?.();
  end = null;
  header.hidden = true;
  document.title = 'Log in - Cordon';
  const field = h('input', { id: 'key', type: 'password', autocomplete: 'current-password', required: true, spellcheck: 'false' });
  const wrong = h('p', { class: 'error', id: 'wrong', role: 'alert' }, why ?? '');
  const form = h('form', { class: 'card login', onsubmit: guarded(async () => {
    try {
      await login({ key: field.value.trim() });
    } catch (error) {
      wrong.textContent = error.message;
      field.setAttribute('aria-invalid', 'true');
      field.focus();
    }
  }) }, h('h1', {}, 'Cordon'), h('p', {}, 'A key of scope admin or view opens this page. ', h('code', {}, 'cordon key create --scope admin'),
    ' makes one; ', h('code', {}, 'cordon key link'), ' makes a link that works once.'),
  h('div', { class: 'field' }, h('label', { for: 'key' }, 'Key'), field, wrong),
  h('div', { class: 'row' }, h('button', { type: 'submit' }, 'Log in')));
  main.replaceChildren(form);
  field.focus();
}

async function start() {
  const link = location.hash.match(/^#link=([0-9a-f]+)$/)?.[1];
  if (link) history_.replaceState(null, '', location.pathname); // it must not stay in the address
  try {
    if (link) await login({ link });
    else enter(await get('/v1/admin/session'));
  } catch (error) {
    askForKey(link ? error.message : null);
  }
}

const history_ = window.history;
onSessionLost(() => askForKey('The session is over: log in again.'));
document.getElementById('logout').addEventListener('click', guarded(async () => {
  await call('POST', '/v1/admin/logout');
  note('good', 'Logged out.');
  askForKey();
}));
window.addEventListener('hashchange', () => session.csrf && show());
start();
