// SPDX-License-Identifier: Apache-2.0
// Cases for the public `e2b` package, unmodified, against a daemon. argv: the package's name in node_modules.
// Prints a JSON line a case. The environment points the SDK at the daemon (E2B_API_URL, E2B_SANDBOX_URL, E2B_API_KEY).
import assert from 'node:assert/strict'
import http from 'node:http'
import { createHash } from 'node:crypto'
import { runCases, until, hostRequest } from './lib.mjs'

const sdk = await import(process.argv[2])
const { Sandbox } = sdk

const make = (options = {}) => Sandbox.create({ timeoutMs: 600_000, ...options })
const withSandbox = (body, options) => async () => {
  const sandbox = await make(options)
  try {
    await body(sandbox)
  } finally {
    await sandbox.kill().catch(() => {})
  }
}

export const cases = {
  create_and_info: withSandbox(async sandbox => {
    assert.match(sandbox.sandboxId, /^[a-z0-9]{20}$/)
    assert.equal(await sandbox.isRunning(), true)
    const info = await sandbox.getInfo()
    assert.equal(info.sandboxId, sandbox.sandboxId)
    assert.equal(info.templateId, 'base')
    assert.deepEqual(info.metadata, { purpose: 'a b/c' })
    assert.equal(info.state, 'running')
    const left = info.endAt.getTime() - Date.now()
    assert.ok(left > 400_000 && left < 605_000, String(left))
  }, { metadata: { purpose: 'a b/c' } }),

  kill: async () => {
    const sandbox = await make()
    assert.equal(await sandbox.kill(), true)
    assert.equal(await sandbox.isRunning(), false)
    assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
    await assert.rejects(sandbox.commands.run('true'), sdk.SandboxError)
    await assert.rejects(Sandbox.connect(sandbox.sandboxId), error => error.name !== 'AssertionError')
  },

  command: withSandbox(async sandbox => {
    const result = await sandbox.commands.run('echo out; echo err >&2; pwd; whoami')
    assert.equal(result.exitCode, 0)
    assert.equal(result.stdout, 'out\n/home/user\nuser\n')
    assert.equal(result.stderr, 'err\n')
  }),

  command_streams: withSandbox(async sandbox => {
    let seen = ''
    const say = 'for i in 1 2 3; do echo $i; until [ -e seen$i ]; do sleep 0.05; done; done' // goes on when it was seen
    const running = sandbox.commands.run(say, { onStdout: data => (seen += data) })
    for (const text of ['1\n', '1\n2\n', '1\n2\n3\n']) {
      await until(() => seen === text)
      await sandbox.files.write(`seen${text.length / 2}`, '')
    }
    assert.equal((await running).stdout, '1\n2\n3\n')
  }),

  command_utf8: withSandbox(async sandbox => {
    const result = await sandbox.commands.run(`python3 -c "import sys,time
for b in 'äöü€😀'.encode(): sys.stdout.buffer.write(bytes([b])); sys.stdout.flush(); time.sleep(0.01)"`)
    assert.equal(result.stdout, 'äöü€😀')
  }),

  command_failure: withSandbox(async sandbox => {
    await assert.rejects(sandbox.commands.run('echo no >&2; exit 3'), error => {
      assert.ok(error instanceof sdk.CommandExitError)
      assert.equal(error.exitCode, 3)
      assert.equal(error.stderr, 'no\n')
      return true
    })
  }),

  command_options: withSandbox(async sandbox => {
    const result = await sandbox.commands.run('echo $OWN-$ALL; pwd; whoami', { envs: { OWN: '1 2' }, cwd: '/tmp', user: 'root' })
    assert.equal(result.stdout, '1 2-x\n/tmp\nroot\n')
    await assert.rejects(sandbox.commands.run('true', { cwd: '/no/such' }), sdk.InvalidArgumentError)
    await assert.rejects(sandbox.commands.run('true', { user: 'nobody' }), sdk.AuthenticationError)
  }, { envs: { ALL: 'x' } }),

  command_background_and_kill: withSandbox(async sandbox => {
    const handle = await sandbox.commands.run('sleep 100', { background: true })
    const listed = await sandbox.commands.list()
    const found = listed.find(process => process.pid === handle.pid)
    assert.ok(found, JSON.stringify(listed))
    assert.equal(found.cmd, '/bin/bash')
    assert.deepEqual(found.args, ['-l', '-c', 'sleep 100'])
    assert.equal(await handle.kill(), true)
    await assert.rejects(handle.wait(), sdk.CommandExitError)
    assert.equal(await sandbox.commands.kill(handle.pid), false)
    assert.deepEqual((await sandbox.commands.list()).filter(process => process.pid === handle.pid), [])
  }),

  command_survives_its_client: withSandbox(async sandbox => {
    const handle = await sandbox.commands.run('sleep 1; echo done > /tmp/mark; sleep 100', { background: true })
    await handle.disconnect()
    await until(async () => await sandbox.files.exists('/tmp/mark'))
    const again = await sandbox.commands.connect(handle.pid)
    assert.equal(await again.kill(), true)
    await assert.rejects(again.wait())
  }),

  command_stdin: withSandbox(async sandbox => {
    let out = ''
    const handle = await sandbox.commands.run('read a; echo got $a; cat', { background: true, stdin: true, onStdout: data => (out += data) })
    await sandbox.commands.sendStdin(handle.pid, 'hello\n')
    await until(() => out.includes('got hello'))
    await sandbox.commands.sendStdin(handle.pid, 'more\n')
    await until(() => out.includes('more'))
    if (sandbox.commands.closeStdin) {
      await sandbox.commands.closeStdin(handle.pid)
      assert.equal((await handle.wait()).exitCode, 0)
    } else {
      await handle.kill()
      await handle.wait().catch(() => {})
    }
    const silent = await sandbox.commands.run('cat; echo end')
    assert.equal(silent.stdout, 'end\n')
  }),

  command_timeout: withSandbox(async sandbox => {
    await assert.rejects(sandbox.commands.run('sleep 50', { timeoutMs: 1000 }), sdk.TimeoutError)
    await until(async () => (await sandbox.commands.list()).length === 0)
  }),

  pty: withSandbox(async sandbox => {
    let out = ''
    const decoder = new TextDecoder()
    const handle = await sandbox.pty.create({ cols: 80, rows: 24, onData: data => (out += decoder.decode(data)) })
    const send = text => sandbox.pty.sendInput(handle.pid, new TextEncoder().encode(text))
    await send('stty size; echo T=$TERM\n')
    await until(() => out.includes('24 80') && out.includes('T=xterm-256color'))
    await sandbox.pty.resize(handle.pid, { cols: 100, rows: 30 })
    await send('stty size\n')
    await until(() => out.includes('30 100'))
    await send('exit 0\n')
    assert.equal((await handle.wait()).exitCode, 0)
  }),

  files_text_and_bytes: withSandbox(async sandbox => {
    const info = await sandbox.files.write('dir/a.txt', 'hällo')
    assert.equal(info.path, '/home/user/dir/a.txt')
    assert.equal(await sandbox.files.read('dir/a.txt'), 'hällo')
    assert.equal(await sandbox.files.read('/home/user/dir/a.txt'), 'hällo')
    const bytes = Uint8Array.from({ length: 256 }, (_, i) => i)
    await sandbox.files.write('/tmp/b.bin', bytes.buffer)
    assert.deepEqual(await sandbox.files.read('/tmp/b.bin', { format: 'bytes' }), bytes)
    await sandbox.files.write('empty', '')
    assert.equal(await sandbox.files.read('empty'), '')
    const name = 'odd name \' " & ä?#%25.txt'
    await sandbox.files.write(name, 'x')
    assert.equal(await sandbox.files.read(name), 'x')
    await sandbox.files.write('dir/a.txt', 'new')
    assert.equal(await sandbox.files.read('dir/a.txt'), 'new')
  }),

  files_gzip: withSandbox(async sandbox => {
    const text = 'packed '.repeat(10_000)
    await sandbox.files.write('packed', text, { gzip: true })
    assert.equal(await sandbox.files.read('packed'), text)
  }),

  files_many: withSandbox(async sandbox => {
    const write = sandbox.files.writeFiles ?? sandbox.files.write
    const infos = await write.call(sandbox.files, [{ path: '/tmp/m/1', data: 'one' }, { path: 'm2', data: 'two' }])
    assert.deepEqual(infos.map(info => info.path), ['/tmp/m/1', '/home/user/m2'])
    assert.equal(await sandbox.files.read('/tmp/m/1'), 'one')
    assert.equal(await sandbox.files.read('m2'), 'two')
  }),

  files_of_root: withSandbox(async sandbox => {
    await sandbox.files.write('/root/secret', 'r', { user: 'root' })
    assert.equal(await sandbox.files.read('/root/secret', { user: 'root' }), 'r')
    await assert.rejects(sandbox.files.read('/root/secret'))
  }),

  files_directories: withSandbox(async sandbox => {
    assert.equal(await sandbox.files.makeDir('d/e/f'), true)
    assert.equal(await sandbox.files.makeDir('d/e/f'), false)
    await sandbox.files.write('d/one', '12345')
    await sandbox.commands.run('ln -s one d/link')
    const list = (await sandbox.files.list('d')).map(entry => [entry.name, entry.type]).sort()
    // 2.31 has no word for links, and leaves them out.
    assert.deepEqual(list.map(entry => entry[0]), process.argv[2] === 'e2b-2-31' ? ['e', 'one'] : ['e', 'link', 'one'])
    assert.equal(list.find(entry => entry[0] === 'e')[1], 'dir')
    assert.equal(list.find(entry => entry[0] === 'one')[1], 'file')
    const deep = (await sandbox.files.list('d', { depth: 3 })).map(entry => entry.path).sort()
    assert.ok(deep.includes('/home/user/d/e/f'), String(deep))
    const info = await sandbox.files.getInfo('d/one')
    assert.equal(Number(info.size), 5)
    assert.equal(info.owner, 'user')
    assert.match(info.permissions, /^-rw/)
    const moved = await sandbox.files.rename('d/one', 'd/e/two')
    assert.equal(moved.path, '/home/user/d/e/two')
    assert.equal(await sandbox.files.exists('d/one'), false)
    assert.equal(await sandbox.files.exists('d/e/two'), true)
    await sandbox.files.remove('d')
    assert.equal(await sandbox.files.exists('d'), false)
  }),

  files_errors: withSandbox(async sandbox => {
    await assert.rejects(sandbox.files.read('none'), error => error instanceof sdk.NotFoundError)
    await assert.rejects(sandbox.files.list('none'), error => error instanceof sdk.NotFoundError)
    await assert.rejects(sandbox.files.read('/tmp'))
    await assert.rejects(sandbox.files.write('/proc/nope', 'x'))
  }),

  files_big: withSandbox(async sandbox => {
    const size = 100 << 20
    const data = Buffer.alloc(size)
    for (let i = 0; i < size; i += 4096) data.writeUInt32LE(i, i)
    const want = createHash('sha256').update(data).digest('hex')
    await sandbox.files.write('/tmp/big', data.buffer.slice(data.byteOffset, data.byteOffset + size), { requestTimeoutMs: 120_000 })
    const sum = await sandbox.commands.run('sha256sum /tmp/big')
    assert.equal(sum.stdout.split(' ')[0], want)
    const back = await sandbox.files.read('/tmp/big', { format: 'bytes', requestTimeoutMs: 120_000 })
    assert.equal(back.length, size)
    assert.equal(createHash('sha256').update(back).digest('hex'), want)
  }),

  files_watch: withSandbox(async sandbox => {
    await sandbox.files.makeDir('w')
    const events = []
    const handle = await sandbox.files.watchDir('w', event => events.push([event.type, event.name]))
    await sandbox.files.write('w/a', 'x')
    await until(() => events.some(([type, name]) => type === 'create' && name === 'a'))
    await sandbox.files.write('w/a', 'y')
    await until(() => events.some(([type, name]) => type === 'write' && name === 'a'))
    await sandbox.commands.run('mv w/a w/b; rm w/b')
    await until(() => events.some(([type]) => type === 'rename') && events.some(([type, name]) => type === 'remove' && name === 'b'))
    await handle.stop()
    await assert.rejects(sandbox.files.watchDir('none', () => {}), error => error instanceof sdk.NotFoundError)
  }),

  files_watch_recursive: withSandbox(async sandbox => {
    await sandbox.files.makeDir('w/x')
    const events = []
    const handle = await sandbox.files.watchDir('w', event => events.push(event.name), { recursive: true })
    await sandbox.files.write('w/x/deep', '1')
    await until(() => events.includes('x/deep'))
    await handle.stop()
  }),

  signed_urls: withSandbox(async sandbox => {
    const upload = await sandbox.uploadUrl('signed.txt', { useSignatureExpiration: 60 })
    const form = new FormData()
    form.append('file', new Blob(['by url']), 'signed.txt')
    const sent = await fetch(upload, { method: 'POST', body: form })
    assert.equal(sent.status, 200, await sent.text())
    assert.equal(await sandbox.files.read('signed.txt'), 'by url')
    const download = await sandbox.downloadUrl('signed.txt')
    const got = await fetch(download)
    assert.equal(got.status, 200)
    assert.equal(await got.text(), 'by url')
    const forged = download.replace('signed.txt', 'other.txt')
    assert.equal((await fetch(forged)).status, 401)
    const expired = await sandbox.downloadUrl('signed.txt', { useSignatureExpiration: -10 })
    assert.equal((await fetch(expired)).status, 401)
  }),

  list_and_metadata: async () => {
    const mark = `m-${process.pid} & %=ä`
    const first = await make({ metadata: { mark, n: '1' } })
    const second = await make({ metadata: { mark, n: '2' } })
    try {
      const all = async query => {
        const paginator = Sandbox.list({ query, limit: 1 })
        const found = []
        while (paginator.hasNext) found.push(...(await paginator.nextItems()))
        return found.map(info => info.sandboxId).sort()
      }
      assert.deepEqual(await all({ metadata: { mark } }), [first.sandboxId, second.sandboxId].sort())
      assert.deepEqual(await all({ metadata: { mark, n: '2' } }), [second.sandboxId])
      assert.deepEqual(await all({ metadata: { mark: 'none' } }), [])
      await (second.pause ?? second.betaPause).call(second)
      assert.deepEqual(await all({ metadata: { mark }, state: ['paused'] }), [second.sandboxId])
      assert.deepEqual(await all({ metadata: { mark }, state: ['running'] }), [first.sandboxId])
    } finally {
      await first.kill()
      await second.kill()
    }
  },

  pause_and_resume: withSandbox(async sandbox => {
    await sandbox.files.write('kept', 'yes')
    const counter = await sandbox.commands.run('i=0; while sleep 0.1; do i=$((i+1)); echo $i > /tmp/i; done', { background: true })
    await until(async () => await sandbox.files.exists('/tmp/i'))
    const pause = sandbox.pause ?? sandbox.betaPause
    await pause.call(sandbox)
    assert.equal(await sandbox.isRunning(), false)
    assert.equal((await Sandbox.getInfo(sandbox.sandboxId)).state, 'paused')
    const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
    assert.equal(await again.files.read('kept'), 'yes')
    const before = Number(await again.files.read('/tmp/i'))
    await until(async () => Number(await again.files.read('/tmp/i')) > before)
    assert.equal(await again.commands.kill(counter.pid), true)
  }),

  timeouts: withSandbox(async sandbox => {
    await sandbox.setTimeout(300_000)
    const later = (await sandbox.getInfo()).endAt.getTime() - Date.now()
    assert.ok(later > 250_000 && later < 305_000, String(later))
    await sandbox.setTimeout(1000)
    await until(async () => !(await sandbox.isRunning()))
  }),

  port_http: withSandbox(async sandbox => {
    await sandbox.files.write('site/index.html', 'served')
    await sandbox.commands.run('cd site && python3 -m http.server 8000', { background: true })
    const host = sandbox.getHost(8000)
    assert.match(host, new RegExp(`^8000-${sandbox.sandboxId}\\.localhost:\\d+$`))
    await until(async () => (await hostRequest(host, '/')).status === 200)
    const answer = await hostRequest(host, '/index.html?x=1')
    assert.equal(answer.body, 'served')
    assert.equal((await hostRequest(host, '/none')).status, 404)
    assert.equal((await hostRequest(sandbox.getHost(8001), '/')).status, 502)
  }),

  port_websocket: withSandbox(async sandbox => {
    await sandbox.files.write('ws.py', `
import base64, hashlib, socket
server = socket.create_server(("127.0.0.1", 8002))
while True:
    conn, _ = server.accept()
    head = b""
    while b"\\r\\n\\r\\n" not in head: head += conn.recv(4096)
    key = [l.split(b": ")[1] for l in head.split(b"\\r\\n") if l.lower().startswith(b"sec-websocket-key")][0]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    conn.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
    while True:
        data = conn.recv(4096)
        if not data: break
        conn.sendall(data)
`)
    await sandbox.commands.run('python3 ws.py', { background: true })
    const host = sandbox.getHost(8002)
    const echoed = await until(() => new Promise((resolve, reject) => {
      const url = new URL(process.env.E2B_SANDBOX_URL)
      const request = http.request({
        host: url.hostname, port: url.port, path: '/socket',
        headers: { Host: host, Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==', 'Sec-WebSocket-Version': '13' },
      })
      request.on('upgrade', (response, socket) => {
        if (response.headers['sec-websocket-accept'] !== 's3pPLMBiTxaQ9kYGzzhZRbK+xOo=') reject(new Error('accept'))
        socket.on('data', data => { socket.destroy(); resolve(data.toString()) })
        socket.on('error', reject)
        socket.write('ping')
      })
      request.on('response', response => { response.resume(); resolve(undefined) })
      request.on('error', reject)
      request.end()
    }))
    assert.equal(echoed, 'ping')
  }),

  port_private: withSandbox(async sandbox => {
    await sandbox.commands.run('python3 -m http.server 8003', { background: true })
    const host = sandbox.getHost(8003)
    assert.equal((await hostRequest(host, '/')).status, 403)
    const token = sandbox.trafficAccessToken
    assert.ok(token)
    await until(async () => (await hostRequest(host, '/', { 'E2B-Traffic-Access-Token': token })).status === 200)
  }, { network: { allowPublicTraffic: false } }),

  metrics: withSandbox(async sandbox => {
    const metrics = await sandbox.getMetrics()
    assert.equal(metrics.length, 1)
    assert.ok(metrics[0].memTotal > 0 && metrics[0].cpuCount >= 1)
  }),

  network_is_truthful: withSandbox(async sandbox => {
    const info = await (await fetch(`${process.env.E2B_API_URL}/sandboxes/${sandbox.sandboxId}`, { headers: { 'X-API-KEY': process.env.E2B_API_KEY } })).json()
    assert.equal(info.allowInternetAccess, false) // the operator of this test lets nobody out
  }),

  not_implemented: withSandbox(async sandbox => {
    if (sandbox.createSnapshot) await assert.rejects(sandbox.createSnapshot(), /not implemented/)
    await assert.rejects(make({ mcp: { browserbase: { apiKey: 'x' } } }), /not implemented/)
    await assert.rejects(make({ network: { allowOut: ['1.1.1.1'] }, allowInternetAccess: false }), error => error instanceof sdk.SandboxError)
  }),

  wrong_key: async () => {
    await assert.rejects(make({ apiKey: 'e2b_' + '0'.repeat(40) }), sdk.AuthenticationError)
  },

  templates_exist: async () => {
    if (!sdk.Template?.exists) return // newer than 2.31
    assert.equal(await sdk.Template.exists('base'), true)
    assert.equal(await sdk.Template.exists('no-such-template'), false)
  },

  unknown_template: async () => {
    await assert.rejects(make.call(null, {}) && Sandbox.create('no-such-template', { timeoutMs: 5000 }), error => error instanceof sdk.SandboxError)
  },
}

await runCases(cases)
