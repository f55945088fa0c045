// @ts-check
// API keys: made, rotated, revoked. The text of a key is shown once, when it is made.

import { at, call, Refused } from "./api.js";
import { bdi, h } from "./dom.js";
import { action, badge, copyButton, dialog, empty, errorBox, field, notice, select, table, valuesOf } from "./parts.js";
import { login, session, whyNot } from "./session.js";
import { ago, clock } from "./units.js";

const ROLES = /** @type {const} */ ([
  ["read", "read: look at queues, messages and history"], ["send", "send: send messages"], ["receive", "receive: receive and ack messages"],
  ["write", "write: send, receive and look"], ["admin", "admin: everything"], ["metrics", "metrics: read /metrics alone"],
]);

/** @param {import("./console.js").Place} place */
export async function keysPage({ signal, reload }) {
  const why = whyNot("admin", "*");
  if (why) return { title: "Keys", element: h("div", null, h("h1", null, "API keys"), h("div", { class: "box" }, why)) };
  const element = h("div", null, h("div", { class: "page-head" }, h("h1", null, "API keys"), h("span", { class: "spring" }), action("New key", () => create(reload), { role: "admin", class: "primary" })));
  try {
    const { keys } = await call("GET", "/api/console/keys", { signal });
    element.append(keys.length ? table("API keys", ["Name", "May", "Made", "Expires", "Ends with", ""], keys.map((/** @type {any} */ key) => row(key, reload)))
      : empty("There are no keys", "Everyone who reaches this server may do everything. The first key closes it: from then on every client needs one, and this page logs in with it."));
  } catch (error) {
    element.append(errorBox(error));
  }
  return { title: "Keys", element };
}

/** @param {any} key @param {() => void} done */
function row(key, done) {
  const isOver = key.expires_at && new Date(key.expires_at).getTime() < Date.now();
  return [
    h("span", null, bdi(key.name), h("br"), h("small", { class: "faint mono" }, key.id)),
    h("span", null, key.grants.map((/** @type {any} */ grant) => badge(`${grant.role} ${grant.queue}`, grant.role === "admin" ? "warn" : "quiet")), key.sqs ? badge("SQS", "quiet") : null),
    clock(key.created_at), isOver ? badge("expired", "bad") : key.expires_at ? h("span", { title: clock(key.expires_at) }, ago(key.expires_at)) : "never",
    h("span", null, h("span", { class: "mono" }, `…${key.ending}`), key.old_secret_until && new Date(key.old_secret_until).getTime() > Date.now() ? h("small", { class: "faint" }, ` old secret good until ${clock(key.old_secret_until)}`) : null),
    h("span", { class: "row" }, action("Rotate …", () => rotate(key, done), { role: "admin", class: "small" }), action("Revoke …", () => revoke(key, done), { role: "admin", class: "small danger-quiet" })),
  ];
}

/** @param {() => void} done */
function create(done) {
  dialog({
    title: "New key", submit: "Make the key",
    body: [
      session.is_open ? h("p", { class: "box bad" }, "This is the first key. From the moment it is made every client needs a key: have one ready for each. It is made with the role admin on all queues, so that you can make the others.") : null,
      field("Name", h("input", { name: "name", required: true, maxlength: "100", autocomplete: "off" }), "Whose key it is; only people read this."),
      ...(session.is_open ? [] : [
        h("div", { class: "columns" }, field("Role", select("role", ROLES, "read")), field("Queues", h("input", { name: "queue", value: "*", autocomplete: "off", spellcheck: "false" }), "* stands for any characters; several with commas.")),
        h("div", { class: "columns" }, field("Good for, in days", h("input", { name: "days", type: "number", min: "1", placeholder: "for ever" })), field("Requests per second", h("input", { name: "requests_per_s", type: "number", min: "1", placeholder: "any number" }))),
        h("label", { class: "check" }, h("input", { type: "checkbox", name: "sqs" }), " A pair for SQS clients, too"),
      ]),
    ],
    run: async (form) => {
      const { name = "", role = "admin", queue = "*", days, requests_per_s, sqs } = valuesOf(form);
      const made = await call("POST", "/api/console/keys", {
        body: { name, grants: queue.split(",").map((each) => ({ role, queue: each.trim() })), ...(days ? { expires_in_s: Math.round(Number(days) * 86_400) } : {}), ...(requests_per_s ? { requests_per_s: Number(requests_per_s) } : {}), ...(sqs ? { sqs: true } : {}) },
      });
      if (session.is_open) await logInWith(made.key);
      done();
      setTimeout(() => showSecret("The key", made));
    },
  });
}

/** The first key has closed the server, for this page as well. @param {string} key */
async function logInWith(key) {
  try {
    await login(key);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    notice("Log in with the new key.", { isBad: true });
  }
}

/** @param {string} title @param {any} made */
function showSecret(title, made) {
  const lines = [made.key, ...(made.aws_access_key_id ? [`AWS_ACCESS_KEY_ID=${made.aws_access_key_id}`, `AWS_SECRET_ACCESS_KEY=${made.aws_secret_access_key}`] : [])];
  dialog({
    title, isWide: true,
    body: [h("p", null, "Copy it now: it is not shown again. Clients take it from PENSTOCK_KEY."), h("pre", { class: "mono secret" }, lines.join("\n")), copyButton(lines.join("\n"), "Copy the key")],
  });
}

/** @param {any} key @param {() => void} done */
function rotate(key, done) {
  dialog({
    title: `Rotate the key of ${key.name}`, submit: "Make a new secret",
    body: [h("p", null, "The key gets another secret, and keeps its id, name and rights. The old secret stays good for a while, so that clients can be changed one after the other."),
      field("Keep the old one for", select("keep", [["0", "not at all"], ["3600", "1 hour"], ["86400", "1 day"], ["604800", "7 days"]], "3600"))],
    run: async (form) => {
      const made = await call("POST", at`/api/console/keys/${key.id}/rotate`, { body: { keep_old_for_s: Number(valuesOf(form).keep ?? 3600) } });
      done();
      setTimeout(() => showSecret("The new secret", made));
    },
  });
}

/** @param {any} key @param {() => void} done */
function revoke(key, done) {
  dialog({
    title: `Revoke the key of ${key.name}`, submit: "Revoke the key", isDangerous: true, typed: key.name,
    body: [h("p", null, "Its clients are refused from now on, also those that wait for messages, and browsers that logged in with it. It cannot be undone."),
      key.name === session.name ? h("p", { class: "box bad" }, "You may be logged in with this key.") : null],
    run: async () => {
      await call("DELETE", at`/api/console/keys/${key.id}`);
      notice(`The key of ${key.name} is revoked.`);
      done();
    },
  });
}
