// @ts-check
// Charts in SVG: stacked areas, lines and small ones for a table. Each can be read by keyboard: its values are told.

import { h, put, svg } from "./dom.js";
import { clock } from "./units.js";

/** @typedef {{label: string, kind: string, values: (number | null)[]}} Series */

const HEIGHT = 180;
const LEFT = 56;
const BOTTOM = 22;
const TOP = 8;

/**
 * A chart over time that is drawn again by `draw`.
 * @param {string} title
 * @param {{isStacked?: boolean, format: (value: number | null) => string, empty?: string}} how
 */
export function chart(title, { isStacked = false, format, empty = "Nothing yet: points come every 10 seconds." }) {
  const readout = h("p", { class: "readout", "aria-live": "off" });
  const legend = h("ul", { class: "legend" });
  const plot = h("div", { class: "plot", tabindex: "0", role: "img", "aria-label": `${title}. Use the arrow keys to read single points.` });
  const element = h("figure", { class: "chart" }, h("figcaption", null, title), plot, readout, legend);
  /** @type {Series[]} */
  let series = [];
  /** @type {number[]} */
  let times = [];
  let cursor = -1;

  function width() {
    return Math.max(260, plot.clientWidth || 560);
  }

  function render() {
    put(legend, series.map((each) => h("li", null, h("i", { class: `swatch ${each.kind}` }), each.label)));
    if (times.length < 2) {
      put(plot, h("p", { class: "faint" }, empty));
      return;
    }
    put(plot, drawing(width(), times, series, { isStacked, format, cursor, title }));
    tell();
  }

  function tell() {
    const place = cursor < 0 ? times.length - 1 : Math.min(cursor, times.length - 1);
    const values = series.map((each) => `${each.label} ${format(each.values[place] ?? null)}`).join(" · ");
    put(readout, h("strong", null, clock(times[place])), " ", values);
  }

  /** @param {number} x */
  function move(x) {
    const inside = width() - LEFT - 8;
    cursor = Math.max(0, Math.min(times.length - 1, Math.round(((x - LEFT) / inside) * (times.length - 1))));
    render();
  }

  plot.addEventListener("pointermove", (event) => { if (times.length > 1) move(event.clientX - plot.getBoundingClientRect().left); });
  plot.addEventListener("pointerleave", () => { cursor = -1; if (times.length > 1) render(); });
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || times.length < 2) return;
    event.preventDefault();
    cursor = Math.max(0, Math.min(times.length - 1, (cursor < 0 ? times.length - 1 : cursor) + step));
    readout.setAttribute("aria-live", "polite");
    render();
  });

  return {
    element,
    /** @param {number[]} at @param {Series[]} drawn */
    draw(at, drawn) {
      times = at;
      series = drawn;
      render();
    },
  };
}

/**
 * @param {number} width
 * @param {number[]} times
 * @param {Series[]} series
 * @param {{isStacked: boolean, format: (value: number | null) => string, cursor: number, title: string}} how
 */
function drawing(width, times, series, { isStacked, format, cursor, title }) {
  const sums = times.map((_, place) => series.reduce((sum, each) => sum + (each.values[place] ?? 0), 0));
  const highest = isStacked ? Math.max(...sums) : Math.max(...series.flatMap((each) => each.values.map((value) => value ?? 0)));
  const top = ceiling(highest);
  const x = (/** @type {number} */ place) => LEFT + (place / (times.length - 1)) * (width - LEFT - 8);
  const y = (/** @type {number} */ value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const root = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" }, svg("title", null, title));
  for (const part of [0, 0.5, 1]) {
    root.append(svg("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(top * part), y2: y(top * part) }));
    root.append(svg("text", { class: "axis", x: LEFT - 6, y: y(top * part) + 4, "text-anchor": "end" }, format(top * part)));
  }
  for (const place of [0, times.length - 1]) {
    root.append(svg("text", { class: "axis", x: x(place), y: HEIGHT - 6, "text-anchor": place ? "end" : "start" }, clock(times[place])));
  }
  if (isStacked) {
    let below = times.map(() => 0);
    for (const each of [...series].reverse()) {
      const above = below.map((value, place) => value + (each.values[place] ?? 0));
      const upper = above.map((value, place) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`);
      const lower = below.map((value, place) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`).reverse();
      root.append(svg("polygon", { class: `area ${each.kind}`, points: [...upper, ...lower].join(" ") }));
      below = above;
    }
  } else {
    for (const each of series) root.append(svg("path", { class: `line ${each.kind}`, d: path(each.values, x, y) }));
  }
  if (cursor >= 0) root.append(svg("line", { class: "cursor", x1: x(cursor), x2: x(cursor), y1: TOP, y2: HEIGHT - BOTTOM }));
  return root;
}

/** A path that has a gap where there is no value. @param {(number | null)[]} values @param {(place: number) => number} x @param {(value: number) => number} y */
function path(values, x, y) {
  let isDown = false;
  return values.map((value, place) => {
    if (value === null) { isDown = false; return ""; }
    const step = `${isDown ? "L" : "M"}${x(place).toFixed(1)} ${y(value).toFixed(1)}`;
    isDown = true;
    return step;
  }).join("");
}

/** The next round number. @param {number} value */
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value) ?? value;
}

/** A chart as large as a word. @param {(number | null)[][]} lines @param {string[]} kinds @param {string} label */
export function spark(lines, kinds, label) {
  const width = 96;
  const height = 24;
  const top = Math.max(1e-9, ...lines.flat().map((value) => value ?? 0));
  const root = svg("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, svg("title", null, label));
  lines.forEach((values, place) => {
    const step = width / Math.max(1, values.length - 1);
    root.append(svg("path", { class: `line ${kinds[place]}`, d: path(values, (at) => at * step, (value) => height - 2 - (value / top) * (height - 4)) }));
  });
  return root;
}

/** Bars over time. @param {number[]} values @param {string} label */
export function bars(values, label) {
  const width = 150;
  const height = 32;
  const top = Math.max(1, ...values);
  const step = width / values.length;
  const root = svg("svg", { class: "bars", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, svg("title", null, label));
  values.forEach((value, place) => {
    const tall = value ? Math.max(2, (value / top) * height) : 0;
    root.append(svg("rect", { x: place * step, y: height - tall, width: Math.max(1, step - 1), height: tall }));
  });
  return root;
}

/** How a depth is made of tiers, as one bar. @param {number[]} parts @param {number} [most] */
export function tierBar(parts, most) {
  const total = parts.reduce((sum, each) => sum + each, 0);
  const scale = Math.max(1, most ?? total);
  const root = svg("svg", { class: "tier-bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
  let left = 0;
  parts.forEach((part, place) => {
    const width = (part / scale) * 100;
    if (width) root.append(svg("rect", { class: `fill t${place}`, x: left, y: 0, width, height: 8 }));
    left += width;
  });
  return root;
}
