// SPDX-License-Identifier: Apache-2.0
/* What each backend declares, beside what was measured. A difference is loud: a backend that promises what it does not
 * hold is the one thing that an operator must not miss. */
import { call, get, mayChange } from './api.js';
import { backendTable, banner, button, fill, h, intro, isolationTag, table, tag, time } from './dom.js';

const TITLES = {
  deny_all_egress: 'No network when it is off', egress_exceptions: 'Metadata and link-local out of reach', domain_allowlist: 'Only listed names when it is on',
  memory_limit: 'The memory limit', deadline: 'The deadline', output_truth: 'Output and exit status told as they were',
  fresh_guest: 'Nothing of the guest before', host_hidden: 'Nothing of the host\u2019s secrets',
};

const declared = (value) => value === null ? h('span', { class: 'soft' }, 'not declared') : value ? 'yes' : 'no';

function verdict(row) {
  if (row.differs) return tag('does not hold', 'bad');
  if (row.verified === null) return tag('not known', 'warn');
  return row.verified ? tag('holds', 'good') : tag('does not hold', row.declared === false ? '' : 'bad');
}

function measured(found) {
  const wrong = found.capabilities.filter((row) => row.differs);
  const more = found.capabilities.filter((row) => row.verified === false && row.declared === null);
  return h('div', {},
    wrong.length ? banner('bad', h('strong', {}, `${found.backend} declares what it does not hold: `), wrong.map((row) => TITLES[row.name] ?? row.name).join('; '),
      '. Policy believes only what was measured where CORDON_REQUIRE_VERIFIED is on.') : null,
    more.length ? banner('warn', `Found wanting, though nothing is declared for it: ${more.map((row) => TITLES[row.name] ?? row.name).join('; ')}.`) : null,
    table(`What ${found.backend} declares and what was measured`, ['Capability', 'Declared', 'Measured', 'Evidence'], found.capabilities.map((row) => [TITLES[row.name] ?? row.name, declared(row.declared), verdict(row),
      row.evidence || h('span', { class: 'soft' }, 'the probe told nothing')])),
    h('p', { class: 'help' }, 'Measured ', time(found.at * 1000), ` by version ${found.version}.`));
}

function backendCard(backend) {
  const place = h('div', { 'aria-live': 'polite' });
  const show = (found) => fill(place, found ? measured(found) : h('p', { class: 'soft' }, 'Nothing was measured yet.'));
  const verify = async () => {
    fill(place, banner('', `Probe programs run on ${backend.name}; it takes up to a minute.`));
    try {
      show(await call('POST', '/v1/verify', { backend: backend.name }));
    } catch (error) {
      show(backend.verified);
      place.prepend(banner('bad', error.message));
    }
  };
  show(backend.verified);
  return h('section', { class: 'card', 'aria-label': backend.name }, h('div', { class: 'tags' }, h('h2', { class: 'first' }, backend.name), isolationTag(backend.capabilities.isolation), backend.able ? tag('ready', 'good') : tag('not ready')),
    backend.able ? null : h('p', { class: 'help' }, backend.reason), place,
    mayChange() && backend.able ? h('div', { class: 'row' }, button(`Verify ${backend.name}`, verify, 'second')) : null);
}

export async function verify(main) {
  const { backends } = await get('/v1/backends');
  const order = (row) => (row.verified?.differences ? 0 : row.able ? 1 : 2);
  const known = backends.filter((row) => row.able || row.verified), others = backends.filter((row) => !known.includes(row));
  intro(main, 'What a backend declares decides which runs it may get. Verifying measures it by probe programs in fresh guests; ' +
    'what can be reached is known only with probe servers (CORDON_VERIFY_LISTED, CORDON_VERIFY_UNLISTED).');
  main.append(...mayChange() ? [] : [banner('warn', 'A key of scope view may look, but not verify.')],
  ...known.sort((a, b) => order(a) - order(b)).map(backendCard));
  if (others.length) main.append(h('h2', {}, 'Not ready, and never measured'), backendTable(others));
}
