// What needs attention: the log, hosts that stopped delivering, paused and slow hosts.
//
// Owns: how each is put in a sentence.
//
// Must not know: how the server finds them.

import { NONE, byId, count, el, percent, rate, replace, say, span, time } from "./text.js";

const KINDS = {
  log: ["Log", "bad"],
  failing: ["Failing", "bad"],
  paused: ["Paused", "warn"],
  slow: ["Slow", "warn"],
};

let image = "";

/** Shows the items; `link(host)` makes an element that opens a host. */
export function show(attention, now, link) {
  const { total, items } = attention;
  say(byId("attention-title"), total === 0 ? "Nothing needs attention" : `Needs attention (${count(total)})`);
  byId("attention").classList.toggle("calm", total === 0);
  byId("calm").hidden = total > 0;
  // An unchanged list keeps its nodes, and with them the focus and the position of the pointer.
  const list = byId("alerts");
  if (image !== JSON.stringify(items)) {
    image = JSON.stringify(items);
    replace(list, items.map((item) => {
      const [name, tone] = KINDS[item.kind] ?? [item.kind, "warn"];
      return el("li", {}, el("span", { class: `badge ${tone}` }, name), el("span", { class: "alert" }, sentence(item, now, link)));
    }));
  }
  list.hidden = items.length === 0;
  byId("more-alerts").hidden = total <= items.length;
  say(byId("more-alerts"), `${count(total - items.length)} more`);
}

function sentence(item, now, link) {
  if (item.kind === "log") {
    const lost = item.lost > 0 ? `${count(item.lost)} records are lost. ` : "";
    return `${lost}${item.state === "good" ? "" : item.state === "degraded" ? `The log cannot be ${item.is_followed ? "read" : "written"}: ${item.reason ?? NONE}` : "The log is closed."}`;
  }
  if (item.kind === "failing") {
    const usual = item.usual_rate === null ? "" : `, usually ${percent(item.usual_rate)}`;
    return [link(item.host), ` delivers ${count(item.delivered)} of its last ${count(item.judged)} requests (${percent(item.delivered / item.judged)}${usual}).`];
  }
  if (item.kind === "paused") {
    return [link(item.host), ...pause(item.until, item.times_paused, item.cause, now)];
  }
  return [link(item.host), ` gets ${rate(item.pace.rate)}: ${slowness(item.pace)}.`];
}

/** A pause in words, after the name of its host. */
export function pause(until, times, cause, now) {
  const at = Date.parse(until);
  return [
    " is paused for ",
    el("span", { class: "countdown", "data-until": at }, span(at - now)),
    `, until ${time(until)}`,
    cause ? `: ${cause.text} at ${time(cause.at)}` : "",
    times > 1 ? `, pause ${times} in a row.` : ".",
  ];
}

/** Why a host gets few requests. */
export function slowness(pace) {
  if (pace.crawl_delay_s !== null && 1 / pace.crawl_delay_s <= pace.rate * 1.01) return `its robots.txt asks for ${span(pace.crawl_delay_s * 1000)} between requests`;
  if (pace.fixed) return "its rate is configured";
  if (pace.lowered_reason !== null) return `lowered at ${time(pace.lowered_at)} after ${pace.lowered_reason}${pace.limit === null ? "" : `, limit met at ${rate(pace.limit)}`}`;
  if (pace.ceiling !== null) return `it allows ${rate(pace.ceiling)}${pace.window === null ? "" : ` within ${pace.window}`}`;
  return "its pace was learned";
}
