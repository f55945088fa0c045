// @ts-check
// One message: where it is and why, in words; its story on a time line; its body; what can be done about it.

import { ask, at, call, Refused } from "./api.js";
import { bdi, h, plain, put } from "./dom.js";
import { stateBadge } from "./messages.js";
import { linkTo } from "./overview.js";
import { action, badge, command, dialog, errorBox, field, notice, select, table, tier, tile, trail, valuesOf } from "./parts.js";
import { help } from "./session.js";
import { ago, bytes, clock, count, counted, instant, quoted, span } from "./units.js";

const SHOWN_BYTES = 256 * 1024;
const HEX_BYTES = 16 * 1024;

/** @param {import("./console.js").Place} place */
export async function messagePage(place) {
  const [, queue = "", , id = ""] = place.parts;
  /** @type {any} */
  let found;
  try {
    found = await call("GET", at`/api/console/queues/${queue}/messages/${id}`, { signal: place.signal });
  } catch (error) {
    if (!(error instanceof Refused) || error.code !== "message_not_found") throw error;
    return gone(queue, id, error);
  }
  const { message } = found;
  const isDead = message.origin_queue !== undefined && message.origin_queue !== queue;
  const canMove = ["ready", "delayed"].includes(message.state);
  const again = () => place.reload();
  const element = h("div", null,
    trail(["Queues", "#/"], [queue, linkTo(queue)], ["Messages", linkTo(queue, "/messages")], [id]),
    h("div", { class: "page-head" }, h("h1", { class: "mono" }, bdi(id)), stateBadge(message.state), tier(message.priority), message.escalated && badge("escalated", "warn"), h("span", { class: "spring" }),
      canMove ? action("Escalate …", () => escalate(queue, message, again), { role: "admin", on: queue }) : null,
      isDead ? action("Requeue …", () => requeue(queue, message, place), { role: "admin", on: queue, class: "primary" }) : null,
      action("Look again", again)),
    h("section", { class: "explain" }, h("h2", null, "Why it is where it is"), explain(found)),
    h("dl", { class: "tiles" },
      tile("Sent", ago(message.sent_at), "", clock(message.sent_at)), tile("Delivered", `${message.delivery_count}×`, "", "How often consumers received it in this queue"),
      tile("Tier at send", message.sent_priority.toLowerCase()), tile("Size", bytes(message.size_bytes ?? 0)),
      message.group ? tile("Group", bdi(message.group)) : null,
      isDead ? tile("Came from", h("a", { href: linkTo(message.origin_queue ?? "") }, bdi(message.origin_queue))) : null),
    h("section", null, h("h2", null, "Story"), story(queue, found)),
    message.last_error ? h("section", null, h("h2", null, "Last error"), h("pre", { class: "error" }, plain(message.last_error))) : null,
    h("section", null, h("h2", null, "Body"), bodyPart(queue, id, message)),
    attributesPart(message.attributes),
    h("section", null, h("h2", null, "By command"), command(`penstock explain ${quoted(queue)} ${quoted(id)}`)));
  return { title: `${id} in ${queue}`, element };
}

/** A message that is not there any more; the history may know. @param {string} queue @param {string} id @param {Refused} error */
function gone(queue, id, error) {
  const search = `#/history?${new URLSearchParams({ queue, id })}`;
  return {
    title: `${id} in ${queue}`,
    element: h("div", null, trail(["Queues", "#/"], [queue, linkTo(queue)], ["Messages", linkTo(queue, "/messages")], [id]),
      h("div", { class: "page-head" }, h("h1", { class: "mono" }, bdi(id)), badge("not here", "quiet")), errorBox(error),
      h("p", null, h("a", { class: "button", href: search }, "What became of it"))),
  };
}

/** What an explanation says, in sentences. @param {any} found */
function explain({ message, explained, sentence, queue }) {
  const lines = [sentence];
  const ahead = explained.messages_ahead;
  if (["behind_others", "group_busy", "group_blocked"].includes(explained.wait_reason) && ahead) {
    lines.push(`${counted(ahead, "message")} ${message.group && queue.fifo ? "of its group" : "of its tier"} ${ahead === 1 ? "goes" : "go"} first.`);
  }
  if (explained.wait_reason === "paused") lines.push(`${counted(ahead, "message")} ${ahead === 1 ? "is" : "are"} before it. Nothing is delivered until the queue is resumed.`);
  if (explained.until) {
    lines.push(message.state === "in_flight" ? `The lease ends ${ago(explained.until)}, at ${clock(explained.until)}: then it is delivered again, unless its consumer acks it or extends the lease.` : `That changes by itself ${ago(explained.until)}, at ${clock(explained.until)}.`);
  }
  if (explained.worst_wait_messages !== null) {
    lines.push(`At the worst ${counted(explained.worst_wait_messages, "other message")} ${explained.worst_wait_messages === 1 ? "is" : "are"} received before it${explained.worst_wait_s === null ? "; nothing is received just now, so there is no time to tell" : `, which is ${span(explained.worst_wait_s)} at the rate of the last seconds`}.`);
  }
  if (explained.estimated_start && explained.wait_reason === "behind_others") lines.push(`It is likely to be received ${ago(explained.estimated_start)}.`);
  if (explained.promotions > 0) lines.push(`It is ${counted(explained.promotions, "tier")} more urgent than when it was sent: ${message.escalated ? "it was escalated" : "it has waited long enough to move up"}.`);
  if (explained.promotions < 0) lines.push(`It is ${counted(-explained.promotions, "tier")} less urgent than when it was sent: it was moved down.`);
  if (!queue.paused && ["none", "behind_others"].includes(explained.wait_reason) && !queue.fifo) {
    lines.push(queue.strict ? "The queue is strict: a tier is served only while all above it are empty." : `Tiers share by weights ${queue.weights.join(" : ")}, critical first; ${waitingText(queue.ready)}.`);
    const place = help.priorities.indexOf(message.priority);
    const aging = queue.aging_s[place];
    if (aging > 0 && place > 0) lines.push(`After ${span(aging)} in its tier it moves up by one.`);
  }
  return h("div", null, h("p", { class: "lead" }, lines[0]), lines.slice(1).map((each) => h("p", null, each)));
}

