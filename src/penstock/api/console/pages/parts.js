// @ts-check
// What pages are made of: buttons that know rights, dialogs, notices, tables, empty states, texts to copy.

import { Refused, remedies } from "./api.js";
import { bdi, h, plain, put } from "./dom.js";
import { whyNot } from "./session.js";

/** @typedef {import("./dom.js").Child} Child */

/** @type {HTMLElement} */
const notices = h("div", { class: "notices", "aria-live": "polite", role: "status" });
document.body.append(notices);

/** Tell something for some seconds. @param {string} text @param {{isBad?: boolean}} [how] */
export function notice(text, { isBad = false } = {}) {
  const shown = h("p", { class: isBad ? "notice bad" : "notice", role: isBad ? "alert" : null }, plain(text));
  shown.append(h("button", { class: "close", "aria-label": "Close", onclick: () => shown.remove() }, "×"));
  notices.append(shown);
  setTimeout(() => shown.remove(), isBad ? 15_000 : 6_000);
}

/** What an error says, and what to do next. @param {unknown} error */
export function wordsOf(error) {
  if (!(error instanceof Refused)) return `${error instanceof Error ? error.message : error}. Reload the page and try again.`;
  return `${error.problem.title}: ${detailOf(error)}`;
}

/** @param {Refused} error */
function detailOf(error) {
  const next = remedies[error.code] ?? "Try again; if it stays, the log of the server says more.";
  const words = error.message.replace(/[.!?]?$/, ".");
  return `${words.charAt(0).toUpperCase()}${words.slice(1)} ${next.replaceAll("`", "")}`;
}

/** @param {unknown} error */
export function tellError(error) {
  if (error instanceof DOMException && error.name === "AbortError") return;
  notice(wordsOf(error), { isBad: true });
}

/** @param {unknown} error */
export function errorBox(error) {
  const title = error instanceof Refused ? error.problem.title : "Something went wrong";
  return h("div", { class: "box bad", role: "alert" }, h("strong", null, title), h("p", null, plain(error instanceof Refused ? detailOf(error) : wordsOf(error))));
}

/**
 * A button. If the key lacks a role it says so instead of doing something.
 * @param {string} label
 * @param {() => unknown} run
 * @param {{role?: string, on?: string, class?: string, title?: string, name?: string}} [how]
 */
export function action(label, run, { role, on = "*", class: kind = "", title, name } = {}) {
  const why = role ? whyNot(role, on) : "";
  const button = h("button", {
    type: "button", class: kind, title: why || title, "aria-disabled": why ? "true" : null, "data-action": name ?? label,
    onclick: async () => {
      if (why) return notice(why, { isBad: true });
      button.disabled = true;
      try {
        await run();
      } catch (error) {
        tellError(error);
      } finally {
        button.disabled = false;
      }
    },
  }, label);
  return button;
}

let dialogs = 0;

/**
 * Ask something in a dialog. ``submit`` may raise: what it says is shown and the dialog stays.
 * @param {{title: string, body: Child[], submit?: string, isDangerous?: boolean, isWide?: boolean, run?: (form: HTMLFormElement) => unknown, typed?: string}} what
 */
export function dialog({ title, body, submit, isDangerous = false, isWide = false, run, typed }) {
  const id = `dialog-${++dialogs}`;
  const trouble = h("div", { class: "trouble" });
  const confirmation = typed === undefined ? null : h("input", { name: "typed", autocomplete: "off", spellcheck: "false" });
  const go = submit ? h("button", { type: "submit", class: isDangerous ? "danger" : "primary", disabled: typed !== undefined }, submit) : null;
  const form = h("form", { novalidate: true },
    h("h2", { id }, title),
    h("div", { class: "dialog-body" }, body,
      confirmation && h("label", { class: "field" }, h("span", null, "Type ", h("strong", { class: "mono" }, bdi(typed)), " to confirm"), confirmation),
      trouble),
    h("div", { class: "row end" },
      h("button", { type: "button", class: "quiet-button", onclick: () => box.close() }, submit ? "Cancel" : "Close"), go));
  const box = h("dialog", { "aria-labelledby": id, class: isWide ? "wide" : "" }, form);
  confirmation?.addEventListener("input", () => { if (go) go.disabled = confirmation.value !== typed; });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!run || !go || go.disabled) return;
    go.disabled = true;
    put(trouble);
    try {
      if ((await run(form)) !== false) box.close();
    } catch (error) {
      put(trouble, errorBox(error));
    } finally {
      go.disabled = confirmation ? confirmation.value !== typed : false;
    }
  });
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  const first = /** @type {HTMLElement | null} */ (form.querySelector("input, select, textarea"));
  (first ?? go)?.focus();
  return box;
}

