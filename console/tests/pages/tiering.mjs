// The page "HSM and policies": a tree is archived, released and restored by click, an action that nobody takes is cancelled, a policy is
// switched off and on, and the text of the engine is previewed, edited and saved; what it deletes is confirmed.

import fs from 'node:fs';
import path from 'node:path';

export async function tiering({ page, check, axe, wide, shot, goTo, confirm, mount, brindle, cluster }) {
  const dir = path.join(mount, 'project', 'run 1');
  fs.mkdirSync(dir, { recursive: true });
  for (const name of ['a', 'b']) fs.writeFileSync(path.join(dir, name), Buffer.alloc(2 << 20, name));
  const states = () => brindle('hsm', 'state', '-o', 'json', path.join(dir, 'a'), path.join(dir, 'b')).files.map((file) => file.flags.join(' '));
  const dialog = page.getByRole('dialog');
  const ask = async (verb, asked, archive) => {
    await page.getByRole('button', { name: `${verb} files` }).click();
    await dialog.getByLabel(/^File, or directory/).fill(asked);
    if (archive) await dialog.locator('select').selectOption(archive);
    // By keyboard, as everything can be done.
    await dialog.getByLabel(/^File, or directory/).press('Enter');
  };

  await goTo('HSM and policies');
  await page.waitForFunction(() => document.querySelector('[data-test=agents]')?.textContent === '1');
  check('the agent of the cluster is shown', true);
  await ask('Archive', '/no such place');
  await dialog.getByText('there is no /no such place').waitFor();
  await axe('a path that does not exist');
  await dialog.getByLabel(/^File, or directory/).fill(dir);
  await dialog.getByRole('button', { name: 'See what would happen' }).click();
  await dialog.getByText('2 files, 4.0 MiB would be archived into the archive that each has, or archive 1').waitFor();
  const command = await dialog.locator('code').innerText();
  check('a path below the mount is taken, and the command is shown', command.startsWith("find '") && command.includes('brindle hsm archive'), command);
  check('a plan changes nothing', states().every((flags) => flags === ''), states());
  await shot('archive-plan');
  await axe('the plan of an archive');
  await confirm(/^Archive$/, '2 files archived, 4.0 MiB');
  check('a tree is archived by click', states().every((flags) => flags.includes('archived')), states());
  await ask('Release', '/project/run 1');
  await dialog.getByText('2 files, 4.0 MiB would be released').waitFor();
  await confirm(/^Release$/, '2 files released, 4.0 MiB');
  check('a tree is released by click', states().every((flags) => flags.includes('released')), states());
  await ask('Restore', '/project/run 1');
  await dialog.getByText('brindle hsm restore -r').waitFor();
  await confirm(/^Restore$/, '2 files restored, 4.0 MiB');
  check('a tree is restored by click', states().every((flags) => !flags.includes('released')), states());
  await ask('Restore', '/project/run 1');
  await dialog.getByText('Nothing there is to be restored').waitFor();
  await dialog.getByRole('button', { name: 'Close' }).click();

  // Nobody serves this archive: the action waits until it is cancelled.
  fs.writeFileSync(path.join(mount, 'project', 'waits'), 'x');
  await ask('Archive', '/project/waits', '7');
  await dialog.getByRole('button', { name: 'Archive', exact: true }).click();
  await dialog.getByText('1 wait or are under way').waitFor();
  await dialog.press('Escape').catch(() => {});
  await page.keyboard.press('Escape');
  await page.getByText('Nobody serves archive 7').waitFor();
  const queued = page.locator('tr[data-fid]', { hasText: 'waiting' });
  await queued.waitFor();
  await page.waitForFunction(() => document.querySelector('[data-test=waiting]').textContent === '1');
  check('what waits for an archive that nobody serves is told of', true);
  await shot('tiering');
  await axe('HSM and policies');
  await wide('HSM and policies');
  await queued.getByRole('button', { name: /^Cancel/ }).click();
  await dialog.getByText('1 file would be given up').waitFor();
  await confirm('Give it up', '1 file given up');
  await page.getByText('Nobody serves archive 7').waitFor({ state: 'detached' });
  check('an action is cancelled by click', brindle('hsm', 'state', '-o', 'json', path.join(mount, 'project', 'waits')).files[0].action === null);

  const state = path.join(cluster, 'policy');
  const off = () => brindle('policy', 'status', '--state', state, '-o', 'json').off;
  const policy = page.locator('tr[data-policy]').first();
  const name = await policy.getAttribute('data-policy');
  await policy.getByText('on', { exact: true }).waitFor();
  await policy.getByRole('button', { name: 'More of' }).click();
  await page.getByText('limits', { exact: true }).waitFor();
  await policy.getByRole('button', { name: 'Switch off' }).click();
  await dialog.getByText('its next runs do not begin').waitFor();
  check('a policy shows its command', (await dialog.locator('code').innerText()) === `brindle policy disable --state ${state} ${name}`);
  await axe('the plan of a policy');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  check('a plan that is not confirmed leaves the policy on', off().length === 0, off());
  await policy.getByRole('button', { name: 'Switch off' }).click();
  await confirm(`Switch ${name} off`, 'done');
  await policy.getByText('switched off').waitFor();
  check('a policy is switched off by click', off().join() === name, off());
  await policy.getByRole('button', { name: 'Switch on' }).click();
  await confirm(`Switch ${name} on`, 'done');
  await policy.getByText('on', { exact: true }).waitFor();
  check('a policy is switched on by click', off().length === 0, off());
  await page.getByRole('button', { name: 'Preview' }).click();
  await dialog.getByText('All names of the file system would be looked at').waitFor();
  await confirm('Look now', 'policies would act on');
  await page.getByRole('heading', { name: 'Preview of' }).waitFor();
  check('the text of the engine is previewed', await page.getByText(`brindle policy preview --state ${state}`).first().isVisible());
  await axe('a preview');
  await wide('a preview');
  await shot('policies');
  await policyText({ page, check, axe, wide, shot, confirm, mount, brindle, cluster });
}

