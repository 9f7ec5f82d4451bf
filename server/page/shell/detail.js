// The second view: everything about one pod.
import {h, replace, setText, table} from './dom.js';
import {day, lanesOf, timeline} from './charts.js';
import {clock, duration, since} from './format.js';
import {level, parseSummary} from './model.js';
import {syncText} from './list.js';

// flatten returns the leaves of an object by their paths. Lists of named things use the names.
function flatten(value, path, into) {
  if (value === null || typeof value !== 'object') {
    into.set(path, value);
    return into;
  }
  const entries = Array.isArray(value) ? value.map((item, i) => [item?.name ?? item?.type ?? i, item]) : Object.entries(value);
  for (const [key, item] of entries) flatten(item, path ? `${path}.${key}` : `${key}`, into);
  return into;
}

function stateText(state) {
  if (state?.running) return `running for ${since(state.running.startedAt)}`;
  if (state?.terminated) return `terminated: ${state.terminated.reason ?? ''} exit ${state.terminated.exitCode}`;
  return state?.waiting ? `waiting: ${state.waiting.reason ?? ''}` : 'unknown';
}

export class DetailView {
  constructor(model, session, key) {
    this.model = model;
    this.session = session;
    this.key = key;
    [this.namespace, this.pod] = key.split('/');
    this.parts = {};
    for (const part of ['why', 'conditions', 'containers', 'probes', 'timeline', 'lines', 'compare', 'events']) this.parts[part] = h('section');
    this.head = h('div', {class: 'bar'});
    this.element = h('article', {}, h('p', {}, h('a', {href: '#/'}, 'All pods')), this.head, Object.values(this.parts));
    this.range = [0, 0]; // 0: the first record, now
    this.reading = null;
  }

  draw(all) {
    if (!all && !this.model.dirty.has(`pods ${this.key}`) && !this.model.dirty.has('all')) return;
    const pod = this.model.pods.get(this.key);
    this.drawHead(pod);
    if (pod) {
      this.drawConditions(pod);
      this.drawContainers(pod);
      this.drawProbes(pod);
      this.drawCompare(pod);
    }
    clearTimeout(this.reading); // several changes are read as one
    this.reading = setTimeout(() => this.read(), all ? 0 : 300);
  }

  drawHead(pod) {
    const state = pod ? level(pod) : 'ended';
    const text = pod ? parseSummary(pod.local.summary) : {status: 'not on this node any more', ready: ''};
    replace(this.head, h('h2', {tabindex: -1}, h('bdi', {}, this.key)),
      h('span', {class: `badge ${state}`}, `${text.status} ${text.ready}`),
      pod && h('span', {class: 'quiet'}, `from ${pod.source}, API: ${syncText(pod.lag)}${pod.lag.reason ? ` (${pod.lag.reason})` : ''}`));
  }

  async read() {
    const {namespace, pod} = this;
    const [answer, history, logs, events] = await Promise.all([
      this.session.get(`explain/${encodeURIComponent(namespace)}/${encodeURIComponent(pod)}`, {}),
      this.session.get('history', {namespace, pod, kind: 'pod,alert,action', since: '24h', limit: 500}),
      this.session.get('history', {namespace, pod, kind: 'log', logs: 'true', limit: 3}),
      this.session.get('events', {namespace, pod, limit: 50}),
    ]);
    if (answer) this.drawWhy(answer.verdict);
    this.history = history?.items ?? [];
    this.eventRecords = events?.items ?? [];
    this.drawTimeline();
    this.drawLines(logs?.items ?? []);
    this.drawEvents();
  }

  drawWhy(verdict) {
    this.countdown = h('strong');
    this.nextAt = verdict.next?.at ? Date.parse(verdict.next.at) : 0;
    replace(this.parts.why, h('h3', {}, 'Why'), h('p', {class: 'headline'}, verdict.headline),
      (verdict.chain ?? []).length > 0 && h('ol', {}, verdict.chain.map((link) => h('li', {}, link.text,
        link.input && h('span', {class: 'quiet'}, ` ${link.input}`), link.rule && h('code', {}, link.rule)))),
      verdict.next && h('p', {}, 'Next: ', verdict.next.what, verdict.next.by && ` by ${verdict.next.by}`, ' ', this.countdown),
      (verdict.changes ?? []).length > 0 && h('p', {}, 'What would change it: ', verdict.changes.join('; ')),
      (verdict.evidence ?? []).map((item) => h('pre', {}, item.text)));
    this.tick();
  }

  // tick runs the countdown, once a second.
  tick() {
    if (!this.countdown || !this.nextAt) return;
    const left = this.nextAt - Date.now();
    setText(this.countdown, left > 0 ? `in ${duration(left)}` : 'now');
  }

  drawConditions(pod) {
    replace(this.parts.conditions, h('h3', {}, 'Conditions'), table('Conditions', ['Condition', 'Status', 'For', 'Reason', 'Message'],
      (pod.local.status.conditions ?? []).map((c) => [c.type, c.status, since(c.lastTransitionTime), c.reason, c.message])));
  }

  drawContainers(pod) {
    const {status} = pod.local;
    const statuses = [...status.initContainerStatuses ?? [], ...status.containerStatuses ?? [], ...status.ephemeralContainerStatuses ?? []];
    const of = (name) => statuses.find((s) => s.name === name);
    replace(this.parts.containers, h('h3', {}, 'Containers'), table('Containers', ['Container', 'Kind', 'State', 'Before', 'Restarts', 'Image', 'Action'],
      pod.spec.containers.map((c) => [c.name, c.kind, stateText(of(c.name)?.state), of(c.name)?.lastState?.terminated ? stateText(of(c.name).lastState) : '',
        of(c.name)?.restartCount ?? 0, c.image, this.actButton('Restart', 'restart', {container: c.name, reason: 'asked for on the page'})])));
  }

