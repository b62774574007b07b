// SPDX-License-Identifier: Apache-2.0
/* What the cases share: the browser, pages of it, and how a page is asked. Argument: what test_page.py made, as JSON. */
import { createRequire } from 'node:module';
import path from 'node:path';

export const require = createRequire(path.join(process.cwd(), 'x.js'));
const { chromium } = require('playwright-core');

export const config = JSON.parse(process.argv[2]), { base } = config;
export const TITLES = ['Sandbox', 'Try it', 'Live', 'History', 'Guests', 'Templates', 'Verify', 'Doctor', 'Settings', 'Keys', 'Quotas', 'Audit'];
export const browser = await chromium.launch({ executablePath: config.chromium, args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-quic',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'] });

const LONGEST_MS = 90000 * config.slow; // that anything is waited for
export const problems = []; // what no page may do: an error, a request to elsewhere
/* A page as on a slow and busy machine (CORDON_CASES_SLOW=FACTOR): its processor is so much slower, what it asks for is sent
 * late and answered late, each time by another while, so that whatever relies on an order that nobody promised shows it. */
const SLOWER = Number(process.env.CORDON_CASES_SLOW || 1), SENT_LATE_MS = 200, ANSWERED_LATE_MS = 400;

async function slowDown(page) {
  const client = await page.context().newCDPSession(page), late = (ms) => new Promise((resolve) => { setTimeout(resolve, Math.random() * ms); });
  await client.send('Emulation.setCPUThrottlingRate', { rate: SLOWER });
  await page.route('**', async (route) => {
    await late(SENT_LATE_MS);
    await route.fallback().catch(() => {}); // the page may be gone meanwhile
  });
  await page.addInitScript((most) => {
    const { fetch } = window;
    window.fetch = async (...request) => {
      const answer = await fetch(...request);
      await new Promise((resolve) => { setTimeout(resolve, Math.random() * most); });
      return answer;
    };
  }, ANSWERED_LATE_MS);
}

/* losesDaemon: the case takes the daemon away, so requests may fail. */
export async function open({ losesDaemon, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(LONGEST_MS);
  if (SLOWER > 1) await slowDown(page);
  const expected = losesDaemon ? /status of 4\d\d|net::ERR_/ : /status of 4\d\d/;
  page.on('pageerror', (error) => problems.push(`page error: ${error.message}`));
  page.on('console', (message) => { if (message.type() === 'error' && !expected.test(message.text())) problems.push(`console: ${message.text()}`); });
  page.on('request', (request) => { if (!request.url().startsWith(base) && !/^(data|blob):/.test(request.url())) problems.push(`asked elsewhere: ${request.url()}`); });
  return page;
}

/* A session without the login's page, which is looked at where it matters. */
export async function logIn(page, key) {
  const answer = await page.request.post(`${base}/v1/admin/login`, { data: { key } });
  check(answer.ok(), `the login is answered ${answer.status()}`);
  await page.goto(`${base}/admin/`);
  await page.waitForSelector('main[data-shown]');
}

export async function logInByHand(page, key) {
  await page.goto(`${base}/admin/`);
  await page.fill('#key', key);
  await page.click('button[type=submit]');
  await page.waitForSelector('main[data-shown]');
}

/* A narrow window has the pages behind a button. What is shown already is not left, and not taken for what was asked for. */
export async function goTo(page, title) {
  if (await page.locator(`main[data-shown="${title}"]`).count()) return;
  if (await page.isVisible('#menu') && await page.getAttribute('#menu', 'aria-expanded') === 'false') await page.click('#menu');
  await page.click(`nav a:text-is("${title}")`);
  await page.waitForSelector(`main[data-shown="${title}"]`);
}

/* Of such requests the first is answered at once and its answer is held back. What this gives: is(): there is one;
 * release(): the page has it then. */
export async function holdAnswer(page, path, wanted = () => true) {
  let request = null, answered = false, open_ = null;
  const opened = new Promise((resolve) => { open_ = resolve; });
  await page.route(path, async (route) => {
    if (request || !wanted(route.request())) return route.fallback();
    request = route.request();
    const response = await route.fetch();
    answered = true;
    await opened;
    return route.fulfill({ response });
  });
  const release = async () => {
    const come = page.waitForEvent('requestfinished', (one) => one === request);
    open_();
    await come;
    await page.evaluate(() => new Promise((resolve) => { requestAnimationFrame(() => setTimeout(resolve)); }));
  };
  return { is: () => answered, release };
}

export function check(truth, what) {
  if (!truth) throw new Error(what);
}

/* Asks until it is so, as long as anything else is waited for. */
export async function until(page, what, is) {
  for (const end = Date.now() + LONGEST_MS; !await is();) {
    check(Date.now() < end, what);
    await page.waitForTimeout(100);
  }
}
