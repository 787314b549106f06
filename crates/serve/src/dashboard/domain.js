// One domain: its figures over time, its attempts and links, its pause and pace, and why it gets the fetcher it gets.
//
// Owns: what of a domain is shown, and in which order.
//
// Must not know: how the server is polled, and how an explanation looks.

import { pause, slowness } from "./attention.js";
import { Overview } from "./overview.js";
import { Table } from "./table.js";
import { NONE, byId, compact, count, el, fixed, percent, rate, replace, roughly, say, time } from "./text.js";

/** The number of attempts at first, and the most that the server returns. */
const [PAGE, MOST] = [20, 1000];
const OUTCOMES = { "": "All outcomes", content: "Content", failed: "Failed", blocked: "Blocked" };

/** The outcome of an attempt, in a word. Other sites show a default page as well, so it is no evidence. */
function outcomeOf({ success, error_type, heuristics }) {
  if (!success) return error_type ?? "failed";
  return heuristics?.some(({ type, value }) => type === "same_page_other_sites" && value === "default_page") ? "default page" : "content";
}

export class DomainView {
  constructor({ refresh, unpause, explain }) {
    Object.assign(this, { refresh, explain, limit: PAGE, outcome: "", name: "" });
    this.overview = new Overview(null, byId("domain-charts"), ["came", "success", "cost", "who"]);
    this.attempts = new Table({
      title: "Attempts",
      by: "none",
      order: "desc",
      remote: refresh,
      brief: true,
      empty: "No attempt matches.",
      columns: [
        { key: "at", name: "Time", brief: ["e"], cell: (row) => time(row.attempted_at, { seconds: true }) },
        { key: "outcome", name: "Outcome", brief: ["b"], cell: (row) => el("span", { class: row.success ? "better" : row.is_banned ? "worse" : "" }, outcomeOf(row)) },
        { key: "status", name: "Status", num: true, cell: (row) => (row.http_status === null ? NONE : String(row.http_status)) },
        { key: "fetcher", name: "Fetcher", brief: ["c"], cell: (row) => el("bdi", {}, row.fetcher) },
        { key: "took", name: "Took", brief: ["d"], num: true, cell: (row) => roughly(row.duration_ms) },
        { key: "url", name: "URL", brief: ["a"], class: "url", cell: (row) => el("button", { type: "button", class: "link", "data-key": `url ${row.id}`, title: "Explain this URL", on: { click: () => explain(row.url) } }, el("bdi", {}, row.url)) },
      ],
    });
    // The server's pages decide how many there are.
    this.attempts.shown = MOST;
    this.more = el("button", { type: "button", class: "more", hidden: true, on: { click: () => this.#more() } }, "Show more");
    this.select = el("select", { "aria-label": "Outcome", on: { change: () => this.#filter() } }, Object.entries(OUTCOMES).map(([value, name]) => el("option", { value }, name)));
    replace(byId("domain-attempts"), el("div", { class: "bar" }, el("h3", {}, "Attempts"), this.select), this.attempts.nodes, this.more);
    this.links = new Table({
      title: "Links at risk",
      by: "risk",
      order: "desc",
      text: (row) => row.link,
      empty: "No link is paused, and no last attempt failed.",
      columns: [
        { key: "link", name: "Link", class: "url", value: (row) => row.link, cell: (row) => el("bdi", {}, row.link) },
        { key: "reason", name: "Reason", value: (row) => row.reason, cell: (row) => row.reason },
        { key: "risk", name: "Attempts", num: true, value: (row) => row.attempts, cell: (row) => count(row.attempts) },
        { key: "until", name: "Paused until", num: true, value: (row) => row.paused_until && Date.parse(row.paused_until), cell: (row) => (row.paused_until === null ? NONE : time(row.paused_until)) },
      ],
    });
    replace(byId("domain-links"), el("h3", {}, "Links at risk"), this.links.nodes);
    this.unpause = el("button", { type: "button", hidden: true, on: { click: () => unpause(this.name) } }, "Unpause");
  }

  /** Opens a domain; its figures follow with the next response. */
  open(name) {
    if (name === this.name) return;
    Object.assign(this, { name, limit: PAGE, outcome: "", explained: null });
    this.select.value = "";
    say(byId("domain-title"), name);
    say(byId("domain-error"), "");
    replace(byId("domain-facts"));
    replace(byId("domain-state"));
    replace(byId("domain-explained"));
    byId("domain-body").hidden = true;
  }

  /** The query parameters for the attempts. */
  query() {
    return { domain: this.name, outcome: this.outcome, limit: this.limit };
  }

  fail(text) {
    say(byId("domain-error"), text);
  }

  show(board, page, links, now, readOnly) {
    byId("domain-body").hidden = false;
    say(byId("domain-error"), "");
    const { row, host, series } = board;
    const facts = [
      ["Fetcher", row.fetcher ?? NONE, row.fetcher === null ? "no page was delivered yet" : "delivered the newest page"],
      ["Pages", compact(row.delivered), `${count(row.attempts)} requests, ${count(board.recent)} in the last 10 min`],
      ["Cost", compact(row.cost), "plain requests"],
      ["Cost per page", fixed(row.cost_per_page), row.saved === null ? "" : `${percent(Math.abs(row.saved))} ${row.saved >= 0 ? "less" : "more"} than a browser for each page`],
      ["Delivered", percent(row.success_rate), `${count(row.missing)} missing pages left out`],
      ["Blocked", percent(row.ban_rate), `${count(row.banned)} requests`],
    ];
    replace(byId("domain-facts"), facts.map(([name, value, about]) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, el("span", { class: name === "Fetcher" ? "big name" : "big" }, value)), el("dd", { class: "quiet" }, about))));
    this.#state(host, board.cause, now, readOnly);
    this.overview.show({ series, range: board.range });
    this.attempts.show(page.attempts);
    this.more.hidden = page.next === null || this.limit >= MOST;
    this.links.show(links);
    const url = page.attempts[0]?.url ?? `https://${this.name}/`;
    if (this.explained !== this.name && this.outcome === "") {
      this.explained = this.name;
      this.explain(url, byId("domain-explained"));
    }
  }

  #state(host, cause, now, readOnly) {
    const lines = [];
    if (host.paused_until !== null) lines.push(el("p", { class: "paused" }, el("bdi", {}, host.host), ...pause(host.paused_until, host.times_paused, cause, now), " ", this.unpause));
    if (host.pace !== null) {
      const of = host.pace;
      const noise = of.error_noise === null ? "" : ` It fails ${percent(of.error_noise)} of requests at any rate.`;
      const limit = of.rate < 1 ? ` (${slowness(of)})` : of.limit === null ? "; no limit met so far" : `; a limit was met at ${rate(of.limit)}`;
      lines.push(el("p", {}, `Pace: ${rate(of.rate)}, ${of.parallel} in parallel${limit}${of.latency_s === null ? "" : `; it responds in ${roughly(of.latency_s * 1000)}`}.${noise}`));
    }
    this.unpause.hidden = readOnly;
    replace(byId("domain-state"), lines);
  }

  #filter() {
    Object.assign(this, { outcome: this.select.value, limit: PAGE });
    this.refresh();
  }

  #more() {
    this.limit = Math.min(MOST, this.limit + 4 * PAGE);
    this.refresh();
  }
}
