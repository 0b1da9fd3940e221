// The health of a host's hardware, benchmarks, support bundles.

import fs from 'node:fs';
import path from 'node:path';

/** Longest time of a benchmark, and of the first look at the hardware. */
const RUN_MS = 180_000;

export async function help(tools) {
  await hardware(tools);
  await benchmarks(tools);
  await support(tools);
}

/** Disks as the program in place of smartctl tells them, and what the site's own program says. */
async function hardware({ page, check, axe, wide, shot, goTo }) {
  await goTo('Servers');
  await page.getByRole('button', { name: 'Hardware of' }).first().click();
  const region = page.getByRole('region', { name: 'Hardware of' });
  const disks = region.getByRole('table', { name: 'Disks' });
  await disks.waitFor({ timeout: RUN_MS });
  const known = disks.locator('tr[data-disk]').first();
  await known.getByText('serial number T3ST').waitFor();
  check('a disk tells its state, its temperature and its serial number', (await known.innerText()).includes('41 °C') && (await known.getByText('well').isVisible()));
  check('the links of the host are shown with their errors', await region.getByRole('table', { name: 'Links' }).isVisible());
  check("the answer of the site's program is shown", (await region.locator('pre').innerText()).includes('"fan_1": "turns"'));
  check('the hardware shows its command', (await region.locator('code').last().innerText()).startsWith('curl -s http://127.0.0.1:'));
  await shot('hardware');
  await axe('the hardware of a host');
  await wide('the hardware of a host');
}

async function benchmarks({ page, check, axe, wide, shot, goTo, confirm, mount }) {
  const dialog = page.getByRole('dialog');
  const begin = async (directory, label) => {
    await page.getByRole('button', { name: 'Measure ...' }).click();
    await dialog.getByLabel('Directory').fill(directory);
    await dialog.getByLabel('Name of the run').fill(label);
    await dialog.getByLabel('Name of the run').press('Enter');
  };
  const left = () => fs.readdirSync(mount).filter((name) => name.startsWith('brindle-bench-'));
  await goTo('Benchmarks');
  await page.getByText('Nothing was measured yet.').waitFor();
  const open = path.join(mount, 'open to all');
  fs.mkdirSync(open);
  fs.chmodSync(open, 0o777);
  await begin(open, 'x');
  await dialog.getByText('others than root may change').waitFor();
  await dialog.getByLabel('Directory').fill('/tmp');
  await dialog.getByRole('button', { name: 'See what would happen' }).click();
  await dialog.getByText('it is in no mount of this file system').waitFor();
  check('only a directory of root in a mount of the file system is measured', true);
  await axe('a refused benchmark');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  for (const label of ['before', 'after']) {
    await begin(mount, label);
    await dialog.getByText('brindle bench quick would run in').waitFor();
    if (label === 'before') await axe('the plan of a benchmark');
    check(`a benchmark shows its command (${label})`, (await dialog.locator('code').innerText()).startsWith('brindle bench quick --size 64MiB '));
    await dialog.getByRole('button', { name: 'Run', exact: true }).click();
    await dialog.locator('.progress').getByText('repetition 1 of 3').first().waitFor();
    await dialog.locator('.progress').getByText(/^run \d+: \d+ figures$/).waitFor({ timeout: RUN_MS });
    await dialog.getByRole('button', { name: 'Close' }).click();
    await page.locator('option', { hasText: label }).first().waitFor({ state: 'attached' });
  }
  const table = page.getByRole('table', { name: 'Figures of run 2' });
  await table.waitFor();
  check('figures are shown with their share of the limit', (await table.innerText()).includes('% of '));
  await page.getByLabel('Compared with').selectOption({ label: '1: before' });
  const rows = page.getByRole('table', { name: 'Comparison of two runs' }).locator('tbody tr');
  await rows.first().waitFor();
  check('two runs are compared', (await rows.count()) === (await table.locator('tbody tr').count()), await rows.count());
  await page.setViewportSize({ width: 1366, height: 1100 });
  await shot('benchmarks');
  await page.setViewportSize({ width: 1366, height: 768 });
  await axe('the benchmarks');
  await wide('the benchmarks');
  await begin(mount, 'given up');
  await dialog.getByRole('button', { name: 'Run', exact: true }).click();
  await dialog.locator('.progress').getByText('repetition 1 of 3').first().waitFor();
  await dialog.getByRole('button', { name: 'Close' }).click();
  await goTo('Tasks');
  await page.getByRole('button', { name: `Give up benchmark ${mount}` }).click();
  await page.getByText('given up; its files were removed, and no result is kept').waitFor({ timeout: RUN_MS });
  check('a benchmark that is given up leaves nothing', left().length === 0, left());
}

async function support({ page, check, axe, wide, shot, goTo, confirm }) {
  const dialog = page.getByRole('dialog');
  await goTo('Support');
  await page.getByText('No bundle is kept.').waitFor();
  await page.getByRole('button', { name: 'Make a bundle ...' }).click();
  await dialog.getByRole('button', { name: 'See what would happen' }).click();
  await dialog.getByText('Names of files are left out').waitFor();
  check('a bundle shows its command', (await dialog.locator('code').innerText()).startsWith('brindle support bundle --dir '));
  await axe('the plan of a bundle');
  await confirm('Make it', 'is ready');
  const row = page.locator('tr[data-bundle]').first();
  const [download] = await Promise.all([page.waitForEvent('download'), row.getByRole('link', { name: 'Download' }).click()]);
  const bytes = fs.readFileSync(await download.path());
  check('a bundle is fetched, packed by gzip', bytes[0] === 0x1f && bytes[1] === 0x8b && bytes.length > 1000 && download.suggestedFilename() === (await row.getAttribute('data-bundle')), bytes.length);
  await shot('support');
  await axe('the bundles');
  await wide('the bundles');
}
