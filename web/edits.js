// SPDX-License-Identifier: Apache-2.0
/* What is filled in and not saved: it is not left without asking, and not saved over what somebody else saved meanwhile. */
import { call, get, getSettings } from './api.js';
import { ask, h, time } from './dom.js';

const edited = () => document.querySelector('form[data-dirty]');

/* Forms with data-edits are marked when something is filled in; who saves or makes them anew takes the mark away. */
export function watchEdits(place) {
  const mark = (event) => event.target.closest?.('form[data-edits]')?.setAttribute('data-dirty', '');
  place.addEventListener('input', mark);
  place.addEventListener('change', mark);
  window.addEventListener('beforeunload', (event) => { if (edited()) event.preventDefault(); });
}

export async function mayLeave() {
  return !edited() || ask('Leave without saving?', 'What was changed on this page is not saved.', 'Leave', 'Stay');
}

export const numberOf = (revision) => Number(revision?.replace(/\D/g, '') ?? 0);

/* Changes of these settings since then, the newest of each; the revision is the newest change's number in the audit log. */
async function changesSince(revision, names) {
  const { entries } = await get('/v1/admin/audit?limit=500');
  const found = entries.filter((entry) => entry.id > numberOf(revision) && entry.action.startsWith('setting.') && names.includes(entry.subject));
  return found.filter((entry, i) => found.findIndex((other) => other.subject === entry.subject) === i);
}

const told = (entry) => h('li', {}, h('code', {}, entry.subject), ` ${entry.before || '(not set)'} \u2192 ${entry.after || '(not set)'}, by `,
  h('code', {}, entry.who), ', ', time(entry.at_s * 1000));

/* Sends what was filled in when the settings had that revision. If others of these names were changed since, it asks
 * first. A promise of the answer, or of null where what is there now is to stay. */
export async function saveOver(revision, names, method, path, body) {
  for (;;) {
    try {
      return await call(method, path, body, { headers: { 'If-Match': revision } });
    } catch (error) {
      if (error.status !== 409) throw error;
    }
    const now = (await getSettings()).revision, changes = await changesSince(revision, names);
    if (changes.length && !await ask('Somebody else changed this meanwhile', h('div', {}, h('p', {}, 'Saving puts what is in the form in its place:'),
      h('ul', {}, changes.map(told))), 'Save mine', 'Keep editing')) return null;
    revision = now;
  }
}
