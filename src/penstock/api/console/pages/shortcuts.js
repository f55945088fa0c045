// @ts-check
// What keys do. Nothing here is the only way to do something.

import { h } from "./dom.js";
import { dialog } from "./parts.js";

/** @typedef {{go: (to: string) => void, navigation: {label: string, to: string, key: string}[], theme: () => void, isReady: () => boolean}} Ways */

/** @type {Ways | null} */
let ways = null;
let hasGone = false;

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  if (!ways?.isReady() || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && isTyping(event.target)) {
    /** @type {HTMLElement} */ (event.target).blur();
    return;
  }
  if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
  if (hasGone) {
    hasGone = false;
    const chosen = ways.navigation.find((each) => each.key === event.key);
    if (chosen) {
      event.preventDefault();
      ways.go(chosen.to);
    }
    return;
  }
  if (event.key === "g") {
    hasGone = true;
    setTimeout(() => { hasGone = false; }, 1500);
  } else if (event.key === "/") {
    event.preventDefault();
    const search = /** @type {HTMLInputElement | null} */ (document.querySelector("main input[type=search]"));
    if (search) {
      search.focus();
      search.select();
    } else {
      ways.go("#/?focus=search");
    }
  } else if (event.key === "?") {
    event.preventDefault();
    shortcuts.help();
  } else if (event.key === "u") {
    const above = [.../** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll(".trail a"))].at(-1);
    above?.click();
  } else if (event.key === "\\") {
    ways.theme();
  }
}

export const shortcuts = {
  /** @param {Ways} found */
  start(found) {
    ways = found;
    document.addEventListener("keydown", onKey);
  },
  help() {
    const keys = [
      ["/", "Search"], ["?", "This help"], ["u", "Up: to the page above this one"], ["\\", "Light, dark, or as the system"],
      ...(ways?.navigation ?? []).map(({ key, label }) => [`g ${key}`, `Go to ${label}`]),
      ["↑ ↓", "In a list of queues: from row to row"], ["← →", "In a chart: from point to point"],
      ["Enter", "Open what has the focus"], ["Esc", "Leave a field, close a dialog"],
    ];
    dialog({
      title: "Keys and words",
      isWide: true,
      body: [
        h("dl", { class: "keys" }, keys.map(([key = "", what]) => [h("dt", null, key.split(" ").map((each) => h("kbd", null, each))), h("dd", null, what)]).flat()),
        h("h3", null, "Words"),
        h("dl", { class: "words" },
          h("dt", null, "Ready"), h("dd", null, "Can be received now."),
          h("dt", null, "In flight"), h("dd", null, "A consumer has it, until it acks or releases it, or its lease ends."),
          h("dt", null, "Delayed"), h("dd", null, "Waits for its time: sent for later, or resting after a failure."),
          h("dt", null, "Stuck"), h("dd", null, "Has no deliveries left, and its dead-letter queue is full."),
          h("dt", null, "Dead letter"), h("dd", null, "Failed as often as it may. It stays until it is sent back or purged."),
          h("dt", null, "Tier"), h("dd", null, "How urgent it is: critical, high, normal, low or background."),
          h("dt", null, "Lag"), h("dd", null, "Records of a topic that a consumer group has not read yet.")),
        h("p", { class: "faint" }, "Every page has an address of its own: share a link, and others see the same."),
      ],
    });
  },
};
