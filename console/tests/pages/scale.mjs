// A cluster of 200 OSTs on 100 hosts with 1000 clients: what one real server tells, told by all of them. Each update has to be on the page
// within 50 ms of the browser's own time.

import path from 'node:path';

const HOSTS = 100;
const OSTS_EACH = 2;
const CLIENTS = 1000;
const UPDATES = 20;
/** Longest time of an update, half of them being shorter. */
const UPDATE_MS_MAX = 50;

/** One state and one sample, as the manager sends them. */
function record(page) {
  return page.evaluate(
    () =>
      new Promise((done) => {
        const found = {};
        const source = new EventSource('/api/v1/live');
        for (const name of ['state', 'sample']) {
          source.addEventListener(name, (event) => {
            found[name] = JSON.parse(event.data);
            if (!found.state || !found.sample) return;
            source.close();
            done(found);
          });
        }
      }),
  );
}

function enlarge({ state, sample }) {
  const one = state.targets.find((target) => target.role === 'OST');
  const rates = sample.targets[one.name];
  const host = state.hosts[0];
  const [targets, hosts] = [state.targets.filter((target) => target.role !== 'OST'), []];
  sample.targets = {};
  for (let n = 0; n < HOSTS; n += 1) {
    const names = [];
    for (let m = 0; m < OSTS_EACH; m += 1) {
      const name = `large-OST${(n * OSTS_EACH + m).toString(16).padStart(4, '0')}`;
      names.push(name);
      targets.push({ ...one, name, host: `server${n}`, clients: CLIENTS });
      sample.targets[name] = { ...rates };
    }
    hosts.push({ ...host, name: `server${n}`, targets: names });
  }
  return { state: { ...state, targets, hosts }, sample };
}

/** Runs in the page: the stream of the manager is the test's, and answers are timed until the page shows them. */
function takeOver() {
  globalThis.EventSource = class extends EventTarget {
    constructor() {
      super();
      globalThis.stream = this;
      setTimeout(() => this.onopen?.());
    }
    close() {}
  };
  globalThis.shownMs = [];
  const json = Response.prototype.json;
  Response.prototype.json = async function timed() {
    const found = await json.call(this);
    if (!this.url.includes('/top/')) return found;
    const begun = performance.now();
    // By then the page has taken what it was given.
    setTimeout(() => {
      document.body.getBoundingClientRect();
      globalThis.shownMs.push(performance.now() - begun);
    });
    return found;
  };
}

/** Runs in the page: sends updates one after the other; how long each took until it was laid out. */
async function update({ state, sample, updates }) {
  const took = [];
  const send = (name, data) => globalThis.stream.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
  for (let n = 0; n < updates; n += 1) {
    for (const rates of Object.values(sample.targets)) {
      for (const name of Object.keys(rates)) rates[name] += n + 1;
    }
    sample.at_s += 1;
    const used = { ...state, targets: state.targets.map((target) => ({ ...target, available_bytes: target.available_bytes - n * 4096 })) };
    const data = [['sample', sample], ['state', used]];
    const begun = performance.now();
    data.forEach(([name, all]) => send(name, all));
    await new Promise((done) => queueMicrotask(() => queueMicrotask(done)));
    document.body.getBoundingClientRect();
    took.push(performance.now() - begun);
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  }
  return took;
}

const median = (numbers) => [...numbers].sort((a, b) => a - b)[numbers.length >> 1];

export async function scale({ context, page, check, shots }) {
  const large = enlarge(await record(page));
  const row = (await page.evaluate(() => fetch('/api/v1/top/clients').then((answer) => answer.json()))).rows[0];
  const other = await context.newPage();
  await other.addInitScript(takeOver);
  let asked = 0;
  await other.route('**/api/v1/top/clients', (route) => {
    asked += 1;
    const rows = Array.from({ length: CLIENTS }, (_, n) => ({ ...row, name: `node${n}`, busy: ((n * 7 + asked) % CLIENTS) / CLIENTS, operations: row.operations + asked }));
    return route.fulfill({ json: { rows, silent: [], left_out: 0 } });
  });
  await other.goto(new URL('/', page.url()).href);
  const goTo = (title) => other.getByRole('navigation').getByRole('link', { name: title }).click();
  await goTo('Targets');
  await other.evaluate(update, { ...large, updates: 1 });
  const fast = (where, took) => check(`${where} are up to date within ${UPDATE_MS_MAX} ms`, took.length >= 3 && median(took) < UPDATE_MS_MAX, took.map((ms) => ms.toFixed(1)).join(' '));
  for (const [title, rows, number] of [
    ['Targets', 'tr[data-target]', large.state.targets.length],
    ['Topology', 'li[data-target]', HOSTS * OSTS_EACH],
    ['Servers', 'tbody tr', HOSTS],
    ['Dashboard', '.plot canvas', 3],
  ]) {
    await goTo(title);
    await other.waitForFunction(([selector, least]) => document.querySelectorAll(selector).length >= least, [rows, number]);
    fast(`${title} of ${HOSTS * OSTS_EACH} targets`, await other.evaluate(update, { ...large, updates: UPDATES }));
    await other.screenshot({ path: path.join(shots, `large-${title.toLowerCase()}.png`) });
  }
  await goTo('Jobs');
  await other.getByRole('group', { name: 'Counted by' }).getByRole('button', { name: 'Clients' }).click();
  await other.getByText(`100 of ${CLIENTS}`).waitFor();
  await other.evaluate(() => (globalThis.shownMs.length = 0));
  await other.waitForFunction(() => globalThis.shownMs.length >= 3);
  fast(`Rates of ${CLIENTS} clients`, await other.evaluate(() => globalThis.shownMs));
  await other.close();
}
