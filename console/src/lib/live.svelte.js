// What the manager tells by itself: a sample a second, the state, the tasks.

import { get } from './api.js';

/** Samples that are drawn: ten minutes by the second. */
const SAMPLES_MAX = 600;

export const live = $state({
  connected: false,
  state: null,
  tasks: [],
  alerts: [],
  silences: [],
  sample: null,
  targets: {},
  /** Counts up when samples have come; the samples themselves are no state, because they are many. */
  version: 0,
});

export const samples = { short: [], long: [] };

let source = null;

/** Begins to listen. `ended` is called when the session is over. */
export async function listen(ended) {
  stop();
  samples.short = (await get('/history/10m')).samples;
  samples.long = (await get('/history/6h')).samples;
  live.version += 1;
  source = new EventSource('/api/v1/live');
  source.onopen = () => (live.connected = true);
  source.onerror = () => {
    live.connected = false;
    // The browser tries again by itself; a session that has ended is found out by asking.
    get('/session').catch((fault) => fault.code === 'E5041' && ended());
  };
  source.addEventListener('sample', (event) => {
    const sample = JSON.parse(event.data);
    live.targets = sample.targets;
    live.sample = sample;
    samples.short.push(sample);
    if (samples.short.length > SAMPLES_MAX) samples.short.shift();
    live.version += 1;
  });
  source.addEventListener('state', (event) => (live.state = JSON.parse(event.data)));
  source.addEventListener('alerts', (event) => {
    const { alerts, silences } = JSON.parse(event.data);
    live.alerts = alerts;
    live.silences = silences;
  });
  source.addEventListener('tasks', (event) => (live.tasks = JSON.parse(event.data).tasks));
}

export function stop() {
  source?.close();
  source = null;
  live.connected = false;
}

/** The long history, asked for again: it grows by a sample each ten seconds. */
export async function refreshLong() {
  samples.long = (await get('/history/6h')).samples;
  live.version += 1;
}
