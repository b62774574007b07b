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

export const problems = []; // what no page may do: an error, a request to elsewhere
/* losesDaemon: the case takes the daemon away, so requests may fail. */
export async function open({ losesDaemon, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(40000 * config.slow);
  const expected = losesDaemon ? /status of 4\d\d|net::ERR_/ : /status of 4\d\d/;
  page.on('pageerror', (error) => problems.push(`page error: ${error.message}`));
  page.on('console', (message) => { if (message.type() === 'error' && !expected.test(message.text())) problems.push(`console: ${message.text()}`); });
  page.on('request', (request) => { if (!request.url().startsWith(base) && !/^(data|blob):/.test(request.url())) problems.push(`asked elsewhere: ${request.url()}`); });
  return page;
}

export async function logIn(page, key) {
  await page.goto(`${base}/admin/`);
  await page.fill('#key', key);
  await page.click('button[type=submit]');
  await page.waitForSelector('main[data-shown]');
}

/* A narrow window has the pages behind a button. */
export async function goTo(page, title) {
  if (await page.isVisible('#menu') && await page.getAttribute('#menu', 'aria-expanded') === 'false') await page.click('#menu');
  await page.click(`nav a:text-is("${title}")`);
  await page.waitForSelector(`main[data-shown="${title}"]`);
}

export function check(truth, what) {
  if (!truth) throw new Error(what);
}

/* Asks until it is so, as long as anything else is waited for. */
export async function until(page, what, is) {
  for (const end = Date.now() + 40000 * config.slow; !await is();) {
    check(Date.now() < end, what);
    await page.waitForTimeout(100);
  }
}
