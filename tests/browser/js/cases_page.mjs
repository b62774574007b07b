// SPDX-License-Identifier: Apache-2.0
/* The first work of an operator: login, a provider, a program, keys, settings. */
import { base, check, config, goTo, logIn, logInByHand, open, until } from './browser.mjs';

/* Bytes as they came over the wire, and how many answers. */
async function transferred(page, work) {
  const client = await page.context().newCDPSession(page);
  let bytes = 0, answers = 0;
  client.on('Network.loadingFinished', (event) => { bytes += event.encodedDataLength; answers++; });
  await client.send('Network.enable');
  await work();
  await client.detach();
  return { bytes, answers };
}

/* When the page's first content was painted, in milliseconds since it was asked for. */
async function painted(page) {
  const entry = await page.waitForFunction(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  return Math.round(await entry.jsonValue());
}

export const cases = {
  async 'the one-time link logs in once, and leaves the address'() {
    const page = await open();
    await page.goto(`${base}/admin/#link=${config.link}`);
    await page.waitForSelector('nav a');
    await until(page, 'the link is still in the address', async () => !page.url().includes(config.link));
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
    await logInByHand(page, config.admin);
    await page.check('input[value=local]', { force: true });
    await page.waitForSelector('#field-timeout');
    await page.fill('#field-timeout', '25');
    await page.click('button:text-is("Save")');
    await page.waitForSelector('#notes .good:has-text("Local (isolated) is saved and in use")');
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
    await page.fill('#code', "print('<img src=x onerror=alert(1)>')\nimport base64\nopen('artifacts/page.html', 'w').write('<script>document.title=1</script>')\nopen('artifacts/<b>dot.png', 'wb').write(base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=='))");
    await page.click('button:text-is("Run")');
    await page.waitForSelector('.banner:has-text("exit code 0")');
    await goTo(page, 'Live');
    await goTo(page, 'Try it');
    check((await page.inputValue('#code')).includes('onerror'), 'the program is forgotten when another page was looked at');
    await page.evaluate(() => { // what is there at the moment when the outcome is
      new MutationObserver((_, observer) => {
        if (!document.querySelector('.banner')?.textContent.includes('exit code 0')) return;
        window.written = document.querySelector('pre').textContent;
        observer.disconnect();
      }).observe(document.querySelector('main'), { childList: true, subtree: true });
    });
    await page.click('button:text-is("Run")');
    await page.waitForSelector('.banner:has-text("exit code 0")');
    check((await page.evaluate(() => window.written)).includes('<img src=x onerror=alert(1)>'), 'the output is not shown as text, or after the outcome');
    check(await page.locator('pre img').count() === 0, 'output became HTML');
    await page.waitForSelector('.shown img');
    check((await page.textContent('.shown')).includes('<b>dot.png'), 'the file name is not shown as text');
    check(await page.locator('.shown b').count() === 0, 'a file name became HTML');
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('.shown a:has-text("page.html")')]);
    check(download.suggestedFilename() === 'page.html', 'a page of a program is not saved as it is');
  },
  async 'files of a run are held no longer than they are shown'() {
    const page = await open();
    await logIn(page, config.admin);
    await page.evaluate(() => {
      const made = URL.createObjectURL, ended = URL.revokeObjectURL;
      window.held = new Set();
      URL.createObjectURL = (blob) => { const url = made.call(URL, blob); window.held.add(url); return url; };
      URL.revokeObjectURL = (url) => { window.held.delete(url); ended.call(URL, url); };
    });
    const held = (count) => page.waitForFunction((wanted) => window.held.size === wanted, count);
    await goTo(page, 'Try it');
    await page.fill('#code', "for i in range(3): open(f'artifacts/{i}.txt', 'w').write('x')");
    for (let i = 0; i < 2; i++) {
      await page.click('button:text-is("Run")');
      await page.waitForSelector('.banner:has-text("exit code 0")');
      await held(3);
    }
    await goTo(page, 'Live');
    await held(0);
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
    await row.locator('button:text-is("Revoke")').click();
    await page.click('dialog button:text-is("Cancel")');
    await row.locator('.tag:text-is("live")').waitFor();
    await row.locator('button:text-is("Revoke")').click();
    check((await page.textContent('dialog h2')).includes('<i>browser</i>'), 'the dialog does not say which key');
    await page.click('dialog button:text-is("Revoke")');
    await page.waitForSelector('tr:has-text("<i>browser</i>") .tag:has-text("revoked")');
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
    await page.waitForSelector('form:has(#set-CORDON_PIDS) .tag', { state: 'detached' });
    check(await page.inputValue('#set-CORDON_PIDS') === '128', 'the default is not shown');
    await page.fill('#search', 'no such word');
    await page.waitForSelector('main:has-text("No setting fits")');
  },
  async 'each setting stands in its group'() {
    const page = await open();
    await logIn(page, config.admin);
    await goTo(page, 'Settings');
    const groups = await page.locator('main section').evaluateAll((all) => all.map((one) => [one.getAttribute('aria-label'), [...one.querySelectorAll('[name]')].map((input) => input.name)]));
    const of = (name) => groups.find(([, names]) => names.includes(name))[0];
    check(groups.length > 10, `there are ${groups.length} groups`);
    for (const [name, group] of [['CORDON_TIMEOUT_S', 'Limits of a run'], ['CORDON_SSH_HOST', 'Remote: SSH'], ['CORDON_LISTEN', 'The daemon'], ['CORDON_KEY_RATE', 'Each key'], ['CORDON_E2B_PORT_SILENCE_S', 'Doors'], ['CORDON_SECRET_KEY', 'The daemon']]) {
      check(of(name) === group, `${name} stands in ${of(name)}`);
    }
    const limits = groups.find(([name]) => name === 'Limits of a run')[1]; // where all else falls
    check(limits.every((name) => /_(S|MB|KB|PERCENT|INODES|PIDS|FILES|ARTIFACTS)$/.test(name)), `in the wrong group: ${limits}`);
  },
  async 'the keyboard is enough'() {
    const page = await open();
    const tabTo = async (selector) => {
      for (let i = 0; i < 60; i++) {
        if (await page.evaluate((wanted) => document.activeElement.matches(wanted), selector)) return;
        await page.keyboard.press('Tab');
      }
      check(false, `Tab does not reach ${selector}`);
    };
    await page.goto(`${base}/admin/`);
    await page.waitForSelector('#key:focus');
    await page.keyboard.type(config.admin);
    await page.keyboard.press('Enter');
    await page.waitForSelector('main[data-shown="Sandbox"]');
    await tabTo('input[name=provider]');
    await page.keyboard.press('ArrowDown');
    await page.waitForSelector('form[aria-label="Virtual machine"]');
    await page.keyboard.press('ArrowUp');
    await page.waitForSelector('form[aria-label="Local (isolated)"]');
    await tabTo('#field-timeout');
    await page.keyboard.type('24');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#notes .good:has-text("is saved")');
    await page.waitForSelector('main form button[type=submit]:focus'); // of the form as it is then
    await tabTo('a[href="#keys"]');
    await page.keyboard.press('Enter');
    await page.waitForSelector('main[data-shown="Keys"]');
    await tabTo('td button');
    await page.keyboard.press('Enter');
    await page.waitForSelector('dialog button:focus');
    for (let i = 0; i < 8; i++) { // the browser's own controls are reached, too; what lies behind is not
      await page.keyboard.press('Tab');
      check(await page.evaluate(() => document.activeElement === document.body || !!document.activeElement.closest('dialog')), 'Tab leaves the dialog');
    }
    await page.keyboard.press('Escape');
    await page.waitForSelector('dialog', { state: 'detached' });
    await until(page, 'the focus does not come back from the dialog', () => page.evaluate(() => document.activeElement.textContent === 'Revoke'));
    check(await page.locator('.tag:text-is("live")').count() >= 2, 'Escape revoked a key');
  },
  async 'all has a name for who does not see it'() {
    const page = await open();
    await logIn(page, config.admin);
    await page.getByRole('navigation', { name: 'Pages' }).waitFor();
    await page.getByRole('radio', { name: 'Self-Managed', exact: true }).waitFor({ state: 'attached' });
    await page.getByRole('spinbutton', { name: 'Timeout (seconds)' }).waitFor();
    await goTo(page, 'Try it');
    await page.getByRole('textbox', { name: 'Program' }).waitFor();
    await page.getByRole('log', { name: 'Output' }).waitFor({ state: 'attached' });
    await goTo(page, 'Keys');
    await page.getByRole('region', { name: 'Keys' }).waitFor();
    await page.locator('td button').first().click();
    await page.getByRole('dialog', { name: /^Revoke / }).waitFor();
  },
  async 'it is small, and asked for at once'() {
    const page = await open();
    const all = await transferred(page, async () => {
      await logInByHand(page, config.admin);
      await page.waitForSelector('#field-timeout');
    });
    check(all.bytes > 10000 && all.bytes < 150000, `${all.bytes} bytes were transferred`);
    const firstPaint = await painted(page);
    const settings = await transferred(page, () => goTo(page, 'Settings'));
    check(settings.bytes > 1000 && settings.bytes < 150000, `${settings.bytes} bytes were transferred for the settings`);
    const [preloaded, loaded] = await page.evaluate(() => [[...document.querySelectorAll('link[rel=modulepreload]')].map((link) => link.href).sort(),
      performance.getEntriesByType('resource').map((entry) => entry.name).filter((name) => name.endsWith('.js') && !name.endsWith('app.js')).sort()]);
    check(JSON.stringify(preloaded) === JSON.stringify(loaded), `index.html asks for ${preloaded}, app.js imports ${loaded}`);
    await page.reload();
    await page.waitForSelector('main[data-shown="Settings"]');
    return { 'first paint, ms': firstPaint, 'of the settings, ms': await painted(page), bytes: all.bytes, answers: all.answers, 'bytes of the settings': settings.bytes };
  },
};
