// SPDX-License-Identifier: Apache-2.0
/* What is there to run with: templates, what keys may have, what the host lacks. */
import { get } from './api.js';
import { banner, bytes, button, empty, fill, h, intro, pairs, table, tag, time } from './dom.js';

export async function templates(main) {
  const { templates: rows } = await get('/v1/templates');
  intro(main, 'What a guest starts from. The default one is the host\u2019s own /usr; others are made on the host and named by requests.');
  main.append(rows.length ? table('Templates', ['Name', 'Kind', 'From', 'Packages', '#Size', 'Made', 'Digest'], rows.map((row) => row.reason
    ? [row.name, tag('can not be read', 'bad'), h('div', { class: 'error' }, row.reason)]
    : [row.name, row.kind, row.from, [...row.pip, ...row.npm].join(', '), bytes(row.bytes), time(row.created_s * 1000), h('code', {}, row.digest.slice(0, 12))]))
    : empty('No template was made yet: ', h('code', {}, 'cordon template create'), ' makes one.'));
}

const LIMITS = [['runs', 'Runs at once', 'CORDON_KEY_RUNS'], ['guests', 'Kept guests', 'CORDON_KEY_GUESTS'],
  ['memory_mb', 'Memory (MiB)', 'CORDON_KEY_MEMORY_MB'], ['rate_per_minute', 'Starts a minute', 'CORDON_KEY_RATE']];

/* "3 of 10", loud when nothing is left; without a limit only what there is. */
function used(value, limit) {
  if (limit === null) return String(value);
  return value >= limit ? tag(`${value} of ${limit}`, 'bad') : `${value} of ${limit}`;
}

export async function quotas(main) {
  const place = h('div', { 'aria-live': 'polite' });
  const load = async () => {
    const { limits, keys } = await get('/v1/admin/quotas');
    const started = (row) => limits.rate_per_minute === null ? h('span', { class: 'soft' }, 'not limited') : used(limits.rate_per_minute - row.rate_left, limits.rate_per_minute);
    fill(place, h('div', { class: 'card' }, h('h2', { class: 'first' }, 'Limits of each key'),
      pairs(LIMITS.map(([name, title, setting]) => [title, h('span', {}, limits[name] === null ? 'no limit of its own' : String(limits[name]), ' (',
        h('a', { href: `#settings?${setting}` }, setting), ')')]))),
    h('h2', {}, 'What each has now'), keys.length ? table('What each key has', ['Key', 'Name', 'Scope', '#Runs', '#Guests', '#Memory (MiB)', '#Starts'], keys.map((row) => [h('code', {}, row.id),
      row.name, row.scope, used(row.runs, limits.runs), used(row.guests, limits.guests), used(row.memory_mb, limits.memory_mb), started(row)]))
      : empty('There are no keys.'));
  };
  intro(main, 'What one key may have, and what each has now.', button('Reload', load, 'second'));
  main.append(place);
  await load();
}

const WEIGHTS = { needed: 'missing', lessens: 'lacks', info: 'note' };

function probe(row) {
  return [row.ok ? tag('ok', 'good') : tag(WEIGHTS[row.weight] ?? row.weight, row.weight === 'needed' ? 'bad' : 'warn'), row.name,
    h('div', {}, row.found, row.ok || !row.fix ? null : h('p', { class: 'help' }, 'Mend: ', row.fix))];
}

function hostOf(found) {
  if (!found.probes) return [banner('warn', `The host is not visible from here: ${found.reason}. cordon doctor on the host tells more.`)];
  const lacking = found.probes.filter((row) => !row.ok), fine = found.probes.filter((row) => row.ok);
  return [banner(found.ok ? 'good' : 'bad', found.ok ? 'All that isolation needs is there.' : 'Something that isolation needs is missing.'),
    table('What the host has', ['State', 'What', 'Found'], [...lacking, ...fine].map(probe))];
}

function daemonOf(daemon) {
  return [h('h2', {}, 'The daemon'), banner(daemon.ready ? 'good' : 'bad', daemon.ready ? 'A run on the default backend could start now.' : daemon.error.message),
    pairs([['Version', daemon.version], ['Default backend', daemon.backend], ['Running', daemon.running], ['Waiting', daemon.waiting],
      ['Warden', daemon.warden ? Object.entries(daemon.warden).map(([name, able]) => `${name} ${able ? 'yes' : 'no'}`).join(', ') : 'not connected']])];
}

export async function doctor(main) {
  const place = h('div', { 'aria-live': 'polite' });
  const load = async () => {
    fill(place, empty('The supervisor looks at the host...'));
    const found = await get('/v1/admin/doctor');
    fill(place, ...hostOf(found), ...daemonOf(found.daemon));
  };
  intro(main, 'What isolation needs of this host, tried as cordon doctor tries it.', button('Look again', load, 'second'));
  main.append(place);
  await load();
}
