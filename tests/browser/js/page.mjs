// SPDX-License-Identifier: Apache-2.0
/* The operator's whole work in a real browser. Arguments: base address, admin key, view key, one-time link, folder for
 * screenshots ('' for none). Each case prints {"case", "error"}. */
import { createRequire } from 'node:module';
import fs from 'node:fs';
import path from 'node:path';

const require = createRequire(path.join(process.cwd(), 'x.js'));
const { chromium } = require('playwright-core');
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const [base, adminKey, viewKey, link, shots, chrome] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: chrome, args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-quic',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'] });

const problems = [];
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(40000);
  page.on('pageerror', (error) => problems.push(`page error: ${error.message}`));
  page.on('console', (message) => { if (message.type() === 'error' && !/status of 4\d\d/.test(message.text())) problems.push(`console: ${message.text()}`); });
  page.on('request', (request) => { if (!request.url().startsWith(base) && !/^(data|blob):/.test(request.url())) problems.push(`asked elsewhere: ${request.url()}`); });
  return page;
}

async function logIn(page, key) {
  await page.goto(`${base}/admin/`);
  await page.fill('#key', key);
  await page.click('button[type=submit]');
  await page.waitForSelector('nav a');
}

async function goTo(page, title) {
  await page.click(`nav a:text-is("${title}")`);
  await page.waitForSelector(`h1:text-is("${title}")`);
}

function check(truth, what) {
  if (!truth) throw new Error(what);
}

