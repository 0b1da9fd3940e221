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

/** `3.2 s`, `12 min`, `5 h`, `9 d` */
export function seconds(n) {
  const value = n ?? 0;
  if (value < 10) return `${value.toFixed(value < 1 ? 2 : 1)} s`;
  if (value < 120) return `${value.toFixed(0)} s`;
  if (value < 2 * 3600) return `${(value / 60).toFixed(0)} min`;
  if (value < 2 * 86400) return `${(value / 3600).toFixed(0)} h`;
  return `${(value / 86400).toFixed(0)} d`;
}

const SIZES = { b: 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40, p: 2 ** 50 };

/** Bytes of `500g` or `1.5 TiB`; null for nothing, NaN for what is no size. Only 0 needs no unit. */
export function parseBytes(text) {
  const trimmed = text.trim().toLowerCase();
  if (trimmed === '') return null;
  if (trimmed === '0') return 0;
  const found = /^(\d+(?:\.\d+)?)\s*([bkmgtp])(?:i?b)?$/.exec(trimmed);
  return found ? Math.round(Number(found[1]) * SIZES[found[2]]) : NaN;
}

/** Bytes as `parseBytes` takes them, to the byte. */
export function exactBytes(n) {
  for (const unit of ['p', 't', 'g', 'm', 'k']) {
    if (n > 0 && n % SIZES[unit] === 0) return `${n / SIZES[unit]}${unit}`;
  }
  return n === 0 ? '0' : `${n}b`;
}

/** A whole number; null for nothing, NaN for what is none. */
export function parseCount(text) {
  const trimmed = text.trim();
  if (trimmed === '') return null;
  return /^\d+$/.test(trimmed) ? Number(trimmed) : NaN;
}

/** What a state means for the colour and the sign; never the colour alone. */
export function kind(state) {
  if (['active', 'up', 'serving', 'healthy', 'done', 'owner', 'joined', 'ended', 'ok', 'on', 'succeeded', 'enabled', 'good'].includes(state)) return 'good';
  if (['recovering', 'draining', 'starting', 'moving', 'fencing', 'warning', 'running', 'standby', 'accepted', 'waiting', 'grace', 'busy'].includes(state)) return 'busy';
  if (['stopped', 'known', 'silenced', 'off', 'cancelled', 'disabled'].includes(state)) return 'off';
  return 'bad';
}
