// The fleet: whether the broker is there, what is published and learned, and how the other nodes are.
//
// Owns what a node's state is called. Must not ask the server.

import { Table } from "./table.js";
import { NONE, byId, compact, count, el, replace, roughly, say, span } from "./text.js";

/** What a node is: the first that holds. `rank` is its place when sorted by state, the worst first. */
function state(node) {
  if (node.excluded) return { rank: 0, name: "Excluded", about: "an operator has left it out", tone: "worse" };
  if (node.set_aside_reason) return { rank: 1, name: "Set aside", about: node.set_aside_reason, tone: "worse" };
  if (node.rejected) return { rank: 2, name: "Not understood", about: node.rejected, tone: "worse" };
  if (node.limited) return { rank: 3, name: "Held back", about: `${count(node.waiting)} facts wait: ${node.limited}`, tone: "worse" };
  if (node.closed) return { rank: 5, name: "Closed", about: "not seen for thirty days", tone: "" };
  if (!node.present) return { rank: 4, name: "Gone", about: "has not said that it is there", tone: "" };
  return { rank: 6, name: "There", about: node.egress_group ? `address ${node.egress_group}` : "", tone: "better" };
}

const missing = (node) => (node.lost > 0 ? [count(node.missing_records), el("span", { class: "quiet" }, `, ${count(node.lost)} for ever`)] : count(node.missing_records));

export class FleetPart {
  constructor() {
    this.nodes = new Table({
      title: "Other nodes",
      search: "Search nodes",
      by: "state",
      order: "asc",
      text: (node) => `${node.node} ${node.version} ${node.egress_group} ${state(node).name}`,
      empty: "No other node has been heard of yet.",
      columns: [
        { key: "node", name: "Node", value: (node) => node.node, cell: (node) => el("bdi", {}, node.node) },
        {
          key: "state",
          name: "State",
          value: (node) => state(node).rank,
          cell: (node) => {
            const { name, about, tone } = state(node);
            return [el("span", { class: `word ${tone}` }, name), about && el("span", { class: "quiet why" }, el("bdi", {}, about))];
          },
        },
        { key: "version", name: "Version", value: (node) => node.version, cell: (node) => (node.version ? el("bdi", {}, node.version) : NONE) },
        { key: "position", name: "Position", about: "The last record of its log that is known here", num: true, value: (node) => node.position, cell: (node) => count(node.position) },
        { key: "missing_records", name: "Missing", about: "Records of its log that it has published and that are not here", num: true, value: (node) => node.missing_records, cell: missing },
        { key: "lag_s", name: "Since", about: "For how long something of it has been missing", num: true, value: (node) => node.lag_s, cell: (node) => (node.missing_records > 0 ? span(node.lag_s * 1000) : NONE) },
        { key: "snapshot_position", name: "Share", about: "Up to which record its share at the broker goes, which new nodes begin with", num: true, value: (node) => node.snapshot_position, cell: (node) => (node.snapshot_position > 0 ? count(node.snapshot_position) : "none") },
      ],
    });
    replace(byId("fleet-nodes"), el("h3", {}, "Other nodes"), this.nodes.nodes);
  }

  /** Without a fleet there is nothing to see. */
  show(fleet) {
    byId("fleet").hidden = !fleet;
    byId("nav-fleet").hidden = !fleet;
    if (!fleet) return;
    replace(byId("fleet-node"), "Node ", el("bdi", {}, fleet.node), " of pool ", el("bdi", {}, fleet.pool));
    const stopped = byId("fleet-stopped");
    // That the broker is away has a tile of its own.
    stopped.hidden = !fleet.stopped || !fleet.broker;
    say(stopped, `This node publishes nothing: ${fleet.stopped}`);
    replace(byId("fleet-facts"), facts(fleet).map(([name, value, about, tone]) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, el("span", { class: `big ${tone ?? ""}` }, value)), el("dd", { class: "quiet" }, about))));
    this.nodes.show(fleet.peers);
  }
}

function facts(fleet) {
  const { broker, peers, counts } = fleet;
  const waits = Math.max(0, fleet.position - fleet.published);
  const holes = peers.reduce((sum, node) => sum + node.missing_records, 0);
  const there = peers.filter((node) => node.present).length;
  const unread = holes > 0 ? `${count(holes)} records of others are missing` : "something is still being published or read";
  return [
    ["Broker", broker ? "There" : "Away", broker ? "it answers" : "crawling goes on; what is learned follows", broker ? "better" : "worse"],
    ["Up to date", fleet.converged ? "Yes" : "Not yet", fleet.converged ? "published, read and learned" : fleet.syncing ? "shares are still being taken" : unread],
    ["To publish", count(waits), waits > 0 ? `of ${count(fleet.position)} records` : `${compact(fleet.published)} records are published`, waits > 100_000 ? "worse" : ""],
    ["Learned", compact(counts.received), "attempts of others since the start"],
    ["Nodes there", count(there), `of ${count(peers.length)} others`],
    ["Withheld", count(fleet.withheld), fleet.withheld > 0 ? "records bear a time in the future" : clock(fleet.clock_ahead_s), fleet.withheld > 0 ? "worse" : ""],
  ];
}

function clock(ahead) {
  if (ahead === null || ahead === undefined) return "the broker\u2019s clock is not known";
  const ms = Math.abs(ahead * 1000);
  return ms < 1000 ? "clocks agree" : `the clock is ${roughly(ms)} ${ahead > 0 ? "ahead" : "behind"}`;
}
