// The progress of the crawl that the server runs alongside, as one sentence at the top of the page.
//
// Owns: the sentence, and when a screen reader hears it.
//
// Must not know: how the server gets the figures.

import { byId, count, el, rate, replace, roughly, say, span, time } from "./text.js";

/** The shortest time between two sentences that a screen reader hears, unless the crawl begins to wait or to fetch again. */
const HEARD_MS = 60_000;

let heard = { at: -Infinity, phase: "" };
let image = "";

/** Shows how far the crawl is; `crawl` is null if there is none. */
export function show(crawl, now) {
  byId("crawl").hidden = crawl === null;
  if (crawl === null) return;
  // Equal figures keep the node, and with it the selection of a reader who copies the text.
  if (image !== JSON.stringify(crawl)) {
    image = JSON.stringify(crawl);
    replace(byId("crawl-text"), el("span", {}, ...parts(crawl, (end) => el("span", { class: "countdown", "data-until": end }, span(end - now)))));
  }
  const phase = isWaiting(crawl) ? "waiting" : "fetching";
  if (phase === heard.phase && Date.now() - heard.at < HEARD_MS) return;
  heard = { at: Date.now(), phase };
  say(byId("crawl-said"), parts(crawl, (end) => roughly(end - now)).join(""));
}

/** Whether the crawl has nothing to do before a pause ends. */
const isWaiting = (crawl) => crawl.paused_links > 0 && (crawl.total === null ? crawl.seconds_left === null : crawl.left <= crawl.paused_links);

/** The sentence; `rest(end)` writes the time until a pause ends. */
function parts(crawl, rest) {
  const figures = [crawl.total === null ? `${count(crawl.done)} done` : `${count(crawl.done)} of ${count(crawl.total)}`];
  if (crawl.total === null && crawl.left !== null) figures.push(`${count(crawl.left)} left in the queue`);
  if (crawl.rate !== null) figures.push(rate(crawl.rate));
  if (crawl.seconds_left !== null) figures.push(`${roughly(crawl.seconds_left * 1000)} left`);
  const begin = `Crawl: ${figures.join(", ")}`;
  if (crawl.paused_links === 0) return [begin];
  const until = `until ${time(crawl.last_pause_end)}`;
  if (!isWaiting(crawl)) return [`${begin}, then ${count(crawl.paused_links)} paused ${until}`];
  return [`${begin}, ${count(crawl.paused_links)} paused ${until}, next trial in `, rest(Date.parse(crawl.next_pause_end))];
}