/** @param {number[]} ready */
function waitingText(ready) {
  const found = ready.map((value, place) => value ? `${count(value)} ${help.priorities[place].toLowerCase()}` : "").filter(Boolean);
  return found.length ? `ready are ${found.join(", ")}` : "nothing else is ready";
}

/** @param {string} queue @param {any} found */
function story(queue, { message, explained, escalations, queue: about }) {
  /** @type {{at: string | null, what: string, more?: string, kind?: string}[]} */
  const events = [];
  if (message.first_sent_at) {
    events.push({ at: message.first_sent_at, what: `Sent to ${message.origin_queue ?? "a queue that is gone"}`, more: `as ${message.sent_priority.toLowerCase()}` });
    if (message.earlier_deliveries) events.push({ at: null, what: `Delivered ${message.earlier_deliveries}× there`, more: message.last_error ? `and failed: ${message.last_error.split("\n")[0]}` : "" });
    events.push({ at: message.sent_at, what: `Came to ${queue}`, kind: "bad" });
  } else {
    events.push({ at: message.sent_at, what: `Sent to ${queue}`, more: `as ${message.sent_priority.toLowerCase()}` });
  }
  for (const each of [...escalations].reverse()) events.push({ at: each.at, what: `Moved to ${each.priority.toLowerCase()} by ${each.actor}`, more: `${each.reason}${each.until ? `; until ${clock(each.until)}` : ""}`, kind: "warn" });
  if (message.delivery_count) events.push({ at: null, what: `Delivered ${message.delivery_count}×`, more: about.max_deliveries ? `of ${about.max_deliveries} before it is a dead letter` : "" });
  if (message.last_error && !message.first_sent_at) events.push({ at: null, what: "Failed the last time", more: message.last_error.split("\n")[0], kind: "bad" });
  events.push({ at: new Date().toISOString(), what: `Now ${message.state.replace("_", " ")}`, more: explained.reason, kind: "now" });
  if (explained.until) events.push({ at: explained.until, what: message.state === "in_flight" ? "Its lease ends" : "It can be received", kind: "later" });
  if (explained.estimated_start && explained.estimated_start !== explained.until) events.push({ at: explained.estimated_start, what: "Likely to be received", kind: "later" });
  return h("ol", { class: "story" }, events.map(({ at: when, what, more, kind }) =>
    h("li", { class: kind ?? "" }, h("time", { datetime: when ?? null }, when ? clock(when) : "–"), h("div", null, h("strong", null, plain(what)), more ? h("span", { class: "faint" }, ` ${plain(more)}`) : null))));
}

/** @param {string} queue @param {string} id @param {any} message */
function bodyPart(queue, id, message) {
  const shown = h("div", { class: "body-view" });
  const ways = ["JSON", "Text", "Hex"];
  const row = h("div", { class: "row", role: "group", "aria-label": "How the body is shown" });
  /** @type {Uint8Array | null} */
  let raw = null;

  /** @param {string} way */
  async function show(way) {
    for (const button of row.querySelectorAll("button[data-way]")) button.setAttribute("aria-pressed", String(button.getAttribute("data-way") === way));
    try {
      raw ??= new Uint8Array(await (await ask("GET", at`/api/console/queues/${queue}/messages/${id}/body`)).arrayBuffer());
      put(shown, ...asShown(raw, way));
    } catch (error) {
      put(shown, errorBox(error));
    }
  }

  put(row, ...ways.map((way) => h("button", { type: "button", class: "small", "data-way": way, onclick: () => void show(way) }, way)), h("span", { class: "spring" }),
    h("button", { type: "button", class: "small", onclick: () => { if (raw) save(raw, `${id}.bin`); } }, "Save as a file"));
  void show(message.is_binary ? "Hex" : looksLikeJson(message) ? "JSON" : "Text");
  return h("div", null, row, shown);
}

