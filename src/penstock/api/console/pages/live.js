// @ts-check
// The overview, asked for about once a second by one poll for all pages, and not while the page is hidden.

import { ask, Refused } from "./api.js";

/** @typedef {{name: string, ready: number[], in_flight: number, delayed: number, stuck: number, stuck_s: number | null, oldest_s: number | null, paused: boolean, fifo: boolean, size_max: number, rates: number[], is_dead: boolean, dead?: number, dead_in?: string}} QueueRow */
/** @typedef {{at_ms: number, omitted: number, queues: QueueRow[], topics: any[], groups: any[], server?: any, servers?: any[]}} Overview */

const EVERY_MS = 1000;
const LARGE_EVERY_MS = 3000;
const LARGE = 1000;

/** @type {Overview | null} */
export let overview = null;
/** @type {Refused | null} */
export let trouble = null;
let tag = "";
let lookedAt = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let isRunning = false;
/** @type {Set<() => void>} */
const listeners = new Set();

/** Be called after each look, until the signal; at once if there was one. @param {() => void} listener @param {AbortSignal} signal */
export function follow(listener, signal) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener));
  if (overview) listener();
}

export function start() {
  if (isRunning) return;
  isRunning = true;
  void look();
}

export function stop() {
  isRunning = false;
  clearTimeout(timer);
  overview = null;
  tag = "";
}

/** Look now: something has just been changed here. */
export async function refresh() {
  if (!isRunning) return;
  clearTimeout(timer);
  await look();
}

async function look() {
  const began = ++lookedAt;
  try {
    if (!document.hidden) {
      const answer = await ask("GET", "/api/console/overview", { headers: tag ? { "if-none-match": tag } : {} });
      if (began !== lookedAt) return;
      if (answer.status !== 304) {
        overview = await answer.json();
        tag = answer.headers.get("etag") ?? "";
      }
      trouble = null;
    }
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    trouble = error;
  }
  if (!isRunning || began !== lookedAt) return;
  for (const listener of listeners) listener();
  timer = setTimeout(() => void look(), (overview?.queues.length ?? 0) > LARGE ? LARGE_EVERY_MS : EVERY_MS);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) void refresh();
});

/** @param {QueueRow} row */
export function depth(row) {
  return row.ready.reduce((sum, each) => sum + each, 0);
}

/** @param {string} name */
export function queueRow(name) {
  return overview?.queues.find((each) => each.name === name) ?? null;
}
