// SPDX-License-Identifier: Apache-2.0
/* Every setting, by what it is about, searchable. Those of runtime scope are changed here; those of the deployment are
 * shown with their source. */
import { getSettings, mayChange } from './api.js';
import { empty, fill, guarded, h, intro, note, tag, time } from './dom.js';
import { numberOf, saveOver } from './edits.js';

/* The first that fits. */
const GROUPS = [
  ['Remote: SSH', /^CORDON_SSH_/], ['Remote: self-managed executor manager', /^CORDON_SELF_MANAGED_/], ['Remote: E2B', /^CORDON_E2B_(?!DOMAIN|PORT_SILENCE_S)/],
  ['Remote: CreateOS', /^CORDON_CREATEOS_(?!MIN_ISOLATION|EXEC_S)/], ['Remote: Tenki', /^CORDON_TENKI_/], ['Remote: UCloud', /^CORDON_UCLOUD_/],
  ['Remote: Aliyun', /^CORDON_AGENTRUN_/],
  ['Where code runs', /^CORDON_(BACKENDS?|BACKEND_PLUGINS|PLUGIN_DIRS|ALLOW_NONE|MIN_ISOLATION|ACCEPT_EGRESS_EXCEPTIONS|REQUIRE_\w+|VERIFY_\w+|VERIFIED_HOURS|SECCOMP|STRICT_ARTIFACTS)$/],
  ['Network of guests', /^CORDON_(EGRESS_\w+|ALLOW_NETWORK|ALLOWED_DOMAINS)$/],
  ['Kept guests', /^CORDON_(GUEST_(?!START)\w+|MAX_GUESTS|REMOTE_UPLOADS_MB|WATCHERS)$/],
  ['Each key', /^CORDON_KEY_/], ['History', /^CORDON_HISTORY/],
  ['Pool and queue', /^CORDON_(POOL_\w+|MAX_RUNS|QUEUE\w*|GUEST_START_S)$/],
  ['Virtual machines', /^CORDON_(VM_\w+|ALLOW_SOFTWARE_EMULATION)$/],
  ['Templates and interpreters', /^CORDON_(TEMPLATES?\w*|PYTHON|NODE|UID_BASE)$/],
  ['Doors', /^CORDON_(EXECUTOR_\w+|CREATEOS_(MIN_ISOLATION|EXEC_S)|E2B_(DOMAIN|PORT_SILENCE_S)|RAGFLOW_EXTRA)$/],
  ['The daemon', /^CORDON_(LISTEN|STATE|USER|TLS_\w+|LOG_\w+|CONNECTIONS|IDLE_TIMEOUT_S|BODY_MB|SECRET_KEY)$/],
  ['Limits of a run', /./],
];
const ORDER = ['Where code runs', 'Limits of a run', 'Pool and queue', 'Kept guests', 'Network of guests', 'Each key', 'History'];

const groupOf = (row) => GROUPS.find(([, names]) => names.test(row.name))[0];
const editable = (row) => mayChange() && row.scope === 'runtime';

function input(row) {
  const common = { id: `set-${row.name}`, name: row.name, 'aria-describedby': `help-${row.name} wrong-${row.name}`, disabled: !editable(row) };
  if (row.type === 'boolean') return h('select', common, ['true', 'false'].map((o) => h('option', { value: o, selected: o === row.value }, o)));
  if (row.type === 'integer') return h('input', { ...common, type: 'number', value: row.value, min: row.min, max: row.max });
  return h('input', { ...common, type: row.secret ? 'password' : 'text', value: row.value, autocomplete: 'off', spellcheck: 'false' });
}

function sourceTag(row) {
  if (row.stored && row.overridden) return tag(`stored, but overridden by ${row.source}`, 'warn');
  return row.source === 'default' ? null : tag(row.source, row.source === 'stored' ? 'good' : '');
}

const bounds = (row) => row.type === 'integer' ? `${row.min} to ${row.max}${row.unit ? ` ${row.unit}` : ''}; default ${row.default}.` : row.default ? `Default ${row.default}.` : '';

function about(row) {
  const origin = row.stored ? h('span', {}, ' Stored ', time(row.changed_s * 1000), ' by ', h('code', {}, row.changed_by), '.') : null;
  const other = row.source !== 'default' && row.source !== 'stored' && row.set_by !== row.name ? ` Set as ${row.set_by}.` : null;
  return h('p', { class: 'help', id: `help-${row.name}` }, row.help, ' ', bounds(row), other, origin);
}

