// SPDX-License-Identifier: Apache-2.0
/* Requests to the daemon, with the session's cookie and CSRF token. */

export const session = { csrf: '', scope: '', name: '' };
export const mayChange = () => session.scope === 'admin';

export class Refused extends Error {
  constructor(status, message, field) {
    super(message);
    this.status = status;
    this.field = field;
  }
}

/* Called when a session is over; a promise of whether there is one again. */
let renew = async () => false;
export function onSessionLost(call) {
  renew = call;
}

async function send(method, path, body, options) {
  const headers = { Accept: 'application/json', ...options.headers };
  if (method !== 'GET') headers['X-Cordon-CSRF'] = session.csrf;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  try {
    return await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      credentials: 'same-origin', signal: options.signal });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Refused(0, `the daemon can't be reached (${error.message}): is cordon serve running?`);
  }
}

/* A request that came too late for its session is sent again once there is another, so that nothing is lost. */
export async function raw(method, path, body, options = {}) {
  const answer = await send(method, path, body, options);
  if (answer.status !== 401 || ['/v1/admin/login', '/v1/admin/session'].includes(path)) return answer;
  return await renew() ? send(method, path, body, options) : answer;
}

async function valueOf(answer, path) {
  if (answer.status === 204) return null;
  const text = await answer.text();
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Refused(answer.status, `${path} answered ${answer.status} with what is no JSON`);
  }
  if (!answer.ok) throw new Refused(answer.status, value.error?.message ?? value.message ?? `status ${answer.status}`, value.field);
  return value;
}

export const call = async (method, path, body, options) => valueOf(await raw(method, path, body, options), path);
export const get = (path) => call('GET', path);

/* All settings, with what tells whether they are still the same (edits.js). */
export async function getSettings() {
  const answer = await raw('GET', '/v1/admin/settings');
  return { ...await valueOf(answer, '/v1/admin/settings'), revision: answer.headers.get('ETag') };
}

/* Calls each for every line of a streamed answer, as it comes. A promise that it returns is waited for. */
export async function lines(path, body, signal, each) {
  const answer = await raw('POST', path, body, { headers: { Accept: 'application/x-ndjson' }, signal });
  if (!answer.ok) await valueOf(answer, path);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    for (const part of parts) {
      if (part) await each(JSON.parse(part));
      signal.throwIfAborted(); // what came before the end may be more than was taken
    }
  }
}
