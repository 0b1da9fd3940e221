// One walk through the console in a real browser, on a real cluster: first log-in, live figures under load, a target stopped and started by
// click, the pages below pages/, users, log-out. Each page is checked by axe, at 1366x768, in dark and in light.
//
// Arguments: the printed address of the first log-in, a mount of the cluster, a directory for screenshots. Prints a line a check; exits with 1
// at the first that fails. The step `console` of `cargo xtask test` makes the cluster and calls this.

import { execFileSync, spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import fs from 'node:fs';
import path from 'node:path';
import { chromium } from 'playwright-core';
import { buffers } from './pages/buffers.mjs';
import { help } from './pages/help.mjs';
import { scale } from './pages/scale.mjs';
import { settings } from './pages/settings.mjs';
import { tiering } from './pages/tiering.mjs';
import { usage } from './pages/usage.mjs';

const [firstLogIn, mount, shots] = process.argv.slice(2);
const cluster = process.env.CLUSTER;
const PASSWORD = 'a password for the test';
const LIMIT_MS = 20_000;
/** Seconds of load on the picture of the dashboard. */
const PICTURE_SAMPLES = 10;
const axeSource = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage',
];

function chromiumPath() {
  const names = ['chromium', 'chromium-browser', 'google-chrome'];
  const places = process.env.PATH.split(':').flatMap((dir) => names.map((name) => path.join(dir, name)));
  const found = places.find((place) => fs.existsSync(place));
  if (!found) throw new Error('no chromium on this machine; apt-get install chromium');
  return found;
}

function check(name, fine, detail = '') {
  if (!fine) throw new Error(`${name}: ${detail}`);
  console.log(`ok ${name}`);
}

/** Writes files until it is told to stop: the load that the dashboard shows. */
function load() {
  let number = 0;
  const bytes = Buffer.alloc(4 << 20, 'brindle');
  const timer = setInterval(() => {
    const dir = path.join(mount, `load-${number}`);
    fs.mkdirSync(dir);
    fs.writeFileSync(path.join(dir, 'large'), bytes);
    for (let n = 0; n < 20; n += 1) fs.writeFileSync(path.join(dir, `small-${n}`), 'x');
    fs.readdirSync(dir);
    fs.rmSync(dir, { recursive: true });
    number += 1;
  }, 150);
  return () => clearInterval(timer);
}