/** Close every dialog: the page below is another one now. */
export function closeDialogs() {
  for (const box of document.querySelectorAll("dialog")) box.remove();
}

/**
 * @param {string} label
 * @param {HTMLElement} input
 * @param {string} [about]
 */
export function field(label, input, about) {
  return h("label", { class: "field" }, h("span", null, label), input, about ? h("small", null, about) : null);
}

/**
 * @param {string} name
 * @param {readonly (string | readonly [string, string])[]} choices
 * @param {string} [chosen]
 */
export function select(name, choices, chosen = "") {
  return h("select", { name }, choices.map((each) => {
    const [value, label] = typeof each === "string" ? [each, each] : each;
    return h("option", { value, selected: value === chosen }, label);
  }));
}

/** The values of a form, without those that are empty. @param {HTMLFormElement} form */
export function valuesOf(form) {
  /** @type {Record<string, string>} */
  const found = {};
  for (const [name, value] of new FormData(form)) if (typeof value === "string" && value !== "") found[name] = value;
  return found;
}

/** What is shown where there is nothing: why, and what to do. @param {string} title @param {...Child} words */
export function empty(title, ...words) {
  return h("div", { class: "empty" }, h("strong", null, title), h("p", null, words));
}

/** A command to copy. @param {string} text @param {string} [label] */
export function command(text, label = "Copy") {
  return h("div", { class: "command" }, h("code", null, text), copyButton(text, label));
}

/** @param {string} text @param {string} [label] */
export function copyButton(text, label = "Copy") {
  return h("button", {
    type: "button", class: "small", "data-action": "Copy",
    onclick: async (/** @type {Event} */ event) => {
      const button = /** @type {HTMLButtonElement} */ (event.currentTarget);
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select and copy it";
      }
      setTimeout(() => { button.textContent = label; }, 2000);
    },
  }, label);
}

/**
 * A table that scrolls sideways by itself.
 * @param {string} caption
 * @param {readonly (string | {label: string, isNumber?: boolean})[]} columns
 * @param {Child[][]} rows
 */
export function table(caption, columns, rows) {
  const numbers = columns.map((each) => typeof each !== "string" && each.isNumber === true);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null,
      h("caption", { class: "hidden" }, caption),
      h("thead", null, h("tr", null, columns.map((each, place) => h("th", { scope: "col", class: numbers[place] ? "number" : null }, typeof each === "string" ? each : each.label)))),
      h("tbody", null, rows.map((row) => h("tr", null, row.map((cell, place) => h("td", { class: numbers[place] ? "number" : null }, cell)))))));
}

/** @param {string} label @param {string} [kind] @param {string} [title] */
export function badge(label, kind = "", title) {
  return h("span", { class: `badge ${kind}`, title }, label);
}

/** A number with what it is. @param {string} label @param {Child} value @param {string} [kind] @param {string} [title] */
export function tile(label, value, kind = "", title) {
  return h("div", { class: `tile ${kind}`, title }, h("dt", null, label), h("dd", null, value));
}

/** @param {string} priority */
export function tier(priority) {
  return h("span", { class: `tier t${["CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND"].indexOf(priority)}` }, priority.toLowerCase());
}

/** Where a page is: links to those above it. @param {...[string, string] | [string]} steps */
export function trail(...steps) {
  return h("nav", { class: "trail", "aria-label": "You are here" }, steps.map(([label, to], place) => [
    place ? h("span", { "aria-hidden": "true" }, "›") : null, to ? h("a", { href: to }, bdi(label)) : h("span", { "aria-current": "page" }, bdi(label)),
  ]).flat());
}

/** @param {readonly (readonly [string, string])[]} links @param {string} chosen */
export function tabs(links, chosen) {
  return h("nav", { class: "tabs", "aria-label": "Parts of this page" }, links.map(([label, to]) =>
    h("a", { href: to, "aria-current": label === chosen ? "page" : null }, label)));
}
