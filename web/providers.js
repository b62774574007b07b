// SPDX-License-Identifier: Apache-2.0
/* Choose where code runs, fill its form, save, test. The form is made from the daemon's schema. */
import { get, getSettings, mayChange } from './api.js';
import { banner, button, fill, guarded, h, intro, isolationTag, note, pairs, tag } from './dom.js';
import { mayLeave, saveOver } from './edits.js';
import { endTest, runTest } from './trial.js';

const ROOT = '/api/v1/admin/sandbox/';
const CHOSEN = 'CORDON_BACKEND';
const data = async (path) => (await get(ROOT + path)).data;

/* --- the cards --- */

function stateTag(provider, backend, active) {
  if (provider.id === active) return backend?.able === false ? tag('in use, not ready', 'bad') : tag('in use', 'good');
  if (!backend) return tag('not in this daemon', 'warn');
  return backend.able ? tag('ready', 'good') : tag('not ready');
}

/* Read out as its name; the rest describes it. */
function card(provider, backend, active, choose) {
  const id = `provider-${provider.id}`;
  return h('label', { class: 'choice' },
    h('input', { type: 'radio', name: 'provider', value: provider.id, checked: provider.id === active, 'aria-labelledby': id, 'aria-describedby': `${id}-about`,
      onchange: () => choose(provider.id) }),
    h('b', {}, h('span', { id }, provider.name), stateTag(provider, backend, active)),
    h('span', { id: `${id}-about` }, h('p', {}, provider.description),
      h('span', { class: 'tags' }, backend ? isolationTag(backend.capabilities.isolation) : null, h('span', { class: 'words' }, provider.tags.join(' \u00b7 ')))));
}

/* Backends without a form of RAGFlow's, as plugins are. */
const plain = (backend) => ({ id: backend.name, name: backend.name, description: 'A backend of this daemon; it has no form here.', tags: [] });

/* --- the form --- */

function control(name, schema, value) {
  const id = `field-${name}`, common = { id, name, 'aria-describedby': `${id}-help ${id}-error`, disabled: !mayChange(), required: schema.required };
  if (schema.type === 'boolean') return h('input', { ...common, type: 'checkbox', required: null, checked: value === true });
  if (schema.multiline) return h('textarea', { ...common, value: value ?? '', spellcheck: 'false', placeholder: schema.placeholder });
  if (schema.options) return h('select', common, schema.options.map((o) => h('option', { value: o, selected: o === value }, o)));
  if (schema.type === 'integer') return h('input', { ...common, type: 'number', value: value ?? '', min: schema.min, max: schema.max, step: 1 });
  return h('input', { ...common, type: schema.secret ? 'password' : 'text', value: value ?? '', autocomplete: 'off', placeholder: schema.placeholder });
}

/* row: the setting that the field stands for. */
function field(name, schema, value, row) {
  const input = control(name, schema, value), { setting } = schema;
  const bounds = schema.min !== undefined ? `${schema.min} to ${schema.max}. ` : '';
  const goesBefore = ['environment', 'flag'].includes(row?.source) ? `Overridden: ${row.set_by} (${row.source}) goes before what is saved here.` : null;
  return h('div', { class: schema.multiline ? 'field full' : 'field' }, h('label', { for: input.id }, schema.label, schema.required ? h('span', { 'aria-hidden': 'true' }, ' *') : null), input,
    h('p', { class: 'help', id: `${input.id}-help` }, schema.description ? `${schema.description} ` : null, schema.secret ? 'Kept sealed, never shown again. ' : null, bounds,
      setting ? h('a', { href: `#settings?${setting}` }, setting) : null, goesBefore ? h('span', { class: 'tag warn break' }, goesBefore) : null),
    h('p', { class: 'error', id: `${input.id}-error`, role: 'alert' }));
}

function readForm(form, schema) {
  const config = {};
  for (const [name, row] of Object.entries(schema)) {
    const input = form.elements[name];
    if (!input || row.readonly) continue;
    if (row.type === 'boolean') config[name] = input.checked;
    else if (row.type === 'integer') { if (input.value !== '') config[name] = Number(input.value); }
    else config[name] = input.value;
  }
  return config;
}

/* RAGFlow's texts name the field in quotes, the settings' own begin with the setting's name. */
function showError(form, schema, error, place) {
  const named = Object.keys(schema).find((name) => error.message.includes(`'${name}'`)) ??
    Object.keys(schema).find((name) => schema[name].setting && error.message.includes(schema[name].setting));
  const input = named && form.elements[named];
  if (!input) {
    fill(place, banner('bad', error.message));
    return;
  }
  form.querySelector(`#field-${named}-error`).textContent = error.message;
  input.setAttribute('aria-invalid', 'true');
  input.focus();
}

function clearErrors(form, place) {
  fill(place);
  for (const shown of form.querySelectorAll('.error')) shown.textContent = '';
  for (const input of form.querySelectorAll('[aria-invalid]')) input.removeAttribute('aria-invalid');
}

/* --- all together --- */

function fixedRows(schema) {
  const fixed = Object.values(schema).filter((row) => row.readonly);
  return fixed.length ? h('details', {}, h('summary', {}, 'Deployment defaults'),
    h('p', { class: 'help' }, 'Set where the executor manager is started; shown for orientation.'), pairs(fixed.map((row) => [row.label, String(row.default)]))) : null;
}

