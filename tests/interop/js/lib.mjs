// SPDX-License-Identifier: Apache-2.0
// What the case files share.
import http from 'node:http'

// Waits until condition() is true (or gives something), asking every 50 ms.
export async function until(condition, limitMs = 60_000) {
  const end = Date.now() + limitMs
  for (;;) {
    const found = await condition()
    if (found) return found
    if (Date.now() > end) throw new Error(`it did not come about: ${condition}`)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

// A request to the daemon under a sandbox's own host name, which need not resolve here.
export function hostRequest(host, path, headers = {}) {
  const url = new URL(process.env.E2B_SANDBOX_URL)
  return new Promise((resolve, reject) => {
    const request = http.request({ host: url.hostname, port: url.port, path, headers: { Host: host, ...headers } }, response => {
      let body = ''
      response.setEncoding('utf8')
      response.on('data', data => (body += data))
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, body }))
      response.on('error', reject)
    })
    request.on('error', reject)
    request.end()
  })
}

// Each case as a line {"case","error"}; ONLY=name,name runs only these. A case that hangs is one that fails.
export async function runCases(cases) {
  const only = process.env.ONLY ? process.env.ONLY.split(',') : Object.keys(cases)
  for (const name of only) {
    let error = null
    let timer
    const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error('no end after 240 s')), 240_000)))
    try {
      await Promise.race([cases[name](), late])
    } catch (caught) {
      error = String(caught?.stack ?? caught)
    }
    clearTimeout(timer)
    process.stdout.write(JSON.stringify({ case: name, error }) + '\n')
  }
  process.exit(0)
}
