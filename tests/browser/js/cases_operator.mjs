// SPDX-License-Identifier: Apache-2.0
/* Backends elsewhere, what is measured of them, kept guests and their terminal, and what a viewer may. */
import http from 'node:http';
import { check, config, goTo, holdAnswer, logIn, open, TITLES, until } from './browser.mjs';

async function choose(page, id, fields) {
  await page.check(`input[value=${id}]`, { force: true });
  await page.waitForSelector(`#field-${Object.keys(fields)[0]}`);
  for (const [name, value] of Object.entries(fields)) await page.fill(`#field-${name}`, String(value));
}

async function testConnection(page, kind) {
  await page.click('button:text-is("Test connection")');
  await page.waitForSelector(`main .banner.${kind}:has-text("Test ")`);
  return page.textContent(`main .banner.${kind}:has-text("Test ")`);
}

async function save(page) {
  await page.click('main form button[type=submit]');
  await page.waitForSelector('#notes .good:has-text("is saved")');
}

/* Nothing that somebody else wrote has become an element, a title or a request. */
async function onlyText(page, title) {
  check(await page.locator('main img, main script, main iframe, main .screen a').count() === 0, `${title}: text became an element`);
  check(await page.title() === `${title} - Cordon`, `the title became ${await page.title()}`);
}

const ATTACK = '<img src=x onerror="document.title=1">';

/* The page with an answer of the daemon's replaced. */
async function withAnswer(page, path, answer, title) {
  await page.route(`**${path}`, (route) => route.fulfill({ json: answer }));
  await goTo(page, 'Keys'); // from another page, so that it is asked anew
  await goTo(page, title);
  await until(page, `${title} does not show it`, async () => (await page.textContent('main')).includes(ATTACK));
  await onlyText(page, title);
}

async function openTerminal(page) {
  await page.click('tr:has-text("workshop") button:text-is("Terminal")');
  await page.waitForSelector('.screen:has-text("$")');
}