/** Longest wait for the engine. */
const ENGINE_MS = 30_000;

async function until(what, is) {
  const end = Date.now() + ENGINE_MS;
  while (!is()) {
    if (Date.now() > end) throw new Error(`${what}: not within ${ENGINE_MS} ms`);
    await new Promise((done) => setTimeout(done, 200));
  }
}

/** The text of the engine: a mistake is shown where it is; what deletes stays off until the same text was previewed and confirmed. */
async function policyText({ page, check, axe, wide, shot, confirm, mount, brindle, cluster }) {
  const file = path.join(cluster, 'policy.conf');
  const before = fs.readFileSync(file, 'utf8');
  const status = () => brindle('policy', 'status', '--state', path.join(cluster, 'policy'), '-o', 'json');
  const empty = path.join(mount, 'project', 'empty');
  fs.mkdirSync(empty);
  const dialog = page.getByRole('dialog');
  await page.getByRole('button', { name: 'Edit the text' }).click();
  const area = page.getByRole('textbox', { name: 'Text of the policies' });
  await page.getByText('understood', { exact: true }).waitFor();
  check('the text of the engine is shown', (await area.inputValue()) === before);
  const lines = before.split('\n').length;
  await area.fill(`${before}rmdir_rules {\n  rule default { conditio { } }\n}\n`);
  const place = page.getByRole('button', { name: `line ${lines + 1}, column 18` });
  await place.waitFor();
  check('a text with a mistake is neither previewed nor saved', (await page.getByRole('button', { name: 'Save ...' }).isDisabled()) && (await page.getByRole('button', { name: 'Preview this text' }).isDisabled()));
  await shot('policy-mistake');
  await axe('a mistake in a policy');
  await place.click();
  const at = await area.evaluate((one) => one.value.slice(one.selectionStart).slice(0, 8));
  check('a click on the place leads there', at === 'conditio', at);
  const rules = `rmdir_rules {\n  ignore { tree == "${mount}/keep" }\n  rule default { condition { path == "${mount}/project/empty" } }\n}\n`;
  await area.fill(before + rules);
  await page.getByText(`it is not known where '${mount}/keep' lies`).waitFor();
  const text = `General { fs_path = "${mount}"; }\n${before}${rules}rmdir_trigger { trigger_on = periodic; check_interval = 1s; }\n`;
  await area.fill(text);
  await page.getByText('rmdir deletes: off until this text is previewed and confirmed').waitFor();
  await page.getByRole('button', { name: 'Preview this text' }).click();
  await dialog.getByText('All names of the file system would be looked at').waitFor();
  await confirm('Look now', 'policies would act on');
  await page.getByText('previewed, and off until it is confirmed').waitFor();
  await page.getByText('rmdir (rmdir): 1 entry').waitFor();
  check('a text that is not saved is previewed, and cannot be confirmed yet', await page.getByRole('button', { name: 'Confirm what deletes' }).isDisabled());
  check('a preview changes nothing', fs.readFileSync(file, 'utf8') === before && fs.existsSync(empty));
  await page.getByRole('button', { name: 'Save ...' }).click();
  await dialog.getByText('rmdir stays off: it deletes').waitFor();
  await axe('the plan of a text');
  check('a saved text has its command', (await dialog.locator('code').innerText()) === `brindle policy check ${file}.new && mv ${file}.new ${file}`);
  await confirm('Save', 'done');
  check('the text is saved, and the one of before is kept', fs.readFileSync(file, 'utf8') === text && fs.readFileSync(`${file}.before`, 'utf8') === before);
  await page.locator('tr[data-policy=rmdir]').waitFor();
  await until('the engine tells what waits to be confirmed', () => status().unconfirmed.includes('rmdir'));
  check('what deletes is off although its time has come', fs.existsSync(empty) && status().runs.every((run) => run.policy !== 'rmdir' || run.done === 0));
  await page.locator('tr[data-policy=rmdir]').getByText('waits to be confirmed').waitFor();
  await page.setViewportSize({ width: 1366, height: 1500 });
  await shot('policy-text');
  await page.setViewportSize({ width: 1366, height: 768 });
  await axe('the text of the policies');
  await wide('the text of the policies');
  await page.getByRole('button', { name: 'Confirm what deletes' }).click();
  await dialog.getByText('The preview chose 1 entry for rmdir').waitFor();
  await axe('the plan of a confirmation');
  await dialog.getByLabel(/^Type/).fill('rmdir');
  await confirm('Confirm', 'done');
  await until('the engine removes what was confirmed', () => !fs.existsSync(empty));
  check('what was previewed and confirmed is done', status().unconfirmed.length === 0);
  await area.fill(before);
  await page.getByRole('button', { name: 'Save ...' }).click();
  await confirm('Save', 'done');
  await page.locator('tr[data-policy=rmdir]').waitFor({ state: 'detached' });
  check('a policy is taken out of the text', fs.readFileSync(file, 'utf8') === before);
  await page.getByRole('button', { name: 'Close the text' }).click();
}
