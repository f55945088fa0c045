// @ts-check
// What became of a message: settled ones by id, text, outcome and time.

import { at, call } from "./api.js";
import { bdi, h, plain, put } from "./dom.js";
import { overview } from "./live.js";
import { linkTo } from "./overview.js";
import { action, badge, empty, errorBox, field, select, tier, valuesOf } from "./parts.js";
import { help } from "./session.js";
import { ago, clock, count, instant, span } from "./units.js";

const KINDS = /** @type {Record<string, string>} */ ({ acked: "good", buried: "bad", expired: "warn", purged: "warn", redriven: "", deleted: "warn", cancelled: "warn" });
const NAMES = ["queue", "id", "text", "outcome", "since"];

/** @param {import("./console.js").Place} place */
export function historyPage({ query, signal, setQuery }) {
  const list = h("ul", { class: "messages" });
  const about = h("p", { class: "faint", role: "status" });
  const more = h("div", { class: "row" });
  const names = h("datalist", { id: "queue-names" }, (overview?.queues ?? []).slice(0, 2000).map((row) => h("option", { value: row.name })));
  const form = h("form", { class: "filters" },
    field("Queue", h("input", { name: "queue", list: "queue-names", required: true, autocomplete: "off", value: query.get("queue") ?? "" })), names,
    field("Id", h("input", { name: "id", autocomplete: "off", spellcheck: "false", value: query.get("id") ?? "" })),
    field("Text", h("input", { name: "text", type: "search", autocomplete: "off", value: query.get("text") ?? "" }), "In error, group, or body"),
    field("Outcome", select("outcome", [["", "any"], ...help.outcomes.map((/** @type {string} */ each) => /** @type {const} */ ([each, each]))], query.get("outcome") ?? "")),
    field("Settled from", h("input", { name: "since", type: "datetime-local", step: "1", value: query.get("since") ?? "" }), "By default the last 10 minutes"),
    h("button", { type: "submit", class: "primary" }, "Search"));
  let shown = 0;
  let read = 0;

  /** @param {number | null} offset */
  async function look(offset) {
    const queue = query.get("queue") ?? "";
    if (!queue) {
      put(list, h("li", null, empty("Which queue?", "Name one above. The history keeps when each message was sent, received and settled, and how it ended; with the setting history = full its body, too. Messages that are still there are under the queue.")));
      return;
    }
    if (offset === null) { shown = 0; read = 0; put(list); }
    const since = instant(query.get("since") ?? "") || new Date(Date.now() - 600_000).toISOString();
    put(more, h("span", { class: "faint" }, "Searching …"));
    try {
      if (offset === null && query.get("id")) await lookForLive(queue, query.get("id") ?? "");
      const page = await call("GET", at`/api/console/queues/${queue}/history`, { query: { id: query.get("id") ?? "", text: query.get("text") ?? "", outcome: query.get("outcome") ?? "", ...(offset === null ? { since } : { offset }) }, signal });
      list.prepend(...page.rows.reverse().map((/** @type {any} */ each) => line(queue, each)));
      shown += page.rows.length;
      read += page.read;
      about.textContent = `${count(shown)} found in ${count(read)} rows read, the newest first${page.reached_at ? `, up to ${clock(page.reached_at)}` : ""}.`;
      put(more, page.next_offset === null ? null : action("Search on, towards now", () => look(page.next_offset)));
      if (!shown && page.next_offset === null && !list.children.length) put(list, h("li", null, empty("Nothing fits", "Search from an earlier time, or leave a filter out. A message comes to the history about a second after it is settled.")));
    } catch (error) {
      if (!signal.aborted) put(more, errorBox(error));
    }
  }

  /** A message that was not settled is no history, and found all the same. @param {string} queue @param {string} id */
  async function lookForLive(queue, id) {
    try {
      const { message } = await call("GET", at`/api/console/queues/${queue}/messages/${id}`, { signal });
      list.append(h("li", { class: "record" }, h("span", { class: "message-head" }, badge("still here", "good"), h("a", { class: "mono", href: linkTo(queue, `/messages/${encodeURIComponent(id)}`) }, bdi(id)), `It is ${message.state.replace("_", " ")}.`)));
    } catch {
      // It is settled, or never was.
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const found = valuesOf(form);
    setQuery(Object.fromEntries(NAMES.map((name) => [name, found[name] ?? ""])));
    void look(null);
  });
  void look(null);
  const element = h("div", null, h("h1", null, "History"), form, about, list, more);
  return { title: "History", element };
}

/** @param {string} queue @param {any} found */
function line(queue, { row, preview }) {
  const waited = row.first_received_at ? (new Date(row.first_received_at).getTime() - new Date(row.sent_at).getTime()) / 1000 : null;
  const worked = row.last_received_at ? (new Date(row.settled_at).getTime() - new Date(row.last_received_at).getTime()) / 1000 : null;
  return h("li", { class: "record" },
    h("span", { class: "message-head" }, badge(row.outcome, KINDS[row.outcome] ?? ""), h("span", { class: "mono" }, bdi(row.message_id)), tier(row.priority), row.group ? badge(plain(row.group), "quiet", "Group") : null, h("span", { class: "spring" }), h("span", { class: "faint", title: clock(row.settled_at) }, ago(row.settled_at))),
    h("span", { class: "faint" }, `Sent ${clock(row.sent_at)}${waited === null ? ", never received" : `, waited ${span(Math.max(0, waited))}`}, delivered ${row.delivery_count}×${worked === null ? "" : `, last worked on for ${span(Math.max(0, worked))}`}, settled ${clock(row.settled_at)}.`),
    row.last_error ? h("span", { class: "error-line" }, bdi(row.last_error.split("\n")[0])) : null,
    preview ? h("span", { class: "mono preview" }, plain(preview)) : null,
    row.outcome === "buried" ? h("span", null, h("a", { href: linkTo(queue, "/dead") }, "See the dead letters")) : null);
}
