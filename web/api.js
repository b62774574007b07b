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

let lost = () => {};
export function onSessionLost(call) {
  lost = call;
}

export async function raw(method, path, body, options = {}) {
  const headers = { Accept: 'application/json', ...options.headers };
  if (method !== 'GET') headers['X-Cordon-CSRF'] = session.csrf;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      credentials: 'same-origin', signal: options.signal });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Refused(0, `the daemon can't be reached (${error.message}): is cordon serve running?`);
  }
  if (answer.status === 401 && path !== '/v1/admin/login' && path !== '/v1/admin/session') lost();
  return answer;
}

export async function call(method, path, body, options) {
  const answer = await raw(method, path, body, options);
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

export const get = (path) => call('GET', path);

/* Calls each for every line of a streamed answer, as it comes. A promise that it returns is waited for. */
export async function lines(path, body, signal, each) {
  const answer = await raw('POST', path, body, { headers: { Accept: 'application/x-ndjson' }, signal });
  if (!answer.ok) {
    const value = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, value.error?.message ?? `status ${answer.status}`);
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    for (const part of parts) if (part) await each(JSON.parse(part));
  }
}
