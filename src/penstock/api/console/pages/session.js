// @ts-check
// Who is logged in, and what their key allows. The server checks everything itself: this only says so beforehand.

import { call, remedies } from "./api.js";

/** @type {any} */
export let session = null;
/** @type {any} */
export let help = null;

/** Ask who we are. Raises `Refused` if a key is needed. */
export async function open() {
  session = await call("GET", "/api/console/session");
  help ??= await call("GET", "/api/console/help");
  Object.assign(remedies, help.remedies, { ...remedies });
  return session;
}

/** @param {string} key */
export async function login(key) {
  await call("POST", "/api/console/session", { headers: { authorization: `Bearer ${key}` } });
  return open();
}

export async function logout() {
  await call("DELETE", "/api/console/session");
  session = null;
}

/** @param {string} pattern @param {string} name */
function fits(pattern, name) {
  const parts = pattern.split("*").map((each) => each.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join("[^]*")}$`).test(name);
}

/** Whether the key has a role on a queue, topic or group; "*" is all of them. @param {string} role @param {string} name */
export function can(role, name) {
  if (!session) return false;
  return session.grants.some((/** @type {any} */ grant) =>
    session.includes[grant.role]?.includes(role) && (name === "*" ? !grant.queue.replaceAll("*", "") : fits(grant.queue, name)));
}

/** Why something cannot be done; "" if it can. @param {string} role @param {string} name */
export function whyNot(role, name) {
  if (can(role, name)) return "";
  const where = name === "*" ? "all queues" : name;
  return `The key “${session?.name ?? ""}” has no role ${role} on ${where}. Log in with a key that has it, or ask the server's operator.`;
}
