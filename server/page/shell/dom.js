// Elements are built from text only: what a pod says can not become markup.

// Characters that move text around or can not be seen.
const unsafe = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

// printable returns text without control characters.
export const printable = (text) => String(text ?? '').replace(/\x1b\[[0-9;]*[A-Za-z]/g, '').replace(unsafe, '\ufffd');

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : printable(child));
  }
  return element;
}

// replace replaces the children of an element.
export function replace(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, printable(value));
  }
  return append(element, children);
}

// h returns an element: h('p', {class: 'x'}, 'text', child).
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

// s returns an element of a drawing.
export const s = (tag, attributes, ...children) => fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

// setText changes a text only if it differs, so that a selection in it survives.
export function setText(element, text) {
  const wanted = printable(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

// table returns a table with a caption for screen readers. Rows are lists of texts and elements.
export function table(caption, heads, rows) {
  return h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption}, h('table', {},
    h('caption', {class: 'hidden'}, caption),
    h('thead', {}, h('tr', {}, heads.map((head) => h('th', {scope: 'col'}, head)))),
    h('tbody', {}, rows.map((row) => h('tr', {}, row.map((cell) => h('td', {}, cell)))))));
}
