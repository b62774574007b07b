// SPDX-License-Identifier: Apache-2.0
/* The menu, and which page is shown. A page is a function that gets its place and may return what ends it. */
import { call, get, onSessionLost, session } from './api.js';
import { banner, guarded, h, note } from './dom.js';
import { mayLeave, watchEdits } from './edits.js';
import { logIn, loginAgain, loginPage } from './login.js';
import { providers } from './providers.js';
import { console_ } from './console.js';
import { doctor, quotas, templates } from './host.js';
import { live } from './live.js';
import { audit, guests, history, keys } from './records.js';
import { settings } from './settings.js';
import { verify } from './verify.js';

const groups = {
  Run: { providers: ['Sandbox', providers], console: ['Try it', console_], live: ['Live', live], history: ['History', history], guests: ['Guests', guests] },
  Host: { templates: ['Templates', templates], verify: ['Verify', verify], doctor: ['Doctor', doctor] },
  Manage: { settings: ['Settings', settings], keys: ['Keys', keys], quotas: ['Quotas', quotas], audit: ['Audit', audit] },
};
const pages = Object.assign({}, ...Object.values(groups));
const main = document.getElementById('main'), nav = document.querySelector('nav'), menu = document.getElementById('menu');
let end = null, shown = null, turn = 0;

const nameOf = () => {
  const name = location.hash.slice(1).split('?')[0];
  return pages[name] ? name : 'providers';
};

function openMenu(is) {
  document.body.toggleAttribute('data-menu', is);
  menu.setAttribute('aria-expanded', is);
}

function finish() {
  end?.();
  end = null;
}

/* A page that is left while it is still being made ends at once. */
async function show() {
  const name = nameOf(), [title, page] = pages[name], mine = ++turn, place = h('div');
  finish();
  for (const dialog of document.querySelectorAll('dialog')) dialog.close();
  shown = location.hash;
  openMenu(false);
  for (const link of nav.querySelectorAll('a')) {
    if (link.hash === `#${name}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = `${title} - Cordon`;
  main.replaceChildren(h('h1', {}, title), place);
  main.removeAttribute('data-shown');
  let ended = null;
  try {
    ended = await page(place) ?? null;
  } catch (error) {
    place.append(banner('bad', error.message));
  }
  if (mine !== turn) return ended?.();
  end = ended;
  main.setAttribute('data-shown', title); // all of it is there, for who waits for that
  return undefined;
}

function enter() {
  document.body.setAttribute('data-session', session.scope);
  document.querySelector('.who').textContent = `${session.name} (${session.scope})`;
  nav.replaceChildren(...Object.entries(groups).map(([group, rows]) => h('div', {}, h('h2', { id: `group-${group}` }, group),
    h('ul', { 'aria-labelledby': `group-${group}` }, Object.entries(rows).map(([name, [title]]) => h('li', {}, h('a', { href: `#${name}` }, title)))))));
  show();
}

function leave(why) {
  turn++;
  finish();
  document.body.removeAttribute('data-session');
  main.removeAttribute('data-shown');
  document.querySelector('.who').textContent = '';
  document.title = 'Log in - Cordon';
  loginPage(main, why, enter);
}

async function start() {
  const link = location.hash.match(/^#link=([0-9a-f]+)$/)?.[1];
  if (link) window.history.replaceState(null, '', location.pathname); // it must not stay in the address
  try {
    if (link) await logIn({ link });
    else Object.assign(session, await get('/v1/admin/session'));
  } catch (error) {
    leave(link ? error.message : null);
    return;
  }
  enter();
}

/* Another key may do less, or more: then the page is made anew. */
onSessionLost(async () => {
  const { scope } = session, again = await loginAgain();
  if (again && session.scope !== scope) enter();
  return again && session.scope === scope;
});
document.getElementById('logout').addEventListener('click', guarded(async () => {
  if (!await mayLeave()) return;
  await call('POST', '/v1/admin/logout');
  note('good', 'Logged out.');
  leave();
}));
menu.addEventListener('click', () => openMenu(menu.getAttribute('aria-expanded') !== 'true'));
document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || menu.getAttribute('aria-expanded') !== 'true') return;
  openMenu(false);
  menu.focus();
});
window.addEventListener('hashchange', async () => {
  if (!document.body.hasAttribute('data-session') || location.hash === shown) return;
  const wanted = location.hash;
  if (!await mayLeave()) window.history.replaceState(null, '', shown || location.pathname);
  else if (location.hash === wanted) show();
});
watchEdits(main);
start();
