// @ts-check
// All queues at a glance: rates, depth by tier, the oldest, dead letters; thousands of them, sorted and searched.

import { call } from "./api.js";
import { spark, tierBar } from "./charts.js";
import { bdi, h, put, say } from "./dom.js";
import { grid } from "./grid.js";
import { createQueue } from "./queue_actions.js";
import { depth, follow, overview } from "./live.js";
import { action, badge, empty, tile } from "./parts.js";
import { session } from "./session.js";
import { brief, bytes, count, counted, rate, span } from "./units.js";

/** @typedef {import("./live.js").QueueRow} QueueRow */

/** @type {Map<string, (number | null)[][] | null>} */
const trends = new Map();
const TRENDS_MS = 10_000;
// Burying takes a moment; who waits longer waits for room.
const STUCK_S = 5;

/** @type {Record<string, (row: QueueRow) => number | string>} */
const ORDERS = {
  name: (row) => row.name,
  in: (row) => row.rates[0] ?? 0,
  out: (row) => row.rates[2] ?? 0,
  ready: depth,
  in_flight: (row) => row.in_flight,
  oldest: (row) => row.oldest_s ?? -1,
  dead: (row) => row.dead ?? 0,
};

/** @param {string} name @param {string} [rest] */
export function linkTo(name, rest = "") {
  return `#/queues/${encodeURIComponent(name)}${rest}`;
}

/** @param {QueueRow} row */
function badges(row) {
  return [
    row.paused && badge("paused", "warn", "Deliveries are stopped; sends go on."),
    row.fifo && badge("FIFO", "", "Each group is delivered in its order."),
    (row.stuck_s ?? 0) > STUCK_S && badge("stuck", "bad", `${counted(row.stuck, "message")} wait for room in the dead-letter queue.`),
    row.size_max > 0 && depth(row) + row.in_flight + row.delayed >= row.size_max && badge("full", "bad", "Sends are refused until there is room."),
    row.is_dead && badge("dead letters", "quiet", "Where messages of another queue are buried."),
  ];
}

/** @param {QueueRow} row */
function trendOf(row) {
  const lines = trends.get(row.name);
  if (!lines) return h("span", { class: "faint" }, "–");
  const [, sent, acked] = lines;
  return spark([sent ?? [], acked ?? []], ["sent", "acked"], `Of ${row.name}, the last minutes: sent and acked per second`);
}

const COLUMNS = [
  { id: "name", label: "Queue", width: "minmax(9rem, 2.4fr)", cell: (/** @type {QueueRow} */ row) => [h("a", { href: linkTo(row.name), class: "name" }, bdi(row.name)), ...badges(row)] },
  { id: "trend", label: "Sent, acked", width: "7rem", isWide: true, cell: trendOf, title: "Of the last minutes" },
  { id: "in", label: "In", width: "minmax(4.5rem, .7fr)", isNumber: true, isWide: true, cell: (/** @type {QueueRow} */ row) => rate(row.rates[0]), title: "Messages sent per second" },
  { id: "out", label: "Out", width: "minmax(4.5rem, .7fr)", isNumber: true, isWide: true, cell: (/** @type {QueueRow} */ row) => rate(row.rates[2]), title: "Messages acked per second" },
  { id: "ready", label: "Ready", width: "minmax(4.5rem, 1.2fr)", isNumber: true, cell: (/** @type {QueueRow} */ row) => [h("span", { class: "depth", title: `Ready by tier, critical first: ${row.ready.join(", ")}` }, brief(depth(row)), tierBar(row.ready))] },
  { id: "in_flight", label: "In flight", width: "minmax(4.5rem, .8fr)", isNumber: true, isWide: true, cell: (/** @type {QueueRow} */ row) => brief(row.in_flight) },
  { id: "oldest", label: "Oldest", width: "minmax(5rem, .9fr)", isNumber: true, cell: (/** @type {QueueRow} */ row) => row.oldest_s === null ? h("span", { class: "faint" }, "–") : span(row.oldest_s), title: "Age of the oldest message that can be received" },
  { id: "dead", label: "Dead", width: "minmax(3.6rem, .6fr)", isNumber: true, cell: (/** @type {QueueRow} */ row) => row.dead ? h("a", { href: linkTo(row.name, "/dead"), class: "dead" }, brief(row.dead)) : h("span", { class: "faint" }, row.is_dead ? "" : "0"), title: "Dead letters" },
];

