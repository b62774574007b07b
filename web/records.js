// SPDX-License-Identifier: Apache-2.0
/* Lists: the history of runs, kept guests, keys, the audit log. */
import { call, get, mayChange } from './api.js';
import { banner, button, bytes, details, empty, guarded, h, milliseconds, note, pairs, table, tag, time } from './dom.js';

const CAUSES = ['exited', 'signalled', 'timeout', 'memory', 'output_limit', 'cancelled', 'refused', 'unavailable', 'infrastructure'];

function choice(title, options) {
  const select = h('select', {}, h('option', { value: '' }, 'any'), options.map((o) => h('option', { value: o }, o)));
  return [h('label', {}, title, select), select];
}

async function showRun(id) {
  const run = await get(`/v1/admin/history/${id}`);
  const kept = (title, text) => text === null ? null : [h('h2', {}, title), h('pre', { tabindex: 0 }, text || '(empty)')];
  details(`Run ${run.id}`, pairs([['Ended', time(run.at_ms)], ['Cause', run.cause], ['Exit code', run.exit_code], ['What happened', run.message],
    ['Backend', run.backend], ['Language', run.language], ['Door', run.door], ['Key', run.key], ['Queue', milliseconds(run.queue_ms)],
    ['Start', milliseconds(run.start_ms)], ['Run', milliseconds(run.run_ms)], ['CPU', milliseconds(run.cpu_ms)],
    ['Memory peak', bytes(run.memory_peak_bytes)], ['stdout', bytes(run.stdout_bytes)], ['stderr', bytes(run.stderr_bytes)]]),
  run.code === null ? h('p', { class: 'soft' }, 'The program and its output are not kept (CORDON_HISTORY_CODE).') : null,
  kept('Program', run.code), kept('Output', run.stdout), kept('Errors', run.stderr));
}

export async function history(main) {
  const { backends } = await get('/v1/backends');
  const [backendLabel, backend] = choice('Backend', backends.map((row) => row.name));
  const [languageLabel, language] = choice('Language', ['python', 'javascript', 'bash']);
  const [causeLabel, cause] = choice('Cause', CAUSES);
  const place = h('div', { 'aria-live': 'polite' });
  const load = async (before = 0) => {
    const query = new URLSearchParams({ limit: 50, before, backend: backend.value, language: language.value, cause: cause.value });
    const { runs } = await get(`/v1/admin/history?${query}`);
    place.replaceChildren(runs.length ? table(['Ended', 'Cause', '#Exit', 'Backend', 'Language', '#Took', '#Memory', ''], runs.map((run) => [time(run.at_ms),
      tag(run.cause, run.cause === 'exited' ? (run.exit_code ? '' : 'good') : 'bad'), run.exit_code, run.backend, run.language,
      milliseconds(run.total_ms), run.memory_peak_bytes ? bytes(run.memory_peak_bytes) : '',
      button('Details', () => showRun(run.id), 'link')])) : empty('No run fits. Runs appear here within a second of their end.'),
    runs.length === 50 ? h('div', { class: 'row' }, button('Older', () => load(runs.at(-1).id), 'second')) : null);
  };
  for (const select of [backend, language, cause]) select.addEventListener('change', () => load().catch((error) => note('bad', error.message)));
  main.append(h('div', { class: 'row' }, backendLabel, languageLabel, causeLabel, button('Reload', () => load(), 'second')), place);
  await load();
}

function newGuest(backends, load) {
  const able = backends.filter((row) => row.able && row.capabilities.guests);
  if (!able.length) return banner('warn', 'No backend that is ready keeps guests.');
  const backend = h('select', { id: 'guest-backend' }, able.map((row) => h('option', {}, row.name)));
  const name = h('input', { id: 'guest-name', maxlength: 63 }), template = h('input', { id: 'guest-template', placeholder: 'default', maxlength: 63 });
  return h('form', { class: 'card', onsubmit: guarded(async () => {
    await call('POST', '/v1/guests', { backend: backend.value, ...name.value && { name: name.value }, ...template.value && { template: template.value } });
    name.value = '';
    await load();
  }) }, h('div', { class: 'row' }, h('label', {}, 'Name', name), h('label', {}, 'Template', template), h('label', {}, 'Backend', backend), h('button', { type: 'submit' }, 'New guest')));
}

