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

/** Spans of the history; the seconds after which one that is shown has more to tell. The first one grows by itself. */
export const SPANS = [
  { name: '10m', title: '10 minutes' },
  { name: '6h', title: '6 hours', again_s: 10 },
  { name: '1d', title: 'Day', again_s: 60 },
  { name: '7d', title: 'Week', again_s: 300 },
  { name: '30d', title: 'Month', again_s: 600 },
  { name: '1y', title: 'Year', again_s: 600 },
];
/** Samples by span, and the seconds between two of them. */
export const samples = { [SPANS[0].name]: [] };
export const steps = { [SPANS[0].name]: 1 };

let source = null;

/** Begins to listen. `ended` is called when the session is over. */
export async function listen(ended) {
  stop();
  await refresh(SPANS[0].name);
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
    const recent = samples[SPANS[0].name];
    recent.push(sample);
    if (recent.length > SAMPLES_MAX) recent.shift();
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

/** Asks for the history of a span. */
export async function refresh(span) {
  const found = await get(`/history/${span}`);
  samples[span] = found.samples;
  steps[span] = found.step_s;
  live.version += 1;
}
