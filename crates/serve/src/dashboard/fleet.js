// The fleet: whether the broker responds, what is published and learned, and the state of the other nodes.
//
// Owns: the names of a node's states.
//
// Must not know: how the server is polled.

import { Table } from "./table.js";
import { NONE, byId, compact, count, el, replace, roughly, say, span } from "./text.js";

/** The state of a node: the first that applies. `rank` sorts states, the worst first. */
function state(node) {
  if (node.excluded) return { rank: 0, name: "Excluded", about: "an operator excluded it", tone: "worse" };
  if (node.set_aside_reason) return { rank: 1, name: "Set aside", about: node.set_aside_reason, tone: "worse" };
  if (node.rejected) return { rank: 2, name: "Rejected", about: node.rejected, tone: "worse" };
  if (node.limited) return { rank: 3, name: "Throttled", about: `${count(node.waiting)} attempts wait: ${node.limited}`, tone: "worse" };
  if (node.closed) return { rank: 5, name: "Closed", about: "absent for thirty days", tone: "" };
  if (!node.present) return { rank: 4, name: "Absent", about: "no recent heartbeat", tone: "" };
  return { rank: 6, name: "Present", about: node.egress_group ? `egress group ${node.egress_group}` : "", tone: "better" };
}

const missing = (node) => (node.lost > 0 ? [count(node.missing_records), el("span", { class: "quiet" }, `, ${count(node.lost)} permanently`)] : count(node.missing_records));

export class FleetPart {
  constructor() {
    this.nodes = new Table({
      title: "Other nodes",
      search: "Search nodes",
      by: "state",
      order: "asc",
      text: (node) => `${node.node} ${node.version} ${node.egress_group} ${state(node).name}`,
      empty: "No other node is known yet.",
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
        { key: "position", name: "Position", about: "The last record of its log that this node knows", num: true, value: (node) => node.position, cell: (node) => count(node.position) },
        { key: "missing_records", name: "Missing", about: "Records that it has published and that are missing here", num: true, value: (node) => node.missing_records, cell: missing },
        { key: "lag_s", name: "Lag", about: "Time for which records of it have been missing", num: true, value: (node) => node.lag_s, cell: (node) => (node.missing_records > 0 ? span(node.lag_s * 1000) : NONE) },
        { key: "snapshot_position", name: "Snapshot", about: "The last record in its evidence snapshot at the broker, from which new nodes start", num: true, value: (node) => node.snapshot_position, cell: (node) => (node.snapshot_position > 0 ? count(node.snapshot_position) : "none") },
      ],
    });
    replace(byId("fleet-nodes"), el("h3", {}, "Other nodes"), this.nodes.nodes);
  }

  /** Shows the fleet; hides the section for a server without one. */
  show(fleet) {
    byId("fleet").hidden = !fleet;
    byId("nav-fleet").hidden = !fleet;
    if (!fleet) return;
    replace(byId("fleet-node"), "Node ", el("bdi", {}, fleet.node), " of pool ", el("bdi", {}, fleet.pool));
    const stopped = byId("fleet-stopped");
    // A lost connection to the broker has its own tile.
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
  const unread = holes > 0 ? `${count(holes)} records of peers are missing` : "records are still being published or read";
  return [
    ["Broker", broker ? "Connected" : "Disconnected", broker ? "the broker responds" : "crawling continues; records follow later", broker ? "better" : "worse"],
    ["Up to date", fleet.converged ? "Yes" : "Not yet", fleet.converged ? "published, read and learned" : fleet.syncing ? "evidence snapshots are still being read" : unread],
    ["To publish", count(waits), waits > 0 ? `of ${count(fleet.position)} records` : `${compact(fleet.published)} records are published`, waits > 100_000 ? "worse" : ""],
    ["Learned", compact(counts.received), "attempts of peers since the start"],
    ["Peers present", count(there), `of ${count(peers.length)} peers`],
    ["Withheld", count(fleet.withheld), fleet.withheld > 0 ? "records have a time in the future" : clock(fleet.clock_ahead_s), fleet.withheld > 0 ? "worse" : ""],
  ];
}

function clock(ahead) {
  if (ahead === null || ahead === undefined) return "the broker\u2019s clock is unknown";
  const ms = Math.abs(ahead * 1000);
  return ms < 1000 ? "the clocks agree" : `the clock is ${roughly(ms)} ${ahead > 0 ? "ahead" : "behind"}`;
}
