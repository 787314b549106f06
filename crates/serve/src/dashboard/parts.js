// The parts below the overview: hosts, rollout, domains, fetchers, heuristics, log, fleet.
//
// Owns: their columns.
//
// Must not know: how the server is polled.

import { FleetPart } from "./fleet.js";
import * as rollout from "./rollout.js";
import { Table, meter } from "./table.js";
import { NONE, ago, byId, bytes, count, el, fixed, percent, rate, replace, roughly, say, span, time } from "./text.js";

const word = (text) => el("bdi", {}, text);

export class Parts {
  /** `host(name)` makes an element that opens a host or domain. */
  constructor({ refresh, unpause, host }) {
    this.unpause = unpause;
    this.domains = new Table({
      title: "Domains",
      search: "Search domains",
      by: "attempts",
      order: "desc",
      remote: refresh,
      brief: true,
      empty: "No attempts yet. They appear here as soon as a crawler records some.",
      columns: [
        {
          key: "key",
          name: "Domain",
          value: (row) => row.key,
          brief: ["a"],
          cell: (row) => host(row.key),
        },
        { key: "fetcher", name: "Fetcher", brief: ["c"], about: "The fetcher of the newest delivered page", cell: (row) => (row.fetcher === null ? NONE : word(row.fetcher)) },
        ...rates(),
        { key: "recent", name: "Last 10 min", num: true, value: (row) => row.recent, cell: (row) => count(row.recent) },
      ],
    });
    replace(byId("domains"), this.domains.nodes);
    this.fetchers = new Table({
      title: "Fetchers",
      by: "attempts",
      order: "desc",
      text: (row) => row.key,
      brief: true,
      empty: "No attempts yet.",
      columns: [
        { key: "key", name: "Fetcher", brief: ["a"], value: (row) => row.key, cell: (row) => word(row.key) },
        ...rates(),
        { key: "request_cost", name: "Cost per request", num: true, about: "Configured cost of a request, in plain requests", value: (row) => row.request_cost, cell: (row) => fixed(row.request_cost, 1) },
      ],
    });
    replace(byId("fetcher-table"), this.fetchers.nodes);
    this.heuristics = new Table({
      title: "Heuristics",
      search: "Search heuristics",
      by: "mutual_information_bits",
      order: "desc",
      text: (row) => `${row.type} ${row.value ?? ""}`,
      brief: true,
      empty: "A heuristic appears once more than ten attempts carry it.",
      columns: [
        { key: "type", name: "Heuristic", brief: ["a"], value: (row) => `${row.type} ${row.value ?? ""}`, cell: (row) => [el("span", { class: "kind" }, row.type), " ", row.value === null ? el("em", { class: "quiet" }, "all values") : word(row.value)] },
        { key: "n", name: "Attempts", brief: ["c", "attempts"], num: true, value: (row) => row.n, cell: (row) => count(row.n) },
        { key: "conditional_rate", name: "With it", brief: ["b", "delivered"], about: "Share of attempts with it that delivered", num: true, value: (row) => row.conditional_rate, cell: (row) => percent(row.conditional_rate) },
        { key: "baseline", name: "Overall", about: "Share of all attempts that delivered", num: true, value: (row) => row.baseline, cell: (row) => percent(row.baseline) },
        { key: "gain", name: "Difference", brief: ["e", "difference"], num: true, value: (row) => row.gain, cell: (row) => meter(row.gain, percent(row.gain), "plainly") },
        { key: "mutual_information_bits", name: "Information", num: true, value: (row) => row.mutual_information_bits, cell: (row) => `${fixed(row.mutual_information_bits, 3)} bits` },
      ],
    });
    // A response that is empty, or has status 200, says what came of the request, not what predicts it.
    this.after = el("input", { type: "checkbox", on: { change: () => this.#heuristics() } });
    this.known = [];
    replace(byId("heuristic-table"), el("label", { class: "switch" }, this.after, "Include what only the response shows"), this.heuristics.nodes);
    this.busy = new Table({
      title: "Pace of busy hosts",
      by: "recent",
      order: "desc",
      text: (row) => row.host,
      brief: true,
      empty: "No requests in the last ten minutes.",
      columns: [
        { key: "host", name: "Host", brief: ["a"], value: (row) => row.host, cell: (row) => host(row.host) },
        { key: "recent", name: "Last 10 min", brief: ["c", "in 10 min"], num: true, value: (row) => row.recent, cell: (row) => count(row.recent) },
        { key: "rate", name: "Rate", brief: ["b", ""], num: true, value: (row) => row.pace?.rate, cell: (row) => rate(row.pace?.rate) },
        { key: "parallel", name: "In parallel", num: true, value: (row) => row.pace?.parallel, cell: (row) => count(row.pace?.parallel) },
        { key: "limit", name: "Limit found at", num: true, value: (row) => row.pace?.limit, cell: (row) => rate(row.pace?.limit) },
        { key: "latency", name: "Latency", brief: ["e", "latency"], num: true, value: (row) => row.pace?.latency_s, cell: (row) => (row.pace?.latency_s == null ? NONE : roughly(row.pace.latency_s * 1000)) },
      ],
    });
    this.noPace = el("p", { class: "quiet", hidden: true }, "The pace of these hosts is unknown: fetchwise learns it from visits, not from imported attempts.");
    replace(byId("busy"), el("h3", {}, "Pace of busy hosts"), this.noPace, this.busy.nodes);
    this.paused = new Table({
      title: "Paused hosts",
      search: "Search paused hosts",
      by: "until",
      order: "asc",
      text: (row) => row.host,
      empty: "No host is paused.",
      columns: [
        { key: "host", name: "Host", value: (row) => row.host, cell: (row) => host(row.host) },
        { key: "until", name: "Until", num: true, start: "asc", value: (row) => Date.parse(row.paused_until), cell: (row) => time(row.paused_until) },
        { key: "left", name: "Remaining", num: true, cell: (row) => el("span", { class: "countdown", "data-until": Date.parse(row.paused_until) }, span(Date.parse(row.paused_until) - this.now)) },
        { key: "unpause", name: "Unpause", hidden: true, class: "end", cell: (row) => this.readOnly ? "" : el("button", { type: "button", "data-key": `unpause ${row.host}`, "aria-label": `Unpause ${row.host}`, on: { click: () => this.unpause(row.host) } }, "Unpause") },
      ],
    });
    this.pausedTitle = el("h3", { id: "paused-title", tabindex: "-1" }, "Paused hosts");
    replace(byId("paused"), this.pausedTitle, this.paused.nodes);
    this.fleet = new FleetPart();
  }

  /** The query parameters of the domains' table. */
  query() {
    const { by, order, needle, limit } = this.domains.query();
    return { sort: by, order, search: needle, limit };
  }

  show(board, hosts, arms, now) {
    this.now = now;
    this.readOnly = board.read_only;
    this.domains.show(board.domains.rows, board.domains);
    this.fetchers.show(board.fetchers);
    this.known = board.heuristics;
    this.#heuristics();
    const paused = hosts.filter((host) => Date.parse(host.paused_until) > now);
    this.paused.show(paused);
    say(this.pausedTitle, paused.length === 0 ? "Paused hosts" : `Paused hosts (${count(paused.length)})`);
    this.busy.show(board.busy);
    this.noPace.hidden = board.busy.length === 0 || board.busy.some((row) => row.pace !== null);
    this.#mode(board);
    byId("reading").hidden = board.complete;
    this.#log(board.log, now);
    this.#rollout(board, arms);
    this.fleet.show(board.fleet);
  }

  #heuristics() {
    this.heuristics.show(this.known.filter((row) => !row.after || this.after.checked));
  }

  #mode(board) {
    const chip = byId("mode");
    chip.hidden = !board.mode || board.mode === "learning";
    say(chip, `mode: ${board.mode}`);
  }

  #log(log, now) {
    say(byId("log-dir"), log.dir);
    const waiting = log.queued_records > 0 ? `${count(log.queued_records)} records, ${bytes(log.queued_bytes)}, wait in memory` : "no records wait in memory";
    const good = log.state === "good" || log.state === "followed";
    if (log.state === "followed") {
      const followed = [["State", "Followed", "another process writes it"], ["Size", bytes(log.bytes), `${count(log.segments)} ${log.segments === 1 ? "segment" : "segments"}`], ["Last compaction", log.compacted_at ? ago(log.compacted_at, now) : "never", ""]];
      return replace(byId("log-facts"), followed.map(([name, value, about]) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, el("span", { class: "big" }, value)), el("dd", { class: "quiet" }, about))));
    }
    const facts = [
      ["State", good ? "Good" : log.state === "degraded" ? "Degraded" : "Closed", good ? "attempts reach the disk" : log.reason ?? "", good ? "better" : "worse"],
      ["Size", bytes(log.bytes), `${count(log.segments)} ${log.segments === 1 ? "segment" : "segments"}`],
      ["Not yet on disk", count(log.lag_records), waiting, log.lag_records > 10_000 ? "worse" : ""],
      ["Last sync", log.synced_at ? ago(log.synced_at, now) : NONE, log.synced_at ? `at ${time(log.synced_at, { seconds: true })}, ${count(log.syncs)} in total` : "none since the start"],
      ["Last compaction", log.compacted_at ? ago(log.compacted_at, now) : "never", log.compacted_at ? `at ${time(log.compacted_at)}` : "no raw attempts were removed"],
      ["Lost", count(log.lost), log.lost > 0 ? "records that are missing from the log for good" : "since the start", log.lost > 0 ? "worse" : ""],
    ];
    replace(
      byId("log-facts"),
      facts.map(([name, value, about, tone]) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, el("span", { class: `big ${tone ?? ""}` }, value)), el("dd", { class: "quiet" }, about))),
    );
  }

  #rollout(board, answer) {
    const some = rollout.show(byId("arms"), answer);
    byId("rollout").hidden = !some;
    byId("nav-rollout").hidden = !some;
    say(byId("rollout-note"), `Mode: ${board.mode}`);
  }
}

/** The columns that domains and fetchers share. */
function rates() {
  const share = (key, name, cell) => ({ key, name, num: true, value: (row) => row[key], cell: cell ?? ((row) => percent(row[key])) });
  return [
    { key: "attempts", name: "Requests", num: true, brief: ["d", "requests"], value: (row) => row.attempts, cell: (row) => count(row.attempts) },
    { key: "cost", name: "Cost", num: true, about: "Cost of all requests, in plain requests", value: (row) => row.cost, cell: (row) => count(row.cost) },
    { key: "cost_per_page", name: "Cost per page", num: true, brief: ["b", "per page"], about: "Cost of a delivered page, in plain requests", value: (row) => row.cost_per_page, cell: (row) => fixed(row.cost_per_page) },
    { ...share("success_rate", "Delivered", (row) => meter(row.success_rate, percent(row.success_rate), "good")), brief: ["e", "delivered"] },
    share("ban_rate", "Blocked", (row) => meter(row.ban_rate, percent(row.ban_rate), "bad")),
    { key: "missing", name: "Missing", num: true, about: "Requests for pages that do not exist", value: (row) => row.missing, cell: (row) => count(row.missing) },
    share("learned", "Learned"),
  ];
}
