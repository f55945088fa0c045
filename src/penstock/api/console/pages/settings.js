// @ts-check
// The settings of a queue, with what they mean, changed in place.

import { at, call } from "./api.js";
import { h, plain, put } from "./dom.js";
import { refresh } from "./live.js";
import { command, errorBox, notice } from "./parts.js";
import { help, whyNot } from "./session.js";
import { quoted, span } from "./units.js";

/** @typedef {{name: string, help: string, kind: string, unit: string, least: number, most: number, is_whole: boolean, words: string[], default: any, is_fixed: boolean}} Setting */

/** @param {any} view @param {string} name */
function valueOf(view, name) {
  return name.split(".").reduce((value, part) => value?.[part], view);
}

/** @param {Setting} setting @param {any} value */
function inputFor(setting, value) {
  const name = setting.name;
  if (setting.kind === "switch") return h("input", { type: "checkbox", name, checked: value === true });
  if (setting.kind === "choice") return h("select", { name }, setting.words.map((word) => h("option", { value: word, selected: word === value }, word)));
  if (setting.kind === "list") {
    return h("span", { class: "five" }, help.priorities.map((/** @type {string} */ priority, /** @type {number} */ place) =>
      h("label", null, h("small", { class: `tier t${place}` }, priority.toLowerCase()), h("input", { type: "number", step: "any", name: `${name}#${place}`, value: value[place], min: setting.least, max: setting.most }))));
  }
  if (setting.kind === "name") return h("input", { name, value: value ?? "", autocomplete: "off", spellcheck: "false" });
  return h("input", { type: "number", name, value, min: setting.least, max: setting.most, step: setting.is_whole ? "1" : "any" });
}

/** @param {Setting} setting @param {HTMLFormElement} form */
function said(setting, form) {
  const inputs = /** @type {any} */ (form.elements);
  if (setting.kind === "switch") return inputs.namedItem(setting.name).checked;
  if (setting.kind === "list") return help.priorities.map((/** @type {string} */ _, /** @type {number} */ place) => Number(inputs.namedItem(`${setting.name}#${place}`).value));
  const value = inputs.namedItem(setting.name).value;
  if (setting.kind === "number") return value === "" ? null : Number(value);
  return value === "" ? null : value;
}

/** @param {any} value @param {string} unit */
function shown(value, unit) {
  if (Array.isArray(value)) return value.join(" : ");
  if (unit === "s" && typeof value === "number") return value === 0 ? "0" : span(value);
  return `${value === "" || value === null ? "none" : value}${unit ? ` ${unit}` : ""}`;
}

/** @param {string} name @param {any} view @param {(view: any) => void} changed */
export function settingsPart(name, view, changed) {
  const why = whyNot("admin", name);
  /** @type {Setting[]} */
  const settings = help.queue;
  const trouble = h("div", { class: "trouble" });
  const pending = h("div", { class: "pending", hidden: true });
  const form = h("form", { class: "settings", novalidate: true });
  let part = "";
  for (const setting of settings) {
    const of = setting.name.includes(".") ? setting.name.split(".")[0] ?? "" : "";
    if (of !== part && of) form.append(h("h2", null, of), h("p", { class: "faint" }, help.parts[of]));
    part = of;
    const input = inputFor(setting, valueOf(view, setting.name));
    const inputs = input instanceof HTMLSpanElement ? [...input.querySelectorAll("input")] : [input];
    if (why || setting.is_fixed) for (const each of inputs) each.disabled = true;
    const isPlain = !(input instanceof HTMLSpanElement);
    form.append(h("div", { class: "setting", "data-setting": setting.name },
      h(isPlain ? "label" : "div", { class: "setting-input" }, h("span", { class: "setting-name" }, setting.name.split(".").at(-1)), input, setting.unit && setting.kind !== "list" ? h("span", { class: "unit" }, setting.unit) : null),
      h("p", null, setting.help.replaceAll("`", ""), " ", h("span", { class: "faint" }, `Default ${shown(setting.default, setting.unit)}.${setting.is_fixed ? " Chosen when the queue is created." : ""}`))));
  }

  function changes() {
    /** @type {Record<string, any>} */
    const found = {};
    for (const setting of settings) {
      if (setting.is_fixed) continue;
      const value = said(setting, form);
      if (JSON.stringify(value) === JSON.stringify(valueOf(view, setting.name) ?? null)) continue;
      const [of = "", inner] = setting.name.split(".");
      if (inner) found[of] = { ...found[of], [inner]: value };
      else found[of] = value;
    }
    return found;
  }

  function tellPending() {
    const found = changes();
    const names = Object.entries(found).flatMap(([of, value]) => value && typeof value === "object" && !Array.isArray(value) ? Object.keys(value).map((each) => `${of}.${each}`) : [of]);
    pending.hidden = !names.length;
    for (const line of form.querySelectorAll("[data-setting]")) line.classList.toggle("changed", names.includes(line.getAttribute("data-setting") ?? ""));
    put(pending, h("strong", null, names.length === 1 ? "1 change" : `${names.length} changes`), h("span", null, plain(names.join(", "))), h("span", { class: "spring" }),
      h("button", { type: "button", class: "quiet-button", onclick: () => { put(trouble); form.reset(); tellPending(); } }, "Undo"),
      h("button", { type: "submit", class: "primary" }, "Save"));
  }

  form.addEventListener("input", tellPending);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    put(trouble);
    for (const line of form.querySelectorAll(".wrong")) line.classList.remove("wrong");
    const body = changes();
    if (!Object.keys(body).length) return;
    try {
      const now = await call("PATCH", at`/api/queues/${name}`, { body });
      await refresh();
      notice("Saved. It holds from now on.");
      changed(now);
      form.replaceWith(settingsPart(name, now, changed));
    } catch (error) {
      put(trouble, errorBox(error));
      const wrong = /** @type {any} */ (error).problem?.field;
      if (wrong) form.querySelector(`[data-setting="${CSS.escape(String(wrong).replace(/\[\d+\]$/, ""))}"]`)?.classList.add("wrong");
    }
  });
  form.append(trouble, pending);
  form.append(command(`penstock queue update ${quoted(name)} --help`));
  form.prepend(why ? h("p", { class: "box" }, why) : h("p", { class: "faint" }, "Change a value and save. It holds at once, for messages that are there, too."));
  tellPending();
  return form;
}
