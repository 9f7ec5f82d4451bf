// The first view: alerts, and the pods, worst first.
import {h, replace, setText} from './dom.js';
import {buckets, strip, spark} from './charts.js';
import {bytes, cores, duration, since} from './format.js';
import {level, parseSummary} from './model.js';

const heads = ['Pod', 'Ready', 'Status', 'Restarts', 'Age', 'CPU', 'Memory', 'API', 'Last 24 hours', 'Why'];
const levelWords = {bad: 'problem', starting: 'starting', good: 'well', ended: 'ended'};

// whyText leaves out what was true only when it was said.
function whyText(why) {
  if (why?.class === 'healthy' && why.since) return `${why.code === 'Ready' ? 'ready' : why.text.replace(/ since .*/, '')} for ${since(why.since)}`;
  return why?.text.replace(/; next .*/, '');
}

export const podLink = (key) => `#/pods/${key.split('/').map(encodeURIComponent).join('/')}`;

const restartsOf = (pod) => [...pod.local.status.initContainerStatuses ?? [], ...pod.local.status.containerStatuses ?? []]
  .reduce((sum, status) => sum + status.restartCount, 0);

export function syncText(lag) {
  if (lag.state === 'noServer') return 'no cluster';
  if (lag.state === 'synced') return lag.tookMs ? `synced ${lag.tookMs}ms` : 'synced';
  return `${lag.state}${lag.sinceMs ? ` ${duration(lag.sinceMs)}` : ''}`;
}

