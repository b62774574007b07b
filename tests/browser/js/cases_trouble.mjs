// SPDX-License-Identifier: Apache-2.0
/* What goes wrong in the midst of work: the session, the daemon, somebody else's change, too much of something. */
import { check, config, goTo, holdAnswer, logIn, open, until } from './browser.mjs';

const timeout = (page) => page.evaluate(async () => (await (await fetch('/v1/admin/settings')).json()).settings.find((row) => row.name === 'CORDON_TIMEOUT_S').value);

async function endSession(page) {
  const status = await page.evaluate(async () => {
    const { csrf } = await (await fetch('/v1/admin/session')).json();
    return (await fetch('/v1/admin/logout', { method: 'POST', headers: { 'X-Cordon-CSRF': csrf } })).status;
  });
  check(status === 200, `the session did not end: ${status}`);
}

async function logInAgain(page) {
  await page.fill('dialog #key', config.admin);
  await page.click('dialog button:text-is("Log in")');
  await page.waitForSelector('dialog', { state: 'detached' });
}

export const cases = {
  async 'a session that ends in the midst of an edit loses nothing'() {
    const page = await open();
    await logIn(page, config.admin);
    await page.fill('#field-timeout', '26');
    await endSession(page);
    await page.click('button:text-is("Save")');
    await page.waitForSelector('dialog:has-text("The session is over") #key:focus');
    await page.fill('dialog #key', 'wrong');
    await page.keyboard.press('Enter');
    await page.waitForSelector('dialog #key[aria-invalid=true]');
    await logInAgain(page);
    await page.waitForSelector('#notes .good:has-text("is saved")');
    check(await timeout(page) === '26', 'what was filled in is not what is stored');
  },
  async 'Escape leaves the page as it is, without a session'() {
    const page = await open();
    await logIn(page, config.admin);
    await page.fill('#field-timeout', '27');
    await endSession(page);
    await page.click('button:text-is("Save")');
    await page.waitForSelector('dialog #key');
    await page.keyboard.press('Escape');
    await page.waitForSelector('main .banner.bad');
    check(await page.inputValue('#field-timeout') === '27', 'what was filled in is lost');
    await page.click('button:text-is("Save")');
    await logInAgain(page);
    await page.waitForSelector('#notes .good:has-text("is saved")');
  },
  async 'two at one form: what the other saved is told before it is overwritten'() {
    const mine = await open(), other = await open();
    await logIn(mine, config.admin);
    await logIn(other, config.admin);
    await mine.fill('#field-timeout', '31');
    await other.fill('#field-timeout', '32');
    await other.click('button:text-is("Save")');
    await other.waitForSelector('#notes .good');
    await mine.click('button:text-is("Save")');
    await mine.waitForSelector('dialog:has-text("CORDON_TIMEOUT_S"):has-text("\u2192 32,")');
    await mine.click('dialog button:text-is("Keep editing")');
    check(await timeout(mine) === '32' && await mine.inputValue('#field-timeout') === '31', 'it was saved, or lost');
    await mine.click('button:text-is("Save")');
    await mine.click('dialog button:text-is("Save mine")');
    await mine.waitForSelector('#notes .good');
    check(await timeout(mine) === '31', 'it is not saved');
  },
  async 'two at different settings do not disturb each other'() {
    const mine = await open(), other = await open();
    for (const [page, name] of [[mine, 'CORDON_PIDS'], [other, 'CORDON_OPEN_FILES']]) {
      await logIn(page, config.admin);
      await goTo(page, 'Settings');
      await page.fill('#search', name);
      await page.fill(`#set-${name}`, '200');
    }
    for (const [page, name] of [[other, 'CORDON_OPEN_FILES'], [mine, 'CORDON_PIDS']]) {
      await page.locator('form:visible button:text-is("Save")').click();
      await page.waitForSelector(`form:has(#set-${name}) .tag:text-is("stored")`);
    }
    check(await mine.inputValue('#set-CORDON_OPEN_FILES') === '200', 'what the other saved is not shown');
  },
  async 'what is filled in is not left without asking'() {
    const page = await open();
    await logIn(page, config.admin);
    await page.fill('#field-timeout', '44');
    await page.click('nav a:text-is("History")');
    await page.waitForSelector('dialog:has-text("Leave without saving?")');
    await page.keyboard.press('Escape');
    await until(page, 'the address is put back', async () => page.url().endsWith('/admin/'));
    check(await page.inputValue('#field-timeout') === '44', 'it was left');
    await page.check('input[value=ssh]', { force: true });
    await page.click('dialog button:text-is("Stay")');
    await until(page, 'the choice is put back', () => page.isChecked('input[value=local]'));
    check(await page.inputValue('#field-timeout') === '44', 'another form was opened');
    await page.click('nav a:text-is("History")');
    await page.click('dialog button:text-is("Leave")');
    await page.waitForSelector('main[data-shown="History"]');
    await goTo(page, 'Keys'); // not asked again
  },
  async 'output without end is shown by its end, and can be cancelled'() {
    const page = await open();
    await logIn(page, config.admin);
    await goTo(page, 'Try it');
    await page.fill('#code', "print('first')\nfor i in range(9000): print(i, 'x' * 90)\nprint('the last line')");
    await page.click('button:text-is("Run")');
    await page.waitForSelector('.banner:has-text("exit code 0")');
    const shown = await page.textContent('pre');
    check(shown.length <= 200000 && shown.endsWith('the last line\n') && !shown.includes('first'), `${shown.length} characters are shown`);
    await page.waitForSelector('main:has-text("characters before these are not shown")');
    await page.fill('#code', "import time\nwhile True:\n    print('y' * 5000, flush=True)\n    time.sleep(0.01)");
    await page.click('button:text-is("Run")');
    await page.waitForSelector('pre:has-text("yyyy")');
    await page.click('button:text-is("Cancel")');
    await page.waitForSelector('.banner:has-text("Cancelled")');
  },
  async 'ten thousand runs are paged through, there and back'() {
    const page = await open();
    await logIn(page, config.admin);
    await goTo(page, 'History');
    await page.selectOption('main label:has-text("Backend") select', 'createos');
    const first = () => page.textContent('tbody tr td.number >> nth=0');
    const until_ = (page_, exit) => until(page, `page ${page_} does not begin with ${exit}`, async () => (await page.textContent('main')).includes(`Page ${page_}`) && await first() === String(exit));
    await until_(1, 9999);
    for (let i = 2; i <= 4; i++) {
      await page.click('button:text-is("Older")');
      await until_(i, 9999 - 50 * (i - 1));
    }
    await page.click('button:text-is("Newer")');
    await until_(3, 9899);
    await page.click('button:text-is("Newest")');
    await until_(1, 9999);
    check(await page.locator('button:text-is("Newer")').count() === 0, 'there is something newer than the newest');
    await page.selectOption('main label:has-text("Cause") select', 'timeout');
    await page.waitForSelector('main:has-text("No run fits")');
    check(!(await page.textContent('main')).includes('null'), 'a null is shown');
  },
  async 'an answer that comes late does not undo what a newer one told'() {
    const page = await open();
    await logIn(page, config.admin);
    await goTo(page, 'History');
    const runs = await holdAnswer(page, '**/v1/admin/history?*', (request) => /backend=createos.*cause=$/.test(request.url()));
    await page.selectOption('main label:has-text("Backend") select', 'createos');
    await page.selectOption('main label:has-text("Cause") select', 'timeout');
    await page.waitForSelector('main:has-text("No run fits")');
    await until(page, 'the first filter was not asked for', runs.is);
    await runs.release();
    check(await page.locator('tbody tr').count() === 0, 'runs are shown that do not fit');
    await goTo(page, 'Settings');
    const settings = await holdAnswer(page, '**/v1/admin/settings', (request) => request.method() === 'GET');
    await page.fill('#set-CORDON_PIDS', '201');
    await page.press('#set-CORDON_PIDS', 'Enter');
    await until(page, 'it was not looked at what is stored', settings.is);
    await page.fill('#set-CORDON_OPEN_FILES', '202');
    await page.press('#set-CORDON_OPEN_FILES', 'Enter');
    await page.waitForSelector('form:has(#set-CORDON_OPEN_FILES):not([data-dirty])');
    await page.focus('#search');
    await settings.release();
    await page.waitForSelector('form:has(#set-CORDON_PIDS):not([data-dirty])');
    check(await page.inputValue('#set-CORDON_OPEN_FILES') === '202', 'what was saved last is shown as it was before');
    check(await page.evaluate(() => document.activeElement.id) === 'search', 'the focus is taken away from where it is');
  },
  async 'a form that is not there yet is not mistaken for the one before'() {
    const page = await open();
    await logIn(page, config.admin);
    const schema = await holdAnswer(page, '**/providers/ssh/schema');
    await page.check('input[value=ssh]', { force: true });
    await until(page, 'the form was not asked for', schema.is);
    check(await page.locator('main [inert] form').count() === 1, 'the form before can still be sent');
    await schema.release();
    await page.waitForSelector('#field-host');
    check(await page.locator('main [inert]').count() === 0, 'the form can not be filled in');
  },
  async 'a live view that could not be made asks for nothing'() {
    const page = await open(), asked = [];
    await logIn(page, config.admin);
    page.on('request', (request) => { if (request.url().endsWith('/metrics')) asked.push(request.url()); });
    await page.route('**/v1/backends', (route) => route.fulfill({ status: 404, json: { error: { message: 'there are none' } } }));
    await goTo(page, 'Live');
    await page.waitForSelector('main .banner.bad:has-text("there are none")');
    check(asked.length === 0, 'it goes on, though nothing can end it');
  },
  async 'the live view goes on when the daemon was restarted'() {
    const page = await open({ losesDaemon: true });
    await logIn(page, config.admin);
    await goTo(page, 'Live');
    await page.waitForSelector('.figure polyline[points*=" "]', { state: 'attached' });
    process.kill(config.gateway, 'SIGKILL');
    await page.waitForSelector('dialog:has-text("The session is over") #key');
    await logInAgain(page);
    await page.waitForSelector('main .banner.good:has-text("Ready")');
    const points = () => page.getAttribute('.figure polyline >> nth=3', 'points');
    const before = await points();
    await until(page, 'it stands still', async () => await points() !== before);
    check(!(await page.textContent('.figures')).includes('-'), 'a number is negative');
  },
};
