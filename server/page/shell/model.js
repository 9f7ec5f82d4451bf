// What the page knows: the newest state of the node, its pods and alerts.

const historyPoints = 60; // of a sparkline

export const podKey = (object) => `${object.metadata.namespace}/${object.metadata.name}`;
const alertKey = (alert) => JSON.stringify(Object.entries(alert.labels).sort());

// parseSummary splits "CrashLoopBackOff 0/1 (14 restarts)".
export function parseSummary(summary) {
  const match = /^(.*?) ?(\d+\/\d+)?(?: \((.*)\))?$/.exec(summary ?? '');
  return {status: match?.[1] || 'Unknown', ready: match?.[2] ?? ''};
}

// level says how a pod is: bad, starting, good or ended.
export const level = (pod) => ({problem: 'bad', progress: 'starting', ended: 'ended'})[pod.why?.class] ?? 'good';

const ranks = {bad: 0, starting: 1, good: 2, ended: 3};

export class Model {
  constructor() {
    this.pods = new Map();
    this.alerts = new Map();
    this.loads = new Map(); // sparklines by pod
    this.node = null;
    this.nodeLoad = null;
    this.nodeLoads = [];
    this.dirty = new Set();
    this.listeners = new Set();
    this.isSynced = false;
  }

  // take applies an event and returns the key of its object.
  take(event) {
    const {topic, object} = event;
    const key = topic === 'pods' ? podKey(object) : topic === 'alerts' ? alertKey(object) : topic;
    const map = {pods: this.pods, alerts: this.alerts}[topic];
    if (map && event.type === 'DELETED') map.delete(key);
    else if (map) map.set(key, object);
    else if (topic === 'node') this.node = object;
    else if (topic === 'load') this.takeLoads(object);
    this.mark(topic === 'load' ? 'load' : `${topic} ${key}`);
    return `${topic} ${key}`;
  }

  takeLoads(loads) {
    this.nodeLoad = loads.node;
    if (loads.node) this.nodeLoads = [...this.nodeLoads, loads.node.saturation].slice(-historyPoints);
    const before = this.loads;
    this.loads = new Map(); // of the pods that there are
    for (const pod of loads.pods) {
      const key = podKey(pod);
      const known = before.get(key) ?? {cpu: [], memory: []};
      known.load = pod.load;
      known.cpu = [...known.cpu, pod.load.cpu?.cores?.last1m?.mean ?? NaN].slice(-historyPoints);
      known.memory = [...known.memory, pod.load.memory?.workingSetBytes?.last1m?.mean ?? NaN].slice(-historyPoints);
      this.loads.set(key, known);
    }
  }

  // keepOnly removes what a new stream did not begin with.
  keepOnly(present) {
    for (const key of this.pods.keys()) if (!present.has(`pods ${key}`)) this.pods.delete(key);
    for (const key of this.alerts.keys()) if (!present.has(`alerts ${key}`)) this.alerts.delete(key);
    this.isSynced = true;
    this.mark('all');
  }

  mark(what) {
    this.dirty.add(what);
    for (const listener of this.listeners) listener();
  }

  // sorted returns the keys of pods, worst first.
  sorted(matches) {
    const keys = [...this.pods.keys()].filter((key) => matches(this.pods.get(key), key));
    const rank = new Map(keys.map((key) => [key, ranks[level(this.pods.get(key))]]));
    return keys.sort((a, b) => rank.get(a) - rank.get(b) || (a < b ? -1 : 1));
  }

  firing() {
    const order = {critical: 0, warning: 1};
    return [...this.alerts.values()].filter((alert) => alert.state === 'firing' || alert.state === 'recovering')
      .sort((a, b) => (order[a.labels.severity] ?? 2) - (order[b.labels.severity] ?? 2) || (a.startsAt < b.startsAt ? 1 : -1));
  }
}
