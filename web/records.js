// SPDX-License-Identifier: Apache-2.0
/* Lists: the history of runs, kept guests, keys, the audit log. */
import { call, get, mayChange } from './api.js';
import { ask, banner, breakable, button, bytes, details, empty, fill, guarded, h, intro, milliseconds, newest, note, pairs, table, tag, time } from './dom.js';

const CAUSES = ['exited', 'signalled', 'timeout', 'memory', 'output_limit', 'cancelled', 'refused', 'unavailable', 'infrastructure'];

/* Pages of a list, newest first. fetch(before): the rows whose id is below, `size` at most; show(rows): their element.
 * What it returns loads anew, the newest or the page that is shown. */
function pager(place, size, fetch, show) {
  let above = []; // where each page before this one began
  let before = 0;
  const load = newest(() => fetch(before), (rows) => {
    const last = rows.length < size;
    const go = (to, from) => async () => {
      [before, above] = [to, from];
      await load();
      place.closest('main').scrollIntoView();
    };
    const older = button('Older', go(rows.at(-1)?.id, [...above, before]), 'second'), newer = button('Newer', go(above.at(-1), above.slice(0, -1)), 'second');
    fill(place, show(rows), last && !above.length ? null : h('div', { class: 'row' }, above.length ? [button('Newest', go(0, []), 'second'), newer] : null,
      last ? null : older, h('span', { class: 'soft' }, `Page ${above.length + 1}`)));
  });
  return { load, newest: async () => { [before, above] = [0, []]; await load(); } };
}

/* --- history --- */

function choice(title, options) {
  const select = h('select', {}, h('option', { value: '' }, 'any'), options.map((o) => h('option', { value: o }, o)));
  return [h('label', {}, title, select), select];
}

async function showRun(id) {
  const run = await get(`/v1/admin/history/${id}`);
  const kept = (title, text) => text === null ? null : [h('h2', {}, title), h('pre', { tabindex: 0, role: 'region', 'aria-label': title }, text || '(empty)')];
  details(`Run ${run.id}`, pairs([['Ended', time(run.at_ms)], ['Cause', causeTag(run)], ['Exit code', run.exit_code], ['What happened', run.message],
    ['Backend', run.backend], ['Language', run.language], ['Door', run.door], ['Key', run.key], ['Queue', milliseconds(run.queue_ms)],
    ['Start', milliseconds(run.start_ms)], ['Run', milliseconds(run.run_ms)], ['CPU', milliseconds(run.cpu_ms)],
    ['Memory peak', bytes(run.memory_peak_bytes)], ['stdout', bytes(run.stdout_bytes)], ['stderr', bytes(run.stderr_bytes)]]),
  run.code === null ? h('p', { class: 'help' }, 'The program and its output are not kept. ', h('a', { href: '#settings?CORDON_HISTORY_CODE' }, 'CORDON_HISTORY_CODE'), ' would keep them.') : null,
  kept('Program', run.code), kept('Output', run.stdout), kept('Errors', run.stderr));
}

const causeTag = (run) => tag(run.cause, run.cause !== 'exited' ? 'bad' : run.exit_code ? 'warn' : 'good');

const historyTable = (runs) => runs.length ? table('Runs', ['Ended', 'Cause', '#Exit', 'Backend', 'Language', '#Took', '#Memory', ''], runs.map((run) => [time(run.at_ms),
  causeTag(run), run.exit_code, run.backend, run.language, milliseconds(run.total_ms), run.memory_peak_bytes ? bytes(run.memory_peak_bytes) : '',
  button('Details', () => showRun(run.id), 'second')])) : empty('No run fits. Runs appear here within a second of their end.');

export async function history(main) {
  const { backends } = await get('/v1/backends'), size = 50;
  const [backendLabel, backend] = choice('Backend', backends.map((row) => row.name));
  const [languageLabel, language] = choice('Language', ['python', 'javascript', 'bash']);
  const [causeLabel, cause] = choice('Cause', CAUSES);
  const place = h('div', { 'aria-live': 'polite' });
  const list = pager(place, size, async (before) => (await get(`/v1/admin/history?${new URLSearchParams({ limit: size, before, backend: backend.value,
    language: language.value, cause: cause.value })}`)).runs, historyTable);
  for (const select of [backend, language, cause]) select.addEventListener('change', () => list.newest().catch((error) => note('bad', error.message)));
  intro(main, 'Runs that ended, newest first.');
  main.append(h('div', { class: 'row' }, backendLabel, languageLabel, causeLabel, button('Reload', list.newest, 'second')), place);
  await list.load();
}

/* --- guests --- */

function newGuest(backends, load) {
  const able = backends.filter((row) => row.able && row.capabilities.guests);
  if (!able.length) return banner('warn', 'No backend that is ready keeps guests.');
  const backend = h('select', { id: 'guest-backend' }, able.map((row) => h('option', {}, row.name)));
  const name = h('input', { id: 'guest-name', maxlength: 63, placeholder: 'optional' }), template = h('input', { id: 'guest-template', placeholder: 'default', maxlength: 63 });
  return h('form', { class: 'card', onsubmit: guarded(async () => {
    await call('POST', '/v1/guests', { backend: backend.value, ...name.value && { name: name.value }, ...template.value && { template: template.value } });
    name.value = '';
    await load();
  }) }, h('div', { class: 'row' }, h('label', {}, 'Name', name), h('label', {}, 'Template', template), h('label', {}, 'Backend', backend), h('button', { type: 'submit' }, 'New guest')));
}