/* The routes of kept guests are the native door's; here those of all keys are seen. */
export async function guests(main) {
  const place = h('div', { 'aria-live': 'polite' }), below = h('div');
  let end = null;
  const act = (guest, verb) => async () => {
    if (verb === 'rm' && !window.confirm(`Terminate the guest ${guest.name ?? guest.id}? What it holds is lost.`)) return;
    await call(verb === 'rm' ? 'DELETE' : 'POST', `/v1/guests/${guest.id}${verb === 'rm' ? '' : `/${verb}`}`, verb === 'rm' ? undefined : {});
    await load();
  };
  const open = (guest) => async () => {
    const { openTerminal } = await import('./terminal.js');
    end?.();
    end = openTerminal(guest, below);
  };
  const controls = (guest) => h('span', { class: 'tags' }, button('Terminal', open(guest), 'second'),
    guest.state === 'paused' ? button('Resume', act(guest, 'resume'), 'second') : button('Pause', act(guest, 'pause'), 'second'),
    button('Terminate', act(guest, 'rm'), 'danger'));
  const load = async () => {
    const { guests: rows } = await get('/v1/guests?limit=500');
    place.replaceChildren(rows.length ? table(['Id', 'Name', 'Key', 'Template', 'State', 'Backend', ''], rows.map((guest) => [h('code', {}, guest.id), guest.name,
      guest.key ? h('code', {}, guest.key) : '', guest.template, tag(guest.state, guest.state === 'running' ? 'good' : ''), guest.backend,
      mayChange() ? controls(guest) : ''])) : empty('There are no kept guests.'));
  };
  main.append(mayChange() ? newGuest((await get('/v1/backends')).backends, load) : banner('warn', 'A key of scope view may look, but not make, change or enter guests.'),
    h('div', { class: 'row' }, button('Reload', load, 'second')), place, below);
  await load();
  return () => end?.();
}

function showKey(made) {
  details('A new key', h('p', {}, 'It is shown this once. Keep it where secrets are kept.'), h('pre', { id: 'new-key' }, made.key));
}

export async function keys(main) {
  const place = h('div', { 'aria-live': 'polite' });
  const name = h('input', { id: 'key-name', maxlength: 63, required: true });
  const scope = h('select', { id: 'key-scope' }, ['run', 'admin', 'view'].map((o) => h('option', {}, o)));
  const load = async () => {
    const found = await get('/v1/admin/keys');
    place.replaceChildren(table(['Id', 'Name', 'Scope', 'Created', 'State', ''], found.keys.map((key) => [h('code', {}, key.id), key.name, key.scope,
      time(key.created_s * 1000), key.revoked_s ? tag('revoked', 'bad') : tag('live', 'good'),
      !key.revoked_s && mayChange() ? button('Revoke', async () => {
        if (!window.confirm(`Revoke the key ${key.name}? What uses it is refused from then on.`)) return;
        await call('DELETE', `/v1/admin/keys/${key.id}`);
        await load();
      }, 'danger') : ''])));
  };
  if (mayChange()) {
    main.append(h('form', { class: 'card', onsubmit: guarded(async () => {
      showKey(await call('POST', '/v1/admin/keys', { name: name.value, scope: scope.value }));
      name.value = '';
      await load();
    }) }, h('div', { class: 'row' }, h('label', {}, 'Name', name), h('label', {}, 'Scope', scope), h('button', { type: 'submit' }, 'Create'))));
  } else {
    main.append(banner('warn', 'A key of scope view may look, but not make or revoke keys.'));
  }
  main.append(place);
  await load();
}

export async function audit(main) {
  const place = h('div');
  const load = async (before = 0) => {
    const { entries } = await get(`/v1/admin/audit?limit=100&before=${before}`);
    place.replaceChildren(entries.length ? table(['When', 'Who', 'What', 'On', 'Before', 'After'], entries.map((e) => [time(e.at_s * 1000), h('code', {}, e.who),
      e.action, e.subject, e.before, e.after])) : empty('Nothing was changed yet.'),
    entries.length === 100 ? h('div', { class: 'row' }, button('Older', () => load(entries.at(-1).id), 'second')) : null);
  };
  main.append(place);
  await load();
}
