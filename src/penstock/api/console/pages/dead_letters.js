// @ts-check
// Dead letters, grouped by what their errors have in common; sent back one by one or by the group, with a look before.

import { at, call } from "./api.js";
import { bars } from "./charts.js";
import { h, plain, put } from "./dom.js";
import { linkTo } from "./overview.js";
import { action, badge, command, dialog, empty, errorBox, field, notice, valuesOf } from "./parts.js";
import { can } from "./session.js";
import { ago, clock, count, counted, quoted, rate } from "./units.js";

const EVERY_MS = 5000;
const PROGRESS_MS = 500;

/** @param {import("./console.js").Place} place @param {string} name @param {any} view */
export async function deadLettersPart({ signal, reload }, name, view) {
  const isOwn = name.endsWith(".dead");
  const queue = isOwn ? name : view.dead_letter_queue;
  if (!isOwn && view.max_deliveries === 0) return empty("This queue has no dead letters", "Its max_deliveries is 0: a message that fails is delivered again for ever. Set it under Settings.");
  if (!isOwn && !view.dlq_id) {
    return empty("No message was buried yet", `A message that was delivered ${view.max_deliveries} times without an ack goes to ${queue}, with its last error. `, can("see", queue) ? null : "Your key may not look there.");
  }
  const about = h("p", { class: "faint", role: "status" });
  const groups = h("div", { class: "causes" });
  const tasks = h("div", null);

  async function look() {
    const found = await call("GET", at`/api/console/queues/${queue}/dead-letters`, { signal });
    about.textContent = found.looked_at ? `${counted(found.looked_at, "dead letter")} in ${counted(found.groups.length + found.omitted, "group")}${found.is_all ? "" : " among those looked at; there are more"}. Errors are equal here if they differ in numbers, names and times only.` : "";
    const open = new Set([...groups.querySelectorAll("details[open]")].map((each) => each.getAttribute("data-group")));
    put(groups, found.groups.length ? found.groups.map((/** @type {any} */ group) => cause(name, queue, group, found, open.has(group.id), began)) : empty("There are no dead letters", `Messages that fail too often come to ${plain(queue)}. All were sent back or purged, or none has failed.`));
  }

  async function lookAtTasks() {
    const found = await call("GET", at`/api/queues/${queue}/redrive`, { signal });
    const shown = found.tasks.filter((/** @type {any} */ task) => !task.dry_run).slice(0, 5);
    put(tasks, shown.length ? h("section", null, h("h2", null, "Sent back"), shown.map((/** @type {any} */ task) => progress(queue, task, lookAtTasks))) : null);
    return shown.some((/** @type {any} */ task) => task.state === "running");
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  async function keepLooking() {
    let isRunning = false;
    try {
      isRunning = await lookAtTasks();
      if (!document.hidden) await look();
    } catch (error) {
      if (!signal.aborted) put(groups, errorBox(error));
    }
    if (!signal.aborted) timer = setTimeout(() => void keepLooking(), isRunning ? PROGRESS_MS : EVERY_MS);
  }
  const began = () => { clearTimeout(timer); void keepLooking(); };
  signal.addEventListener("abort", () => clearTimeout(timer));
  await keepLooking();
  return h("div", null,
    h("div", { class: "row" }, about, h("span", { class: "spring" }),
      isOwn ? null : h("a", { class: "button", href: linkTo(queue) }, `Open ${plain(queue)}`),
      action("Send all back …", () => redrive(name, queue, null, began), { role: "admin", on: queue })),
    tasks, groups, h("p", null, h("button", { type: "button", class: "quiet-button", onclick: reload }, "Look again")));
}

/** @param {string} name @param {string} queue @param {any} group @param {any} found @param {boolean} isOpen @param {() => void} began */
function cause(name, queue, group, found, isOpen, began) {
  const title = plain(group.signature);
  const from = Object.entries(group.origins).map(([origin, times]) => `${plain(origin)} ${count(/** @type {number} */ (times))}`).join(", ");
  return h("article", { class: "cause", "data-group": group.id },
    h("div", { class: "cause-head" }, h("span", { class: "cause-count" }, count(group.count)), h("h3", { class: "mono" }, h("bdi", null, title)), bars(group.trend, `How many were buried over time: ${group.trend.join(", ")}`)),
    h("p", { class: "faint" }, `First ${ago(group.first_at)}, last ${ago(group.last_at)} (${clock(group.last_at)}) · a bar is ${rateOf(found.bucket_s)}${from ? ` · from ${from}` : ""}`),
    h("details", { "data-group": group.id, open: isOpen }, h("summary", null, "A sample"), h("pre", { class: "error" }, plain(group.error || "It was never released with an error: its lease ended each time.")), h("pre", { class: "mono" }, plain(group.preview))),
    h("div", { class: "row" },
      h("a", { class: "button", href: `${linkTo(queue, `/messages/${encodeURIComponent(group.sample_id)}`)}?back=dead` }, "Open the sample"),
      group.literal ? h("a", { class: "button", href: `${linkTo(queue, "/messages")}?${new URLSearchParams({ error: group.literal })}` }, "Show them") : null,
      action("Requeue one", async () => {
        const done = await call("POST", at`/api/queues/${queue}/messages/${group.sample_id}/requeue`, { body: {} });
        notice(`${group.sample_id} went to ${done.requeued_to_name}. See there whether it succeeds before you send the others.`);
        began();
      }, { role: "admin", on: queue, title: "Send the sample back, to see whether the cause is mended" }),
      action("Redrive the group …", () => redrive(name, queue, group, began), { role: "admin", on: queue, class: "primary" })));
}

/** @param {number} seconds */
function rateOf(seconds) {
  return seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

/** @param {string} name @param {any} group @param {Record<string, string>} values */
function commandFor(name, group, values) {
  const parts = ["penstock dlq redrive", quoted(name)];
  if (group?.literal) parts.push("--error", quoted(group.literal));
  if (values.target_queue) parts.push("--target-queue", quoted(values.target_queue));
  if (values.rate_per_s) parts.push("--rate-per-s", values.rate_per_s);
  if (values.limit) parts.push("--limit", values.limit);
  return parts.join(" ");
}

/** @param {string} name @param {string} queue @param {any} group @param {() => void} began */
function redrive(name, queue, group, began) {
  const outcome = h("div", { role: "status" });
  const asCommand = h("div", null);
  const path = group ? at`/api/console/queues/${queue}/dead-letters/redrive` : at`/api/queues/${queue}/redrive`;
  /** @param {HTMLFormElement} form @param {boolean} dry */
  const asked = (form, dry) => {
    const { target_queue, rate_per_s, limit } = valuesOf(form);
    return { ...(group ? { group: group.id } : {}), ...(target_queue ? { target_queue } : {}), ...(rate_per_s ? { rate_per_s: Number(rate_per_s) } : {}), ...(limit ? { limit: Number(limit) } : {}), dry_run: dry };
  };
  const tellCommand = () => {
    const form = box.querySelector("form");
    if (form) put(asCommand, command(commandFor(name, group, valuesOf(form))), group?.literal ? h("small", { class: "faint" }, "The command takes all whose error has this text, which may be more than this group: look with --dry-run first.") : null);
  };
  const dry = h("button", {
    type: "button", "data-action": "Dry run", onclick: async () => {
      const form = box.querySelector("form");
      if (!form) return;
      put(outcome, "Looking …");
      try {
        const task = await call("POST", path, { body: asked(form, true) });
        put(outcome, dryWords(task));
      } catch (error) {
        put(outcome, errorBox(error));
      }
    },
  }, "Dry run");
  const box = dialog({
    title: group ? `Send ${counted(group.count, "dead letter")} back` : `Send all of ${queue} back`,
    submit: "Send back",
    isWide: true,
    body: [
      h("p", null, "Each goes to the queue it came from, and is delivered as if it were new. Mend the cause first, or they come back."),
      h("div", { class: "columns" },
        field("At most per second", h("input", { name: "rate_per_s", type: "number", min: "0.1", step: "any", placeholder: "as fast as it goes" })),
        field("At most", h("input", { name: "limit", type: "number", min: "1", placeholder: "all" }), "Send a few, see whether they succeed."),
        field("To another queue", h("input", { name: "target_queue", autocomplete: "off", spellcheck: "false" }))),
      h("div", { class: "row" }, dry, outcome), asCommand,
    ],
    run: async (form) => {
      const task = await call("POST", path, { body: asked(form, false) });
      notice(`Sending back as ${task.task_id}. It goes on if this page is closed.`);
      began();
    },
  });
  box.querySelector("form")?.addEventListener("input", tellCommand);
  tellCommand();
}

/** @param {any} task */
function dryWords(task) {
  const where = Object.entries(task.moved).map(([queue, times]) => `${count(/** @type {number} */ (times))} to ${plain(queue)}`).join(", ");
  const words = [`Would send ${counted(task.moved_total, "message")}${where ? `: ${where}` : ""}.`];
  if (task.without_origin) words.push(`${counted(task.without_origin, "message")} stay: their queue is gone; name another.`);
  if (task.not_allowed) words.push(`${counted(task.not_allowed, "message")} stay: your key may not send where they came from.`);
  if (task.error) words.push(task.error);
  return h("span", null, words.join(" "));
}

/** @param {string} queue @param {any} task @param {() => Promise<unknown>} again */
function progress(queue, task, again) {
  const total = task.remaining === null ? null : task.moved_total + task.remaining;
  const isRunning = task.state === "running";
  const bar = h("progress", { value: total ? task.moved_total : isRunning ? null : 1, max: total || 1, "aria-label": "How far it is" });
  const seconds = (new Date(task.ended_at ?? Date.now()).getTime() - new Date(task.started_at).getTime()) / 1000;
  return h("div", { class: "task", "data-task": task.task_id }, badge(task.state, isRunning ? "warn" : task.state === "done" ? "good" : "bad"), bar,
    h("span", null, `${counted(task.moved_total, "message")} sent back${isRunning ? ` at ${rate(task.moved_total / Math.max(seconds, 0.1))}` : ` ${ago(task.ended_at)}`}`),
    h("span", { class: "faint" }, [task.reason, task.error, task.without_origin ? `${count(task.without_origin)} without origin` : "", task.not_allowed ? `${count(task.not_allowed)} not allowed` : ""].filter(Boolean).map((each) => plain(each)).join(" · ")),
    h("span", { class: "spring" }),
    isRunning ? action("Stop", async () => {
      await call("DELETE", at`/api/queues/${queue}/redrive/${task.task_id}`);
      notice("Stopped. What went back stays there.");
      await again();
    }, { role: "admin", on: queue, class: "danger" }) : null, h("bdi", { class: "faint mono" }, task.task_id));
}