/* revision: of the settings when it was made, so that a change by somebody else since is told. */
function setting(row, revision, change) {
  const control = input(row), wrong = h('p', { class: 'error', id: `wrong-${row.name}`, role: 'alert' });
  const send = (value) => guarded(async () => {
    wrong.textContent = '';
    control.removeAttribute('aria-invalid');
    try {
      await change(row.name, value(), revision);
    } catch (error) {
      wrong.textContent = error.message;
      control.setAttribute('aria-invalid', 'true');
      control.focus();
    }
  });
  return h('form', { class: 'setting', novalidate: true, 'data-edits': true, onsubmit: send(() => control.value), 'data-text': `${row.name} ${row.help}`.toLowerCase(),
    'data-kind': `${row.scope} ${row.source === 'default' ? '' : 'changed'}` },
  h('div', {}, h('label', { for: control.id }, row.name), h('span', { class: 'tags' }, sourceTag(row), row.scope === 'deployment' ? tag('deployment') : null), about(row)),
  h('div', {}, h('div', { class: 'value' }, control,
    editable(row) ? [h('button', { type: 'submit' }, 'Save'), row.stored ? h('button', { type: 'button', class: 'second', onclick: send(() => null) }, 'Forget') : null] : null), wrong));
}

/* Groups as they are shown; those of services elsewhere last. */
function grouped(rows) {
  const groups = Map.groupBy(rows, groupOf), place = (name) => ORDER.includes(name) ? ORDER.indexOf(name) : name.startsWith('Remote') ? 99 : 50;
  return [...groups].sort(([a], [b]) => place(a) - place(b) || a.localeCompare(b));
}

const KINDS = [['', 'All'], ['changed', 'Not the default'], ['runtime', 'Can be changed here'], ['deployment', 'Deployment, read-only']];

export async function settings(main) {
  const search = h('input', { id: 'search', type: 'search', placeholder: 'Name or word' }), place = h('div');
  const kind = h('select', { id: 'kind' }, KINDS.map(([value, title]) => h('option', { value }, title)));
  const none = empty('No setting fits.');
  let shown = 0; // the revision of what is there
  const filter = () => {
    const word = search.value.trim().toLowerCase();
    for (const form of place.querySelectorAll('form')) form.hidden = !form.dataset.text.includes(word) || !form.dataset.kind.includes(kind.value);
    for (const group of place.querySelectorAll('section')) group.hidden = !group.querySelector('form:not([hidden])');
    none.hidden = !!place.querySelector('form:not([hidden])');
  };
  const show = (rows, revision) => {
    fill(place, grouped(rows).map(([title, members]) => h('section', { 'aria-label': title }, h('h2', {}, title), h('div', { class: 'settings' }, members.map((row) => setting(row, revision, change))))));
    shown = numberOf(revision);
    filter();
  };
  /* What is filled in elsewhere on the page stays as it is, and what a newer answer told that overtook this one. */
  const refresh = (rows, revision, name) => {
    const late = numberOf(revision) < shown;
    for (const row of rows) {
      const form = place.querySelector(`form:has([name="${row.name}"])`);
      if (row.name === name || !(late || form.hasAttribute('data-dirty'))) form.replaceWith(setting(row, revision, change));
    }
    if (!late) shown = numberOf(revision);
    filter();
    if (document.activeElement === document.body) place.querySelector(`[name="${name}"]`).focus(); // unless who saved is elsewhere already
  };
  const change = async (name, value, before) => {
    if (!await saveOver(before, [name], 'PUT', '/v1/admin/settings', { values: { [name]: value } })) return;
    const { settings: rows, revision } = await getSettings();
    refresh(rows, revision, name);
    note('good', value === null ? `${name} is forgotten.` : `${name} is saved.`);
  };
  search.addEventListener('input', filter);
  kind.addEventListener('change', filter);
  intro(main, 'What is saved here counts from the next run on. What belongs to the deployment (address, files, pools) is set in the environment or the file, and only shown.');
  main.append(h('div', { class: 'filters row' }, h('label', {}, 'Search', search), h('label', {}, 'Show', kind)), place, none);
  search.value = decodeURIComponent(location.hash.split('?')[1] ?? ''); // other pages link to one
  const { settings: rows, revision } = await getSettings();
  show(rows, revision);
}
