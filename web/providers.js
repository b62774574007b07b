// SPDX-License-Identifier: Apache-2.0
/* Choose where code runs, fill its form, save, test. The form is made from the daemon's schema. */
import { call, get, mayChange } from './api.js';
import { banner, button, guarded, h, note, table, tag } from './dom.js';

const ROOT = '/api/v1/admin/sandbox/';
const data = async (path) => (await get(ROOT + path)).data;

function isolationTag(backend) {
  if (!backend) return tag('not in this daemon', 'warn');
  const isolation = backend.capabilities.isolation;
  return tag(isolation === 'none' ? 'no isolation' : isolation, isolation === 'none' ? 'warn' : 'good');
}

function readyTag(backend) {
  if (!backend) return null;
  return backend.able ? tag('ready', 'good') : tag('not ready', 'bad');
}

function card(provider, backend, active, choose) {
  return h('label', { class: 'choice' },
    h('input', { type: 'radio', name: 'provider', value: provider.id, checked: provider.id === active, onchange: () => choose(provider.id) }),
    h('b', {}, provider.name), h('p', {}, provider.description),
    h('span', { class: 'tags' }, isolationTag(backend), readyTag(backend), provider.id === active ? tag('in use', 'good') : null,
      provider.tags.map((text) => tag(text))),
    backend && !backend.able ? h('p', { class: 'error' }, backend.reason) : null);
}

function control(name, schema, value) {
  const id = `field-${name}`, common = { id, name, 'aria-describedby': `${id}-error`, disabled: !mayChange() || schema.readonly };
  if (schema.type === 'boolean') return h('input', { ...common, type: 'checkbox', checked: value === true });
  if (schema.multiline) return h('textarea', { ...common, value: value ?? '', spellcheck: 'false' });
  if (schema.options) return h('select', { ...common, value: value ?? '' }, schema.options.map((o) => h('option', {}, o)));
  if (schema.type === 'integer') {
    return h('input', { ...common, type: 'number', value: value ?? '', min: schema.min, max: schema.max, step: 1, required: schema.required });
  }
  return h('input', { ...common, type: schema.secret ? 'password' : 'text', value: value ?? '', autocomplete: 'off',
    required: schema.required, placeholder: schema.placeholder });
}

function field(name, schema, value) {
  const input = control(name, schema, value);
  const bounds = schema.min !== undefined ? `${schema.min} to ${schema.max}. ` : '';
  const help = `${schema.description ?? ''} ${bounds}${schema.setting ? `Setting ${schema.setting}.` : ''}`.trim();
  return h('div', { class: 'field' }, h('label', { for: input.id }, schema.label, schema.required ? ' *' : ''), input,
    help ? h('p', { class: 'help' }, help) : null, h('p', { class: 'error', id: `${input.id}-error`, role: 'alert' }));
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
  const named = Object.keys(schema).find((name) => error.message.includes(`'${name}'`) ||
    (schema[name].setting && error.message.includes(schema[name].setting)));
  const input = named && form.elements[named];
  if (!input) {
    place.replaceChildren(banner('bad', error.message));
    return;
  }
  form.querySelector(`#field-${named}-error`).textContent = error.message;
  input.setAttribute('aria-invalid', 'true');
  input.focus();
}

function clearErrors(form, place) {
  place.replaceChildren();
  for (const shown of form.querySelectorAll('.error')) shown.textContent = '';
  for (const input of form.querySelectorAll('[aria-invalid]')) input.removeAttribute('aria-invalid');
}

function showTest(result, place) {
  place.replaceChildren(banner(result.success ? 'good' : 'bad', result.message),
    h('pre', { role: 'region', tabindex: 0, 'aria-label': 'Output' }, result.details.stdout || '(nothing was written)'),
    result.details.stderr ? h('pre', { role: 'region', tabindex: 0, 'aria-label': 'Errors' }, result.details.stderr) : null);
}

function makeForm(provider, schema, config, saved) {
  const editable = Object.entries(schema).filter(([, row]) => !row.readonly);
  const fixed = Object.entries(schema).filter(([, row]) => row.readonly);
  const place = h('div', { 'aria-live': 'polite' });
  const body = () => ({ provider_type: provider.id, config: readForm(form, schema) });
  const send = (path, done) => guarded(async () => {
    clearErrors(form, place);
    try {
      done((await call('POST', ROOT + path, body())).data);
    } catch (error) {
      showError(form, schema, error, place);
    }
  });
  const test = h('button', { type: 'button', class: 'second', onclick: send('test', (result) => showTest(result, place)) }, 'Test connection');
  const form = h('form', { class: 'card', novalidate: true, onsubmit: send('config', () => { note('good', `${provider.name} is saved and in use.`); saved(); }) },
    h('h2', {}, provider.name), h('div', { class: 'fields' }, editable.map(([name, row]) => field(name, row, config[name] ?? row.default))),
    fixed.length ? [h('h2', {}, 'Deployment defaults'), h('p', { class: 'soft' }, 'Set where the executor manager is started; shown for orientation.'),
      table(['Name', 'Value'], fixed.map(([, row]) => [row.label, String(row.default)]))] : null,
    mayChange() ? h('div', { class: 'row' }, h('button', { type: 'submit' }, 'Save'), test)
      : banner('warn', 'A key of scope view may look, but not change or test anything.'), place);
  return form;
}

export async function providers(main) {
  const [list, found, { backends }] = await Promise.all([data('providers'), data('config'), get('/v1/backends')]);
  const byName = Object.fromEntries(backends.map((backend) => [backend.name, backend]));
  const place = h('div');
  const choose = async (id) => {
    const schema = await data(`providers/${id}/schema`);
    const config = id === found.provider_type ? found.config : await stored(schema);
    place.replaceChildren(makeForm(list.find((row) => row.id === id), schema, config, () => { main.replaceChildren(h('h1', {}, 'Sandbox')); providers(main); }));
  };
  main.append(h('p', { class: 'soft' }, 'Where code runs when a request names no backend. What is saved counts from the next run on.'),
    h('fieldset', { class: 'cards' }, h('legend', { class: 'soft' }, 'Provider'),
      list.map((provider) => card(provider, byName[provider.id], found.provider_type, choose))), place);
  if (list.some((provider) => provider.id === found.provider_type)) await choose(found.provider_type);
  else place.append(banner('warn', `The backend in use is ${found.provider_type}, which has no form here.`));
}

/* What is stored of a provider that is not in use. */
async function stored(schema) {
  const { settings } = await get('/v1/admin/settings');
  const values = Object.fromEntries(settings.map((row) => [row.name, row]));
  const config = {};
  for (const [name, row] of Object.entries(schema)) {
    const setting = values[row.setting];
    if (!setting) continue;
    config[name] = row.type === 'boolean' ? setting.value === 'true' : row.type === 'integer' ? Number(setting.value) : setting.value;
  }
  return config;
}
