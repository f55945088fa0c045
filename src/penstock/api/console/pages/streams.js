// @ts-check
// Topics and consumer groups: how much they hold, how far behind readers are, and where a group goes on.

import { call } from "./api.js";
import { bdi, h, put } from "./dom.js";
import { follow, overview, refresh } from "./live.js";
import { action, badge, command, dialog, empty, errorBox, field, notice, select, table, tile, trail, valuesOf } from "./parts.js";
import { session } from "./session.js";
import { brief, count, counted, instant, quoted, rate } from "./units.js";

const EVERY_MS = 2000;

/** @param {string} name @param {string} [rest] */
export function topicLink(name, rest = "") {
  return `#/topics/${encodeURIComponent(name)}${rest}`;
}

/** @param {string} name */
export function groupLink(name) {
  return `#/groups/${encodeURIComponent(name)}`;
}

/** @param {import("./console.js").Place} place */
export function streamsPage({ query, signal, setQuery }) {
  if (!session.has_topics) {
    return { title: "Streams", element: empty("This server keeps no topics", "A topic is a log that many consumers read at their own pace, by Kafka clients. Start the server with ", h("code", null, "--kafka"), ".") };
  }
  const topics = h("div", null);
  const groups = h("div", null);
  const search = h("input", { type: "search", placeholder: "Search topics and groups  ( / )", "aria-label": "Search topics and groups", value: query.get("find") ?? "" });
  /** @type {{at: number, ends: Map<string, number>, rates: Map<string, number>}} */
  const before = { at: 0, ends: new Map(), rates: new Map() };

  function render() {
    if (!overview) return;
    const text = search.value.trim().toLowerCase();
    for (const topic of overview.topics) {
      const old = before.ends.get(topic.name);
      if (old !== undefined && overview.at_ms > before.at) before.rates.set(topic.name, ((topic.end - old) * 1000) / (overview.at_ms - before.at));
    }
    if (overview.at_ms > before.at) {
      before.at = overview.at_ms;
      before.ends = new Map(overview.topics.map((topic) => [topic.name, topic.end]));
    }
    const chosen = overview.topics.filter((topic) => topic.name.toLowerCase().includes(text));
    const readers = overview.groups.filter((group) => group.name.toLowerCase().includes(text));
    put(topics, chosen.length ? table("Topics", ["Topic", { label: "Partitions", isNumber: true }, { label: "Records", isNumber: true }, { label: "In", isNumber: true }, "Read by"], chosen.slice(0, 500).map((topic) => [
      h("a", { href: topicLink(topic.name), class: "name" }, bdi(topic.name)), count(topic.partitions), brief(topic.records), rate(before.rates.get(topic.name) ?? 0),
      overview?.groups.filter((group) => group.topics.includes(topic.name)).map((group) => h("a", { href: groupLink(group.name), class: "chip" }, bdi(group.name))) ?? [],
    ].map((cell) => Array.isArray(cell) ? h("span", null, cell) : cell))) : empty("No topic here", "Kafka clients make topics when they produce to one", overview.server?.kafka ? h("span", null, ", at ", h("code", null, overview.server.kafka)) : null, ". Or make one with the button above."));
    put(groups, readers.length ? table("Consumer groups", ["Group", "State", { label: "Members", isNumber: true }, { label: "Lag", isNumber: true }, "Reads"], readers.slice(0, 500).map((group) => [
      h("a", { href: groupLink(group.name), class: "name" }, bdi(group.name)), badge(group.state, group.members ? "good" : ""), count(group.members), h("span", { class: group.lag ? "lag some" : "lag" }, brief(group.lag)), h("span", null, group.topics.map((/** @type {string} */ each) => h("a", { href: topicLink(each), class: "chip" }, bdi(each)))),
    ])) : empty("No consumer group", "A group appears when its first member joins or commits an offset. Its lag is what it has not read yet."));
  }

  search.addEventListener("input", () => { setQuery({ find: search.value }); render(); });
  follow(render, signal);
  const element = h("div", null, h("div", { class: "row tools-row" }, search, h("span", { class: "spring" }), action("New topic", newTopic, { role: "admin", class: "primary" })),
    h("section", null, h("h1", null, "Topics"), topics), h("section", null, h("h2", null, "Consumer groups"), groups));
  return { title: "Streams", element };
}

function newTopic() {
  dialog({
    title: "New topic",
    submit: "Make the topic",
    body: [field("Name", h("input", { name: "topic_name", required: true, autocomplete: "off", spellcheck: "false" })), field("Partitions", h("input", { name: "partitions", type: "number", min: "1", value: "1" }), "The most consumers of a group that can read at the same time. There can be more later, never fewer.")],
    run: async (form) => {
      const { topic_name = "", partitions } = valuesOf(form);
      await call("POST", "/api/topics", { body: { topic_name, partitions: Number(partitions ?? 1) } });
      await refresh();
      location.hash = topicLink(topic_name);
    },
  });
}

