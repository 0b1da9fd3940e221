// Pools, limits, the scrub, and the guided set-up: each with its plan, done by click, and seen by the commands.

export async function settings({ page, check, axe, wide, shot, goTo, confirm, brindle, cluster }) {
  const dialog = page.getByRole('dialog');
  const plan = () => dialog.getByRole('button', { name: 'See what would happen' }).click();
  const pools = () => brindle('pool', 'list', '--dir', cluster, '-o', 'json').pools;

  await goTo('Pools');
  await page.getByText('No pools').waitFor();
  await page.getByRole('button', { name: 'Make a pool' }).click();
  await dialog.getByLabel('Name').fill('flash');
  await dialog.getByLabel(/OST0001/).check();
  await plan();
  await dialog.getByText('A pool flash would be made').waitFor();
  check('the plan of a pool makes none', pools().length === 0);
  await shot('pool-plan');
  await axe('the plan of a pool');
  await confirm('Make', 'done');
  await page.getByRole('rowheader', { name: 'flash' }).waitFor();
  check('a pool is made by click', pools()[0].osts.join() === '1');
  await page.getByRole('button', { name: 'Put in of flash' }).click();
  await dialog.getByLabel(/OST0000/).check();
  await plan();
  await confirm('Put in', 'done');
  check('an OST is put in by click', pools()[0].osts.join() === '0,1');
  await axe('pools');
  await wide('pools');
  await shot('pools');
  await page.getByRole('button', { name: 'Destroy of flash' }).click();
  await dialog.getByLabel(/Type flash/).fill('flash');
  await confirm('Destroy', 'done');
  check('a pool is destroyed by click', pools().length === 0);

  await goTo('Limits');
  await page.getByText('No limits').waitFor();
  await page.getByRole('button', { name: 'Make a limit' }).click();
  await dialog.getByLabel('Name', { exact: true }).fill('slow');
  await dialog.getByLabel(/with commas/).fill('47*');
  await dialog.getByLabel('Requests a second').fill('500');
  await plan();
  await dialog.getByText('500 requests/s for job 47* at each target').waitFor();
  await confirm('Make', 'done');
  await page.getByRole('rowheader', { name: 'slow' }).waitFor();
  const limits = () => brindle('limit', 'list', '--dir', cluster, '-o', 'json').limits;
  check('a limit is made by click', limits()[0].iops === 500);
  await axe('limits');
  await wide('limits');
  await shot('limits');
  await page.getByRole('button', { name: 'Remove slow' }).click();
  await confirm('Remove', 'done');
  await page.getByText('No limits').waitFor();
  check('a limit is removed by click', limits().length === 0);

  await goTo('Scrub');
  await page.getByRole('button', { name: /^Start the scrub of .*OST0001/ }).click();
  await confirm('Start', 'done');
  await page.locator('tr[data-scrub$=OST0001]').getByText(/found, 0 mended/).first().waitFor();
  check('a scrub is started by click', true);
  await axe('the scrub');
  await wide('the scrub');
  await shot('scrub');

  await goTo('Set up');
  await page.getByText('An MDT keeps names').first().waitFor();
  await axe('the set-up');
  await wide('the set-up');
  await shot('setup');
}