async function main() {
  const browser = await chromium.launch({ executablePath: chromiumPath(), args: FLAGS });
  const context = await browser.newContext({ viewport: { width: 1366, height: 768 }, ignoreHTTPSErrors: true, colorScheme: 'dark' });
  await context.grantPermissions(['clipboard-write']);
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT_MS);
  const errors = [];
  const foreign = [];
  const origin = new URL(firstLogIn).origin;
  page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
  page.on('pageerror', (error) => errors.push(error.message));
  page.on('request', (request) => !request.url().startsWith(origin) && foreign.push(request.url()));

  const shot = (name) => page.screenshot({ path: path.join(shots, `${name}.png`) });
  const axe = async (name) => {
    // The policy of the page forbids scripts in it; what the test runs comes in past the page.
    const found = await page.evaluate(`${axeSource}; axe.run(document, { resultTypes: ['violations'] })`);
    const bad = found.violations.map((v) => `${v.id} (${v.impact}): ${v.nodes.map((n) => n.target).join(' ')}`);
    check(`axe finds nothing on ${name}`, bad.length === 0, bad.join('\n'));
  };
  const wide = async (name) => {
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    check(`${name} is not wider than the window`, over <= 0, `${over} px`);
  };
  /** Who makes the load: this process. */
  const jobs = async () => {
    await goTo('Jobs');
    const job = page.locator('tr[data-row^="node."]');
    await page.waitForFunction(() => parseFloat(document.querySelector('tr[data-row^="node."] td:nth-of-type(2)')?.textContent) > 0);
    check('the job that makes the load is shown with its requests', true);
    await job.getByRole('button', { name: 'More of' }).click();
    await page.getByText('of server time in all').waitFor();
    await shot('jobs');
    await axe('the jobs');
    await wide('the jobs');
    await page.getByRole('button', { name: 'Write', exact: true }).click();
    await page.locator('th[aria-sort=descending]', { hasText: 'Write' }).waitFor();
    check('the jobs show their command', (await page.getByText('The same in a terminal').locator('code').innerText()) === 'brindle top --by jobs --sort write');
    await page.getByPlaceholder('Filter by name').fill('no such job');
    await page.getByText('Nothing fits the filter.').waitFor();
    await page.getByPlaceholder('Filter by name').fill('');
    for (const by of ['Users', 'Clients', 'Targets']) {
      await page.getByRole('group', { name: 'Counted by' }).getByRole('button', { name: by }).click();
      await page.locator('tr[data-row]').first().waitFor();
    }
    check('users, clients and targets are counted, too', await page.locator('tr[data-row$=MDT0000]').isVisible());
  };
  /** A command of the program, with what it answers as JSON. */
  const brindle = (...args) => JSON.parse(execFileSync(process.env.BRINDLE, args, { stdio: ['ignore', 'pipe', 'ignore'] }));
  /** Confirms a plan, and waits for what comes of it. */
  const confirm = async (button, outcome) => {
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: button, exact: typeof button === 'string' }).click();
    await dialog.locator('.progress').getByText(outcome).first().waitFor();
    await dialog.locator('.progress').getByText('done', { exact: true }).waitFor();
    await dialog.getByRole('button', { name: 'Close' }).click();
  };
  const goTo = (title) => page.getByRole('navigation').getByRole('link', { name: title }).click();

  await page.goto(firstLogIn);
  await page.getByRole('heading', { name: 'Welcome to Brindle' }).waitFor();
  await shot('first-log-in');
  await axe('the first log-in');
  await page.getByLabel('Name').fill('ada');
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await page.getByLabel('Password, again').fill(PASSWORD);
  // By keyboard, as everything can be done.
  await page.getByLabel('Password, again').press('Enter');
  await page.getByText('All is well').waitFor();
  check('the first log-in leads to a healthy dashboard', true);

  const stopLoad = load();
  const figure = async (name) => parseFloat(await page.locator(`[data-test=${name}]`).innerText());
  await page.waitForFunction(() => parseFloat(document.querySelector('[data-test=throughput]').textContent) > 0);
  await page.waitForFunction(() => parseFloat(document.querySelector('[data-test=metadata]').textContent) > 0);
  await page.waitForFunction(() => parseFloat(document.querySelector('[data-test=iops]').textContent) > 0);
  check('the dashboard shows throughput, operations and metadata under load', true);
  check('the dashboard shows the capacity', (await page.locator('[data-test=capacity]').innerText()).includes('% used'));
  const first = await page.evaluate(() => fetch('/api/v1/history/10m').then((answer) => answer.json()));
  const written = first.samples.filter((sample) => sample.written_bytes_per_second > 0).length;
  check('the history has the load', written > 0 && first.step_s === 1, JSON.stringify(first.samples.at(-1)));
  await page.waitForFunction(() => document.querySelectorAll('.plot canvas').length === 3);
  // Enough of it for a picture.
  const until = Date.now() + LIMIT_MS;
  for (let enough = false; !enough; ) {
    const history = await page.evaluate(() => fetch('/api/v1/history/10m').then((answer) => answer.json()));
    enough = history.samples.filter((sample) => sample.metadata.create > 0).length >= PICTURE_SAMPLES;
    if (Date.now() > until) throw new Error('the load is not seen any more');
    await page.waitForTimeout(1000);
  }
  await shot('dashboard');
  await axe('the dashboard');
  await wide('the dashboard');
  for (const [title, span, step_s] of [['6 hours', '6h', 10], ['Day', '1d', 60], ['Week', '7d', 300], ['Month', '30d', 1200], ['Year', '1y', 14400]]) {
    await page.getByRole('group', { name: 'Time shown' }).getByRole('button', { name: title }).click();
    await page.getByRole('button', { name: title, pressed: true }).waitFor();
    const long = await page.evaluate((name) => fetch(`/api/v1/history/${name}`).then((answer) => answer.json()), span);
    check(`the history has a step of ${step_s} s over ${span}`, long.step_s === step_s, JSON.stringify(long));
  }
  await page.waitForFunction(() => document.querySelectorAll('.plot canvas').length === 3);
  await axe('the dashboard over a year');
  await wide('the dashboard over a year');
  await page.getByRole('group', { name: 'Time shown' }).getByRole('button', { name: '6 hours' }).click();
  await shot('dashboard-hours');
  await page.getByRole('group', { name: 'Time shown' }).getByRole('button', { name: '10 minutes' }).click();
  await jobs();
  stopLoad();

  await goTo('Targets');
  const row = page.locator('tr[data-target$=OST0001]');
  await row.getByText('active').waitFor();
  await row.getByRole('button', { name: 'Stop' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('would end the process ost1').waitFor();
  check('the plan is shown first, with the same command', (await dialog.locator('code').innerText()).startsWith('brindle dev stop --dir '));
  await shot('stop-plan');
  await axe('the plan');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await row.getByText('active').waitFor();
  check('a plan that is not confirmed changes nothing', true);
  await row.getByRole('button', { name: 'Stop' }).click();
  await dialog.getByRole('button', { name: /^Stop .*OST0001$/ }).click();
  await dialog.getByText('ost1 has ended').waitFor();
  await dialog.getByRole('button', { name: 'Close' }).click();
  await row.getByText('unreachable').waitFor();
  check('a target is stopped by click, and its state changes', true);
  const status = JSON.parse(execFileSync(process.env.BRINDLE, ['dev', 'status', '--dir', process.env.CLUSTER, '-o', 'json']));
  check('the process has ended', status.processes.find((p) => p.name === 'ost1').state === 'dead');
  await goTo('Dashboard');
  await page.getByText('does not answer').first().waitFor();
  await shot('degraded');
  await axe('the degraded dashboard');
  await goTo('Alerts');
  const alert = page.locator('tr[data-alert^="E5005"]');
  await alert.getByText('does not answer').waitFor();
  await shot('alerts');
  await axe('the alerts');
  await wide('the alerts');
  await alert.getByRole('button', { name: 'Acknowledge' }).click();
  await alert.getByText('known to ada').waitFor();
  check('an alert is acknowledged by click', true);
  await alert.getByRole('button', { name: 'Silence' }).click();
  const silence = page.getByRole('form', { name: 'Silence' });
  check('a silence shows its command', (await silence.locator('code').innerText()).startsWith('brindle alerts silence --code E5005 '));
  await silence.getByLabel('Why').fill('work on the disks');
  await axe('a silence');
  await silence.getByRole('button', { name: 'Silence' }).click();
  await page.getByText('work on the disks').waitFor();
  const listed = spawnSync(process.env.BRINDLE, ['alerts', 'list', '--manager', `${process.env.CLUSTER}/manager`, '-o', 'json']);
  const told = JSON.parse(listed.stdout);
  check('the command lists the same', told.alerts[0].acknowledged_by === 'ada' && told.silences[0].why === 'work on the disks' && listed.status === 8, listed.stdout);
  await page.getByRole('button', { name: /^End the silence of/ }).click();
  await page.getByText('work on the disks').waitFor({ state: 'detached' });
  check('a silence is ended by click', true);
  await goTo('Targets');
  await row.getByRole('button', { name: 'Start' }).click();
  await dialog.getByRole('button', { name: /^Start .*OST0001$/ }).click();
  await dialog.getByText('serves again').waitFor();
  await dialog.getByRole('button', { name: 'Close' }).click();
  await row.getByText('active').waitFor();
  check('the target is started again by click', true);
  await shot('targets');
  await axe('the targets');
  await wide('the targets');

  await goTo('Alerts');
  await page.getByText('Nothing is wrong.').waitFor();
  await page.getByRole('button', { name: 'Show those that ended' }).click();
  await alert.getByText('ended').waitFor();
  check('the alert has ended by itself, and is kept', true);
  await shot('alerts-ended');
  await axe('alerts that ended');

  await goTo('Topology');
  await page.locator('li[data-target$=OST0001]').waitFor();
  await shot('topology');
  await axe('the topology');
  await wide('the topology');
  await page.getByRole('button', { name: 'As a list' }).click();
  await page.getByRole('rowheader', { name: /OST0001$/ }).waitFor();
  await axe('the topology as a list');
  check('the topology is a picture and a list', true);

  await goTo('Logs');
  await page.getByLabel('Level').selectOption('info');
  await page.locator('tr[data-line]').first().waitFor();
  await shot('logs');
  await axe('the logs');
  await wide('the logs');
  await page.getByPlaceholder('A code, or a part of a message').fill('nothing says this');
  await page.getByText('No line fits.').waitFor();
  check('the logs of all servers are searched', await page.getByText("brindle log show --level info --text 'nothing says this'").isVisible());

  const tools = { page, check, axe, wide, shot, goTo, confirm, mount, brindle, cluster, base: path.dirname(cluster) };
  await tiering(tools);
  await usage(tools);
  await buffers(tools);
  await settings(tools);
  await help(tools);
  await scale({ context, page, check, shots });
  for (const [title, name] of [['Servers', 'servers'], ['Tasks', 'tasks'], ['Audit log', 'audit'], ['Users', 'users']]) {
    await goTo(title);
    await page.getByRole('heading', { name: title }).waitFor();
    await axe(name);
    await wide(name);
    await shot(name);
  }
  await page.getByLabel('Name').fill('vera');
  await page.getByLabel('Password').fill(PASSWORD);
  await page.getByRole('button', { name: 'Add' }).click();
  await page.getByRole('rowheader', { name: 'vera' }).waitFor();
  await page.getByLabel('Name').fill('hans');
  await page.getByLabel('By PAM').check();
  await page.getByRole('button', { name: 'Add' }).click();
  await page.getByRole('row', { name: /hans.*PAM/ }).waitFor();
  check('a user whose password the host knows is added', true);
  await goTo('Tokens');
  await page.getByText('No tokens', { exact: true }).waitFor();
  await page.getByLabel('Purpose').fill('nightly report');
  await page.getByRole('button', { name: 'Make' }).click();
  const secret = await page.getByRole('status').locator('code').innerText();
  await axe('a new token');
  await shot('tokens');
  await wide('tokens');
  const withToken = () => page.evaluate((shown) => fetch('/api/v1/tasks', { credentials: 'omit', headers: { authorization: `Bearer ${shown}` } }).then((answer) => answer.status), secret);
  check('a program gets in with the token', (await withToken()) === 200);
  await page.getByRole('button', { name: 'Revoke nightly report' }).click();
  await page.getByRole('button', { name: 'Revoke for good nightly report' }).click();
  await page.getByText('No tokens', { exact: true }).waitFor();
  check('a revoked token opens nothing', (await withToken()) === 401);
  await page.getByRole('button', { name: 'Light colours' }).click();
  await goTo('Dashboard');
  await page.getByText('All is well').waitFor();
  await axe('the dashboard in light');
  await shot('dashboard-light');
  await goTo('Targets');
  await row.getByText('active').waitFor();
  await axe('the targets in light');
  await page.setViewportSize({ width: 1920, height: 1080 });
  for (const [title, name] of [['HSM and policies', 'tiering'], ['Usage and quotas', 'usage'], ['Burst buffers', 'buffers'], ['Benchmarks', 'benchmarks'], ['Support', 'support']]) {
    await goTo(title);
    await page.getByRole('heading', { name: title, level: 1 }).waitFor();
    if (name !== 'buffers') await page.locator('tbody tr').first().waitFor();
    await axe(`${name} in light`);
    await wide(`${name} in full HD`);
    await shot(`${name}-light`);
  }
  await page.setViewportSize({ width: 1366, height: 768 });

  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('button', { name: 'Log in' }).waitFor();
  const after = await page.evaluate(() => fetch('/api/v1/state').then((answer) => answer.status));
  check('after the log-out nothing is told', after === 401, after);
  await page.getByLabel('Name').fill('vera');
  await page.getByLabel('Password').fill('a wrong password');
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('alert').waitFor();
  await axe('a refused log-in');
  await page.getByLabel('Password').fill(PASSWORD);
  await page.getByRole('button', { name: 'Log in' }).click();
  await goTo('Targets');
  await row.getByText('active').waitFor();
  check('a viewer can stop nothing', await row.getByRole('button', { name: 'Stop' }).isDisabled());
  await goTo('HSM and policies');
  await page.locator('tr[data-policy]').first().waitFor();
  check('a viewer can archive nothing and switch no policy', (await page.getByRole('button', { name: 'Archive files' }).isDisabled()) && (await page.getByRole('button', { name: 'Switch off' }).first().isDisabled()));
  check('a viewer does not see the text of policies', await page.getByRole('button', { name: 'Show the text' }).isDisabled());
  await goTo('Benchmarks');
  await page.getByRole('table', { name: 'Figures of run' }).waitFor();
  check('a viewer sees benchmarks and runs none', await page.getByRole('button', { name: 'Measure' }).isDisabled());
  await goTo('Usage and quotas');
  await page.locator('tr[data-owner]').first().waitFor();
  check('a viewer can set no limit', (await page.getByRole('button', { name: 'Set limits of' }).first().isDisabled()) && (await page.getByRole('button', { name: 'Look again' }).isDisabled()));
  check('a viewer sees no users', (await page.getByRole('link', { name: 'Users' }).count()) === 0);

  check('the page asked nobody but the manager', foreign.length === 0, foreign.join(' '));
  // Refusals that the test asked for, and an orchestrator that does not run, are noted by the browser.
  const unexpected = errors.filter((text) => !/status of (400|401|404|503)/.test(text));
  const refused = errors.filter((text) => text.includes('status of 400')).length;
  check('what is refused as wrong are the two directories of benchmarks', refused === 2, refused);
  check('the browser notes no errors', unexpected.length === 0, unexpected.join('\n'));
  await browser.close();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(`FAILED ${error.message}`);
    process.exit(1);
  },
);
