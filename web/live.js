// SPDX-License-Identifier: Apache-2.0
/* What the daemon does now, from /readyz and /metrics, every two seconds. */
import { get, raw } from './api.js';
import { banner, h, milliseconds, svg } from './dom.js';

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

function figure(title) {
  const number = h('b', {}, '-'), plot = svg('svg', { viewBox: '0 0 100 30', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  const line = svg('polyline', { points: '' });
  const values = [];
  plot.append(line);
  return {
    element: h('div', { class: 'card figure' }, h('span', { class: 'soft' }, title), number, plot),
    add(value, text) {
      number.textContent = text;
      values.push(value ?? 0);
      if (values.length > KEPT) values.shift();
      const top = Math.max(...values, 1e-9);
      line.setAttribute('points', values.map((v, i) => `${(100 * i) / (KEPT - 1)},${29 - (28 * v) / top}`).join(' '));
    },
  };
}

export async function live(main) {
  const figures = { rate: figure('Runs per second'), p50: figure('Median time of a run'), p95: figure('95 % take at most'),
    running: figure('Running'), waiting: figure('Waiting'), warm: figure('Guests that were ready'), connections: figure('Connections') };
  const state = h('div', { 'aria-live': 'polite' });
  let last = null, stopped = false;
  main.append(state, h('div', { class: 'figures' }, Object.values(figures).map((one) => one.element)));

  const look = async () => {
    const [ready, answer] = await Promise.all([raw('GET', '/readyz').then((r) => r.json()), raw('GET', '/metrics', undefined, { headers: { Accept: 'text/plain' } })]);
    const rows = parseMetrics(await answer.text()), now = performance.now();
    const done = sum(rows, 'cordon_runs_total'), times = buckets(rows, 'cordon_total_seconds');
    state.replaceChildren(ready.ready ? banner('good', `Ready. Default backend ${ready.backend}, version ${ready.version}.`)
      : banner('bad', ready.error?.message ?? 'not ready'));
    figures.running.add(ready.running, `${ready.running} of ${ready.max_runs}`);
    figures.waiting.add(ready.waiting, String(ready.waiting));
    figures.connections.add(sum(rows, 'cordon_http_connections'), String(sum(rows, 'cordon_http_connections')));
    if (last) {
      const rate = ((done - last.done) * 1000) / (now - last.now);
      const middle = quantile(last.times, times, 0.5), late = quantile(last.times, times, 0.95);
      const warm = sum(rows, 'cordon_guests_warm_total') - last.warm, cold = sum(rows, 'cordon_guests_cold_total') - last.cold;
      figures.rate.add(rate, rate.toFixed(1));
      figures.p50.add(middle, middle === null ? '-' : milliseconds(middle * 1000));
      figures.p95.add(late, late === null ? '-' : milliseconds(late * 1000));
      figures.warm.add(warm + cold ? warm / (warm + cold) : 0, warm + cold ? `${Math.round((100 * warm) / (warm + cold))} %` : '-');
    }
    last = { done, times, now, warm: sum(rows, 'cordon_guests_warm_total'), cold: sum(rows, 'cordon_guests_cold_total') };
  };
  const tick = async () => {
    if (stopped) return;
    await look().catch((error) => state.replaceChildren(banner('bad', error.message)));
    if (!stopped) setTimeout(tick, EVERY_MS);
  };
  await tick();
  await get('/v1/backends').then(({ backends }) => main.append(h('h2', {}, 'Backends'), ...backends.map((row) =>
    banner(row.able ? 'good' : '', `${row.name}: ${row.able ? 'ready' : row.reason}`))));
  return () => { stopped = true; };
}
