// @ts-check
// The frame around all pages: who is logged in, where one can go, which page an address is, what keys do.

import { onLoggedOut, Refused } from "./api.js";
import { auditPage } from "./audit.js";
import { h, put, say, svg } from "./dom.js";
import { historyPage } from "./history.js";
import { keysPage } from "./keys.js";
import { follow, overview, start, stop, trouble } from "./live.js";
import { loginForm } from "./login.js";
import { messagePage } from "./message.js";
import { overviewPage } from "./overview.js";
import { closeDialogs, empty, errorBox, notice, tellError, wordsOf } from "./parts.js";
import { queuePage } from "./queue.js";
import { can, logout, open, session } from "./session.js";
import { shortcuts } from "./shortcuts.js";
import { groupPage, streamsPage } from "./streams.js";
import { nextTheme, theme } from "./theme.js";
import { topicPage } from "./topic.js";

/** @typedef {{parts: string[], query: URLSearchParams, signal: AbortSignal, go: (to: string) => void, setQuery: (values: Record<string, string>) => void, reload: () => void}} Place */
/** @typedef {{title: string, element: HTMLElement}} Page */

const NAVIGATION = [
  { label: "Queues", to: "#/", icon: "M3 5h14M3 10h14M3 15h14", key: "q" },
  { label: "Streams", to: "#/streams", icon: "M2 6c3-3 5 3 8 0s5 3 8 0M2 13c3-3 5 3 8 0s5 3 8 0", key: "t" },
  { label: "History", to: "#/history", icon: "M10 3a7 7 0 1 0 0 14a7 7 0 1 0 0-14M10 6v4l3 2", key: "h" },
  { label: "Audit", to: "#/audit", icon: "M4 16l1-4L14 3l3 3l-9 9zM12 5l3 3", key: "a" },
  { label: "Keys", to: "#/keys", icon: "M7 9a4 4 0 1 0 0 8a4 4 0 1 0 0-8M10 10l7-7M14 6l3 3", key: "k" },
];

/** @type {[string, (place: Place) => Page | Promise<Page>][]} */
const PAGES = [
  ["", overviewPage],
  ["queues/*/messages/*", messagePage],
  ["queues/*", queuePage],
  ["queues/*/*", queuePage],
  ["streams", streamsPage],
  ["topics/*", topicPage],
  ["topics/*/*", topicPage],
  ["groups/*", groupPage],
  ["history", historyPage],
  ["audit", auditPage],
  ["keys", keysPage],
];

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
const main = h("main", { id: "main", tabindex: "-1" });
const pulse = h("span", { class: "pulse", role: "status" });
const who = h("span", { class: "who" });
let leaving = new AbortController();
/** @type {string | null} */
let shownAddress = null;

async function begin() {
  try {
    await open();
    frame();
  } catch (error) {
    if (error instanceof Refused && error.problem.status === 401) showLogin();
    else put(app, h("div", { class: "alone" }, errorBox(error), h("button", { type: "button", onclick: () => void begin() }, "Try again")));
  }
}

function showLogin() {
  leaving.abort();
  stop();
  closeDialogs();
  document.title = "Log in · Penstock";
  put(app, loginForm(() => frame()));
  app.querySelector("input")?.focus();
}

onLoggedOut(() => {
  if (session) {
    notice("The session has ended: it lasts for some hours, and ends when its key does. Log in again.", { isBad: true });
    showLogin();
  }
});

