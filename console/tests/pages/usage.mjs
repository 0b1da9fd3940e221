// The page "Usage and quotas": a limit is set with its plan, default limits, grace times, and a look at all files.

import fs from 'node:fs';
import path from 'node:path';

const UID = 4711;

export async function usage({ page, check, axe, wide, shot, goTo, confirm, mount, brindle }) {
  const dir = path.join(mount, 'home', 'bob');
  fs.mkdirSync(dir, { recursive: true });
  fs.writeFileSync(path.join(dir, 'large'), Buffer.alloc(8 << 20, 'b'));
  fs.chownSync(path.join(dir, 'large'), UID, UID);
  const dialog = page.getByRole('dialog');
  const shown = (...args) => brindle('quota', 'show', ...args, '--path', mount, '-o', 'json').quotas[0];

  await goTo('Usage and quotas');
  const row = page.locator(`tr[data-owner="${UID}"]`);
  await row.getByText('8.0 MiB').waitFor();
  check('users are shown with what they use', true);
  await row.getByRole('button', { name: 'Set' }).click();
  await dialog.getByLabel('Space, hard').fill('lots');
  await dialog.getByText('Space is a number with a unit').waitFor();
  await dialog.getByLabel('Space, hard').fill('4m');
  await dialog.getByLabel('Space, hard').press('Enter');
  await dialog.getByText('are at the hard limit of space').waitFor();
  const command = await dialog.locator('code').innerText();
  check('a limit shows its command', command === `brindle quota set --user ${UID} --space 4m --path ${mount}`, command);
  check('a plan sets nothing', shown('--user', `${UID}`).space_bytes.hard === 0);
  await shot('quota-plan');
  await axe('the plan of a limit');
  await confirm('Set', 'done');
  await row.getByText('at the limit').waitFor();
  check('a limit is set by click', shown('--user', `${UID}`).space_bytes.hard === 4 << 20 && shown('--user', `${UID}`).space_bytes.state === 'full');
  await page.getByText('One user is at a limit').waitFor();
  check('whoever is nearest to a limit comes first', (await page.locator('tr[data-owner]').first().getAttribute('data-owner')) === `${UID}`);

  await page.getByRole('button', { name: 'Change the default limits' }).click();
  await dialog.getByLabel('Inodes, soft').fill('1000');
  await dialog.getByRole('button', { name: 'See what would happen' }).click();
  await dialog.getByText('brindle quota set --default users --inodes-soft 1000').waitFor();
  await confirm('Set', 'done');
  await page.locator('[data-test=defaults]').getByText('1000 soft').waitFor();
  check('default limits are set by click', shown('--default', 'users').inodes.soft === 1000);
  await page.getByRole('button', { name: 'Change the grace times' }).click();
  await dialog.getByLabel('Space, days').fill('3');
  await dialog.getByRole('button', { name: 'See what would happen' }).click();
  await dialog.getByText('brindle quota grace users').waitFor();
  await confirm('Set', 'done');
  check('grace times are set by click', shown('--default', 'users').space_bytes.grace_seconds === 3 * 86_400);
  await row.getByRole('button', { name: 'Set' }).click();
  await dialog.getByLabel('The default limits').check();
  await dialog.getByRole('button', { name: 'See what would happen' }).click();
  await dialog.getByText('would have the default limits').waitFor();
  await confirm('Set', 'done');
  await row.getByText('default', { exact: true }).waitFor();
  check('the default limits are given back by click', shown('--user', `${UID}`).is_default);

  await page.getByRole('group', { name: 'Counted by' }).getByRole('button', { name: 'Projects' }).click();
  await page.getByText('There is no project').waitFor();
  await page.getByRole('button', { name: 'Set limits' }).click();
  await dialog.getByLabel('Project, number').fill('1000');
  await dialog.getByLabel('Space, hard').fill('10 TiB');
  await dialog.getByRole('button', { name: 'See what would happen' }).click();
  await dialog.getByText('brindle quota set --project 1000 --space 10t').waitFor();
  await confirm('Set', 'done');
  await page.locator('tr[data-owner="1000"]').getByText('10.0 TiB').waitFor();
  check('a project is limited by click', shown('--project', '1000').space_bytes.hard === 10 * 2 ** 40);

  await page.getByRole('button', { name: 'Look now' }).click();
  await dialog.getByText('All names of the file system would be looked at').waitFor();
  await confirm('Look now', 'files in');
  await page.locator('[data-test=looked]').waitFor();
  await page.getByRole('group', { name: 'Largest' }).getByRole('button', { name: 'Files' }).click();
  await page.getByText('/home/bob/large').waitFor();
  check('a look at all files tells sizes, ages and what is largest', await page.getByRole('region', { name: 'Sizes of files' }).getByText('up to 16.0 MiB').isVisible());
  await page.getByRole('group', { name: 'Counted by' }).getByRole('button', { name: 'Users' }).click();
  await row.waitFor();
  await axe('usage and quotas');
  await wide('usage and quotas');
  await shot('usage');
}
