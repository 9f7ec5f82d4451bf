// Small drawings. Each has a text that says the same.
import {h, s} from './dom.js';
import {clock} from './format.js';

// spark returns a line of the values. NaN is a gap.
export function spark(values, label) {
  const width = 60, height = 16;
  const known = values.filter((value) => Number.isFinite(value));
  if (known.length < 2) return h('span', {class: 'hidden'}, label);
  const top = Math.max(...known) || 1;
  const points = values.map((value, i) => (Number.isFinite(value)
    ? `${(i * width / Math.max(1, values.length - 1)).toFixed(1)},${(height - 1 - value / top * (height - 2)).toFixed(1)}` : null));
  return s('svg', {class: 'spark', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label},
    s('title', {}, label), s('polyline', {points: points.filter(Boolean).join(' ')}));
}

export const day = 86400e3;

// levelOf classifies a summary of the history.
export function levelOf(summary) {
  if (!summary) return 'none';
  if (/^(Running|Completed|Succeeded)/.test(summary)) {
    const ready = /(\d+)\/(\d+)/.exec(summary);
    return /^Running/.test(summary) && ready && ready[1] !== ready[2] ? 'starting' : 'good';
  }
  if (/^(Pending|ContainerCreating|PodInitializing|Init:\d|Terminating)/.test(summary)) return 'starting';
  return 'bad';
}

const worse = {none: 0, good: 1, starting: 2, bad: 3};

// buckets returns the worst level in each of n parts of the last 24 hours. Records are newest first.
export function buckets(records, current, n, now = Date.now()) {
  const result = new Array(n).fill('none');
  let end = now, summary = current;
  for (const record of [...records, null]) {
    const start = record ? Date.parse(record.time) : now - day;
    const from = Math.max(0, Math.floor((start - (now - day)) / day * n));
    const to = Math.min(n - 1, Math.floor((end - (now - day)) / day * n));
    const value = record || records.length === 0 ? levelOf(summary) : levelOf(records.at(-1)?.before);
    for (let i = from; i <= to; i++) if (worse[value] > worse[result[i]]) result[i] = value;
    if (!record || start < now - day) break;
    end = start;
    summary = record.before;
  }
  return result;
}

const words = {none: 'not there', good: 'well', starting: 'not ready', bad: 'failing'};

// strip draws the last 24 hours of a pod.
export function strip(parts) {
  const counts = {};
  for (const part of parts) counts[part] = (counts[part] ?? 0) + 1;
  const label = `Last 24 hours: ${Object.entries(counts).map(([part, n]) => `${words[part]} ${Math.round(n / parts.length * 100)}%`).join(', ')}`;
  return s('svg', {class: 'strip', viewBox: `0 0 ${parts.length} 10`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label},
    s('title', {}, label),
    parts.map((part, i) => part !== 'none' && s('rect', {x: i, y: part === 'bad' ? 0 : part === 'starting' ? 3 : 5, width: 1, height: 10, class: part})));
}

// lanesOf turns records (newest first) into lanes of segments: the pod's summary, its readiness, and each container.
export function lanesOf(records) {
  const lanes = new Map();
  const put = (lane, time, value, title) => {
    if (!lanes.has(lane)) lanes.set(lane, []);
    lanes.get(lane).push({time, value, title});
  };
  for (const record of [...records].reverse()) {
    const time = Date.parse(record.time);
    if (record.kind !== 'pod') continue;
    put('pod', time, levelOf(record.after), record.after);
    for (const change of record.changes ?? []) {
      if (change.field === 'Ready') put('ready', time, change.to === 'True' ? 'good' : 'starting', change.to === 'True' ? 'ready' : 'not ready');
      if (change.container && change.field === 'state') {
        const failed = change.to === 'terminated' && change.exit?.code !== 0;
        put(change.container, time, change.to === 'running' ? 'good' : failed ? 'bad' : 'starting',
          [change.to, change.reason, change.exit && `exit ${change.exit.code}`].filter(Boolean).join(', '));
      }
    }
  }
  return lanes;
}

// timeline draws lanes between two times, and marks of events, alerts and actions.
export function timeline(lanes, marks, from, to) {
  const rows = [...lanes.keys()], width = 1000, row = 22, height = rows.length * row + 40;
  const x = (time) => (time - from) / (to - from) * width;
  const drawing = s('svg', {class: 'timeline', viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true'});
  rows.forEach((lane, i) => {
    const segments = lanes.get(lane);
    segments.forEach((segment, n) => {
      const start = Math.max(from, segment.time), end = Math.min(to, segments[n + 1]?.time ?? to);
      if (end <= start) return;
      drawing.append(s('rect', {x: x(start), y: i * row + 4, width: Math.max(1, x(end) - x(start)), height: row - 8, class: segment.value},
        s('title', {}, `${lane}: ${segment.title}, from ${clock(segment.time)}`)));
    });
  });
  for (const mark of marks) {
    if (mark.time < from || mark.time > to) continue;
    drawing.append(s('rect', {x: x(mark.time) - 2, y: rows.length * row + 4, width: 4, height: 14, class: `mark ${mark.kind}`}, s('title', {}, mark.title)));
  }
  return h('div', {class: 'lanes'},
    h('div', {class: 'names'}, rows.map((lane) => h('span', {}, lane)), h('span', {}, 'events')),
    drawing,
    h('div', {class: 'axis'}, h('span', {}, clock(from)), h('span', {}, clock((from + to) / 2)), h('span', {}, clock(to))));
}
