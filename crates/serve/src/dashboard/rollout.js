// Both arms side by side: the results of learning and of the router table, with confidence intervals.
//
// Owns: how arms look.
//
// Must not know: how the server is polled.

import { NONE, count, el, fixed, percent, replace, roughly, svg, time } from "./text.js";

const WIDTH = 220;
const LEFT = 6;

const FIGURES = [
  ["success", "Visits that delivered a page", percent, true],
  ["cost_per_page", "Cost per page, in plain requests", (value) => fixed(value), false],
  ["requests_per_page", "Requests per page", (value) => fixed(value), false],
  ["ban_rate", "Blocked visits", percent, false],
  ["latency_p50_ms", "Time to a page, median", roughly, false],
  ["latency_p95_ms", "Time to a page, 95th percentile", roughly, false],
];
const NAMES = { learning: "Learning", legacy: "Router table" };

/** Draws the arms into `node`; returns whether there was anything to draw. */
export function show(node, rollout) {
  const comparison = rollout?.comparison ?? rollout;
  const arms = (comparison?.arms ?? []).filter((arm) => arm.visits > 0);
  const agreement = rollout?.agreement?.asked > 0 ? rollout.agreement : null;
  if (arms.length === 0 && agreement === null) return false;
  replace(
    node,
    fallen(rollout),
    arms.length > 0 ? el("ul", { class: "legend" }, arms.map((arm) => legend(arm))) : null,
    arms.length > 0 ? table(arms, comparison.difference) : null,
    agreement && agreed(agreement),
    worth(rollout.shadow),
    (comparison?.warnings ?? []).map((warning) => el("p", { class: "quiet" }, warning)),
  );
  return true;
}

const shade = (arm) => (arm.arm === "learning" ? "c1" : "c2");
const name = (arm) => NAMES[arm.arm] ?? arm.arm;

function legend(arm) {
  const share = arm.share_of_visits === null ? "" : ` (${percent(arm.share_of_visits)})`;
  return el("li", {}, el("span", { class: `swatch ${shade(arm)}`, "aria-hidden": "true" }), el("span", { class: "name" }, name(arm)), el("span", { class: "value" }, `${count(arm.visits)} visits${share}, ${count(arm.hosts)} hosts`));
}

function fallen(rollout) {
  const back = rollout?.fallen_back;
  if (!back) return null;
  const since = back.at ? ` since ${time(back.at)}` : "";
  return el("p", { class: "error" }, `Learning is off${since}, and the router table serves all visits: ${back.reason ?? back}`);
}

/** The estimated value of learning on visits that the table served. */
function worth(of) {
  if (!of) return null;
  const figure = (one) => `${fixed(one.value)} (${fixed(one.ci_low)} to ${fixed(one.ci_high)})`;
  return el("section", {},
    el("h3", {}, "Estimated value of learning"),
    el("p", {}, `Over ${count(of.visits)} visits that the table served, in plain requests per visit: the table reached ${figure(of.table)}, learning would have reached ${figure(of.learning)}, a gain of ${figure(of.gain)}.`),
    (of.warnings ?? []).map((warning) => el("p", { class: "quiet" }, warning)));
}

function interval(figure, write) {
  if (figure?.value === null || figure?.value === undefined) return NONE;
  const range = figure.ci_low === null ? null : el("span", { class: "quiet" }, ` ${write(figure.ci_low)} to ${write(figure.ci_high)}`);
  return [el("strong", {}, write(figure.value)), range];
}

function table(arms, difference) {
  const head = ["Figure", ...arms.map(name), ...(difference ? ["Difference"] : []), "95 % intervals"];
  const rows = FIGURES.map(([key, title, write, up]) => {
    const apart = difference?.[key];
    const sure = apart && apart.ci_low !== null && (apart.ci_low > 0 || apart.ci_high < 0);
    const tone = sure ? (apart.value > 0 === up ? "better" : "worse") : "";
    return el("tr", {},
      el("th", { scope: "row" }, title),
      arms.map((arm) => el("td", {}, interval(arm[key], write))),
      difference ? el("td", { class: tone || undefined }, signed(apart, write), el("span", { class: "quiet" }, sure ? "" : " not significant")) : null,
      el("td", {}, whiskers(arms.map((arm) => [shade(arm), arm[key]]), title)));
  });
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Both arms side by side" },
    el("table", {}, el("caption", { class: "sr" }, "Both arms side by side, with 95 % intervals"), el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows)));
}

function signed(figure, write) {
  if (figure?.value === null || figure?.value === undefined) return NONE;
  return `${figure.value > 0 ? "+" : figure.value < 0 ? "\u2212" : ""}${write(Math.abs(figure.value))}`;
}

/** Both figures and their intervals on one scale. */
function whiskers(figures, title) {
  const known = figures.filter(([, figure]) => figure?.value !== null && figure?.value !== undefined);
  const ends = known.flatMap(([, figure]) => [figure.ci_low ?? figure.value, figure.ci_high ?? figure.value]);
  if (ends.length === 0) return NONE;
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const x = (value) => LEFT + ((value - least) / (most - least || 1)) * (WIDTH - 2 * LEFT);
  return svg("svg", { class: "whiskers", viewBox: `0 0 ${WIDTH} 26`, width: WIDTH, height: 26, role: "img", "aria-label": `${title}: the intervals of the cells before, as a drawing` },
    known.map(([colour, figure], at) => {
      const y = 7 + at * 12;
      return svg("g", { class: colour },
        figure.ci_low === null ? null : svg("line", { x1: x(figure.ci_low), x2: x(figure.ci_high), y1: y, y2: y }),
        svg("circle", { cx: x(figure.value), cy: y, r: 4 }));
    }));
}

function agreed(of) {
  const pairs = (of.pairs ?? []).slice(0, 8).map((pair) => el("li", {}, `The table takes ${pair.table}, learning ${pair.learning}: ${count(pair.visits)} visits, first requests ${pair.first_cost > 0 ? "more expensive" : "cheaper"} by ${fixed(Math.abs(pair.first_cost), 1)} in total.`));
  return el("section", {},
    el("h3", {}, "Visits on which both arms decided"),
    el("p", {}, `They named the same fetcher in ${percent(of.agreed_share)} of ${count(of.asked)} visits. A first request costs ${fixed(of.first_cost_table)} by the table and ${fixed(of.first_cost_learning)} by learning.`),
    el("ul", { class: "lines" }, pairs));
}