/* page: { active, backends, settings, revision, reload }. */
function makeForm(provider, schema, config, page) {
  const backend = page.backends[provider.id], rows = Object.fromEntries(page.settings.map((row) => [row.name, row]));
  const editable = Object.entries(schema).filter(([, row]) => !row.readonly), inUse = provider.id === page.active;
  const place = h('div', { 'aria-live': 'polite' }), names = [CHOSEN, ...editable.map(([, row]) => row.setting)];
  const body = () => ({ provider_type: provider.id, config: readForm(form, schema) });
  const send = (work) => guarded(async () => {
    endTest(); // its log and its end by hand are cleared away
    clearErrors(form, place);
    try {
      await work();
    } catch (error) {
      showError(form, schema, error, place);
    }
  });
  const save = send(async () => {
    if (!await saveOver(page.revision, names, 'POST', `${ROOT}config`, body())) return;
    form.removeAttribute('data-dirty');
    note('good', `${provider.name} is saved and in use.`);
    await page.reload();
  });
  const test = send(() => runTest(provider, `${ROOT}test`, body(), place));
  const form = h('form', { class: 'card', novalidate: true, 'data-edits': true, 'aria-label': provider.name, onsubmit: save },
    h('h2', { class: 'first' }, provider.name),
    backend && !backend.able ? banner('warn', 'Not ready: ', backend.reason) : null,
    h('div', { class: 'fields' }, editable.map(([name, row]) => field(name, row, config[name] ?? row.default, rows[row.setting]))),
    fixedRows(schema),
    mayChange() ? h('div', { class: 'row' }, h('button', { type: 'submit' }, inUse ? 'Save' : 'Save and use'),
      h('button', { type: 'button', class: 'second', onclick: test }, 'Test connection'))
      : banner('warn', 'A key of scope view may look, but not change or test anything.'), place);
  return form;
}

/* One that has no form can be chosen all the same. */
function makeChoice(backend, page) {
  const use = async () => {
    if (!await saveOver(page.revision, [CHOSEN], 'PUT', '/v1/admin/settings', { values: { [CHOSEN]: backend.name } })) return;
    note('good', `${backend.name} is saved and in use.`);
    await page.reload();
  };
  return h('section', { class: 'card', 'aria-label': backend.name }, h('h2', { class: 'first' }, backend.name),
    backend.able ? null : banner('warn', 'Not ready: ', backend.reason),
    h('p', { class: 'soft' }, 'It has no form here: its settings are on the page ', h('a', { href: '#settings' }, 'Settings'), '.'),
    mayChange() && backend.name !== page.active ? h('div', { class: 'row' }, button('Use it', use)) : null);
}

/* What is stored of a provider. */
function storedConfig(schema, settings) {
  const values = Object.fromEntries(settings.map((row) => [row.name, row.value])), config = {};
  const read = { boolean: (text) => text === 'true', integer: Number, string: (text) => text };
  for (const [name, row] of Object.entries(schema)) {
    if (values[row.setting] !== undefined) config[name] = read[row.type](values[row.setting]);
  }
  return config;
}

export async function providers(main) {
  const [list, found, { backends }, { settings, revision }] = await Promise.all([data('providers'), data('config'), get('/v1/backends'), getSettings()]);
  const page = { active: found.provider_type, backends: Object.fromEntries(backends.map((backend) => [backend.name, backend])), settings, revision,
    reload: async () => {
      fill(main);
      await providers(main);
      if (document.activeElement === document.body) main.querySelector('form button[type=submit]')?.focus(); // what was pressed is gone
    } };
  const cards = [...list, ...backends.filter((backend) => !list.some((row) => row.id === backend.name)).map(plain)];
  const place = h('div');
  let chosen = page.active;
  const formOf = async (id) => {
    const provider = list.find((row) => row.id === id);
    if (!provider) return page.backends[id] ? makeChoice(page.backends[id], page) : banner('warn', `The backend in use is ${id}, which is not in this daemon.`);
    const schema = await data(`providers/${id}/schema`);
    return makeForm(provider, schema, id === page.active ? found.config : storedConfig(schema, settings), page);
  };
  const put = (id, content) => { // unless another was chosen meanwhile
    if (chosen !== id) return;
    fill(place, content);
    place.inert = false;
  };
  const show = async (id) => {
    chosen = id;
    endTest();
    place.inert = true; // what is there is the form of the one before
    place.querySelector('[data-dirty]')?.removeAttribute('data-dirty'); // it is left, and not asked for again
    put(id, await formOf(id));
  };
  const choose = async (id) => {
    try {
      if (await mayLeave()) await show(id);
      else choices.querySelector(`[value="${CSS.escape(chosen)}"]`).checked = true;
    } catch (error) {
      put(id, banner('bad', error.message));
    }
  };
  const choices = h('fieldset', { class: 'choices' }, h('legend', {}, 'Provider'), cards.map((provider) => card(provider, page.backends[provider.id], page.active, choose)));
  intro(main, 'Where code runs when a request names no backend. What is saved counts from the next run on.');
  main.append(choices, place);
  await show(page.active);
  return endTest;
}
