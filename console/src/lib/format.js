// Numbers for people: IEC units, few digits.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

/** `1.5 GiB` */
export function bytes(n) {
  let unit = 0;
  let value = n ?? 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** `120 MiB/s` */
export const rate = (n) => `${bytes(n)}/s`;

/** `12.3k` */
export function count(n) {
  const value = n ?? 0;
  if (value >= 999_950) return `${(value / 1e6).toFixed(1)}M`;
  if (value >= 10_000) return `${(value / 1e3).toFixed(1)}k`;
  return value >= 10 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
}

export const percent = (part, whole) => (whole > 0 ? `${Math.round((100 * part) / whole)} %` : '');

export const clock = (seconds) => new Date(seconds * 1000).toTimeString().slice(0, 8);
/** `2026-11-29 14:05:59`, in the time zone of the browser. */
export const date = (seconds) => new Date(seconds * 1000).toLocaleString('sv-SE');

/** What a state means for the colour and the sign; never the colour alone. */
export function kind(state) {
  if (['active', 'up', 'serving', 'healthy', 'done', 'owner', 'joined', 'ended'].includes(state)) return 'good';
  if (['recovering', 'draining', 'starting', 'moving', 'fencing', 'warning', 'running', 'standby', 'accepted'].includes(state)) return 'busy';
  if (['stopped', 'known', 'silenced'].includes(state)) return 'off';
  return 'bad';
}
