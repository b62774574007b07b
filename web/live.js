// SPDX-License-Identifier: Apache-2.0
/* What the daemon does now, from /readyz, /metrics and the quotas, every two seconds. */
import { get, raw } from './api.js';
import { backendTable, banner, fill, h, intro, milliseconds, svg } from './dom.js';

const EVERY_MS = 2000, KEPT = 60;

/* Prometheus text: name{labels} value -> [[name, labels, number]]. */
export function parseMetrics(text) {
  return text.split('\n').filter((line) => line && !line.startsWith('#')).map((line) => {
    const [, name, labels, value] = line.match(/^([a-z_]+)(?:\{(.*)\})? (\S+)/) ?? [];
    return [name, labels ?? '', Number(value)];
  }).filter(([name]) => name);
}

const sum = (rows, wanted) => rows.reduce((total, [name, , value]) => total + (name === wanted ? value : 0), 0);

function buckets(rows, wanted) {
  return rows.filter(([name]) => name === `${wanted}_bucket`)
    .map(([, labels, value]) => [labels.match(/le="([^"]+)"/)?.[1] === '+Inf' ? Infinity : Number(labels.match(/le="([^"]+)"/)?.[1]), value]);
}

/* The quantile of what came between two readings; null: nothing came. */
export function quantile(before, after, q) {
  const counts = after.map(([edge, value], i) => [edge, value - (before[i]?.[1] ?? 0)]);
  const all = counts.at(-1)?.[1] ?? 0;
  if (!all) return null;
  const found = counts.find(([, value]) => value >= q * all);
  return found[0] === Infinity ? counts.at(-2)?.[0] ?? null : found[0];
}

/* --- a number and how it was --- */

/* From left (oldest) to right (now), the largest at the top. */
const points = (values, top) => values.map((v, i) => `${100 - (100 * (values.length - 1 - i)) / (KEPT - 1)},${29 - (27 * v) / top}`);

function figure(title, textOf) {
  const number = h('b', {}, '\u2013'), most = h('span', {}), values = [];
  const line = svg('polyline', { points: '' }), area = svg('polygon', { points: '' });
  const plot = svg('svg', { viewBox: '0 0 100 30', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  plot.append(area, line);
  return {
    element: h('div', { class: 'card figure' }, h('span', { class: 'soft' }, title), number, plot,
      h('div', { class: 'axis', 'aria-hidden': 'true' }, h('span', {}, '2 min ago'), most, h('span', {}, 'now'))),
    /* null: nothing is known of now. */
    add(value, text) {
      number.textContent = text ?? (value === null ? '\u2013' : textOf(value));
      values.push(value ?? 0);
      if (values.length > KEPT) values.shift();
      const top = Math.max(...values), at = points(values, top || 1);
      most.textContent = top ? `most ${textOf(top)}` : '';
      line.setAttribute('points', at.join(' '));
      area.setAttribute('points', [`${at[0].split(',')[0]},30`, ...at, '100,30'].join(' '));
    },
  };
}

const count = (value) => String(Math.round(value)), rate = (value) => value.toFixed(1), percent = (value) => `${Math.round(value)} %`;

const makeFigures = () => ({ rate: figure('Runs per second', rate), p50: figure('Median time of a run', milliseconds), p95: figure('95 % take at most', milliseconds),
  running: figure('Running', count), waiting: figure('Waiting in the queue', count), warm: figure('Guests out of the pool', percent),
  kept: figure('Kept guests running', count), memory: figure('Memory that keys hold', (value) => `${Math.round(value)} MiB`) });

async function read() {
  const [ready, answer, quotas] = await Promise.all([raw('GET', '/readyz').then((r) => r.json()), raw('GET', '/metrics', undefined, { headers: { Accept: 'text/plain' } }),
    get('/v1/admin/quotas')]);
  const rows = parseMetrics(await answer.text()), total = (name) => sum(rows, name);
  return { ready, now: performance.now(), done: total('cordon_runs_total'), times: buckets(rows, 'cordon_total_seconds'), warm: total('cordon_guests_warm_total'),
    cold: total('cordon_guests_cold_total'), kept: total('cordon_kept_guests_running'), memory: quotas.keys.reduce((all, key) => all + key.memory_mb, 0) };
}

function show(figures, now, last) {
  const { ready } = now;
  figures.running.add(ready.running, `${ready.running} of ${ready.max_runs}`);
  figures.waiting.add(ready.waiting);
  figures.kept.add(now.kept);
  figures.memory.add(now.memory);
  if (!last || now.done < last.done) return; // counters begin anew with the daemon
  const warm = now.warm - last.warm, all = warm + now.cold - last.cold, inSeconds = (value) => value === null ? null : value * 1000;
  figures.rate.add(((now.done - last.done) * 1000) / (now.now - last.now));
  figures.p50.add(inSeconds(quantile(last.times, now.times, 0.5)));
  figures.p95.add(inSeconds(quantile(last.times, now.times, 0.95)));
  figures.warm.add(all ? (100 * warm) / all : null);
}

export async function live(main) {
  const { backends } = await get('/v1/backends'), figures = makeFigures(), state = h('div', { 'aria-live': 'polite' });
  let last = null, stopped = false, told = '';
  const tell = (kind, text) => { // said once, not every two seconds
    if (text !== told) fill(state, banner(kind, text));
    told = text;
  };
  intro(main, 'Read every two seconds while this page is open.');
  main.append(state, h('div', { class: 'figures' }, Object.values(figures).map((one) => one.element)));

  const look = async () => {
    const now = await read();
    if (now.ready.ready) tell('good', `Ready. Default backend ${now.ready.backend}, version ${now.ready.version}.`);
    else tell('bad', now.ready.error?.message ?? 'not ready');
    show(figures, now, last);
    last = now;
  };
  const tick = async () => {
    if (stopped) return;
    await look().catch((error) => tell('bad', `${error.message} It is asked again every two seconds.`));
    if (!stopped) setTimeout(tick, EVERY_MS);
  };
  await tick();
  main.append(h('h2', {}, 'Backends'), backendTable(backends, last?.ready.backend));
  return () => { stopped = true; };
}
