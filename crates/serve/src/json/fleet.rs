//! The fleet that a server is in, as the server's own node sees it. Fields as `fleet status --json` has them.

use std::collections::BTreeMap;

use serde::Serialize;

/// A server's own node, and all others.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetJson {
    /// The node's name.
    pub node: String,
    /// The pool.
    pub pool: String,
    /// Whether the broker answers.
    pub broker: bool,
    /// Whether everything that the node knows of is published, read and learned.
    pub converged: bool,
    /// The history that its log goes on in.
    pub epoch: u32,
    /// The last position of its log that is on disk.
    pub position: u64,
    /// The last one that is published.
    pub published: u64,
    /// What its last share covers.
    pub snapshot_position: u64,
    /// Positions that never travel, since they bear a time in the future.
    pub withheld: u64,
    /// By how much its clock is ahead of the broker's; none where that is not known.
    pub clock_ahead_s: Option<f64>,
    /// Why it publishes nothing, where it does not.
    pub stopped: Option<String>,
    /// Whether an operator has excluded it.
    pub excluded: bool,
    /// Whether it is still taking the others' shares.
    pub syncing: bool,
    /// Of how many links others have said what became of them, and that may still matter.
    pub links: u64,
    /// How many of them wait here for that.
    pub links_waiting: u64,
    /// The others.
    pub peers: Vec<NodeJson>,
    /// What was counted since it joined.
    pub counts: FleetCountsJson,
    /// What was done about hosts that are paused for all who share an address.
    pub hosts: SharedHostsJson,
}

/// Another node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeJson {
    /// Its name.
    pub node: String,
    /// The last position of its log that is known here.
    pub position: u64,
    /// The last one that it says it has published.
    pub published: u64,
    /// What its share covers.
    pub snapshot_position: u64,
    /// Positions that are missing here.
    pub missing_records: u64,
    /// Those of them that nobody seems to have any more.
    pub lost: u64,
    /// For how long something has been missing, in seconds.
    pub lag_s: f64,
    /// Its version.
    pub version: String,
    /// Whether it has said lately that it is there.
    pub present: bool,
    /// Whether an operator has excluded it.
    pub excluded: bool,
    /// Why it is not listened to.
    pub set_aside_reason: Option<String>,
    /// Why its last messages could not be read.
    pub rejected: Option<String>,
    /// How many of its facts wait, since it sends more than it may.
    pub waiting: u64,
    /// What it sends too much of, while some of it waits.
    pub limited: Option<String>,
    /// It has not been seen for so long that nobody asks for what is missing of it.
    pub closed: bool,
    /// A name for the addresses that its requests come from.
    pub egress_group: String,
    /// By how much its clock is ahead of the broker's, in seconds.
    pub clock_ahead_s: f64,
}

/// What a node has counted since it joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FleetCountsJson {
    /// Facts published.
    pub published: u64,
    /// Bytes published.
    pub bytes: u64,
    /// Times that publishing failed.
    pub failures: u64,
    /// Facts of others learned from.
    pub received: u64,
    /// Facts that came again.
    pub duplicate: u64,
    /// Positions withheld.
    pub withheld: u64,
    /// Messages that could not be read or believed.
    pub rejected: u64,
    /// Facts of domains that were forgotten.
    pub forgotten: u64,
    /// Facts that had to wait, since their node sent more than it may.
    pub throttled: u64,
    /// How often something missing was asked for.
    pub retransmit_requests: u64,
    /// How often the stream was another one.
    pub stream_resets: u64,
    /// Shares taken.
    pub snapshots_applied: u64,
    /// How long facts took from the broker to here: upper ends in milliseconds, and how many took at most so long and longer than the end
    /// before.
    pub delays: BTreeMap<u64, u64>,
    /// All of these times together, in milliseconds.
    pub delayed_ms: u64,
}

/// What a node has done about shared pauses since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SharedHostsJson {
    /// Pauses of others that it took over.
    pub received: u64,
    /// Pauses that it told the others of.
    pub sent: u64,
    /// Pauses of others that it did not believe, since there were too many.
    pub rejected: u64,
    /// Trials that were its own to make.
    pub trials: u64,
    /// Trials that others made instead.
    pub lost: u64,
    /// Trials that it made without asking, since no broker answered.
    pub own_trials: u64,
}
