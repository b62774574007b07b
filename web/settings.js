// SPDX-License-Identifier: Apache-2.0
/* Every setting, searchable. Those of runtime scope are changed here; those of the deployment are shown with their source. */
import { call, get, mayChange } from './api.js';
import { guarded, h, note, tag } from './dom.js';

function input(row) {
  const editable = mayChange() && row.scope === 'runtime';
  const common = { id: `set-${row.name}`, name: row.name, disabled: !editable, 'aria-describedby': `help-${row.name}` };
  if (row.type === 'boolean') {
    return h('select', { ...common, value: row.value }, ['true', 'false'].map((o) => h('option', { value: o, selected: o === row.value }, o)));
  }
  if (row.type === 'integer') return h('input', { ...common, type: 'number', value: row.value, min: row.min, max: row.max });
  return h('input', { ...common, type: row.secret ? 'password' : 'text', value: row.value, autocomplete: 'off', spellcheck: 'false' });
}

function sourceTag(row) {
  if (row.stored && row.overridden) return tag(`stored, but ${row.set_by} (${row.source}) goes before it`, 'warn');
  return tag(row.source === 'default' ? 'default' : `${row.source}: ${row.set_by}`, row.source === 'stored' ? 'good' : '');
}

function setting(row, change) {
  const control = input(row), wrong = h('p', { class: 'error', role: 'alert' });
  const send = (value) => guarded(async () => {
    wrong.textContent = '';
    control.removeAttribute('aria-invalid');
    try {
      await change(row.name, value());
    } catch (error) {
      wrong.textContent = error.message;
      control.setAttribute('aria-invalid', 'true');
      control.focus();
    }
  });
  const bounds = row.type === 'integer' ? `${row.min} to ${row.max} ${row.unit}. Default ${row.default}.` : row.default ? `Default ${row.default}.` : '';
  return h('form', { class: 'card field', novalidate: true, onsubmit: send(() => control.value), 'data-text': `${row.name} ${row.help}`.toLowerCase() },
    h('label', { for: control.id }, row.name), h('span', { class: 'tags' }, sourceTag(row), row.scope === 'deployment' ? tag('deployment') : null),
    control, h('p', { class: 'help', id: `help-${row.name}` }, row.help, ' ', bounds), wrong,
    control.disabled ? null : h('div', { class: 'row' }, h('button', { type: 'submit' }, 'Save'),
      row.stored ? h('button', { type: 'button', class: 'second', onclick: send(() => null) }, 'Forget') : null));
}

export async function settings(main) {
  const search = h('input', { id: 'search', type: 'search' }), place = h('div');
  const filter = () => {
    for (const form of place.children) form.hidden = !form.dataset.text.includes(search.value.trim().toLowerCase());
  };
  const change = async (name, value) => {
    show((await call('PUT', '/v1/admin/settings', { values: { [name]: value } })).settings);
    note('good', value === null ? `${name} is forgotten.` : `${name} is saved.`);
  };
  const show = (rows) => {
    place.replaceChildren(...rows.map((row) => setting(row, change)));
    filter();
  };
  search.addEventListener('input', filter);
  main.append(h('div', { class: 'row' }, h('label', {}, 'Search', search)), place);
  search.value = decodeURIComponent(location.hash.split('?')[1] ?? ''); // other pages link to one
  show((await get('/v1/admin/settings')).settings);
}
