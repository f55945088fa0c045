// @ts-check
// Elements from data. Texts become text nodes and never markup: there is no way to set HTML here.

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Child | Child[]} Children */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element. A property that begins with `on` is a listener, others are attributes; false and null are left out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any> | null} [properties]
 * @param {...Children} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties ?? {}, children);
}

/**
 * @param {string} tag
 * @param {Record<string, any> | null} [properties]
 * @param {...Children} children
 */
export function svg(tag, properties, ...children) {
  return fill(/** @type {SVGElement} */ (document.createElementNS(SVG, tag)), properties ?? {}, children);
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {Record<string, any>} properties
 * @param {Children[]} children
 * @returns {E}
 */
function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") && typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "value" && "value" in element) /** @type {any} */ (element).value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

/**
 * @param {Children[]} children
 * @returns {(Node | string)[]}
 */
function nodes(children) {
  return /** @type {(Node | string)[]} */ (
    children.flat().filter((each) => each !== null && each !== undefined && each !== false).map((each) => typeof each === "number" ? String(each) : each)
  );
}

/**
 * Replace what is in an element, unless its text and shape stay the same, so that focus and selection survive.
 * @param {Element} element
 * @param {...Children} children
 */
export function put(element, ...children) {
  element.replaceChildren(...nodes(children));
}

/**
 * Set a text if it is another one.
 * @param {Node} node
 * @param {string | number} text
 */
export function say(node, text) {
  const words = String(text);
  if (node.textContent !== words) node.textContent = words;
}

/**
 * A text from outside, in which characters that would change the direction or hide something are shown as what they are.
 * @param {string} text
 * @returns {string}
 */
export function plain(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/gu, (each) =>
    each === "\r" ? "\n" : `‹U+${each.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}›`);
}

/**
 * A name or another short text from outside, isolated from what stands beside it.
 * @param {unknown} text
 */
export function bdi(text) {
  return h("bdi", null, plain(String(text ?? "")));
}