export class ListView {
  constructor(model, session) {
    this.model = model;
    this.session = session;
    this.rows = new Map();
    this.pasts = new Map(); // records of the last day by pod
    this.wanted = [];
    this.visible = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) this.want(entry.target.dataset.key);
    }, {rootMargin: '200px'});
    this.alerts = h('section', {'aria-labelledby': 'alerts-title'});
    this.filter = h('input', {id: 'filter', type: 'search', placeholder: 'name, namespace or status', oninput: () => this.draw(true)});
    this.count = h('span', {class: 'count'});
    this.body = h('tbody');
    this.element = h('div', {}, this.alerts,
      h('section', {'aria-labelledby': 'pods'},
        h('div', {class: 'bar'}, h('h2', {id: 'pods', tabindex: -1}, 'Pods'), h('label', {for: 'filter'}, 'Filter'), this.filter, this.count),
        h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Table of pods'},
          h('table', {class: 'pods'}, h('caption', {class: 'hidden'}, 'Pods of this node, worst first'),
            h('thead', {}, h('tr', {}, heads.map((head) => h('th', {scope: 'col'}, head)))), this.body))));
  }

  // draw brings the view up to date with what changed.
  draw(all) {
    const {dirty} = this.model;
    const isAll = all || dirty.has('all') || !this.body.hasChildNodes();
    if (isAll || [...dirty].some((key) => key.startsWith('alerts'))) this.drawAlerts();
    const text = this.filter.value.trim().toLowerCase();
    const matches = (pod, key) => !text || `${key} ${pod.local.summary} ${pod.why?.text ?? ''}`.toLowerCase().includes(text);
    const keys = this.model.sorted(matches);
    const shown = new Set(keys);
    for (const [key, row] of this.rows) if (!shown.has(key)) this.removeRow(key, row);
    let previous = null;
    for (const key of keys) {
      let row = this.rows.get(key);
      if (!row) {
        row = this.newRow(key);
        this.fillRow(key, row);
      } else if (isAll || dirty.has(`pods ${key}`)) this.fillRow(key, row);
      if (dirty.has('load')) this.drawLoad(key, row);
      const place = previous ? previous.nextSibling : this.body.firstChild;
      if (place !== row.element) this.body.insertBefore(row.element, place);
      previous = row.element;
    }
    setText(this.count, keys.length === this.model.pods.size ? `${keys.length}` : `${keys.length} of ${this.model.pods.size}`);
  }

  removeRow(key, row) {
    this.visible.unobserve(row.element);
    row.element.remove();
    this.rows.delete(key);
    if (!this.model.pods.has(key)) this.pasts.delete(key);
  }

  newRow(key) {
    const cells = Object.fromEntries(heads.map((head) => [head, h('td', {'data-head': head})]));
    const name = h('a', {href: podLink(key)}, h('bdi', {}, key));
    const element = h('tr', {'data-key': key}, h('th', {scope: 'row'}, name), heads.slice(1).map((head) => cells[head]));
    const row = {element, cells, name};
    this.rows.set(key, row);
    this.visible.observe(element);
    return row;
  }

  fillRow(key, row) {
    const pod = this.model.pods.get(key);
    const {status, ready} = parseSummary(pod.local.summary);
    const state = level(pod);
    row.element.className = state;
    setText(row.cells.Ready, ready);
    replace(row.cells.Status, h('span', {class: `badge ${state}`, title: levelWords[state]}, status));
    setText(row.cells.Restarts, restartsOf(pod));
    row.created = pod.metadata.creationTimestamp;
    setText(row.cells.Age, since(row.created));
    setText(row.cells.API, syncText(pod.lag));
    row.why = pod.why;
    setText(row.cells.Why, whyText(pod.why));
    this.drawLoad(key, row);
    this.drawStrip(key, row);
  }

  drawLoad(key, row) {
    const known = this.model.loads.get(key);
    if (!known) return;
    const cpu = cores(known.load.cpu?.cores?.last1m?.mean), memory = bytes(known.load.memory?.workingSetBytes?.last1m?.mean);
    replace(row.cells.CPU, h('span', {}, cpu), spark(known.cpu, `CPU since this page was opened, now ${cpu}`));
    replace(row.cells.Memory, h('span', {}, memory), spark(known.memory, `Memory since this page was opened, now ${memory}`));
  }

  drawStrip(key, row) {
    const records = this.pasts.get(key);
    if (records) replace(row.cells['Last 24 hours'], strip(buckets(records, this.model.pods.get(key).local.summary, 48)));
  }

  // want reads the last day of a pod that came into sight, one pod after the other.
  want(key) {
    if (this.pasts.has(key) || this.wanted.includes(key)) return;
    this.wanted.push(key);
    if (this.wanted.length === 1) this.readPasts();
  }

  async readPasts() {
    for (; this.wanted.length > 0; this.wanted.shift()) {
      const key = this.wanted[0];
      if (!this.model.pods.has(key)) continue;
      const [namespace, pod] = key.split('/');
      const list = await this.session.get('history', {namespace, pod, kind: 'pod', since: '24h', limit: 200});
      if (!this.model.pods.has(key)) continue;
      if (list) this.pasts.set(key, list.items);
      if (this.rows.has(key)) this.drawStrip(key, this.rows.get(key));
    }
  }

  // tick updates the ages, once a second.
  tick() {
    for (const row of this.rows.values()) {
      setText(row.cells.Age, since(row.created));
      setText(row.cells.Why, whyText(row.why));
    }
  }

  drawAlerts() {
    const firing = this.model.firing();
    replace(this.alerts, 
      h('h2', {id: 'alerts-title'}, `Alerts ${firing.length}`),
      firing.length === 0 ? h('p', {class: 'calm'}, this.model.node?.alerting ? 'Nothing fires.' : 'Rules are not evaluated on this node.')
        : h('ul', {class: 'alerts'}, firing.map((alert) => this.alertItem(alert))));
  }

  alertItem(alert) {
    const {alertname, severity, namespace, pod, container} = alert.labels;
    const muted = alert.mute?.silencedBy?.length || alert.mute?.inhibitedBy?.length;
    return h('li', {}, h('span', {class: `badge ${severity === 'critical' ? 'bad' : 'starting'}`}, severity ?? 'none'), ' ',
      h('strong', {}, alertname), ' ',
      pod && h('a', {href: podLink(`${namespace}/${pod}`)}, h('bdi', {}, `${namespace}/${pod}${container ? ` ${container}` : ''}`)), ' ',
      h('span', {class: 'quiet'}, `for ${since(alert.startsAt)}${muted ? ', silenced' : ''}${alert.state === 'recovering' ? ', recovering' : ''}`), ' ',
      alert.annotations?.summary,
      this.session.mayAct && !muted && h('button', {type: 'button', onclick: () => this.session.silence(alert)}, 'Silence for 1 h'));
  }

  // move focuses the next or previous pod.
  move(step) {
    const links = [...this.body.querySelectorAll('th a')];
    const at = links.indexOf(document.activeElement);
    links[Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
  }
}
