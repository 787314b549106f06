// Text on the page: elements, and how figures, times and names are written.
//
// Owns: the only way for text to reach the page. `el` and `svg` make elements, and every string becomes a text node
// after `plain`.
//
// Invariant: no code of the page reads markup from a string.
//
// Must not know: where data comes from.

const CONTROL = /[\u0000-\u001f\u007f-\u009f]/gu;
const DECEPTIVE =
  /[\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** `text` as the terminal shows it: without control characters; invisible characters and those that reverse text are escaped. */
export function plain(text) {
  return String(text)
    .replace(CONTROL, "\ufffd")
    .replace(DECEPTIVE, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else {
      node.setAttribute(name, value === true ? "" : plain(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(plain(child)));
  }
  return node;
}

/** An element; strings among the children become text. `on` has its listeners. */
export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in a drawing. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** The element with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Replaces the children of `node`. The focus stays if an element with the same `data-key` is among the new children. */
export function replace(node, ...children) {
  const held = node.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  node.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (held === undefined) return;
  for (const candidate of node.querySelectorAll("[data-key]")) {
    if (candidate.dataset.key === held) return candidate.focus({ preventScroll: true });
  }
}

/** Sets an element's text if it differs. */
export function say(node, text) {
  const shown = plain(text);
  if (node.textContent !== shown) node.textContent = shown;
}

export const NONE = "\u2013";
const MINUS = "\u2212";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

const is = (value) => typeof value === "number" && Number.isFinite(value);

/** A count, with separators. */
export const count = (value) => (is(value) ? whole.format(value) : NONE);

/** A count in compact form: 12.3K. */
export const compact = (value) => (is(value) ? (value < 10000 ? whole.format(value) : short.format(value)) : NONE);

/** A share as a percentage. */
export function percent(share) {
  if (!is(share)) return NONE;
  const value = share * 100;
  return `${value > 0 && value < 0.05 ? "<0.1" : value.toFixed(value === 0 || value === 100 ? 0 : 1)} %`;
}

/** A figure with `digits` decimals. */
export const fixed = (value, digits = 2) => (is(value) ? value.toFixed(digits).replace("-", MINUS) : NONE);

/** A rate that no host reaches: there is no limit. */
const NO_LIMIT = 5000;
const trimmed = (value) => (value >= 10 ? value.toFixed(0) : String(Number(value.toFixed(1))));

/** Requests per second; rare ones per minute or hour. */
export function rate(value) {
  if (!is(value)) return NONE;
  if (value >= NO_LIMIT) return "no limit";
  if (value >= 0.5) return `${trimmed(value)}/s`;
  return value * 60 >= 1 ? `${trimmed(value * 60)}/min` : `${trimmed(value * 3600)}/h`;
}

/** Bytes in the largest unit that leaves a whole part. */
export function bytes(value) {
  if (!is(value)) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

/** A duration, in its two largest units at most. */
export function span(ms) {
  if (!is(ms)) return NONE;
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(s / 86400)} days`;
}

/** A duration in one unit. */
export function roughly(ms) {
  if (!is(ms)) return NONE;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.round(ms / 1000);
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const hours = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const days = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });

/** A time of day in the reader's zone, with the date unless it is today. */
export function time(at, { seconds = false } = {}) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return NONE;
  const text = (seconds ? clock : hours).format(date);
  return date.toDateString() === new Date().toDateString() ? text : `${days.format(date)}, ${text}`;
}

/** A date in the reader's zone. */
export const day = (at) => days.format(new Date(at));

/** The time since `at`, as text. */
export function ago(at, now) {
  const ms = now - Date.parse(at);
  return is(ms) ? (ms < 2000 ? "just now" : `${roughly(ms)} ago`) : NONE;
}
