// @ts-check
// What can be done to a queue: made, paused, sent to, purged, deleted.

import { at, call } from "./api.js";
import { h } from "./dom.js";
import { refresh } from "./live.js";
import { dialog, field, notice, select, valuesOf } from "./parts.js";
import { help } from "./session.js";
import { counted } from "./units.js";

export function createQueue() {
  dialog({
    title: "New queue",
    submit: "Make the queue",
    body: [
      field("Name", h("input", { name: "queue_name", required: true, autocomplete: "off", spellcheck: "false", placeholder: "orders" }), "Up to 80 letters, digits, and . _ -"),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "fifo" }), " FIFO: deliver each group in order, to one consumer at a time. It cannot be changed later."),
      h("p", { class: "faint" }, "All other settings have defaults, and can be changed at any time."),
    ],
    run: async (form) => {
      const { queue_name, fifo } = valuesOf(form);
      await call("POST", "/api/queues", { body: { queue_name: queue_name ?? "", ...(fifo ? { fifo: true } : {}) } });
      await refresh();
      location.hash = `#/queues/${encodeURIComponent(queue_name ?? "")}`;
    },
  });
}

/** @param {string} queue @param {boolean} paused @param {() => void} done */
export async function pause(queue, paused, done) {
  await call("PATCH", at`/api/queues/${queue}`, { body: { paused } });
  notice(paused ? `${queue} is paused: consumers get nothing until it is resumed.` : `${queue} goes on.`);
  await refresh();
  done();
}

/** @param {string} queue @param {() => void} done */
export function sendTest(queue, done) {
  const body = h("textarea", { name: "data", rows: "6", spellcheck: "false", required: true }, '{"test": true}');
  dialog({
    title: `Send a message to ${queue}`,
    submit: "Send",
    body: [
      field("Body", body, "JSON is sent as JSON, anything else as text."),
      h("div", { class: "columns" },
        field("Priority", select("priority", help.priorities, "NORMAL")),
        field("Group", h("input", { name: "group", autocomplete: "off" }), "Optional: an order to keep, or a tenant."),
        field("Delay, in seconds", h("input", { name: "delay_s", type: "number", min: "0", step: "any" }))),
      field("Attributes", h("input", { name: "attributes", autocomplete: "off", spellcheck: "false", placeholder: '{"source": "console"}' }), "Optional: a JSON object of texts and numbers."),
    ],
    run: async (form) => {
      const { data = "", priority, group, delay_s, attributes } = valuesOf(form);
      const sent = await call("POST", at`/api/queues/${queue}/messages`, {
        body: { data: jsonOr(data), priority, ...(group ? { group } : {}), ...(delay_s ? { delay_s: Number(delay_s) } : {}), ...(attributes ? { attributes: JSON.parse(attributes) } : {}) },
      });
      notice(`Sent as ${sent.message_id}.`);
      await refresh();
      done();
    },
  });
}

/** @param {string} text */
function jsonOr(text) {
  try {
    const value = JSON.parse(text);
    return value === null ? text : value;
  } catch {
    return text;
  }
}

/** @param {string} queue @param {number} messages @param {() => void} done */
export function purge(queue, messages, done) {
  dialog({
    title: `Purge ${queue}`,
    submit: "Delete all messages",
    isDangerous: true,
    typed: queue,
    body: [h("p", null, `This deletes every message in the queue, about ${counted(messages, "message")} now, those that consumers hold included. They cannot be brought back. The queue and its settings stay.`)],
    run: async () => {
      const { purged } = await call("POST", at`/api/queues/${queue}/purge`);
      notice(`${counted(purged, "message")} deleted from ${queue}.`);
      await refresh();
      done();
    },
  });
}

/** @param {string} queue */
export function removeQueue(queue) {
  dialog({
    title: `Delete ${queue}`,
    submit: "Delete the queue",
    isDangerous: true,
    typed: queue,
    body: [
      h("p", null, "This deletes the queue with every message in it. Senders and consumers get an error from then on. It cannot be brought back."),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "with_dead_letters" }), " Delete its dead-letter queue, too"),
    ],
    run: async (form) => {
      await call("DELETE", at`/api/queues/${queue}`, { query: valuesOf(form).with_dead_letters ? { with_dead_letters: "true" } : {} });
      notice(`${queue} is deleted.`);
      await refresh();
      location.hash = "#/";
    },
  });
}