/** @param {import("./console.js").Place} place */
export async function groupPage({ parts, signal, reload }) {
  const name = parts[1] ?? "";
  const path = `/api/groups/${encodeURIComponent(name)}`;
  let view = await call("GET", path, { signal });
  const tiles = h("dl", { class: "tiles" });
  const members = h("div", null);
  const partitions = h("div", null);

  function render() {
    put(tiles, tile("Lag", counted(view.lag, "record"), view.lag ? "warn" : ""), tile("State", view.state), tile("Members", count(view.members.length)), tile("Generation", count(view.generation)));
    put(members, view.members.length ? table("Members", ["Member", "Client", "Host", "Reads"], view.members.map((/** @type {any} */ each) => [
      h("span", { class: "mono" }, bdi(each.member_id)), bdi(each.client_id), bdi(each.host), h("span", null, each.assigned.map((/** @type {any} */ part) => h("a", { class: "chip", href: topicLink(part.topic_name) }, bdi(`${part.topic_name} ${part.partition}`)))),
    ])) : empty("It has no members", "No consumer reads for it now. Its offsets stay, and can be reset while it is empty."));
    put(partitions, view.partitions.length ? table("Lag by partition", ["Topic", { label: "Partition", isNumber: true }, { label: "Committed", isNumber: true }, { label: "End", isNumber: true }, { label: "Lag", isNumber: true }, "Read by"], view.partitions.map((/** @type {any} */ each) => [
      h("a", { href: `${topicLink(each.topic_name, "/records")}?partition=${each.partition}${each.committed === null ? "" : `&offset=${each.committed}`}` }, bdi(each.topic_name)), count(each.partition), each.committed === null ? "–" : count(each.committed), count(each.high_watermark),
      h("span", { class: each.lag ? "lag some" : "lag" }, each.lag === null ? "–" : count(each.lag)), each.member_id ? h("span", { class: "mono" }, bdi(each.member_id)) : h("span", { class: "faint" }, "–"),
    ])) : empty("It has committed nothing", "An offset is kept when a member commits, or is set with “Reset offsets”."));
  }

  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      view = await call("GET", path, { signal });
      render();
    } catch {
      // The frame shows that nothing answers.
    }
  }, EVERY_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  render();
  const element = h("div", null, trail(["Streams", "#/streams"], [name]),
    h("div", { class: "page-head" }, h("h1", null, bdi(name)), h("span", { class: "spring" }),
      action("Reset offsets …", () => reset(name, view, reload), { role: "receive", on: name }),
      action("Delete …", () => remove(name), { role: "admin", on: name, class: "danger-quiet" })),
    tiles, h("section", null, h("h2", null, "Lag by partition"), partitions), h("section", null, h("h2", null, "Members"), members),
    command(`penstock group show ${quoted(name)}`));
  return { title: name, element };
}

/** @param {string} name */
function remove(name) {
  dialog({
    title: `Delete the group ${name}`, submit: "Delete the group", isDangerous: true, typed: name,
    body: [h("p", null, "This forgets how far it has read. If it comes back it begins where its consumers say: at the start or at the end.")],
    run: async () => {
      await call("DELETE", `/api/groups/${encodeURIComponent(name)}`);
      notice(`The group ${name} is deleted.`);
      await refresh();
      location.hash = "#/streams";
    },
  });
}

/** @param {string} group @param {any} view @param {() => void} done */
function reset(group, view, done) {
  const topics = [...new Set([...view.partitions.map((/** @type {any} */ each) => each.topic_name), ...(overview?.topics.map((topic) => topic.name) ?? [])])];
  const preview = h("div", { role: "status" });
  const value = h("div", null);
  const to = select("to", [["earliest", "the start of each partition"], ["latest", "the end: skip what is unread"], ["time", "the first record from a time on"], ["shift", "so many records back (−) or on"], ["offset", "one offset in each partition"]], "earliest");
  const chooseValue = () => put(value, to.value === "time" ? field("Time", h("input", { name: "value", type: "datetime-local", step: "1", required: true })) : to.value === "shift" || to.value === "offset" ? field(to.value === "shift" ? "Records" : "Offset", h("input", { name: "value", type: "number", step: "1", required: true, value: to.value === "shift" ? "-100" : "0" })) : null);
  /** @param {HTMLFormElement} form @param {boolean} isDry */
  const asked = (form, isDry) => {
    const found = valuesOf(form);
    const said = found.to === "time" ? instant(found.value ?? "") : found.value === undefined ? undefined : Number(found.value);
    return { group, topic: found.topic ?? "", to: found.to, ...(said === undefined ? {} : { value: said }), dry_run: isDry };
  };
  const look = async () => {
    const form = box.querySelector("form");
    if (!form) return;
    try {
      const found = await call("POST", "/api/console/offsets", { body: asked(form, true) });
      put(preview, found.has_members ? h("p", { class: "box bad" }, "The group has members, which would overwrite this: stop its consumers first.") : null,
        table("What would change", [{ label: "Partition", isNumber: true }, { label: "From", isNumber: true }, { label: "To", isNumber: true }, { label: "Lag now", isNumber: true }, { label: "Lag then", isNumber: true }], found.partitions.map((/** @type {any} */ each) => [count(each.partition), each.from === null ? "–" : count(each.from), count(each.to), each.lag_before === null ? "–" : count(each.lag_before), count(each.lag_after)])));
    } catch (error) {
      put(preview, errorBox(error));
    }
  };
  const box = dialog({
    title: `Reset offsets of ${group}`, submit: "Reset", isWide: true, isDangerous: true,
    body: [
      h("p", null, "Where the group goes on when its consumers start again. Going back delivers records again; going on skips them for this group. The topic itself is not changed."),
      h("div", { class: "columns" }, field("Topic", select("topic", topics)), field("Go on at", to), value),
      h("div", { class: "row" }, h("button", { type: "button", "data-action": "Preview", onclick: () => void look() }, "Preview")), preview,
    ],
    run: async (form) => {
      const found = await call("POST", "/api/console/offsets", { body: asked(form, false) });
      notice(`${group} goes on in ${counted(found.partitions.length, "partition")} of ${found.topic}.`);
      await refresh();
      done();
    },
  });
  to.addEventListener("change", chooseValue);
  chooseValue();
}
