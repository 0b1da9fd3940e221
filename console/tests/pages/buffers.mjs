// The page "Burst buffers": without an orchestrator, and with one that has a persistent buffer and one of a job whose files could not be
// staged out. The calls of Slurm are made as Slurm makes them (dacctl).

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const OWNER = 65534;
const UP_LIMIT_MS = 20_000;

/** An orchestrator with a brick, a persistent buffer, and a buffer that was kept because the place for its files was missing. */
async function orchestrator(base, socket, out) {
  const brindle = process.env.BRINDLE;
  const run = (...args) => execFileSync(brindle, args, { env: { ...process.env, BRINDLE_BB_SOCKET: socket }, encoding: 'utf8' });
  const serve = ['bb', 'serve', '--dir', path.join(base, 'bb'), '--socket', socket, '--mount-root', path.join(base, 'bb-mnt')];
  const child = spawn(brindle, [...serve, '--log', path.join(base, 'bb.log')], { stdio: 'ignore' });
  process.on('exit', () => {
    // A walk that fails leaves buffers, which have servers and mounts.
    const left = spawnSync(brindle, ['bb', 'list', '--socket', socket, '-o', 'json'], { encoding: 'utf8' });
    const names = left.status === 0 ? JSON.parse(left.stdout).buffers.map((one) => `${one.job}.${one.serial}`) : [];
    for (const name of names) spawnSync(brindle, ['bb', 'destroy', '--yes', '--socket', socket, name]);
    child.kill('SIGKILL');
  });
  const until = Date.now() + UP_LIMIT_MS;
  while (spawnSync(brindle, ['bb', 'list', '--socket', socket]).status !== 0) {
    if (Date.now() > until || child.exitCode !== null) throw new Error(`the orchestrator does not run: ${fs.readFileSync(path.join(base, 'bb.log'), 'utf8')}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  fs.mkdirSync(path.join(base, 'brick'));
  run('bb', 'brick', 'add', '--name', 'nvme0', '--capacity', '1GiB', path.join(base, 'brick'));
  run('bb', 'create', '--capacity', '64MiB', '--user', 'nobody', 'reference');
  const script = path.join(base, 'job.sh');
  fs.writeFileSync(script, `#!/bin/bash\n#DW jobdw capacity=128MiB access_mode=striped type=scratch\n#DW stage_out type=directory source=$DW_JOB_STRIPED/data destination=${out}/data\nhostname\n`);
  const nodes = path.join(base, 'nodes');
  fs.writeFileSync(nodes, `${os.hostname()}\n`);
  const job = ['--token', '77', '--job', script];
  run('dacctl', 'setup', ...job, '--caller', 'SLURM', '--user', `${OWNER}`, '--groupid', `${OWNER}`, '--capacity', 'default:128MiB');
  run('dacctl', 'data_in', ...job);
  run('dacctl', 'pre_run', ...job, '--nodehostnamefile', nodes);
  const data = path.join(base, 'bb-mnt', '77', 'global', 'data');
  fs.mkdirSync(data);
  fs.writeFileSync(path.join(data, 'result'), 'forty-two');
  for (const one of [data, path.join(data, 'result')]) fs.chownSync(one, OWNER, OWNER);
  run('dacctl', 'post_run', ...job);
  const failed = spawnSync(brindle, ['dacctl', 'data_out', ...job], { env: { ...process.env, BRINDLE_BB_SOCKET: socket }, encoding: 'utf8' });
  if (failed.status === 0) throw new Error('the files were staged out to a place that is missing');
  return () => child.kill('SIGTERM');
}

export async function buffers({ page, check, axe, wide, shot, goTo, confirm, brindle, base }) {
  const socket = process.env.BRINDLE_BB_SOCKET;
  const out = path.join(base, 'out');
  const dialog = page.getByRole('dialog');
  await goTo('Burst buffers');
  await page.getByText('No orchestrator of burst buffers answers').waitFor();
  check('without an orchestrator the page says how to start one', await page.getByText('brindle bb serve', { exact: true }).isVisible());
  await axe('burst buffers without an orchestrator');
  await wide('burst buffers without an orchestrator');
  const end = await orchestrator(base, socket, out);

  const list = () => brindle('bb', 'list', '--socket', socket, '-o', 'json').buffers;
  const kept = page.locator('tr[data-buffer^="77."]');
  const shared = page.locator('tr[data-buffer^="reference."]');
  await kept.getByText('files to be staged out').waitFor();
  await shared.getByText('ready', { exact: true }).waitFor();
  check('pools, bricks and buffers are shown', await page.locator('tr[data-brick=nvme0]').getByText('up', { exact: true }).isVisible());
  await kept.getByRole('button', { name: 'More of' }).click();
  // Its job ends while somebody looks: the last step is that it is kept.
  await page.locator('table.steps tbody th', { hasText: /^\s*kept\s*$/ }).waitFor();
  const steps = await page.locator('table.steps tbody th').allInnerTexts();
  const told = list().find((buffer) => buffer.job === '77').steps.map((step) => step.state);
  check('the life of a buffer is a time line', steps.map((text) => text.trim()).join() === told.join() && told.includes('staging out'), `${steps} ${told}`);
  await shot('buffers');
  await axe('burst buffers');
  await wide('burst buffers');

  check('a buffer tells which bricks it lies on', await page.getByText(/Lies on: nvme0 \(/).isVisible());

  const brick = page.locator('tr[data-brick=nvme0]');
  const drains = () => brindle('bb', 'brick', 'list', '--socket', socket, '-o', 'json').pools[0].bricks[0].is_draining;
  await brick.getByRole('button', { name: /^Drain/ }).click();
  await dialog.getByText(/A part of it stays with .*the buffer of job 77/).waitFor();
  check('a drain says what stays, and its command', (await dialog.locator('code').innerText()).startsWith('brindle bb brick drain nvme0'));
  await axe('the plan of a drain');
  await confirm('Drain', 'done');
  await brick.getByText('up, draining').waitFor();
  check('a brick is drained by click', drains());
  await brick.getByRole('button', { name: /^Use again/ }).click();
  await dialog.getByText('would get new buffers again').waitFor();
  await confirm('Give new buffers', 'done');
  await brick.getByText('up', { exact: true }).waitFor();
  check('and gets new buffers again by click', !drains());

  // The place for its files is there now.
  fs.mkdirSync(out);
  fs.chownSync(out, OWNER, OWNER);
  await kept.getByRole('button', { name: /^Retry/ }).click();
  await dialog.getByText(`goes to ${out}/data`).waitFor();
  check('a retry says what goes where, and its command', (await dialog.locator('code').innerText()).startsWith('brindle bb stage --retry 77.'));
  await axe('the plan of a stage-out');
  await confirm('Stage out again', 'done');
  check('files are staged out by click', fs.readFileSync(path.join(out, 'data', 'result'), 'utf8') === 'forty-two');
  await kept.getByText('files to be staged out').waitFor({ state: 'detached' });

  await shared.getByRole('button', { name: /^Resize/ }).click();
  await dialog.getByLabel('Size from now on').fill('lots');
  await dialog.getByText('That is no size').waitFor();
  await dialog.getByLabel('Size from now on').fill('96m');
  await dialog.getByRole('button', { name: 'See what would happen' }).click();
  await dialog.getByText('would have 96.0 MiB instead of 64.0 MiB').waitFor();
  await axe('the plan of a resize');
  await confirm('Resize', 'done');
  check('a buffer is resized by click', list().find((buffer) => buffer.job === 'reference').bytes === 96 << 20);

  for (const row of [kept, shared]) {
    const name = await row.getAttribute('data-buffer');
    await row.getByRole('button', { name: /^Destroy/ }).click();
    await dialog.getByText('Everything in it is lost').waitFor();
    const button = dialog.getByRole('button', { name: 'Destroy with everything in it' });
    check('a buffer is not destroyed by one click', await button.isDisabled());
    if (row === shared) await shot('destroy-plan');
    await axe('the plan of a destroy');
    await dialog.getByLabel(/^Type/).fill(name);
    await confirm('Destroy with everything in it', 'done');
    await row.waitFor({ state: 'detached' });
  }
  check('buffers are destroyed after their names were typed', list().length === 0, JSON.stringify(list()));
  end();
  await page.getByText('No orchestrator of burst buffers answers').waitFor();
  check('an orchestrator that ends is told of', true);
}
