// @ts-check
// One queue: what is in it and how it has been, its messages, its dead letters, its settings.

import { at, call } from "./api.js";
import { chart, tierBar } from "./charts.js";
import { bdi, h, put } from "./dom.js";
import { deadLettersPart } from "./dead_letters.js";
import { follow, queueRow } from "./live.js";
import { messagesPart } from "./messages.js";
import { linkTo } from "./overview.js";
import { action, badge, command, table, tabs, tier, tile, trail } from "./parts.js";
import { pause, purge, removeQueue, sendTest } from "./queue_actions.js";
import { help } from "./session.js";
import { settingsPart } from "./settings.js";
import { brief, clock, count, quoted, rate, span } from "./units.js";

const EVERY_MS = 2000;
const TRENDS_MS = 10_000;
const PARTS = /** @type {const} */ ([["Now", ""], ["Messages", "/messages"], ["Dead letters", "/dead"], ["Settings", "/settings"]]);

/** @param {import("./console.js").Place} place */
export async function queuePage(place) {
  const name = place.parts[1] ?? "";
  const part = place.parts[2] ?? "";
  let view = await call("GET", at`/api/queues/${name}`, { signal: place.signal });
  const chosen = PARTS.find(([, rest]) => rest === (part ? `/${part}` : ""))?.[0] ?? "Now";
  const head = h("div", { class: "page-head" });
  const heading = () => put(head,
    h("h1", null, bdi(view.queue_name)),
    view.paused && badge("paused", "warn"), view.fifo && badge("FIFO"),
    h("span", { class: "spring" }),
    action("Send a message", () => sendTest(name, again), { role: "send", on: name }),
    action(view.paused ? "Resume" : "Pause", () => pause(name, !view.paused, again), { role: "admin", on: name, title: "Stop or resume deliveries; sends go on" }),
    action("Purge …", () => purge(name, view.current_message_count, again), { role: "admin", on: name, class: "danger-quiet" }),
    action("Delete …", () => removeQueue(name), { role: "admin", on: name, class: "danger-quiet" }));
  const body = h("div", null);
  const again = () => place.reload();
  heading();
  if (chosen === "Messages") body.append(messagesPart(place, name));
  else if (chosen === "Dead letters") body.append(await deadLettersPart(place, name, view));
  else if (chosen === "Settings") body.append(settingsPart(name, view, (changed) => { view = changed; heading(); }));
  else body.append(nowPart(place, name, view, (seen) => { if (seen.paused !== view.paused) { view = seen; heading(); } view = seen; }));
  const links = PARTS.map(([label, rest]) => /** @type {const} */ ([label, linkTo(name, rest)]));
  const element = h("div", null, trail(["Queues", "#/"], [name]), head, tabs(links, chosen), body);
  return { title: chosen === "Now" ? name : `${chosen} of ${name}`, element };
}

/** @param {import("./console.js").Place} place @param {string} name @param {any} view @param {(view: any) => void} seen */
function nowPart({ signal }, name, view, seen) {
  const tiles = h("dl", { class: "tiles" });
  const tiers = h("div", null);
  const depths = chart("Ready, by tier", { isStacked: true, format: (value) => brief(value === null ? null : Math.round(value)) });
  const ages = chart("Age of the oldest that can be received, by tier", { format: (value) => span(value) });
  const rates = chart("Messages per second", { format: (value) => rate(value) });
  const held = chart("In flight and delayed", { format: (value) => brief(value === null ? null : Math.round(value)) });

  function render() {
    const row = queueRow(name);
    const rates = row?.rates ?? [0, 0, 0, 0];
    put(tiles,
      tile("Ready", brief(view.ready)), tile("In flight", brief(view.in_flight)), tile("Delayed", brief(view.delayed)),
      view.stuck ? tile("Stuck", brief(view.stuck), "bad", "The dead-letter queue has no room") : null,
      tile("Sent", rate(rates[0])), tile("Received", rate(rates[1])), tile("Acked", rate(rates[2])), tile("Released", rate(rates[3])),
      row?.dead === undefined ? null : tile("Dead letters", h("a", { href: linkTo(name, "/dead") }, brief(row.dead)), row.dead ? "bad" : ""));
    const most = Math.max(1, ...view.by_tier.map((/** @type {any} */ each) => each.ready));
    put(tiers, table("By tier", ["Tier", { label: "Ready", isNumber: true }, "", { label: "Oldest", isNumber: true }, { label: "At worst it waits for", isNumber: true }, { label: "that is", isNumber: true }],
      view.by_tier.map((/** @type {any} */ each, /** @type {number} */ place) => [
        tier(each.priority), count(each.ready), h("div", { class: "bar-cell" }, tierBar(view.by_tier.map((/** @type {any} */ other, /** @type {number} */ at) => at === place ? other.ready : 0), most)),
        each.oldest_age_s === null ? "–" : span(each.oldest_age_s), `${count(each.worst_wait_messages)} messages`,
        each.worst_wait_s === null ? h("span", { class: "faint", title: "Nothing is received just now, so there is no rate to reckon with." }, "–") : span(each.worst_wait_s),
      ])));
  }

  async function lookAgain() {
    view = await call("GET", at`/api/queues/${name}`, { signal });
    seen(view);
    render();
  }

  async function lookAtTrends() {
    const found = await call("GET", at`/api/console/queues/${name}/trends`, { signal });
    const of = (/** @type {any[]} */ columns) => columns.map((values, place) => ({ label: (help.priorities[place] ?? "").toLowerCase(), kind: `t${place}`, values }));
    depths.draw(found.times_ms, of(found.ready));
    ages.draw(found.times_ms, of(found.age_s));
    const named = ["sent", "received", "acked", "released"];
    rates.draw(found.times_ms, found.rates.map((/** @type {any} */ values, /** @type {number} */ place) => ({ label: named[place] ?? "", kind: named[place] ?? "", values })));
    held.draw(found.times_ms, found.times_ms.length ? [{ label: "in flight", kind: "received", values: found.in_flight }, { label: "delayed", kind: "t3", values: found.delayed }] : []);
  }

  const keep = (/** @type {() => Promise<void>} */ look) => () => { if (!document.hidden) void look().catch(() => {}); };
  const timers = [setInterval(keep(lookAgain), EVERY_MS), setInterval(keep(lookAtTrends), TRENDS_MS)];
  signal.addEventListener("abort", () => timers.forEach((timer) => clearInterval(timer)));
  render();
  follow(render, signal);
  setTimeout(keep(lookAtTrends));
  return h("div", null, tiles, h("div", { class: "charts" }, depths.element, ages.element, rates.element, held.element),
    h("section", null, h("h2", null, "By tier"), tiers,
      h("p", { class: "faint" }, "The last two columns are a promise for a message sent now without a group: at most so many others are received before it.")),
    h("section", null, h("h2", null, "About"), h("p", { class: "faint" }, `Id ${view.queue_id}, made ${clock(view.created_at)}. Since the server started: ${count(view.totals.sent)} sent, ${count(view.totals.received)} received, ${count(view.totals.acked)} acked, ${count(view.totals.released)} released.`),
      command(`penstock queue show ${quoted(name)}`)));
}
