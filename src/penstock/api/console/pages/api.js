// @ts-check
// Requests to this server. What it refuses becomes a `Refused`, which says what to do next.

/** @typedef {{title: string, status: number, code: string, detail: string, field?: string, retry_after_s?: number}} Problem */

export class Refused extends Error {
  /** @param {Problem} problem */
  constructor(problem) {
    super(problem.detail || problem.title);
    this.problem = problem;
    /** @type {string} */
    this.code = problem.code;
  }
}

/** @type {Record<string, string>} */
export const remedies = {
  offline: "Check that the server runs and that this machine reaches it. The page tries again by itself.",
  unauthorized: "Log in again with a key that is still good.",
};

const HEADERS = { "x-penstock-console": "1" };
/** @type {Set<() => void>} */
const loggedOut = new Set();

/** Call this whenever the server no longer knows who asks. @param {() => void} listener */
export function onLoggedOut(listener) {
  loggedOut.add(listener);
}

/**
 * @param {string} method
 * @param {string} path
 * @param {{body?: unknown, query?: Record<string, unknown>, headers?: Record<string, string>, signal?: AbortSignal | undefined}} [how]
 * @returns {Promise<any>}
 */
export async function call(method, path, how = {}) {
  const answer = await ask(method, path, how);
  if (answer.status === 204) return null;
  return answer.json();
}

/**
 * @param {string} method
 * @param {string} path
 * @param {{body?: unknown, query?: Record<string, unknown>, headers?: Record<string, string>, signal?: AbortSignal | undefined}} [how]
 * @returns {Promise<Response>}
 */
export async function ask(method, path, { body, query, headers, signal } = {}) {
  const said = Object.entries(query ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const where = said.length ? `${path}?${new URLSearchParams(said.map(([name, value]) => [name, String(value)]))}` : path;
  /** @type {Response} */
  let answer;
  try {
    answer = await fetch(where, {
      method,
      cache: "no-store",
      credentials: "same-origin",
      signal: signal ?? null,
      headers: { ...HEADERS, accept: "application/json", ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      body: body === undefined ? null : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused({ title: "The server does not answer", status: 0, code: "offline", detail: "The server does not answer." });
  }
  if (answer.ok || answer.status === 304) return answer;
  throw await refusal(answer);
}

/** @param {Response} answer */
async function refusal(answer) {
  /** @type {Problem} */
  let problem = { title: answer.statusText, status: answer.status, code: "unknown", detail: `The server answered ${answer.status}.` };
  try {
    problem = { ...problem, ...(await answer.json()) };
  } catch {
    // A proxy before the server may answer with a page.
  }
  if (answer.status === 401) for (const listener of loggedOut) listener();
  return new Refused(problem);
}

/** A path with a name in it. @param {TemplateStringsArray} parts @param {...string} names */
export function at(parts, ...names) {
  return parts.reduce((path, part, place) => path + encodeURIComponent(names[place - 1] ?? "") + part);
}
