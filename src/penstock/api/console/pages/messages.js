// @ts-check
// Messages of a queue, looked at without receiving them: by state, tier, group, text and time.

import { at, call } from "./api.js";
import { bdi, h, plain, put } from "./dom.js";
import { linkTo } from "./overview.js";
import { action, badge, empty, errorBox, field, select, tier } from "./parts.js";
import { help } from "./session.js";
import { ago, bytes, clock, count, instant } from "./units.js";

const FILTERS = ["state", "priority", "group", "text", "error", "since", "until"];
const STATES = /** @type {Record<string, string>} */ ({ ready: "good", delayed: "", in_flight: "warn", stuck: "bad", moving: "" });

/** @param {string} state */
export function stateBadge(state) {
  return badge(state.replace("_", " "), STATES[state] ?? "");
}

/** @param {any} message */
export function previewOf(message) {
  const text = plain(message.preview ?? "").replace(/\s+/g, " ");
  if (!message.size_bytes) return h("span", { class: "faint" }, "empty");
  if (message.is_binary) return h("span", { class: "faint" }, `binary, ${bytes(message.size_bytes)}`);
  return h("span", { class: "mono preview", dir: "ltr" }, text);
}

/** @param {string} queue @param {any} message */
function line(queue, message) {
  return h("li", null, h("a", { href: linkTo(queue, `/messages/${encodeURIComponent(message.message_id)}`), class: "message" },
    h("span", { class: "message-head" }, h("span", { class: "mono" }, message.message_id), stateBadge(message.state), tier(message.priority),
      message.escalated && badge("escalated", "warn"), message.group && badge(plain(message.group), "quiet", "Group"),
      h("span", { class: "spring" }), h("span", { class: "faint", title: clock(message.sent_at) }, `${ago(message.sent_at)} · ${bytes(message.size_bytes ?? 0)} · delivered ${message.delivery_count}×`)),
    previewOf(message),
    message.last_error ? h("span", { class: "error-line" }, bdi(message.last_error.split("\n")[0])) : null));
}

/** @param {import("./console.js").Place} place @param {string} queue */
export function messagesPart({ query, signal, setQuery }, queue) {
  const list = h("ul", { class: "messages" });
  const more = h("div", { class: "row" });
  const about = h("p", { class: "faint", role: "status" });
  const text = h("input", { type: "search", name: "text", placeholder: "Text in the body  ( / )", "aria-label": "Text in the body", value: query.get("text") ?? "" });
  const form = h("form", { class: "filters" }, text,
    field("State", select("state", [["", "any"], ...help.states.map((/** @type {string} */ each) => /** @type {const} */ ([each, each.replace("_", " ")]))], query.get("state") ?? "")),
    field("Tier", select("priority", [["", "any"], ...help.priorities.map((/** @type {string} */ each) => /** @type {const} */ ([each, each.toLowerCase()]))], query.get("priority") ?? "")),
    field("Group", h("input", { name: "group", autocomplete: "off", value: query.get("group") ?? "" })),
    field("Text in the error", h("input", { name: "error", autocomplete: "off", value: query.get("error") ?? "" })),
    field("Sent from", h("input", { name: "since", type: "datetime-local", step: "1", value: query.get("since") ?? "" })),
    field("to before", h("input", { name: "until", type: "datetime-local", step: "1", value: query.get("until") ?? "" })),
    h("button", { type: "submit", class: "primary" }, "Look"));
  let shown = 0;
  let looked = 0;

  /** @param {string} cursor */
  async function look(cursor) {
    /** @type {Record<string, string>} */
    const wanted = {};
    for (const name of FILTERS) wanted[name] = query.get(name) ?? "";
    for (const name of ["since", "until"]) wanted[name] = instant(wanted[name] ?? "");
    if (!cursor) { shown = 0; looked = 0; put(list); }
    put(more, h("span", { class: "faint" }, "Looking …"));
    try {
      const page = await call("GET", at`/api/console/queues/${queue}/messages`, { query: { ...wanted, cursor }, signal });
      list.append(...page.messages.map((/** @type {any} */ each) => line(queue, each)));
      shown += page.messages.length;
      looked += page.looked_at;
      about.textContent = `${count(shown)} shown, of ${count(looked)} looked at. Those that wait come first, the most urgent tier first.`;
      put(more, page.next_cursor ? action(shown ? "Show more" : "Look further", () => look(page.next_cursor)) : null);
      if (!shown && !page.next_cursor) put(list, h("li", null, nothing(Object.values(wanted).some(Boolean))));
    } catch (error) {
      if (!signal.aborted) put(more, errorBox(error));
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const found = new FormData(form);
    setQuery(Object.fromEntries(FILTERS.map((name) => [name, String(found.get(name) ?? "")])));
    void look("");
  });
  void look("");
  return h("div", null, form, about, list, more);
}

/** @param {boolean} hasFilter */
function nothing(hasFilter) {
  return hasFilter
    ? empty("No message fits", "Leave a filter out. What was settled is not here any more: the History has it.")
    : empty("There are no messages here", "All were handled, or none was sent yet. “Send a message” above sends one; the History shows what became of others.");
}
