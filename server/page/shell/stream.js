// One stream of changes from the agent, resumed after every interruption.

const bookmarkSeconds = 2;
export const staleAfter = 5000; // without a sign of life

export const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

export class Stream {
  // handler has event(event), synced(keys) and ended(reason). ended is called when the session is over.
  constructor(session, handler) {
    this.session = session;
    this.handler = handler;
    this.topics = ['pods', 'node', 'alerts', 'load'];
    this.after = 0;
    this.heardAt = 0;
    this.problem = '';
    this.abort = null;
  }

  // run reads until the session ends. It closes the stream while nobody looks.
  async run() {
    document.addEventListener('visibilitychange', () => { if (document.hidden) this.abort?.abort(); });
    for (;;) {
      while (document.hidden) await new Promise((resolve) => { document.addEventListener('visibilitychange', resolve, {once: true}); });
      const watchdog = setInterval(() => { if (Date.now() - this.heardAt > 2 * staleAfter) this.abort?.abort(); }, 1000);
      try {
        this.abort = new AbortController();
        this.heardAt = Math.max(this.heardAt, Date.now() - staleAfter); // a new attempt gets its time
        if (!await this.connect()) return;
      } catch (error) {
        this.problem = error.name === 'AbortError' ? 'the agent is silent' : error instanceof TypeError ? 'the agent can not be reached' : error.message;
      } finally {
        clearInterval(watchdog);
      }
      if (!document.hidden) await pause(1000);
    }
  }

  async connect() {
    const parameters = new URLSearchParams({topics: this.topics.join(','), bookmarks: bookmarkSeconds});
    if (this.after) parameters.set('after', this.after);
    const response = await this.session.fetch(`/herald/v1/watch?${parameters}`, {signal: this.abort.signal});
    if (response.status === 401) {
      this.handler.ended(await response.text());
      return false;
    }
    if (response.status === 404 && this.topics.length > 2) { // alerts or loads are off
      const text = await response.text();
      this.topics = this.topics.filter((topic) => topic !== (/load/.test(text) ? 'load' : 'alerts'));
      return true;
    }
    if (!response.ok) throw new Error(await response.text());
    await this.read(response.body.getReader());
    this.problem = 'the agent closed the stream';
    return true;
  }

  async read(reader) {
    const decoder = new TextDecoder();
    let rest = '';
    this.present = new Set();
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      this.heardAt = Date.now();
      this.problem = '';
      const lines = (rest + decoder.decode(value, {stream: true})).split('\n');
      rest = lines.pop();
      for (const line of lines) if (line) this.take(JSON.parse(line));
    }
  }

  take(event) {
    if (event.type === 'ERROR') throw new Error(event.object?.message);
    if (event.id) this.after = event.id;
    if (event.type === 'SYNCED') this.handler.synced(this.present);
    else if (event.type !== 'BOOKMARK') {
      const key = this.handler.event(event);
      if (!event.id) this.present.add(key);
    }
  }
}