  actButton(label, path, body) {
    if (!this.session.mayAct) return '';
    const done = h('span', {role: 'status'});
    return h('span', {}, h('button', {
      type: 'button',
      onclick: async () => { setText(done, ` ${await this.session.act(path, {namespace: this.namespace, pod: this.pod, ...body})}`); },
    }, label), done);
  }

  drawProbes(pod) {
    const probes = pod.probes ?? [];
    replace(this.parts.probes, h('h3', {}, 'Probes'), probes.length === 0 ? h('p', {class: 'quiet'}, 'None.')
      : table('Probes', ['Container', 'Probe', 'Target', 'Verdict', 'Last answer', 'Took', 'Streak', 'Action'], probes.map((p) => [
        p.container, p.kind, p.target, p.verdict, p.last ? `${p.last.ok ? 'ok' : 'failed'} ${p.last.message ?? ''}` : 'none yet',
        p.last ? `${p.last.tookMs}ms (p50 ${p.p50Ms ?? 0}, max ${p.maxMs ?? 0})` : '',
        `${p.streak} ${p.streakFailed ? 'failures' : 'successes'} of ${p.threshold}`, this.actButton('Check', 'probe', {container: p.container, kind: p.kind})])));
  }

  drawTimeline() {
    const end = this.range[1] || Date.now();
    this.range[0] ||= Math.max(end - day, Math.min(end - 60e3, Date.parse(this.history.at(-1)?.time ?? end) - 5e3));
    const marks = [
      ...this.eventRecords.map((r) => ({time: Date.parse(r.time), kind: r.event?.type === 'Warning' ? 'starting' : 'good', title: `${r.event?.reason}: ${r.event?.message}`})),
      ...this.history.filter((r) => r.kind !== 'pod').map((r) => ({time: Date.parse(r.time), kind: 'bad', title: `${r.kind}: ${r.alert?.name ?? r.action?.type ?? ''}`}))];
    const drawing = timeline(lanesOf(this.history), marks, this.range[0], end);
    drawing.tabIndex = 0;
    drawing.setAttribute('role', 'group');
    drawing.setAttribute('aria-label', 'Timeline. Arrow keys move it, plus and minus change its scale; the table below has the same records.');
    drawing.addEventListener('keydown', (event) => this.moveTimeline(event));
    drawing.addEventListener('wheel', (event) => { event.preventDefault(); this.zoom(event.deltaY > 0 ? 1.5 : 1 / 1.5); }, {passive: false});
    const isFocused = this.parts.timeline.contains(document.activeElement);
    replace(this.parts.timeline, h('h3', {}, 'Timeline'), drawing, h('details', {}, h('summary', {}, 'As a table'),
      table('History', ['Time', 'Status', 'Cause', 'Changes'], this.history.filter((r) => r.kind === 'pod').slice(0, 50).map((r) => [clock(r.time), r.after, r.cause,
        (r.changes ?? []).map((c) => `${c.container ? `${c.container} ` : ''}${c.field} ${c.from ?? ''} \u2192 ${c.to ?? ''}`).join(', ')]))));
    if (isFocused) drawing.focus();
  }

  zoom(factor) {
    const end = this.range[1] || Date.now();
    const span = Math.min(day, Math.max(10e3, (end - this.range[0]) * factor));
    this.range = [end - span, this.range[1]];
    this.drawTimeline();
  }

  moveTimeline(event) {
    const end = this.range[1] || Date.now(), step = (end - this.range[0]) / 10;
    const move = {ArrowLeft: -step, ArrowRight: step}[event.key];
    if (event.key === '+' || event.key === '-') this.zoom(event.key === '+' ? 1 / 1.5 : 1.5);
    else if (move) {
      this.range = [this.range[0] + move, end + move >= Date.now() ? 0 : end + move];
      this.drawTimeline();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  drawLines(records) {
    replace(this.parts.lines, h('h3', {}, 'Last lines of containers that failed'),
      records.length === 0 ? h('p', {class: 'quiet'}, 'None kept.')
        : records.map((r) => [h('h4', {}, `${r.attachment.container}, ${clock(r.time)}`), h('pre', {}, r.attachment.lines ?? r.attachment.omitted ?? 'the same lines as before')]));
  }

  drawCompare(pod) {
    if (!pod.synced) {
      replace(this.parts.compare, h('h3', {}, 'Here and in the API'), h('p', {class: 'quiet'}, 'There is no API server.'));
      return;
    }
    const local = flatten(pod.local.status, '', new Map()), synced = flatten(pod.synced.status ?? {}, '', new Map());
    const differing = [...new Set([...local.keys(), ...synced.keys()])].filter((path) => local.get(path) !== synced.get(path));
    replace(this.parts.compare, h('h3', {}, 'Here and in the API'),
      differing.length === 0 ? h('p', {class: 'quiet'}, `Equal, version ${pod.synced.resourceVersion ?? ''}.`)
        : table('Fields that differ', ['Field', 'Here', 'API'], differing.map((path) => [h('code', {}, path), local.get(path) ?? '', synced.get(path) ?? ''])));
  }

  drawEvents() {
    replace(this.parts.events, h('h3', {}, 'Events'), this.eventRecords.length === 0 ? h('p', {class: 'quiet'}, 'None.')
      : table('Events', ['Age', 'Type', 'Reason', 'Message'], this.eventRecords.map((r) => [since(r.time), r.event?.type, r.event?.reason, r.event?.message])));
  }

  move() {}
}
