// @ts-check
// Light or dark: what the system says, unless another theme was chosen in this browser.

const KEY = "penstock-theme";
const ORDER = ["auto", "light", "dark"];

/** @returns {string} */
export function theme() {
  try {
    const kept = localStorage.getItem(KEY) ?? "auto";
    return ORDER.includes(kept) ? kept : "auto";
  } catch {
    return "auto";
  }
}

/** @param {string} chosen */
export function setTheme(chosen) {
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // A browser that keeps nothing still shows it until the page is left.
  }
  apply(chosen);
}

export function nextTheme() {
  const chosen = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length] ?? "auto";
  setTheme(chosen);
  return chosen;
}

/** @param {string} chosen */
function apply(chosen) {
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

apply(theme());