const cases = {
  async 'the one-time link logs in once, and leaves the address'() {
    const page = await open();
    await page.goto(`${base}/admin/#link=${link}`);
    await page.waitForSelector('nav a');
    check(!page.url().includes(link), 'the link is still in the address');
    const second = await open();
    await second.goto(`${base}/admin/#link=${link}`);
    await second.waitForSelector('#key');
    check((await second.textContent('#wrong')).includes('was used already'), 'no word of the used link');
  },
  async 'a wrong key is told at its field'() {
    const page = await open();
    await page.goto(`${base}/admin/`);
    await page.fill('#key', 'e2b_' + '0'.repeat(40));
    await page.click('button[type=submit]');
    await page.waitForSelector('#key[aria-invalid=true]');
    check((await page.textContent('#wrong')).includes('not known'), 'no reason is given');
  },
  async 'choose local, save, test connection'() {
    const page = await open();
    await logIn(page, adminKey);
    await page.check('input[value=local]', { force: true });
    await page.waitForSelector('#field-timeout');
    await page.fill('#field-timeout', '25');
    await page.click('button:text-is("Save")');
    await page.waitForSelector('#notes .good');
    await page.click('button:text-is("Test connection")');
    await page.waitForSelector('.banner.good:has-text("Test PASSED")');
    check((await page.textContent('pre')).includes('Math.sqrt(16) = 4.0'), 'the output is not shown');
    await goTo(page, 'Audit');
    await page.waitForSelector('td:has-text("CORDON_TIMEOUT_S")');
  },
  async 'a broken field is told where it is'() {
    const page = await open();
    await logIn(page, adminKey);
    await page.fill('#field-timeout', '0');
    await page.click('button:text-is("Save")');
    await page.waitForSelector('#field-timeout[aria-invalid=true]');
    check((await page.textContent('#field-timeout-error')).includes('>= 1'), 'no bound is named');
  },
  async 'run a program, see its output and its picture'() {
    const page = await open();
    await logIn(page, adminKey);
    await goTo(page, 'Try it');
    await page.fill('#code', "print('<img src=x onerror=alert(1)>')\nimport base64\nopen('artifacts/<b>dot.png', 'wb').write(base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=='))");
    await page.click('button:text-is("Run")');
    await page.waitForSelector('.banner:has-text("exit code 0")');
    check((await page.textContent('pre')).includes('<img src=x onerror=alert(1)>'), 'the output is not shown as text');
    check(await page.locator('pre img').count() === 0, 'output became HTML');
    await page.waitForSelector('.shown img');
    check((await page.textContent('.shown')).includes('<b>dot.png'), 'the file name is not shown as text');
    check(await page.locator('.shown b').count() === 0, 'a file name became HTML');
  },
  async 'a running program can be cancelled'() {
    const page = await open();
    await logIn(page, adminKey);
    await goTo(page, 'Try it');
    await page.fill('#code', "import time\nprint('begun', flush=True)\ntime.sleep(60)");
    await page.click('button:text-is("Run")');
    await page.waitForSelector('pre:has-text("begun")');
    await page.click('button:text-is("Cancel")');
    await page.waitForSelector('.banner:has-text("Cancelled")');
  },
  async 'history shows runs, and what is not kept'() {
    const page = await open();
    await logIn(page, adminKey);
    await page.waitForTimeout(1500);
    await goTo(page, 'History');
    await page.click('td button:text-is("Details") >> nth=0');
    await page.waitForSelector('dialog:has-text("CORDON_HISTORY_CODE")');
  },
  async 'a key is made, shown once and revoked'() {
    const page = await open();
    await logIn(page, adminKey);
    await goTo(page, 'Keys');
    await page.fill('#key-name', '<i>browser</i>');
    await page.click('button:text-is("Create")');
    check(/^e2b_[0-9a-f]{40}$/.test(await page.textContent('#new-key')), 'no key is shown');
    await page.click('dialog button:text-is("Close")');
    const row = page.locator('tr', { hasText: '<i>browser</i>' });
    page.on('dialog', (dialog) => dialog.accept());
    await row.locator('button:text-is("Revoke")').click();
    await page.waitForSelector('tr:has-text("<i>browser</i>") .bad:has-text("revoked")');
  },
  async 'a setting is searched, changed, refused and forgotten'() {
    const page = await open();
    await logIn(page, adminKey);
    await goTo(page, 'Settings');
    await page.fill('#search', 'CORDON_PIDS');
    const form = page.locator('form', { has: page.locator('#set-CORDON_PIDS') });
    await page.fill('#set-CORDON_PIDS', '1');
    await form.locator('button:text-is("Save")').click();
    await page.waitForSelector('#set-CORDON_PIDS[aria-invalid=true]');
    await page.fill('#set-CORDON_PIDS', '99');
    await form.locator('button:text-is("Save")').click();
    await page.waitForSelector('form:has(#set-CORDON_PIDS) .tag:has-text("stored")');
    await form.locator('button:text-is("Forget")').click();
    await page.waitForSelector('form:has(#set-CORDON_PIDS) .tag:text-is("default")');
  },
  async 'a viewer sees all and can change nothing'() {
    const page = await open();
    await logIn(page, viewKey);
    for (const title of ['Sandbox', 'Try it', 'Keys', 'Settings']) {
      await goTo(page, title);
      await page.waitForTimeout(300);
      check(await page.locator('main button:text-is("Save"), main button:text-is("Run"), main button:text-is("Create"), main button:text-is("Revoke")').count() === 0,
        `a viewer is offered changes on ${title}`);
    }
  },
  async 'the keyboard is enough'() {
    const page = await open();
    await page.goto(`${base}/admin/`);
    await page.waitForSelector('#key:focus');
    await page.keyboard.type(adminKey);
    await page.keyboard.press('Enter');
    await page.waitForSelector('nav a');
    await page.keyboard.press('Tab');
    check(await page.evaluate(() => document.activeElement !== document.body), 'Tab reaches nothing');
  },
  async 'it is small'() {
    const page = await open();
    let transferred = 0;
    page.on('response', async (answer) => { transferred += Number((await answer.allHeaders())['content-length'] ?? 0); });
    await logIn(page, adminKey);
    await page.waitForSelector('#field-timeout');
    check(transferred < 150000, `${transferred} bytes were transferred`);
    const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
    console.log(JSON.stringify({ figure: 'first paint ms', value: paint, transferred }));
  },
  async 'axe finds no serious fault on any page, light and dark, wide and narrow'() {
    for (const colorScheme of ['light', 'dark']) {
      for (const width of [360, 1440]) {
        const page = await open({ colorScheme, viewport: { width, height: 900 }, bypassCSP: true });
        await logIn(page, adminKey);
        for (const title of ['Sandbox', 'Try it', 'Live', 'History', 'Guests', 'Settings', 'Keys', 'Audit']) {
          await goTo(page, title);
          await page.waitForTimeout(400);
          if (shots) await page.screenshot({ path: path.join(shots, `${title.toLowerCase().replace(/\W/g, '-')}-${colorScheme}-${width}.png`) });
          await page.evaluate(axe);
          const found = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
          const serious = found.violations.filter((one) => ['serious', 'critical'].includes(one.impact));
          check(serious.length === 0, `${title} (${colorScheme}, ${width}): ${serious.map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 120)}`).join('; ')}`);
          const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
          check(overflow <= 0, `${title} at ${width} px is ${overflow} px too wide`);
        }
        await page.context().close();
      }
    }
  },
};

for (const [name, run] of Object.entries(cases)) {
  problems.length = 0;
  let error = null;
  try {
    await run();
    if (problems.length) error = problems.join('; ');
  } catch (caught) {
    error = caught.message.slice(0, 600);
  }
  console.log(JSON.stringify({ case: name, error }));
  for (const context of browser.contexts()) await context.close();
}
await browser.close();
