// @ts-check
// Numbers as people read them, always with their unit.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** @param {number | null | undefined} value */
export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

/** A count that fits in a narrow place: 12,345 stays, 1,234,567 becomes 1.2M. @param {number | null | undefined} value */
export function brief(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 100_000 ? whole.format(value) : short.format(value);
}

/** @param {number} value @param {string} one @param {string} [many] */
export function counted(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** @param {number | null | undefined} value */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0/s";
  return value < 10 ? `${value.toFixed(1)}/s` : `${brief(Math.round(value))}/s`;
}

/** @param {number | null | undefined} seconds */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.0005) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${oneDigit(seconds / 60)} min`;
  if (seconds < 172_800) return `${oneDigit(seconds / 3600)} h`;
  return `${oneDigit(seconds / 86_400)} d`;
}

/** A digit after the point where it tells something. @param {number} value */
function oneDigit(value) {
  return value < 10 && value % 1 ? value.toFixed(1).replace(/\.0$/, "") : String(Math.round(value));
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let left = value;
  for (const unit of ["bytes", "KiB", "MiB", "GiB"]) {
    if (left < 1023.95) return `${unit === "bytes" ? whole.format(left) : left.toFixed(1)} ${unit}`;
    left /= 1024;
  }
  return `${left.toFixed(1)} TiB`;
}

/** The time of day, with the date if it is another day. @param {string | number | null | undefined} at */
export function clock(at) {
  if (!at) return "–";
  const when = new Date(at);
  const time = when.toLocaleTimeString("en-GB");
  return when.toDateString() === new Date().toDateString() ? time : `${isoDay(when)} ${time}`;
}

/** @param {Date} when */
function isoDay(when) {
  return `${when.getFullYear()}-${String(when.getMonth() + 1).padStart(2, "0")}-${String(when.getDate()).padStart(2, "0")}`;
}

/** How long ago an instant is, or in how long it will be. @param {string | number | null | undefined} at @param {number} [now] */
export function ago(at, now = Date.now()) {
  if (!at) return "–";
  const seconds = (now - new Date(at).getTime()) / 1000;
  return seconds >= 0 ? `${span(Math.max(seconds, 0))} ago` : `in ${span(-seconds)}`;
}

/** What `<input type="datetime-local">` says, as an instant. @param {string} text */
export function instant(text) {
  return text ? new Date(text).toISOString() : "";
}

/** An argument of a shell. @param {string} text */
export function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
