// SPDX-License-Identifier: Apache-2.0
/* The first work of an operator: login, a provider, a program, keys, settings. */
import { base, check, config, goTo, logIn, open, until } from './browser.mjs';

export const cases = {
  async 'the one-time link logs in once, and leaves the address'() {
    const page = await open();
    await page.goto(`${base}/admin/#link=${config.link}`);
    await page.waitForSelector('nav a');
    check(!page.url().includes(config.link), 'the link is still in the address');
    const second = await open();
    await second.goto(`${base}/admin/#link=${config.link}`);
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
    await logIn(page, config.admin);
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
    await logIn(page, config.admin);
    await page.fill('#field-timeout', '0');
    await page.click('button:text-is("Save")');
    await page.waitForSelector('#field-timeout[aria-invalid=true]');
    check((await page.textContent('#field-timeout-error')).includes('>= 1'), 'no bound is named');
  },
  async 'run a program, see its output and its picture'() {
    const page = await open();
    await logIn(page, config.admin);
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
    await logIn(page, config.admin);
    await goTo(page, 'Try it');
    await page.fill('#code', "import time\nprint('begun', flush=True)\ntime.sleep(60)");
    await page.click('button:text-is("Run")');
    await page.waitForSelector('pre:has-text("begun")');
    await page.click('button:text-is("Cancel")');
    await page.waitForSelector('.banner:has-text("Cancelled")');
  },
  async 'history shows runs, and what is not kept'() {
    const page = await open();
    await logIn(page, config.admin);
    await goTo(page, 'History');
    await until(page, 'no run is in the history', async () => {
      await page.click('button:text-is("Reload")');
      return page.locator('td button:text-is("Details")').count();
    });
    await page.click('td button:text-is("Details") >> nth=0');
    await page.waitForSelector('dialog:has-text("CORDON_HISTORY_CODE")');
  },
  async 'a key is made, shown once and revoked'() {
    const page = await open();
    await logIn(page, config.admin);
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
    await logIn(page, config.admin);
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
  async 'the keyboard is enough'() {
    const page = await open();
    await page.goto(`${base}/admin/`);
    await page.waitForSelector('#key:focus');
    await page.keyboard.type(config.admin);
    await page.keyboard.press('Enter');
    await page.waitForSelector('nav a');
    await page.keyboard.press('Tab');
    check(await page.evaluate(() => document.activeElement !== document.body), 'Tab reaches nothing');
  },
  async 'it is small'() {
    const page = await open();
    let transferred = 0;
    page.on('response', async (answer) => { transferred += Number((await answer.allHeaders())['content-length'] ?? 0); });
    await logIn(page, config.admin);
    await page.waitForSelector('#field-timeout');
    check(transferred < 150000, `${transferred} bytes were transferred`);
    const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
    console.log(JSON.stringify({ figure: 'first paint ms', value: paint, transferred }));
  },
};
