// Steps in the life of a burst buffer.

const KINDS = {
  allocated: 'waiting',
  'being made': 'making',
  ready: 'waiting',
  'staging in': 'staging',
  'staged in': 'waiting',
  'being mounted': 'making',
  mounted: 'used',
  'being unmounted': 'making',
  unmounted: 'waiting',
  'staging out': 'staging',
  'staged out': 'waiting',
  kept: 'waiting',
  'being destroyed': 'making',
};

/** What a step is for the colour: its words stand beside it. */
export const kind = (step) => (step.failure ? 'failed' : (KINDS[step.state] ?? 'waiting'));

/** The same for a buffer as a whole. */
export function health(buffer) {
  if (buffer.reason || buffer.state === 'kept') return 'bad';
  if (buffer.state === 'mounted' || buffer.state === 'ready' || buffer.state === 'staged in') return 'good';
  return 'busy';
}