/** @param {import("./console.js").Place} place */
export function overviewPage({ query, signal, setQuery }) {
  const order = { by: query.get("sort") ?? "name", isDown: query.get("down") === "1" };
  const search = h("input", { type: "search", placeholder: "Search queues  ( / )", "aria-label": "Search queues", value: query.get("find") ?? "" });
  const kind = h("select", { "aria-label": "Which queues" },
    [["", "All but dead letters"], ["all", "All queues"], ["trouble", "With trouble"], ["busy", "Busy"], ["dead", "Dead letters"]].map(([value = "", label = ""]) =>
      h("option", { value, selected: value === (query.get("show") ?? "") }, label)));
  const tiles = h("dl", { class: "tiles" });
  const health = h("div", null);
  const found = h("p", { class: "faint found", role: "status" });
  const streams = h("div", null);
  const nothing = h("div", null);
  const list = grid({
    label: "Queues", columns: COLUMNS, keyOf: (row) => row.name, sort: order,
    onSort: (by) => {
      order.isDown = order.by === by ? !order.isDown : by !== "name";
      order.by = by;
      setQuery({ sort: by === "name" ? "" : by, down: order.isDown ? "1" : "" });
      list.element.scrollTop = 0;
      render();
    },
  });

  function chosen() {
    const text = search.value.trim().toLowerCase();
    const show = kind.value;
    const rows = (overview?.queues ?? []).filter((row) => {
      if (text && !row.name.toLowerCase().includes(text)) return false;
      if (show === "dead") return row.is_dead;
      if (show === "" && row.is_dead) return false;
      if (show === "trouble") return Boolean(row.dead || (row.stuck_s ?? 0) > STUCK_S || row.paused);
      if (show === "busy") return row.rates.some((each) => each > 0) || depth(row) > 0;
      return true;
    });
    const of = ORDERS[order.by] ?? ORDERS.name;
    if (!of) return rows;
    const turn = order.isDown ? -1 : 1;
    return rows.sort((left, right) => {
      const [a, b] = [of(left), of(right)];
      return a < b ? -turn : a > b ? turn : left.name < right.name ? -1 : 1;
    });
  }

  function render() {
    if (!overview) return;
    const rows = chosen();
    list.set(rows, order);
    list.element.hidden = !rows.length;
    say(found, `${counted(rows.length, "queue")}${rows.length === overview.queues.length ? "" : ` of ${count(overview.queues.length)}`}${overview.omitted ? `; ${count(overview.omitted)} more are not shown` : ""}`);
    put(nothing, rows.length ? null : overview.queues.length ? empty("No queue fits", "Change the search, or show all queues.") : firstQueue());
    put(tiles, tilesOf(overview));
    put(health, healthOf(overview));
    put(streams, streamsOf(overview));
  }

  async function lookAtTrends() {
    const names = list.visible().map((row) => row.name).slice(0, 100);
    if (names.length) {
      const answer = await call("GET", "/api/console/trends", { query: { queues: names.join(",") }, signal });
      for (const [name, lines] of Object.entries(answer.queues)) trends.set(name, /** @type {any} */ (lines));
      render();
    }
  }

  const keepLooking = () => void lookAtTrends().catch(() => {});
  const timer = setInterval(() => { if (!document.hidden) keepLooking(); }, TRENDS_MS);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let soon;
  list.element.addEventListener("scroll", () => { clearTimeout(soon); soon = setTimeout(keepLooking, 250); });
  signal.addEventListener("abort", () => { clearInterval(timer); clearTimeout(soon); });
  search.addEventListener("input", () => { setQuery({ find: search.value }); list.element.scrollTop = 0; render(); });
  kind.addEventListener("change", () => { setQuery({ show: kind.value }); list.element.scrollTop = 0; render(); });
  let hasTrends = false;
  follow(() => { render(); if (!hasTrends) { hasTrends = true; keepLooking(); } }, signal);
  if (query.get("focus") === "search") setTimeout(() => search.focus());
  const element = h("div", null,
    h("h1", { class: "hidden" }, "Queues"), health, tiles,
    h("div", { class: "row tools-row" }, search, kind, found, h("span", { class: "spring" }), action("New queue", createQueue, { role: "admin", class: "primary" })),
    list.element, nothing, streams);
  return { title: "Queues", element };
}

