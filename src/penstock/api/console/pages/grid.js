// @ts-check
// A table of thousands of rows, of which only those in sight are elements.

import { h, put } from "./dom.js";

/** @typedef {import("./dom.js").Child} Child */
/**
 * @template R
 * @typedef {{id: string, label: string, width: string, isNumber?: boolean, isWide?: boolean, title?: string, cell: (row: R) => Child | Child[]}} Column
 */

const ROW = 44;
const SPARE = 6;

/**
 * @template R
 * @param {{label: string, columns: Column<R>[], keyOf: (row: R) => string, sort: {by: string, isDown: boolean}, onSort: (by: string) => void}} what
 */
export function grid({ label, columns, keyOf, sort, onSort }) {
  /** @type {R[]} */
  let rows = [];
  const heads = columns.map((column) => {
    const button = h("button", { type: "button", class: "sort", title: column.title, onclick: () => onSort(column.id) }, column.label);
    return h("div", { role: "columnheader", class: kindOf(column), "data-column": column.id }, button);
  });
  const head = h("div", { role: "row", class: "grid-head grid-row" }, heads);
  const body = h("div", { role: "rowgroup", class: "grid-body" });
  const element = h("div", { class: "grid", role: "table", "aria-label": label, tabindex: "0" }, h("div", { role: "rowgroup", class: "grid-top" }, head), body);
  element.style.setProperty("--columns", columns.map((column) => column.width).join(" "));
  element.style.setProperty("--narrow-columns", columns.filter((column) => !column.isWide).map((_, place) => place ? "minmax(0, 1fr)" : "minmax(0, 1.7fr)").join(" "));
  /** @type {Map<string, HTMLElement>} */
  let shown = new Map();

  /** @param {Column<R>} column */
  function kindOf(column) {
    return [column.isNumber ? "number" : "", column.isWide ? "only-wide" : ""].join(" ").trim() || null;
  }

  function range() {
    const first = Math.max(0, Math.floor(element.scrollTop / ROW) - SPARE);
    const most = Math.ceil((element.clientHeight || 600) / ROW) + 2 * SPARE;
    return { first, last: Math.min(rows.length, first + most) };
  }

  function render() {
    const { first, last } = range();
    body.style.height = `${rows.length * ROW}px`;
    element.setAttribute("aria-rowcount", String(rows.length + 1));
    /** @type {Map<string, HTMLElement>} */
    const next = new Map();
    const focused = document.activeElement?.closest?.(".grid-row")?.getAttribute("data-key");
    for (let place = first; place < last; place += 1) {
      const row = /** @type {R} */ (rows[place]);
      const key = keyOf(row);
      const line = shown.get(key) ?? h("div", { role: "row", class: "grid-row", "data-key": key });
      const cells = columns.map((column) => h("div", { role: "cell", class: kindOf(column), "data-column": column.id }, column.cell(row)));
      // A row that has the focus keeps its first cell, which is its link.
      const kept = focused === key ? line.firstElementChild : null;
      if (kept) {
        line.replaceChildren(kept, ...cells.slice(1));
      } else {
        put(line, cells);
      }
      line.style.transform = `translateY(${place * ROW}px)`;
      line.setAttribute("aria-rowindex", String(place + 2));
      next.set(key, line);
    }
    for (const [key, line] of shown) if (!next.has(key)) line.remove();
    for (const line of next.values()) if (line.parentNode !== body) body.append(line);
    shown = next;
  }

  let isWaiting = false;
  element.addEventListener("scroll", () => {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => { isWaiting = false; render(); });
  });
  element.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (!step) return;
    const here = document.activeElement?.closest?.(".grid-row")?.getAttribute("data-key");
    const place = here ? rows.findIndex((row) => keyOf(row) === here) : -1;
    const wanted = Math.max(0, Math.min(rows.length - 1, place < 0 ? 0 : place + step));
    if (!rows.length) return;
    event.preventDefault();
    const above = wanted * ROW;
    if (above < element.scrollTop) element.scrollTop = above;
    if (above + 2 * ROW > element.scrollTop + element.clientHeight) element.scrollTop = above + 2 * ROW - element.clientHeight;
    render();
    const row = rows[wanted];
    if (row !== undefined) /** @type {HTMLElement | null} */ (shown.get(keyOf(row))?.querySelector("a, button"))?.focus();
  });

  return {
    element,
    /** @param {R[]} found @param {{by: string, isDown: boolean}} order */
    set(found, order) {
      rows = found;
      heads.forEach((cell, place) => {
        const isChosen = columns[place]?.id === order.by;
        cell.setAttribute("aria-sort", isChosen ? (order.isDown ? "descending" : "ascending") : "none");
      });
      render();
    },
    visible() {
      const { first, last } = range();
      return rows.slice(first, last);
    },
    sort,
  };
}
