// The overview: cost per page, success of requests and kinds of decisions, now and over time.
//
// Owns: which figures these are and how they follow from counts.
//
// Must not know: how the server is polled.

import { Chart, grouped, widen } from "./chart.js";
import { NONE, compact, count, el, fixed, percent, replace, roughly, time } from "./text.js";

const share = (part, whole) => (whole > 0 ? part / whole : null);
const shares = (parts, wholes) => parts.map((part, at) => share(part, wholes[at]));
const sum = (values) => values.reduce((total, value) => total + value, 0);

const LENGTHS = { "15m": "15 minutes", hour: "hour", day: "day", week: "week" };

const EVENTS = { started: "Started", paused: "Paused", unpaused: "Unpaused", reloaded: "Settings read again" };

/** An event in words. */
const named = ({ event, text }) => [EVENTS[event] ?? event, text].filter(Boolean).join(": ");

/** The events as a list, the newest first: the marks in words. */
export function eventList(events) {
  return [...events].reverse().map((event) => el("li", {}, el("span", { class: "when" }, time(event.at)), ` ${named(event)}`));
}

/** The upper end of an axis: the next figure that is easy to read. */
function above(least) {
  return (max) => {
    const unit = 10 ** Math.floor(Math.log10(Math.max(max * 1.05, least)));
    const step = [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((times) => times * unit >= Math.max(max * 1.05, least));
    return [0, step * unit];
  };
}

const firstAndLast = (values, write) => {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length === 0 ? "nothing yet" : `${write(known[0])} at first, ${write(known.at(-1))} at last`;
};
const whole = (value, isTick) => (isTick ? `${Math.round(value * 100)} %` : percent(value));
const total = (series) => (values) => series.map((one, at) => `${one.name} ${count(sum(values[at] ?? []))}`).join(", ");

const MIX = [
  { name: "Learned", colour: "--learned" },
  { name: "Inferred", colour: "--inferred" },
  { name: "Probed", colour: "--probed" },
  { name: "Explored", colour: "--explored" },
  { name: "Given", colour: "--given" },
];
const CAME = [
  { name: "Delivered", colour: "--good" },
  { name: "Blocked", colour: "--bad" },
  { name: "Missing pages", colour: "--inferred" },
  { name: "Other failures", colour: "--given" },
];
/** Fetchers beyond these are shown together. */
const FETCHERS = 5;

/** A figure of an axis without superfluous zeros. */
const trimmed = (value) => String(Number(value.toFixed(2)));

export class Overview {
  /** `only` names the charts to show, in their order; without it all are shown. */
  constructor(tiles, charts, only) {
    this.tiles = tiles;
    this.cost = new Chart({
      title: "Cost per page",
      about: "Cost of each delivered page, in plain requests.",
      unit: () => "plain requests per page",
      kind: "lines",
      series: [{ name: "Cost", colour: "--c1", area: true }, { name: "Requests", colour: "--c2", dash: [5, 4] }],
      write: (value, isTick) => (isTick ? trimmed(value) : fixed(value, value >= 100 ? 0 : value >= 10 ? 1 : 2)),
      range: above(1.4),
      summary: ([cost]) => `Plain requests per page: ${firstAndLast(cost, (value) => fixed(value))}`,
    });
    this.success = new Chart({
      title: "Success and blocks",
      about: "Share of requests that delivered (without missing pages), and share that the site blocked.",
      unit: () => "share of requests",
      kind: "lines",
      series: [{ name: "Delivered", colour: "--good", area: true }, { name: "Blocked", colour: "--bad", dash: [5, 4] }],
      write: whole,
      range: () => [0, 1],
      summary: ([delivered, blocked]) => `Delivered: ${firstAndLast(delivered, percent)}. Blocked: ${firstAndLast(blocked, percent)}`,
    });
    this.mix = new Chart({
      title: "Decision mix",
      about: "How fetchers were chosen. \u201cGiven\u201d means by the router table or the caller.",
      unit: () => "share of decisions",
      kind: "shares",
      series: MIX,
      write: whole,
      summary: total(MIX),
    });
    this.velocity = new Chart({
      title: "Learning velocity",
      about: "As sites become known, learned decisions rise and probes fall.",
      unit: () => "share of decisions",
      kind: "lines",
      series: [{ name: "Learned", colour: "--learned", area: true }, { name: "Probed or explored", colour: "--probed", dash: [5, 4] }],
      write: whole,
      range: () => [0, 1],
      summary: ([learned, tried]) => `Learned: ${firstAndLast(learned, percent)}. Probed or explored: ${firstAndLast(tried, percent)}`,
    });
    this.came = new Chart({
      title: "Requests",
      about: "Number of requests, by result.",
      unit: (step) => `requests per ${step}`,
      kind: "bars",
      series: CAME,
      write: (value) => compact(Math.round(value)),
      range: above(4),
      summary: total(CAME),
    });
    this.who = new Chart({
      title: "Fetchers at work",
      about: "Shares of the requests, by fetcher.",
      unit: () => "share of requests",
      kind: "shares",
      series: [{ name: "direct_access", colour: "--c1" }],
      write: whole,
      summary: () => "",
    });
    const all = { cost: this.cost, success: this.success, mix: this.mix, velocity: this.velocity, came: this.came, who: this.who };
    charts.append(...(only ?? Object.keys(all)).map((name) => all[name].node));
  }

  show(board) {
    const of = board.series;
    const events = (board.events ?? []).map((event) => ({ at: Date.parse(event.at) / 1000, kind: event.event, name: named(event) }));
    const times = of.attempts.map((_, at) => of.start + at * of.step_s);
    const failed = of.attempts.map((all, at) => Math.max(0, all - of.delivered[at] - of.banned[at] - of.missing[at]));
    const given = of.decided.map((all, at) => all - of.learned[at] - of.inferred[at] - of.probed[at] - of.explored[at]);
    const tried = of.probed.map((probed, at) => probed + of.explored[at]);
    // Ratios of a few requests mislead, so that short periods with few are joined.
    const ratios = (chart, counts, pairs) => {
      const groups = widen(counts);
      const values = pairs.map(([part, whole]) => shares(grouped(part, groups), grouped(whole, groups)));
      chart.show(times, of.step_s, values, { groups, events, totals: pairs.map(([part, whole]) => share(sum(part), sum(whole))) });
    };
    ratios(this.cost, of.attempts, [[of.cost, of.delivered], [of.attempts, of.delivered]]);
    ratios(this.success, of.attempts, [[of.delivered, of.judged], [of.banned, of.attempts]]);
    ratios(this.velocity, of.decided, [[of.learned, of.decided], [tried, of.decided]]);
    const groups = widen(of.decided);
    this.mix.show(times, of.step_s, [of.learned, of.inferred, of.probed, of.explored, given].map((part) => grouped(part, groups)), { groups, events });
    this.came.show(times, of.step_s, [of.delivered, of.banned, of.missing, failed], { events });
    this.#fetchers(times, of, events);
    if (this.tiles) this.#tiles(of, board.range);
  }

  #fetchers(times, of, events) {
    const list = [...of.fetchers].sort((a, b) => sum(b.attempts) - sum(a.attempts));
    const most = list.slice(0, FETCHERS).sort((a, b) => a.cost - b.cost || (a.fetcher < b.fetcher ? -1 : 1));
    const series = most.map((one, at) => ({ name: one.fetcher, colour: `--c${at + 1}` }));
    const values = most.map((one) => one.attempts);
    if (list.length > FETCHERS) {
      series.push({ name: "others", colour: "--given" });
      values.push(times.map((_, at) => sum(list.slice(FETCHERS).map((one) => one.attempts[at]))));
    }
    this.who.of.summary = total(series);
    if (series.length === 0) return this.who.show(times, of.step_s, [times.map(() => 0)], { events });
    const groups = widen(of.attempts);
    this.who.show(times, of.step_s, values.map((part) => grouped(part, groups)), { series, groups, events });
  }

  #tiles(of, range) {
    const half = Math.floor(of.attempts.length / 2);
    const at = (part, whole, from, to) => share(sum(part.slice(from, to)), sum(whole.slice(from, to)));
    const figure = (part, whole) => ({ all: at(part, whole), before: at(part, whole, 0, half), after: at(part, whole, half) });
    const tiles = [
      ["Cost per page", figure(of.cost, of.delivered), (value) => fixed(value), "plain requests", false, true],
      ["Requests per page", figure(of.attempts, of.delivered), (value) => fixed(value), "", false, true],
      ["Delivered", figure(of.delivered, of.judged), percent, "of requests", true, false],
      ["Blocked", figure(of.banned, of.attempts), percent, "of requests", false, false],
      ["Learned", figure(of.learned, of.decided), percent, "of decisions", true, false],
    ];
    const pages = sum(of.delivered);
    replace(
      this.tiles,
      el("div", { class: "tile" }, el("dt", {}, "Pages"), el("dd", {}, el("span", { class: "big" }, compact(pages)), el("span", { class: "unit" }, `in the last ${LENGTHS[range] ?? "hour"}`)), el("dd", { class: "quiet" }, `${count(sum(of.attempts))} requests`)),
      tiles.map(([name, value, write, unit, up, relative]) =>
        el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, el("span", { class: "big" }, write(value.all)), unit && el("span", { class: "unit" }, unit)), el("dd", { class: "quiet" }, change(value, up, relative, roughly(half * of.step_s * 1000))))),
    );
  }
}