function frame() {
  const links = NAVIGATION.map(({ label, to, icon, key }) =>
    h("a", { href: to, "data-nav": to, title: `g then ${key}` }, svg("svg", { class: "icon", viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true" }, svg("path", { d: icon })), label));
  const themeButton = h("button", { type: "button", class: "quiet-button", "data-action": "Theme", title: "Light, dark, or as the system says" }, themeLabel(theme()));
  themeButton.addEventListener("click", () => say(themeButton, themeLabel(nextTheme())));
  put(who, session.is_open ? null : [h("bdi", null, session.name), " ", h("button", {
    type: "button", class: "quiet-button", onclick: async () => {
      try {
        await logout();
        showLogin();
      } catch (error) {
        tellError(error);
      }
    },
  }, "Log out")]);
  put(app,
    h("header", { class: "top" },
      h("a", { class: "mark", href: "#/" }, h("img", { src: "/console/icon.svg", alt: "", width: 26, height: 26 }), "Penstock"),
      h("nav", { class: "main-nav", "aria-label": "Main" }, links),
      h("div", { class: "tools" }, pulse, who, themeButton,
        h("button", { type: "button", class: "quiet-button", "aria-label": "Help", title: "?", onclick: () => shortcuts.help() }, "?"))),
    main,
    h("footer", null, h("span", null, `Penstock ${session.version}`), h("a", { href: "/docs" }, "API"), h("a", { href: "/metrics" }, "Metrics"),
      h("span", { class: "only-wide" }, "Press ", h("kbd", null, "?"), " for all keys.")));
  start();
  follow(tellPulse, new AbortController().signal);
  shownAddress = null;
  void show();
}

/** @param {string} chosen */
function themeLabel(chosen) {
  return { auto: "Auto", light: "Light", dark: "Dark" }[chosen] ?? chosen;
}

function tellPulse() {
  const text = trouble ? wordsOf(trouble) : overview ? "Live" : "";
  pulse.className = trouble ? "pulse bad" : "pulse";
  say(pulse, trouble ? "No answer" : text);
  pulse.title = text;
}

/** @returns {{parts: string[], query: URLSearchParams}} */
function address() {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { parts, query: new URLSearchParams(query) };
}

async function show() {
  if (!session || location.hash === shownAddress) return;
  const before = shownAddress;
  shownAddress = location.hash;
  leaving.abort();
  leaving = new AbortController();
  const signal = leaving.signal;
  closeDialogs();
  const { parts, query } = address();
  for (const link of app.querySelectorAll("[data-nav]")) {
    const to = link.getAttribute("data-nav") ?? "";
    const isHere = to === "#/" ? !parts.length || parts[0] === "queues" : to === `#/${parts[0]}` || (to === "#/streams" && ["topics", "groups"].includes(parts[0] ?? ""));
    link.toggleAttribute("aria-current", isHere);
    if (isHere) link.setAttribute("aria-current", "page");
  }
  const make = PAGES.find(([pattern]) => fits(pattern, parts))?.[1];
  /** @type {Place} */
  const place = {
    parts, query, signal, go: (to) => { location.hash = to; },
    setQuery: (values) => {
      for (const [name, value] of Object.entries(values)) value ? query.set(name, value) : query.delete(name);
      const path = location.hash.split("?")[0] || "#/";
      history.replaceState(null, "", query.size ? `${path}?${query}` : path);
      shownAddress = location.hash;
    },
    reload: () => { shownAddress = null; void show(); },
  };
  /** @type {Page} */
  let page;
  try {
    page = make ? await make(place) : { title: "Not found", element: empty("There is no such page", "The address may be from another version. ", h("a", { href: "#/" }, "Go to the queues"), ".") };
  } catch (error) {
    if (signal.aborted) return;
    page = { title: "Something went wrong", element: h("div", null, errorBox(error), h("p", null, h("a", { href: "#/" }, "Go to the queues"))) };
  }
  if (signal.aborted) return;
  document.title = `${page.title} · Penstock`;
  put(main, page.element);
  main.dataset.page = location.hash;
  if (before) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

/** @param {string} pattern @param {string[]} parts */
function fits(pattern, parts) {
  const wanted = pattern.split("/").filter(Boolean);
  return wanted.length === parts.length && wanted.every((each, place) => each === "*" || each === parts[place]);
}

window.addEventListener("hashchange", () => void show());
shortcuts.start({ go: (to) => { location.hash = to; }, navigation: NAVIGATION, theme: () => /** @type {HTMLElement | null} */ (app.querySelector("[data-action=Theme]"))?.click(), isReady: () => Boolean(session) && can("see", "*") !== undefined });
void begin();
