// @ts-check
// One topic: its partitions, its records from an offset or a time on, producing one, its settings.

import { at, call } from "./api.js";
import { bdi, h, plain, put } from "./dom.js";
import { overview, refresh } from "./live.js";
import { action, badge, command, dialog, empty, errorBox, field, notice, select, table, tabs, tile, trail, valuesOf } from "./parts.js";
import { help } from "./session.js";
import { groupLink, topicLink } from "./streams.js";
import { brief, bytes, clock, count, counted, instant, quoted, span } from "./units.js";

const PAGE = 50;

/** @param {import("./console.js").Place} place */
export async function topicPage(place) {
  const name = place.parts[1] ?? "";
  const isRecords = place.parts[2] === "records";
  const view = await call("GET", at`/api/topics/${name}`, { signal: place.signal });
  const element = h("div", null, trail(["Streams", "#/streams"], [name]),
    h("div", { class: "page-head" }, h("h1", null, bdi(name)), badge(view.cleanup), h("span", { class: "spring" }),
      action("Produce a record", () => produce(view, place.reload), { role: "send", on: name, class: "primary" }),
      action("Settings …", () => settings(view, place.reload), { role: "admin", on: name }),
      action("Delete …", () => remove(name), { role: "admin", on: name, class: "danger-quiet" })),
    tabs([["Partitions", topicLink(name)], ["Records", topicLink(name, "/records")]], isRecords ? "Records" : "Partitions"),
    isRecords ? records(place, view) : partitions(view));
  return { title: name, element };
}

/** @param {any} view */
function partitions(view) {
  const readers = overview?.groups.filter((group) => group.topics.includes(view.topic_name)) ?? [];
  return h("div", null,
    h("dl", { class: "tiles" }, tile("Records", brief(view.record_count)), tile("Size", bytes(view.size_bytes)), tile("Partitions", count(view.partition_count)),
      tile("Kept for", view.retention_s === null ? "ever" : span(view.retention_s)), tile("Up to", view.retention_bytes === null ? "any size" : `${bytes(view.retention_bytes)} a partition`)),
    table("Partitions", [{ label: "Partition", isNumber: true }, { label: "From", isNumber: true }, { label: "End", isNumber: true }, { label: "Records", isNumber: true }, { label: "Size", isNumber: true }, ""], view.partitions.map((/** @type {any} */ each) => [
      count(each.partition), count(each.start_offset), count(each.high_watermark), count(each.high_watermark - each.start_offset), bytes(each.size_bytes),
      h("a", { href: `${topicLink(view.topic_name, "/records")}?partition=${each.partition}` }, "Records"),
    ])),
    h("section", null, h("h2", null, "Read by"), readers.length ? h("p", null, readers.map((group) => [h("a", { class: "chip", href: groupLink(group.name) }, bdi(group.name)), ` lag ${brief(group.lag)} `]).flat()) : h("p", { class: "faint" }, "No consumer group reads it.")),
    view.kafka ? h("p", { class: "faint" }, "Kafka clients find it at ", h("code", null, view.kafka), ".") : null,
    command(`penstock topic show ${quoted(view.topic_name)}`));
}

/** @param {import("./console.js").Place} place @param {any} view */
function records({ query, signal, setQuery }, view) {
  const list = h("div", null);
  const about = h("p", { class: "faint", role: "status" });
  const more = h("div", { class: "row" });
  const form = h("form", { class: "filters" },
    field("Partition", select("partition", view.partitions.map((/** @type {any} */ each) => String(each.partition)), query.get("partition") ?? "0")),
    field("From offset", h("input", { name: "offset", type: "number", min: "0", value: query.get("offset") ?? "", placeholder: "the newest" })),
    field("or from time", h("input", { name: "since", type: "datetime-local", step: "1", value: query.get("since") ?? "" })),
    h("button", { type: "submit", class: "primary" }, "Look"));

  /** @param {number | null} from */
  async function look(from) {
    const partition = Number(query.get("partition") ?? 0);
    const ends = view.partitions[partition] ?? { start_offset: 0, high_watermark: 0 };
    const since = instant(query.get("since") ?? "");
    const said = query.get("offset");
    const offset = from ?? (said ? Number(said) : since ? null : Math.max(ends.start_offset, ends.high_watermark - PAGE));
    try {
      const page = await call("GET", at`/api/topics/${view.topic_name}/records`, { query: { partition, limit: PAGE, ...(offset === null ? { since } : { offset }) }, signal });
      const isEnd = page.next_offset >= page.high_watermark;
      about.textContent = `Partition ${partition} holds offsets ${count(page.start_offset)} to ${count(page.high_watermark)}. ${counted(page.records.length, "record")} shown, up to ${count(page.next_offset)}.`;
      const broken = (page.unreadable ?? []).map((/** @type {any} */ each) => h("p", { class: "box bad" }, `Offsets ${each.offset} to ${each.next_offset} cannot be read: ${plain(each.reason)}`));
      put(list, ...broken, page.records.length ? h("ul", { class: "messages" }, page.records.map(record)) : empty("No records here", isEnd ? "This is the end of the partition. New ones come with “Look again”." : "Go on further below."));
      const first = offset ?? page.records[0]?.offset ?? page.start_offset;
      put(more,
        first > page.start_offset ? action("Earlier", () => goTo(Math.max(page.start_offset, first - PAGE))) : null,
        action(isEnd ? "Look again" : "Later", () => goTo(isEnd ? first : page.next_offset)));
    } catch (error) {
      if (!signal.aborted) put(list, errorBox(error));
    }
  }

  /** @param {number} offset */
  function goTo(offset) {
    setQuery({ offset: String(offset), since: "" });
    /** @type {HTMLInputElement} */ (form.elements.namedItem("offset")).value = String(offset);
    return look(offset);
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const { partition = "0", offset = "", since = "" } = valuesOf(form);
    setQuery({ partition, offset: since ? "" : offset, since });
    void look(null);
  });
  void look(null);
  return h("div", null, form, about, list, more, command(`penstock topic browse ${quoted(view.topic_name)} --partition ${query.get("partition") ?? 0}`));
}