/* An executor manager that is healthy, and answers a run only when `answer` is called. */
async function heldManager() {
  const held = [], tell = (response, body) => response.end(JSON.stringify(body));
  const server = http.createServer((request, response) => {
    request.resume();
    if (request.method === 'GET') tell(response, { status: 'healthy' });
    else held.push(response);
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  const answer = (stdout) => { for (const response of held.splice(0)) tell(response, { status: 'success', stdout, stderr: ATTACK, exit_code: 0, time_used_ms: 1, memory_used_kb: 1, artifacts: [], detail: null }); };
  const close = () => { server.close(); server.closeAllConnections(); };
  return { url: `http://127.0.0.1:${server.address().port}`, held, answer, close };
}

const screen = (page) => page.textContent('.screen');

/* Sizes that `stty size | tr " " x` told, each a line that has come to its end. */
const sizes = async (page) => [...(await page.innerText('.screen')).matchAll(/^(\d+x\d+)\n/gm)].map(([, size]) => size);

export const cases = {
  async 'ssh with a wrong host key is refused, and with the right one it passes'() {
    const page = await open();
    await logIn(page, config.admin);
    await choose(page, 'ssh', { host: '127.0.0.1', port: config.ssh.other_port, username: 'root', private_key: config.ssh.key });
    const refusal = await testConnection(page, 'bad');
    check(refusal.includes('FAILED') && refusal.includes('another one'), `the refusal is: ${refusal}`);
    await page.fill('#field-port', String(config.ssh.port));
    check((await testConnection(page, 'good')).includes('PASSED'), 'the right key does not pass');
  },
  async 'a test is told while it happens, as text, and can be cancelled'() {
    const page = await open(), manager = await heldManager(), button = 'button:text-is("Test connection")';
    try {
      await logIn(page, config.admin);
      await choose(page, 'self_managed', { endpoint: manager.url });
      await page.click(button);
      await page.waitForSelector('main pre[role=log]:has-text("is there")');
      await until(page, 'the program was not sent', async () => manager.held.length === 1);
      check(await page.locator('main form .banner.good, main form .banner.bad').count() === 0, 'an outcome is shown before there is one');
      check(await page.isDisabled(button), 'a second test can be begun');
      await page.click('button:text-is("Cancel test")');
      await page.waitForSelector('main .banner.warn:has-text("Cancelled")');
      check(await page.locator('button:text-is("Cancel test")').count() === 0, 'what was cancelled can be cancelled');
      await page.click(button);
      await until(page, 'the program was not sent again', async () => manager.held.length === 2);
      manager.answer(`TEST_PASSED\n${ATTACK}`);
      await page.waitForSelector('main .banner.good:has-text("Test PASSED")');
      const log = await page.textContent('main pre[role=log]');
      check(/Looking for .*is there.*program runs.*TEST_PASSED/s.test(log) && log.split(ATTACK).length === 3, `the log is: ${log}`);
      await onlyText(page, 'Sandbox');
    } finally {
      manager.close();
    }
  },
  async 'self_managed at a second daemon: test, save, run, see the chart'() {
    const page = await open();
    await logIn(page, config.admin);
    await choose(page, 'self_managed', { endpoint: config.second.url, api_key: config.second.token });
    check((await testConnection(page, 'good')).includes('PASSED'), 'it does not pass');
    await save(page);
    await goTo(page, 'Try it');
    await page.click('button:text-is("Run")');
    await page.waitForSelector('.banner:has-text("exit code 0")');
    check((await page.textContent('main')).includes('self_managed'), 'it ran elsewhere');
    await page.waitForFunction(() => document.querySelector('.shown img')?.naturalWidth > 100);
  },
  async 'verify is loud about a backend that lies, and its evidence stays text'() {
    const page = await open();
    await logIn(page, config.admin);
    await choose(page, 'self_managed', { endpoint: config.liar });
    await save(page);
    await goTo(page, 'Verify');
    const card = page.locator('section[aria-label=self_managed]');
    await card.locator('button:text-is("Verify self_managed")').click();
    await card.locator('.banner.bad:has-text("declares what it does not hold")').waitFor();
    const row = card.locator('tr', { hasText: 'No network when it is off' });
    check((await row.textContent()).includes('does not hold') && (await row.textContent()).includes('onerror'), 'the evidence is not shown');
    await onlyText(page, 'Verify');
    await page.reload();
    await page.waitForSelector('main[data-shown="Verify"]');
    check(await page.locator('main section').first().getAttribute('aria-label') === 'self_managed', 'what lies does not stand first');
    await onlyText(page, 'Verify');
  },
  async 'a guest is made, paused, resumed and terminated'() {
    const page = await open();
    await logIn(page, config.admin);
    await goTo(page, 'Guests');
    for (const name of ['workshop', 'short-lived']) {
      await page.fill('#guest-name', name);
      await page.click('button:text-is("New guest")');
      await page.waitForSelector(`tr:has-text("${name}") .tag:text-is("running")`);
    }
    const row = page.locator('tr', { hasText: 'short-lived' });
    await row.locator('button:text-is("Pause")').click();
    await row.locator('.tag:text-is("paused")').waitFor();
    await row.locator('button:text-is("Resume")').click();
    await row.locator('.tag:text-is("running")').waitFor();
    await row.locator('button:text-is("Terminate")').click();
    await page.click('dialog:has-text("Terminate short-lived?") button:text-is("Terminate")');
    await row.waitFor({ state: 'detached' });
  },
  async 'a terminal: type echo, see its output'() {
    const page = await open();
    await logIn(page, config.admin);
    await goTo(page, 'Guests');
    await openTerminal(page);
    await page.keyboard.type('echo $((6 * 7))-seen\n');
    await page.waitForSelector('.screen:has-text("42-seen")');
    await page.keyboard.type('sleep 1000\n');
    await until(page, 'the size is not told', async () => { // before the program has the terminal nothing is interrupted
      await page.keyboard.press('Control+c');
      await page.keyboard.type('stty size | tr " " x\n');
      return (await sizes(page)).length;
    });
    const [wide] = await sizes(page);
    await page.setViewportSize({ width: 700, height: 900 });
    await page.focus('.typing');
    await until(page, 'the guest is not told the new size', async () => {
      await page.keyboard.type('stty size | tr " " x\n');
      return (await sizes(page)).some((size) => size !== wide);
    });
    await page.keyboard.press('Shift+Tab');
    check(await page.evaluate(() => !document.activeElement.matches('.typing')), 'the keyboard is caught in the terminal');
    await page.focus('.typing');
    await page.keyboard.type('exit 3\n');
    await page.waitForSelector('main section .banner:has-text("exit code 3")');
    await page.click('button:text-is("Close the terminal")');
    await page.waitForSelector('.screen', { state: 'detached' });
    await goTo(page, 'Audit');
    await page.waitForSelector('td:has-text("terminal.open")');
  },
  async 'a terminal whose page was left before it came is not opened'() {
    const page = await open(), opened = [];
    await logIn(page, config.admin);
    await goTo(page, 'Guests');
    page.on('request', (request) => { if (request.url().endsWith('/terminal')) opened.push(request.url()); });
    const module = await holdAnswer(page, '**/terminal.js');
    await page.click('tr:has-text("workshop") button:text-is("Terminal")');
    await until(page, 'the terminal was not asked for', module.is);
    await goTo(page, 'Keys');
    await module.release();
    await page.evaluate(() => import('/admin/terminal.js').then(() => new Promise(requestAnimationFrame)));
    check(opened.length === 0, 'it goes on where nobody sees it');
  },
  async 'a terminal on a slow link keeps what is typed in its order'() {
    const page = await open();
    await logIn(page, config.admin);
    await goTo(page, 'Guests');
    await openTerminal(page);
    const client = await page.context().newCDPSession(page);
    await client.send('Network.emulateNetworkConditions', { offline: false, latency: 400, downloadThroughput: 20000, uploadThroughput: 20000 });
    const words = Array.from({ length: 40 }, (_, i) => `w${i}`).join('-');
    for (const word of `echo ${words} | tr w W\n`.match(/.{1,7}/gs)) await page.keyboard.type(word);
    await until(page, 'what was typed did not come in its order', async () => (await screen(page)).replace(/\s/g, '').includes(words.replaceAll('w', 'W')));
  },
  async 'what a terminal is sent stays text'() {
    const page = await open();
    await logIn(page, config.admin);
    await goTo(page, 'Guests');
    await openTerminal(page);
    const hostile = `${ATTACK}\\033]0;title\\007\\033]8;;javascript:alert(1)\\033\\\\link\\033]8;;\\033\\\\ \\033]52;c;ZXZpbA==\\007\\033[999999999bend\\n`;
    await page.keyboard.type(`clear; printf '${hostile}'; seq 3000; echo la''st\n`);
    await page.waitForSelector('.screen:has-text("last")');
    check((await screen(page)).includes('3000'), 'a flood is not shown to its end');
    check(await page.locator('.screen > div').first().evaluate((past) => past.childElementCount <= 1000), 'what scrolled away is kept without end');
    await onlyText(page, 'Guests');
    await page.keyboard.type(`clear; printf '${hostile}'; echo e''nd\n`);
    await until(page, 'the attack is not shown', async () => (await screen(page)).includes(ATTACK));
    await onlyText(page, 'Guests');
  },
  async 'what templates, doctor and quotas tell stays text'() {
    const page = await open();
    await logIn(page, config.admin);
    await goTo(page, 'Doctor');
    await page.waitForSelector('td:text-is("user namespaces")');
    await page.waitForSelector('h2:text-is("The daemon")');
    await goTo(page, 'Templates');
    await page.waitForSelector('main:has-text("No template was made yet")');
    const template = { name: ATTACK, kind: ATTACK, from: ATTACK, pip: [ATTACK], npm: [], bytes: 5, created_s: 5, digest: ATTACK };
    await withAnswer(page, '/v1/templates', { templates: [template, { name: 'broken', reason: ATTACK }] }, 'Templates');
    await withAnswer(page, '/v1/admin/doctor', { ok: false, probes: [{ name: ATTACK, weight: 'needed', ok: false, found: ATTACK, fix: ATTACK }],
      daemon: { ready: false, error: { message: ATTACK }, version: ATTACK, backend: ATTACK, warden: null } }, 'Doctor');
    await withAnswer(page, '/v1/admin/quotas', { limits: { runs: 1, guests: null, memory_mb: null, rate_per_minute: null },
      keys: [{ id: ATTACK, name: ATTACK, scope: ATTACK, runs: 1, guests: 0, memory_mb: 0, rate_left: null }] }, 'Quotas');
    await page.waitForSelector('.tag.bad:text-is("1 of 1")');
    await page.unroute('**/v1/admin/quotas');
    await page.click('a:text-is("CORDON_KEY_RATE")');
    await page.waitForSelector('main[data-shown="Settings"]');
    check(await page.locator('main form:visible').count() === 1, 'the link does not lead to the one setting');
  },
  async 'a host that can not be looked at is told as not visible'() {
    const page = await open();
    await logIn(page, config.admin);
    await withAnswer(page, '/v1/admin/doctor', { ok: null, probes: null, reason: ATTACK, daemon: { ready: true, version: '1', backend: 'local', warden: {} } }, 'Doctor');
    await page.waitForSelector('.banner.warn:has-text("not visible")');
  },
  async 'a viewer sees all and can change nothing'() {
    const page = await open();
    await logIn(page, config.view);
    const harmless = ['Reload', 'Details', 'Older', 'Newer', 'Newest', 'Look again'];
    for (const title of TITLES) {
      await goTo(page, title);
      const offered = (await page.locator('main button:visible').allTextContents()).filter((text) => !harmless.includes(text));
      check(offered.length === 0, `a viewer is offered ${offered} on ${title}`);
      const open_ = await page.locator('main form :is(input, select, textarea):enabled').count();
      check(open_ === 0, `a viewer may fill in ${open_} fields on ${title}`);
    }
    await goTo(page, 'Guests');
    check((await page.textContent('main')).includes('workshop'), 'a viewer does not see the guests');
    const statuses = await page.evaluate(async (guest) => {
      const { csrf } = await (await fetch('/v1/admin/session')).json();
      const calls = [['POST', '/v1/verify', { backend: 'local' }], ['POST', '/v1/guests', {}], ['POST', `/v1/guests/${guest}/terminal`, {}],
        ['POST', `/v1/guests/${guest}/exec/1/input`, { data: 'x' }], ['POST', `/v1/guests/${guest}/exec/1/resize`, { cols: 80, rows: 24 }],
        ['POST', `/v1/guests/${guest}/pause`, {}], ['DELETE', `/v1/guests/${guest}`], ['POST', '/v1/runs', { language: 'bash', code: 'true' }],
        ['PUT', '/v1/admin/settings', { values: {} }], ['POST', '/v1/admin/keys', { name: 'x' }]];
      const answers = await Promise.all(calls.map(([method, path, body]) => fetch(path, { method, headers: { 'X-Cordon-CSRF': csrf, 'Content-Type': 'application/json' },
        body: body && JSON.stringify(body) })));
      return answers.map((answer) => answer.status);
    }, 'workshop');
    check(statuses.every((status) => status === 403), `a viewer was answered ${statuses}`);
  },
};
