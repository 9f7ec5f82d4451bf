// Starts the page: the session, the stream, and which view is shown.
import {h, replace, setText} from './dom.js';
import {spark} from './charts.js';
import {bytes, duration, percent, since} from './format.js';
import {Model} from './model.js';
import {Stream, pause, staleAfter} from './stream.js';
import {ListView} from './list.js';
import {DetailView} from './detail.js';

const $ = (id) => document.getElementById(id);
const drawPeriod = 250; // milliseconds: rows change at most four times a second

class Session {
  constructor() {
    this.token = sessionStorage.getItem('token');
    this.mayAct = sessionStorage.getItem('mayAct') === 'true';
    this.code = new URLSearchParams(location.hash.slice(1)).get('c');
    if (this.code) history.replaceState(null, '', '#/');
  }

  // open exchanges the code of the URL for a token. It returns what is wrong, or ''. It throws if nobody answers.
  async open() {
    const {code} = this;
    if (code) {
      const response = await fetch('/session', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify({code})});
      if (response.ok) {
        const granted = await response.json();
        [this.token, this.mayAct] = [granted.token, granted.mayAct];
        sessionStorage.setItem('token', this.token);
        sessionStorage.setItem('mayAct', this.mayAct);
        return '';
      }
      if (!this.token) return response.text();
    }
    return this.token ? '' : 'Run "herald ui" on this machine and open the address that it prints.';
  }

  fetch(path, options = {}) {
    return fetch(path, {...options, headers: {...options.headers, Authorization: `Bearer ${this.token}`}});
  }

  // get returns an answer of the query API, or null.
  async get(path, parameters) {
    try {
      const response = await this.fetch(`/herald/v1/${path}?${new URLSearchParams(parameters)}`);
      return response.ok ? await response.json() : null;
    } catch {
      return null; // the line about the age of the data says it
    }
  }

  // act changes something and returns what happened.
  async act(path, body) {
    try {
      const response = await this.fetch(`/herald/v1/${path}`, {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)});
      const text = await response.text();
      if (!response.ok) return JSON.parse(text || '{}').message ?? text;
      const answer = JSON.parse(text).items?.[0]?.answer;
      return answer ? `${answer.ok ? 'ok' : 'failed'} ${answer.message ?? ''}` : 'done';
    } catch {
      return 'the agent can not be reached';
    }
  }

  silence(alert) {
    const matchers = Object.entries(alert.labels).filter(([name]) => ['alertname', 'namespace', 'pod', 'container'].includes(name))
      .map(([name, value]) => `${name}=${JSON.stringify(value)}`);
    return this.act('silences', {matchers, endsAt: new Date(Date.now() + 3600e3).toISOString(), comment: 'silenced on the page'});
  }
}

const model = new Model(), session = new Session();
let view = null, stream = null, drawTimer = 0;

function showNotice(text) {
  $('notice').hidden = !text;
  setText($('notice'), text);
}

function route() {
  const match = /^#\/pods\/([^/]+)\/([^/]+)$/.exec(location.hash);
  const key = match && `${decodeURIComponent(match[1])}/${decodeURIComponent(match[2])}`;
  if (view && (key ?? '') === (view.key ?? '')) return;
  const isFirst = !view;
  view = key ? new DetailView(model, session, key) : new ListView(model, session);
  replace($('main'), view.element);
  view.draw(true);
  document.title = key ? `${key} - Herald` : `Herald ${model.node?.metadata.name ?? ''}`;
  if (!isFirst) view.element.querySelector('h2[tabindex]')?.focus();
}

function drawNode() {
  const {node, nodeLoad: load} = model;
  if (!node) return;
  const condition = node.local.status.conditions?.find((c) => c.type === 'Ready');
  const {ready, total, notWell, starting} = node.pods;
  const counts = new Map([...model.pods.values()].map((pod) => pod.why?.class).reduce((m, c) => m.set(c, (m.get(c) ?? 0) + 1), new Map()));
  const live = {notWell: counts.get('problem') ?? (model.isSynced ? 0 : notWell), starting: counts.get('progress') ?? (model.isSynced ? 0 : starting)};
  replace($('node'), 
    h('h1', {}, h('bdi', {}, node.metadata.name ?? 'Herald')),
    h('span', {class: `badge ${condition?.status === 'True' ? 'good' : 'bad'}`}, condition?.status === 'True' ? 'Ready' : 'NotReady'),
    load && h('span', {}, `load ${percent(load.saturation)} ${load.level}${load.culprit ? `, ${load.culprit}` : ''} `, spark(model.nodeLoads, `Load, now ${percent(load.saturation)}`)),
    load?.memory && h('span', {class: 'quiet'}, `memory ${bytes(load.memory.workingSetBytes)} of ${bytes(load.memory.totalBytes)}`),
    h('span', {}, `${model.isSynced ? model.pods.size : total} pods, ${ready} ready`),
    live.notWell > 0 && h('span', {class: 'badge bad'}, `${live.notWell} not well`),
    live.starting > 0 && h('span', {class: 'badge starting'}, `${live.starting} starting`),
    h('span', {class: 'quiet'}, `agent ${node.agent.version}, up ${since(node.agent.startedAt)}, relist ${node.agent.latencies?.runtimeP99Ms ?? 0}ms`),
    $('freshness'));
}