/** @param {any} found */
function record(found) {
  const headers = Object.entries(found.headers ?? {});
  return h("li", { class: "record" },
    h("span", { class: "message-head" }, h("span", { class: "mono" }, `${found.partition}:${found.offset}`), h("span", { class: "faint" }, clock(found.timestamp)), found.key !== undefined || found.key_base64 ? h("span", null, h("small", { class: "faint" }, "key "), h("span", { class: "mono" }, bytesOrText(found.key, found.key_base64))) : null,
      headers.map(([name, value]) => badge(`${plain(name)}: ${plain(String(value))}`, "quiet", "Header"))),
    found.value === undefined && !found.value_base64 ? h("span", { class: "faint" }, "no value: a tombstone") : h("details", null, h("summary", { class: "mono preview" }, bytesOrText(found.value, found.value_base64, 200)), h("pre", { class: "mono" }, bytesOrText(found.value, found.value_base64, 100_000, true))));
}

/** @param {string | undefined} text @param {string | undefined} encoded @param {number} [most] @param {boolean} [isPretty] */
function bytesOrText(text, encoded, most = 200, isPretty = false) {
  if (encoded) return `binary, base64 ${encoded.slice(0, most)}`;
  let shown = text ?? "";
  if (isPretty) {
    try {
      shown = JSON.stringify(JSON.parse(shown), null, 2);
    } catch {
      // It is no JSON.
    }
  }
  return plain(shown.slice(0, most)) + (shown.length > most ? " …" : "");
}

/** @param {any} view @param {() => void} done */
function produce(view, done) {
  dialog({
    title: `Produce to ${view.topic_name}`, submit: "Produce",
    body: [
      field("Value", h("textarea", { name: "value", rows: "5", spellcheck: "false" })),
      h("div", { class: "columns" }, field("Key", h("input", { name: "key", autocomplete: "off" }), "Records of one key stay in one partition, in order."), field("Partition", select("partition", [["", "by the key"], ...view.partitions.map((/** @type {any} */ each) => /** @type {const} */ ([String(each.partition), String(each.partition)]))]))),
      field("Headers", h("input", { name: "headers", autocomplete: "off", spellcheck: "false", placeholder: '{"source": "console"}' }), "Optional: a JSON object of texts."),
    ],
    run: async (form) => {
      const { value = "", key, partition, headers } = valuesOf(form);
      const made = await call("POST", at`/api/topics/${view.topic_name}/records`, { body: { records: [{ value, ...(key === undefined ? {} : { key }), ...(partition ? { partition: Number(partition) } : {}), ...(headers ? { headers: JSON.parse(headers) } : {}) }] } });
      notice(`It is at ${made.records[0].partition}:${made.records[0].offset}.`);
      await refresh();
      done();
    },
  });
}

/** @param {any} view @param {() => void} done */
function settings(view, done) {
  const now = /** @type {Record<string, any>} */ ({ ...view, partitions: view.partition_count });
  const known = help.topic.filter((/** @type {any} */ each) => each.name in now);
  dialog({
    title: `Settings of ${view.topic_name}`, submit: "Save", isWide: true,
    body: [...known.map((/** @type {any} */ each) => field(`${each.name}${each.unit ? ` (${each.unit})` : ""}`, h("input", { name: each.name, type: "number", step: "any", value: now[each.name] ?? "", placeholder: each.may_be_none ? "no bound" : "" }), each.help)),
      field("cleanup", select("cleanup", ["delete", "compact", "compact,delete"], view.cleanup), "Whether old records go, or of each key all but the last, or both.")],
    run: async (form) => {
      const found = new FormData(form);
      /** @type {Record<string, any>} */
      const body = {};
      for (const each of known) {
        const text = String(found.get(each.name) ?? "");
        const value = text === "" ? null : Number(text);
        if (value !== (now[each.name] ?? null)) body[each.name] = value;
      }
      if (found.get("cleanup") !== view.cleanup) body.cleanup = found.get("cleanup");
      await call("PATCH", at`/api/topics/${view.topic_name}`, { body });
      notice("Saved.");
      await refresh();
      done();
    },
  });
}

/** @param {string} name */
function remove(name) {
  dialog({
    title: `Delete the topic ${name}`, submit: "Delete the topic", isDangerous: true, typed: name,
    body: [h("p", null, "This deletes every record in it, and what groups have committed for it. It cannot be brought back.")],
    run: async () => {
      await call("DELETE", at`/api/topics/${name}`);
      notice(`The topic ${name} is deleted.`);
      await refresh();
      location.hash = "#/streams";
    },
  });
}
