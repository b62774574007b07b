// SPDX-License-Identifier: Apache-2.0
/* Every page with what the cases before left there: no serious fault, nothing wider than the window, pictures of each. */
import fs from 'node:fs';
import path from 'node:path';
import { base, check, config, goTo, logIn, open, require, TITLES } from './browser.mjs';

const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const LOOKS = [['light', 1440], ['dark', 1440], ['dark', 360], ['light', 360]]; // a terminal that was narrow stays cut

/* Each rule is asked where its answer can differ: colours in light and dark, all else wide and narrow. */
async function judge(page, title, scheme, width) {
  await fits(page, title, width);
  if (scheme === 'dark' && width < 1440) return;
  const rules = scheme === 'light' ? {} : { runOnly: ['color-contrast'] };
  const found = await page.evaluate((options) => axe.run(document, { resultTypes: ['violations'], ...options }), rules);
  const serious = found.violations.filter((one) => ['serious', 'critical'].includes(one.impact));
  check(serious.length === 0, `${title} (${scheme}, ${width}): ${serious.map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 120)}`).join('; ')}`);
}

async function fits(page, title, width) {
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check(overflow <= 0, `${title} at ${width} px is ${overflow} px too wide`);
}

/* at: what is to be in the picture. */
async function look(page, title, name, at = 'body') {
  await page.mouse.move(0, 0); // where it lights up nothing
  for (const [colorScheme, width] of LOOKS) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.setViewportSize({ width, height: 900 });
    if (config.shots) await page.locator(at).scrollIntoViewIfNeeded();
    if (config.shots) await page.screenshot({ path: path.join(config.shots, `${name}-${colorScheme}-${width}.png`) });
    await judge(page, title, colorScheme, width);
  }
  await page.setViewportSize({ width: 720, height: 450 }); // what 1440 are at 200 %
  await fits(page, title, 720);
}

export const cases = {
  async 'axe finds no serious fault on any page, light and dark, wide and narrow'() {
    const page = await open({ bypassCSP: true });
    await logIn(page, config.admin);
    await page.evaluate(axe);
    for (const title of TITLES) {
      await page.setViewportSize({ width: 1440, height: 900 });
      await goTo(page, title);
      await look(page, title, title.toLowerCase().replace(/\W/g, '-'));
    }
    await page.setViewportSize({ width: 1440, height: 900 });
    await goTo(page, 'Guests');
    await page.click('button:text-is("Terminal")');
    await page.waitForSelector('.screen:has-text("$")');
    await page.keyboard.type("ls --color=always /usr; printf '\\033[41mred\\033[0m \\033[1;32mgreen\\033[0m %s\\n' done\n");
    await page.waitForSelector('.screen:has-text("green done")');
    await look(page, 'a terminal', 'terminal');
  },
  async 'who wants no motion has none'() {
    const page = await open();
    await logIn(page, config.admin);
    const moves = () => page.locator('nav a, button, .choice').evaluateAll((all) => all.some((one) => parseFloat(getComputedStyle(one).transitionDuration) > 0));
    check(await moves(), 'nothing moves at all');
    await page.emulateMedia({ reducedMotion: 'reduce' });
    check(!await moves(), 'something moves');
  },
  async 'dialogs, the login, a test and an error have no serious fault either'() {
    const page = await open({ bypassCSP: true });
    await page.goto(`${base}/admin/`);
    await page.waitForSelector('#key');
    await page.evaluate(axe);
    await look(page, 'the login', 'login');
    await logIn(page, config.admin);
    await page.evaluate(axe);
    await page.check('input[value=local]', { force: true });
    await page.click('form[aria-label="Local (isolated)"] button:text-is("Test connection")');
    await page.waitForSelector('main form .banner.good:has-text("Test PASSED")');
    await look(page, 'a test of the connection', 'test', 'main form .banner.good');
    await page.setViewportSize({ width: 1440, height: 900 });
    await page.fill('#field-timeout', '0');
    await page.click('main form button[type=submit]');
    await page.waitForSelector('#field-timeout[aria-invalid=true]');
    await look(page, 'an error at its field', 'error', '#field-timeout');
    await page.setViewportSize({ width: 360, height: 900 });
    await page.click('#menu');
    await judge(page, 'the menu', 'dark', 360);
    await page.setViewportSize({ width: 1440, height: 900 });
    await page.click('nav a:text-is("History")');
    await page.waitForSelector('dialog:has-text("Leave without saving?")');
    await look(page, 'a question', 'question');
  },
};
