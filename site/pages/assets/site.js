// Search over all pages, without a server. Everything else works without this script.
'use strict';
(() => {
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement.dataset.root;
  const [query, results] = [$('site-query'), $('site-results')];
  const maxResults = 30;
  let index = null, selected = -1;

  // load reads the index when it is needed first.
  function load() {
    if (index) return index;
    index = new Promise((resolve) => {
      const script = document.createElement('script');
      script.src = `${root}search-index.js`;
      script.onload = () => resolve(window.heraldIndex.map((s) => ({...s, title: `${s.t} ${s.h ?? ''}`.toLowerCase(), text: s.x.toLowerCase()})));
      script.onerror = () => resolve([]);
      document.head.append(script);
    });
    return index;
  }

  const count = (text, word) => Math.min(text.split(word).length - 1, 5);

  // rank is 0 if a word is missing. Words in headings count most.
  function rank(section, words, phrase) {
    let sum = 0;
    for (const word of words) {
      const inTitle = section.title.includes(word), inText = count(section.text, word);
      if (!inTitle && !inText) return 0;
      sum += (inTitle ? 20 : 0) + inText;
    }
    if (section.title.includes(phrase)) sum += 20;
    if (section.title.trim() === phrase || section.t.toLowerCase() === phrase && !section.a) sum += 40;
    return sum + (section.text.includes(phrase) ? 10 : 0);
  }

  // excerpt returns text around the first word, with all words marked.
  function excerpt(section, words) {
    const at = Math.max(0, Math.min(...words.map((word) => section.text.indexOf(word)).filter((i) => i >= 0)));
    const from = Number.isFinite(at) ? Math.max(0, at - 60) : 0;
    const text = section.x.slice(from, from + 180);
    const pattern = new RegExp(`(${words.map((word) => word.replace(/[^\p{L}\p{N}]/gu, '\\$&')).join('|')})`, 'giu');
    return text.split(pattern).map((part, i) => {
      if (i % 2 === 0) return part;
      const mark = document.createElement('mark');
      mark.textContent = part;
      return mark;
    });
  }

  function show(found, words) {
    results.replaceChildren(...found.slice(0, maxResults).map((section, i) => {
      const [item, link, text] = ['li', 'a', 'span'].map((tag) => document.createElement(tag));
      link.href = `${root}${section.p}${section.a ? `#${section.a}` : ''}`;
      link.textContent = section.h ? `${section.t}: ${section.h}` : section.t;
      link.tabIndex = -1;
      text.append(...excerpt(section, words));
      link.append(text);
      item.id = `site-result-${i}`;
      item.setAttribute('role', 'option');
      item.setAttribute('aria-selected', 'false');
      item.append(link);
      return item;
    }));
    selected = -1;
    query.removeAttribute('aria-activedescendant');
    $('site-count').textContent = found.length === 0 ? 'Nothing found.' : `${found.length} ${found.length === 1 ? 'place' : 'places'}${found.length > maxResults ? `, the first ${maxResults}` : ''}`;
    open(true);
  }

  function open(isOpen) {
    $('site-found').hidden = !isOpen;
    query.setAttribute('aria-expanded', isOpen);
  }

  async function search() {
    const phrase = query.value.trim().toLowerCase().replace(/\s+/g, ' ');
    if (phrase.length < 2) {
      open(false);
      return;
    }
    const sections = await load();
    if (phrase !== query.value.trim().toLowerCase().replace(/\s+/g, ' ')) return; // typed on meanwhile
    const words = [...new Set(phrase.split(' '))];
    const found = sections.map((section) => [rank(section, words, phrase), section]).filter(([value]) => value > 0);
    found.sort((a, b) => b[0] - a[0]);
    show(found.map(([, section]) => section), words);
  }

  function select(step) {
    const items = results.children;
    if (items.length === 0) return;
    items[selected]?.setAttribute('aria-selected', 'false');
    selected = (selected + step + items.length + (selected < 0 && step < 0 ? 1 : 0)) % items.length;
    items[selected].setAttribute('aria-selected', 'true');
    items[selected].scrollIntoView({block: 'nearest'});
    query.setAttribute('aria-activedescendant', items[selected].id);
  }

  query.addEventListener('focus', load);
  query.addEventListener('input', search);
  query.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown') select(1);
    else if (event.key === 'ArrowUp') select(-1);
    else if (event.key === 'Enter') {
      const item = results.children[Math.max(0, selected)];
      if (item && !$('site-found').hidden) location.href = item.querySelector('a').href;
      open(false);
    } else if (event.key === 'Escape') open(false);
    else return;
    event.preventDefault();
  });
  results.addEventListener('click', () => open(false));
  $('site-search').addEventListener('submit', (event) => event.preventDefault());
  document.addEventListener('click', (event) => { if (!event.target.closest('#site-found, #site-search')) open(false); });
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === 'INPUT') return;
    query.focus();
    event.preventDefault();
  });
  if (matchMedia('(max-width: 60rem)').matches) document.querySelector('.menu').open = false;
  addEventListener('beforeprint', () => { for (const details of document.querySelectorAll('main details')) details.open = true; });
  $('site-search').hidden = false;
})();