const STATES = { running: 'good', paused: 'warn' };

/* The routes of kept guests are the native door's; here those of all keys are seen. */
export async function guests(main) {
  const place = h('div', { 'aria-live': 'polite' }), below = h('div');
  let end = null, left = false;
  const called = (guest) => guest.name ?? guest.id;
  const send = (guest, verb) => async () => {
    await call('POST', `/v1/guests/${guest.id}/${verb}`, {});
    await load();
  };
  const terminate = (guest) => async () => {
    if (!await ask(`Terminate ${called(guest)}?`, 'Its programs are ended and its files are lost.', 'Terminate')) return;
    await call('DELETE', `/v1/guests/${guest.id}`);
    await load();
  };
  const open = (guest) => async () => {
    const { openTerminal } = await import('./terminal.js');
    if (left) return; // it would go on where nobody sees it
    end?.();
    end = openTerminal(guest, below);
  };
  const controls = (guest) => h('span', { class: 'tags' }, button('Terminal', open(guest), 'second'),
    guest.state === 'paused' ? button('Resume', send(guest, 'resume'), 'second') : button('Pause', send(guest, 'pause'), 'second'),
    button('Terminate', terminate(guest), 'danger'));
  const load = newest(() => get('/v1/guests?limit=500'), ({ guests: rows }) => {
    fill(place, rows.length ? table('Kept guests', ['Name', 'Id', 'Key', 'Template', 'State', 'Backend', ''], rows.map((guest) => [guest.name, h('code', {}, guest.id),
      guest.key ? h('code', {}, guest.key) : '', guest.template, tag(guest.state, STATES[guest.state]), guest.backend,
      mayChange() ? controls(guest) : ''])) : empty('There are no kept guests.'), rows.length === 500 ? h('p', { class: 'help' }, 'The first 500 are shown.') : null);
  });
  intro(main, 'Guests that are kept between programs, of all keys.', button('Reload', load, 'second'));
  main.append(mayChange() ? newGuest((await get('/v1/backends')).backends, load) : banner('warn', 'A key of scope view may look, but not make, change or enter guests.'), place, below);
  await load();
  return () => {
    left = true;
    end?.();
  };
}

/* --- keys --- */

function showKey(made) {
  const copy = button('Copy', async () => {
    await navigator.clipboard.writeText(made.key);
    note('good', 'The key is on the clipboard.');
  });
  details('A new key', h('p', {}, 'It is shown this once. Keep it where secrets are kept.'), h('pre', { id: 'new-key' }, made.key),
    navigator.clipboard ? h('div', { class: 'row' }, copy) : null);
}

const SCOPES = { run: 'run: run code, keep guests', admin: 'admin: all, this page too', view: 'view: look at this page' };

function newKey(load) {
  const name = h('input', { id: 'key-name', maxlength: 63, required: true });
  const scope = h('select', { id: 'key-scope' }, Object.entries(SCOPES).map(([value, title]) => h('option', { value }, title)));
  return h('form', { class: 'card', onsubmit: guarded(async () => {
    showKey(await call('POST', '/v1/admin/keys', { name: name.value, scope: scope.value }));
    name.value = '';
    await load();
  }) }, h('div', { class: 'row' }, h('label', {}, 'Name', name), h('label', { class: 'broad' }, 'Scope', scope), h('button', { type: 'submit' }, 'Create')));
}

export async function keys(main) {
  const place = h('div', { 'aria-live': 'polite' });
  const revoke = (key) => button('Revoke', async () => {
    if (!await ask(`Revoke ${key.name}?`, 'What uses this key is refused from then on. It can\u2019t be taken back.', 'Revoke')) return;
    await call('DELETE', `/v1/admin/keys/${key.id}`);
    await load();
  }, 'danger');
  const load = newest(() => get('/v1/admin/keys'), (found) => {
    const rows = [...found.keys.filter((key) => !key.revoked_s), ...found.keys.filter((key) => key.revoked_s)];
    fill(place, rows.length ? table('Keys', ['Name', 'Id', 'Scope', 'Created', 'State', ''], rows.map((key) => [key.name, h('code', {}, key.id), key.scope,
      time(key.created_s * 1000), key.revoked_s ? tag('revoked') : tag('live', 'good'), !key.revoked_s && mayChange() ? h('span', { class: 'tags' }, revoke(key)) : '']))
      : empty('There are no keys: only this host\u2019s own programs may run code.'));
  });
  intro(main, 'Who may run code, and who may open this page.');
  main.append(mayChange() ? newKey(load) : banner('warn', 'A key of scope view may look, but not make or revoke keys.'), place);
  await load();
}

/* --- audit --- */

const auditTable = (entries) => entries.length ? table('Changes', ['When', 'Who', 'What', 'On', 'Before', 'After'], entries.map((e) => [time(e.at_s * 1000),
  h('code', {}, e.who), e.action, breakable(e.subject), e.before, e.after])) : empty('Nothing was changed yet.');

export async function audit(main) {
  const place = h('div'), size = 100;
  const list = pager(place, size, async (before) => (await get(`/v1/admin/audit?limit=${size}&before=${before}`)).entries, auditTable);
  intro(main, 'Who changed what, newest first. Secrets are never shown.', button('Reload', list.newest, 'second'));
  main.append(place);
  await list.load();
}
