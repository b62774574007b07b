// SPDX-License-Identifier: Apache-2.0
// The npm package's own way to have a header put into a sandbox's requests. Prints what the sandbox got.
const { Sandbox } = await import(process.argv[2]);

const fetch = 'curl -sS -m 50 https://allowed.test/bytes/2';
const network = (value) => ({
    allowOut: ({ rules }) => [...rules.keys()],
    denyOut: ({ allTraffic }) => [allTraffic],
    rules: { 'allowed.test': [{ transform: { headers: { 'X-Key': value } } }] },
});

const sandbox = await Sandbox.create({ timeoutMs: 600_000, network: network(process.argv[3]) });
try {
    const first = (await sandbox.commands.run(fetch)).stdout;
    await sandbox.updateNetwork(network(process.argv[4]));
    const second = (await sandbox.commands.run(fetch)).stdout;
    const other = (await sandbox.commands.run('curl -sS -m 50 https://pypi.test/ >/dev/null 2>&1 || echo refused')).stdout;
    console.log(JSON.stringify([first, second, other]));
} finally {
    await sandbox.kill();
}
