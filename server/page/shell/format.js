// Numbers and times as people read them.

const units = [[86400e3, 'd'], [3600e3, 'h'], [60e3, 'm'], [1e3, 's']];

// duration formats milliseconds with at most two units, as kubectl does: 2d4h, 54m, 12s.
export function duration(ms) {
  if (!(ms >= 1000)) return ms > 0 ? `${Math.round(ms)}ms` : '0s';
  const first = units.findIndex(([size]) => ms >= size);
  const [size, name] = units[first];
  const whole = Math.floor(ms / size);
  const next = units[first + 1];
  const rest = next && whole < 10 ? Math.floor((ms % size) / next[0]) : 0;
  return `${whole}${name}${rest ? `${rest}${next[1]}` : ''}`;
}

// since returns how long ago a time was.
export const since = (time) => (time ? duration(Date.now() - Date.parse(time)) : '');

export function bytes(value) {
  if (value === undefined || value === null) return '';
  for (const [size, name] of [[2 ** 30, 'Gi'], [2 ** 20, 'Mi'], [2 ** 10, 'Ki']]) {
    if (value >= size) return `${(value / size).toFixed(value < 10 * size ? 1 : 0)}${name}`;
  }
  return `${Math.round(value)}`;
}

export const cores = (value) => (value === undefined || value === null ? '' : `${Math.round(value * 1000)}m`);

export const percent = (value) => (value === undefined || value === null ? '' : `${Math.round(value * 100)}%`);

export const clock = (time) => (time ? new Date(time).toLocaleTimeString() : '');