// problems are what an operator must know before anything else.
function drawProblems() {
  const {node} = model;
  const texts = [];
  if (node?.runtime?.error) texts.push(`The container runtime does not answer: ${node.runtime.error}.`);
  const waiting = [...model.pods.values()].filter((pod) => pod.lag.state === 'waiting');
  if (waiting.length > 0) {
    const longest = Math.max(...waiting.map((pod) => pod.lag.sinceMs ?? 0));
    texts.push(`${waiting.length} statuses wait for the API server, for up to ${duration(longest)}: ${waiting[0].lag.reason ?? ''}. Pods run on.`);
  }
  for (const source of node?.sources ?? []) {
    for (const problem of source.problems ?? []) texts.push(`${source.name}: ${problem.message}`);
  }
  showNotice(texts.join(' '));
}

let announced = new Set();

// announceAlerts tells a screen reader of new alerts, and of nothing else.
function announceAlerts() {
  const names = new Set(model.firing().map((alert) => `${alert.labels.alertname} ${alert.labels.namespace ?? ''}/${alert.labels.pod ?? ''}`));
  const added = [...names].filter((name) => !announced.has(name));
  if (added.length > 0) setText($('announce'), `New alert: ${added.join(', ')}`);
  announced = names;
}

function draw() {
  clearTimeout(drawTimer);
  drawTimer = 0;
  if (!model.isSynced) return;
  drawNode();
  drawProblems();
  if ([...model.dirty].some((key) => key === 'all' || key.startsWith('alerts'))) announceAlerts();
  if (view) view.draw(false);
  else route();
  model.dirty.clear();
}

// tick says how old the data is. It is never hidden, only marked.
function tick() {
  const age = Date.now() - (stream?.heardAt ?? 0);
  const isStale = !stream?.heardAt || age > staleAfter || stream.problem !== '' && age > 3000;
  document.body.classList.toggle('stale', isStale && model.isSynced);
  if (model.isSynced) {
    setText($('freshness'), isStale ? `stale: as of ${duration(age)} ago, ${stream.problem || 'the agent is silent'}` : 'live');
  } else if (stream?.problem) setText($('freshness'), stream.problem);
  view?.tick();
}

const helpKeys = [['/', 'filter'], ['j, k', 'next and previous pod'], ['Enter', 'show the pod'], ['Esc', 'back to all pods'], ['?', 'these keys']];

function onKey(event) {
  const isTyping = /^(INPUT|TEXTAREA)$/.test(event.target.tagName);
  if (event.ctrlKey || event.metaKey || event.altKey || (isTyping && event.key !== 'Escape') || $('help').open) return;
  if (event.key === '/') $('filter')?.focus();
  else if (event.key === 'j') view?.move(1);
  else if (event.key === 'k') view?.move(-1);
  else if (event.key === 'Escape' && isTyping) event.target.blur();
  else if (event.key === 'Escape') location.hash = '#/';
  else if (event.key === '?') $('help').showModal();
  else return;
  event.preventDefault();
}

// openSession tries until somebody answers: a busy machine can close a connection before it was used.
async function openSession() {
  for (;; await pause(1000)) {
    try {
      return await session.open();
    } catch {
      setText($('freshness'), 'the command herald ui can not be reached');
    }
  }
}

async function start() {
  $('help').append(h('h2', {id: 'help-title'}, 'Keys'), h('dl', {}, helpKeys.map(([key, text]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, text)])),
    h('form', {method: 'dialog'}, h('button', {}, 'Close')));
  document.querySelector('.skip').addEventListener('click', (event) => { event.preventDefault(); $('main').focus(); });
  addEventListener('hashchange', route);
  addEventListener('keydown', onKey);
  const problem = await openSession();
  if (problem) {
    showNotice(problem);
    setText($('freshness'), 'not connected');
    $('loading').remove();
    return;
  }
  model.listeners.add(() => { drawTimer ||= setTimeout(draw, drawPeriod); });
  stream = new Stream(session, {
    event: (event) => model.take(event),
    synced: (present) => { model.keepOnly(present); draw(); tick(); },
    ended: (text) => { sessionStorage.clear(); showNotice(text); document.body.classList.add('stale'); },
  });
  setInterval(tick, 1000);
  stream.run();
}

start();
