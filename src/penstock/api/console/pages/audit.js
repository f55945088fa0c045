// @ts-check
// Who did what.

import { call } from "./api.js";
import { bdi, h, plain, put } from "./dom.js";
import { action, empty, errorBox, field, table, valuesOf } from "./parts.js";
import { ago, clock, count, instant } from "./units.js";

const NAMES = ["actor", "action", "target", "since"];

/** @param {import("./console.js").Place} place */
export function auditPage({ query, signal, setQuery }) {
  const list = h("div", null);
  const more = h("div", { class: "row" });
  /** @type {any[]} */
  let entries = [];
  const form = h("form", { class: "filters" },
    field("Who", h("input", { name: "actor", type: "search", autocomplete: "off", value: query.get("actor") ?? "" }), "The name of a key"),
    field("Did what", h("input", { name: "action", list: "actions", autocomplete: "off", value: query.get("action") ?? "" }), "Such as queue.purge, or queue for all of these"),
    h("datalist", { id: "actions" }, ["queue", "queue.create", "queue.change", "queue.delete", "queue.purge", "queue.escalate", "queue.requeue", "queue.redrive", "topic", "group", "group.reset_offsets", "key", "login.fail"].map((value) => h("option", { value }))),
    field("To what", h("input", { name: "target", autocomplete: "off", value: query.get("target") ?? "" }), "A queue, topic, group or key"),
    field("From", h("input", { name: "since", type: "datetime-local", step: "1", value: query.get("since") ?? "" })),
    h("button", { type: "submit", class: "primary" }, "Look"));

  /** @param {string} cursor */
  async function look(cursor) {
    if (!cursor) entries = [];
    try {
      const wanted = Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ""]));
      const page = await call("GET", "/api/audit-log", { query: { ...wanted, since: instant(wanted.since ?? ""), cursor, limit: 100 }, signal });
      entries = [...entries, ...page.entries];
      put(list, entries.length ? table("Audit log", ["When", "Who", "Did what", "To what", "Detail", "By"], entries.map((each) => [
        h("time", { datetime: each.at, title: ago(each.at) }, clock(each.at)), h("span", null, bdi(each.actor), each.label ? h("small", { class: "faint" }, ` ${plain(each.label)}`) : null), h("code", null, each.action), bdi(each.target),
        h("span", { class: "detail" }, bdi(each.detail), each.count > 1 ? ` ${count(each.count)}×` : ""), `${each.via}${each.source ? ` from ${each.source}` : ""}`,
      ])) : empty("Nothing here yet", "Changes of queues, topics, groups and keys are written down here with who made them, and logins that failed. Sending and receiving are not."));
      put(more, page.next_cursor ? action("Show earlier", () => look(page.next_cursor)) : null);
    } catch (error) {
      if (!signal.aborted) put(list, errorBox(error));
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const found = valuesOf(form);
    setQuery(Object.fromEntries(NAMES.map((name) => [name, found[name] ?? ""])));
    void look("");
  });
  void look("");
  return { title: "Audit", element: h("div", null, h("h1", null, "Audit log"), form, list, more) };
}