/** @param {import("./live.js").Overview} found */
function tilesOf({ queues }) {
  const own = queues.filter((row) => !row.is_dead);
  const sum = (/** @type {(row: QueueRow) => number} */ of) => own.reduce((total, row) => total + of(row), 0);
  const dead = queues.reduce((total, row) => total + (row.is_dead ? depth(row) + row.in_flight + row.delayed : 0), 0);
  const oldest = own.reduce((most, row) => Math.max(most, row.oldest_s ?? 0), 0);
  return [
    tile("Sent", rate(sum((row) => row.rates[0] ?? 0))),
    tile("Acked", rate(sum((row) => row.rates[2] ?? 0))),
    tile("Released", rate(sum((row) => row.rates[3] ?? 0)), "", "Given back by consumers: most often failures"),
    tile("Ready", brief(sum(depth))),
    tile("In flight", brief(sum((row) => row.in_flight))),
    tile("Delayed", brief(sum((row) => row.delayed))),
    tile("Oldest", oldest ? span(oldest) : "–"),
    tile("Dead letters", brief(dead), dead ? "bad" : ""),
  ];
}

const REASONS = /** @type {Record<string, string>} */ ({
  stopping: "The server is stopping.",
  disk_full: "The disk is full: sends are refused. Ack or purge messages, or give it a larger disk.",
  disk_behind: "The disk does not keep up: answers wait for it.",
  history_behind: "The history is behind: settled messages wait to be written.",
  database_silent: "The database does not answer. Check that it runs and can be reached.",
  clock_doubted: "The clock of the machine leapt ahead: time goes on without it until it is right.",
});

/** @param {import("./live.js").Overview} found */
function healthOf({ server, servers = [] }) {
  if (!server) return null;
  const troubles = [...server.reasons, ...server.warnings].map((each) => REASONS[each] ?? each);
  if (server.may_lose) troubles.push(`A crash may lose ${server.may_lose}.`);
  for (const database of server.databases) if (!database.is_answering) troubles.push(`The database ${database.name} does not answer.`);
  for (const each of servers) if (each.state === "lost") troubles.push(`The server ${each.name} has not been heard for ${span(each.silent_ms / 1_000)}. Start it again, or see penstock cluster status.`);
  const rows = server.databases.map((/** @type {any} */ each) => `${each.name}: ${count(each.rows)} rows, ${count(each.dead_rows)} dead rows`);
  const journals = server.journals.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.bytes, 0);
  const about = server.is_on_postgres ? rows.join(" · ") : `journal ${bytes(journals)}`;
  return [
    troubles.length ? h("div", { class: "box bad", role: "alert" }, troubles.map((each) => h("p", null, each))) : null,
    h("p", { class: "health" }, badge(troubles.length ? "needs a look" : "healthy", troubles.length ? "bad" : "good"), " ", server.is_on_postgres ? "PostgreSQL" : "Store", " ", h("code", null, bdi(server.store)),
      " · ", about, " · ", `${counted(server.long_polls, "consumer")} waiting`, server.kafka ? [" · Kafka at ", h("code", null, server.kafka)] : null),
    servers.length > 1 ? h("p", { class: "health" }, `${counted(servers.length, "server")}: `, servers.flatMap((each) => [badge(each.state, each.state === "serving" ? "good" : "warn"), " ", h("strong", null, bdi(each.name)), " ", h("code", null, bdi(each.address)), " "])) : null,
  ];
}

/** @param {import("./live.js").Overview} found */
function streamsOf({ topics, groups }) {
  if (!topics.length && !groups.length) return null;
  const most = [...groups].sort((left, right) => right.lag - left.lag).slice(0, 6);
  return h("section", null,
    h("h2", null, "Streams ", h("a", { href: "#/streams", class: "more" }, `${counted(topics.length, "topic")}, ${counted(groups.length, "group")}`)),
    most.length ? h("div", { class: "cards" }, most.map((group) => h("a", { class: "card", href: `#/groups/${encodeURIComponent(group.name)}` },
      h("strong", null, bdi(group.name)), h("span", { class: group.lag ? "lag some" : "lag" }, `lag ${brief(group.lag)}`),
      h("small", { class: "faint" }, `${group.state} · ${counted(group.members, "member")} · ${group.topics.join(", ")}`)))) : h("p", { class: "faint" }, "No consumer group yet."));
}

function firstQueue() {
  return empty("There is no queue yet",
    "A queue holds messages until a consumer has handled them. Make one with the button above, or with ",
    h("code", null, "penstock queue create orders"), ", and send to it with ", h("code", null, "penstock send orders 'hello'"),
    session?.has_topics ? ". Kafka clients make topics, which are under Streams." : ".");
}