/** @param {any} message */
function looksLikeJson(message) {
  return message.attributes?.content_type === "application/json" || /^\s*[[{]/.test(message.preview ?? "");
}

/** @param {Uint8Array} raw @param {string} way @returns {HTMLElement[]} */
function asShown(raw, way) {
  if (!raw.length) return [h("p", { class: "faint" }, "The body is empty.")];
  if (way === "Hex") return hex(raw);
  const part = raw.subarray(0, SHOWN_BYTES);
  const cut = raw.length > part.length ? [h("p", { class: "faint" }, `The first ${bytes(part.length)} of ${bytes(raw.length)}; save it as a file to see all.`)] : [];
  if (way === "JSON") {
    try {
      const value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(raw));
      const text = JSON.stringify(value, null, 2);
      return [h("pre", { class: "mono" }, plain(text.slice(0, SHOWN_BYTES))), ...(text.length > SHOWN_BYTES ? [h("p", { class: "faint" }, "It is longer; save it as a file to see all.")] : [])];
    } catch (error) {
      return [h("p", { class: "box" }, `It is no JSON: ${plain(error instanceof Error ? error.message : "")}. Text and Hex show it as it is.`)];
    }
  }
  let note = null;
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(raw);
  } catch {
    note = h("p", { class: "box" }, "Some bytes are no UTF-8 and shown as �. Hex shows all of them.");
  }
  return [...(note ? [note] : []), h("pre", { class: "mono" }, plain(new TextDecoder().decode(part))), ...cut];
}

/** @param {Uint8Array} raw */
function hex(raw) {
  const part = raw.subarray(0, HEX_BYTES);
  const lines = [];
  for (let from = 0; from < part.length; from += 16) {
    const row = [...part.subarray(from, from + 16)];
    const digits = row.map((each) => each.toString(16).padStart(2, "0"));
    const letters = row.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "·")).join("");
    lines.push(`${from.toString(16).padStart(6, "0")}  ${digits.slice(0, 8).join(" ").padEnd(23)}  ${digits.slice(8).join(" ").padEnd(23)}  ${letters}`);
  }
  return [h("pre", { class: "mono hex" }, lines.join("\n")), ...(raw.length > part.length ? [h("p", { class: "faint" }, `The first ${bytes(part.length)} of ${bytes(raw.length)}; save it as a file to see all.`)] : [])];
}

/** @param {Uint8Array} raw @param {string} name */
export function save(raw, name) {
  const url = URL.createObjectURL(new Blob([/** @type {any} */ (raw)], { type: "application/octet-stream" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** @param {Record<string, unknown>} attributes */
function attributesPart(attributes) {
  const rows = Object.entries(attributes ?? {});
  if (!rows.length) return null;
  return h("section", null, h("h2", null, "Attributes"), table("Attributes", ["Name", "Value"], rows.map(([name, value]) => [bdi(name), h("span", { class: "mono" }, bdi(typeof value === "string" ? value : JSON.stringify(value)))])));
}

/** @param {string} queue @param {any} message @param {() => void} done */
function escalate(queue, message, done) {
  const place = help.priorities.indexOf(message.priority);
  dialog({
    title: "Move it to another tier",
    submit: "Move",
    body: [
      field("Priority", select("priority", help.priorities.filter((/** @type {string} */ each) => each !== message.priority), help.priorities[Math.max(0, place - 1)])),
      field("Reason", h("input", { name: "reason", required: true, maxlength: "200", autocomplete: "off" }), "It is kept with your name, for those who ask later."),
      field("Until", h("input", { name: "until", type: "datetime-local", step: "1" }), "Optional: then it returns to its own tier."),
    ],
    run: async (form) => {
      const { priority = "", reason = "", until } = valuesOf(form);
      const isDown = help.priorities.indexOf(priority) > place;
      const result = await call("POST", at`/api/queues/${queue}/escalate`, { body: { priority, reason, actor: "console", message_ids: [message.message_id], ...(isDown ? { lower: true } : {}), ...(until ? { until: instant(until) } : {}) } });
      notice(result.moved.length ? `Moved to ${priority.toLowerCase()}.` : result.not_pending.length ? "It does not wait any more, so it was not moved." : "It was not moved: it is in that tier, or settled.", { isBad: !result.moved.length });
      done();
    },
  });
}

/** @param {string} queue @param {any} message @param {import("./console.js").Place} place */
function requeue(queue, message, place) {
  dialog({
    title: "Send it back",
    submit: "Send back",
    body: [
      h("p", null, "It is delivered as if it were new: its deliveries are counted from 1 again."),
      field("To the queue", h("input", { name: "target_queue", autocomplete: "off", spellcheck: "false", placeholder: message.origin_queue ?? "" }), message.origin_queue ? `By default ${plain(message.origin_queue)}, where it came from.` : "The queue it came from is gone: name another."),
    ],
    run: async (form) => {
      const done = await call("POST", at`/api/queues/${queue}/messages/${message.message_id}/requeue`, { body: valuesOf(form) });
      notice(`${message.message_id} went to ${done.requeued_to_name}.`);
      place.go(linkTo(queue, "/dead").replace(/\/dead$/, place.query.get("back") === "dead" ? "/dead" : "/messages"));
    },
  });
}