/** Compares the second half of the period with the first. */
function change({ before, after }, up, relative, half) {
  if (before === null || after === null) return NONE;
  const by = relative ? after / before - 1 : after - before;
  const small = Math.abs(by) < 0.005;
  const text = small ? "steady" : relative ? `${Math.abs(by * 100).toFixed(0)} %` : `${Math.abs(by * 100).toFixed(1)} points`;
  const mark = small ? "\u2192" : by > 0 ? "\u2191" : "\u2193";
  const tone = small ? "" : by > 0 === up ? "better" : "worse";
  const word = small ? "" : el("span", { class: "sr" }, by > 0 ? "up " : "down ");
  return [el("span", { class: `change ${tone}` }, el("span", { "aria-hidden": "true" }, `${mark} `), word, text), ` compared with the ${half} before`];
}

/** What a browser for every delivered page would have cost in the period of `board`, as two bars; none without a browser or a page. */
export function otherwise(board) {
  const [spent, pages] = [sum(board.series.cost), sum(board.series.delivered)];
  const browser = board.browser_request_cost === null ? 0 : pages * board.browser_request_cost;
  if (spent <= 0 || browser <= 0) return null;
  const saved = 1 - spent / browser;
  const most = Math.max(spent, browser);
  const bar = (name, value, tone) => {
    const fill = el("span", { class: `fill ${tone}` });
    fill.style.width = `${Math.max(0.5, (value / most) * 100)}%`;
    return el("div", { class: "versus" }, el("dt", {}, name), el("dd", {}, el("span", { class: "track", "aria-hidden": "true" }, fill), el("span", { class: "amount" }, `${compact(value)} plain requests`)));
  };
  return [
    el("p", { class: "saved" }, el("span", { class: `big ${saved >= 0 ? "better" : "worse"}` }, percent(Math.abs(saved))), el("span", {}, `${saved >= 0 ? "saved" : "more spent"} in the last ${LENGTHS[board.range] ?? "hour"}`)),
    el("dl", {}, bar("fetchwise", spent, "good"), bar("A browser for every page", browser, "given")),
  ];
}
