//! The JSON of a fleet as the server's node sees it, with the fields of `fleet status --json`.

use std::collections::BTreeMap;

use serde::Serialize;

/// The server's node and its peers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetJson {
    /// The node's name.
    pub node: String,
    /// The pool.
    pub pool: String,
    /// Whether the broker responds.
    pub broker: bool,
    /// Whether every record that the node knows of is published, read and learned.
    pub converged: bool,
    /// The epoch of its log.
    pub epoch: u32,
    /// The last position of its log that is on disk.
    pub position: u64,
    /// The last published position.
    pub published: u64,
    /// The last position that its evidence snapshot covers.
    pub snapshot_position: u64,
    /// The number of records that are never published because they have a time in the future.
    pub withheld: u64,
    /// Seconds by which its clock is ahead of the broker's; none if unknown.
    pub clock_ahead_s: Option<f64>,
    /// Why it publishes nothing; none if it publishes.
    pub stopped: Option<String>,
    /// Whether an operator has excluded it.
    pub excluded: bool,
    /// Whether it is still reading the evidence snapshots of peers.
    pub syncing: bool,
    /// The number of links whose results peers have reported and that may still matter.
    pub links: u64,
    /// The number of those links that wait here for a result.
    pub links_waiting: u64,
    /// The peers.
    pub peers: Vec<NodeJson>,
    /// Counts since the node joined.
    pub counts: FleetCountsJson,
    /// Counts of pauses shared by the nodes of an egress group.
    pub hosts: SharedHostsJson,
}

/// A peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeJson {
    /// Its name.
    pub node: String,
    /// The last position of its log that this node knows.
    pub position: u64,
    /// The last position that it reports as published.
    pub published: u64,
    /// The last position that its evidence snapshot covers.
    pub snapshot_position: u64,
    /// The number of its records that are missing here.
    pub missing_records: u64,
    /// The number of missing records that no node seems to have.
    pub lost: u64,
    /// Time for which records have been missing, in seconds.
    pub lag_s: f64,
    /// Its version.
    pub version: String,
    /// Whether it has sent a heartbeat recently.
    pub present: bool,
    /// Whether an operator has excluded it.
    pub excluded: bool,
    /// Why this node ignores its messages.
    pub set_aside_reason: Option<String>,
    /// Why its last messages were rejected.
    pub rejected: Option<String>,
    /// The number of its attempts that wait because it exceeds its limits.
    pub waiting: u64,
    /// The limit that it exceeds, while attempts wait.
    pub limited: Option<String>,
    /// Whether it has been absent for so long that no node requests its missing records.
    pub closed: bool,
    /// The name of the group of nodes that share its egress address.
    pub egress_group: String,
    /// Seconds by which its clock is ahead of the broker's.
    pub clock_ahead_s: f64,
}

/// The counts of a node since it joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FleetCountsJson {
    /// Published attempts.
    pub published: u64,
    /// Published bytes.
    pub bytes: u64,
    /// Failed publish calls.
    pub failures: u64,
    /// Remote attempts learned.
    pub received: u64,
    /// Repeated remote attempts.
    pub duplicate: u64,
    /// Withheld records.
    pub withheld: u64,
    /// Messages that the node could not read or did not accept.
    pub rejected: u64,
    /// Remote attempts on forgotten domains.
    pub forgotten: u64,
    /// Remote attempts that waited because their node exceeded its limits.
    pub throttled: u64,
    /// Requests for missing records.
    pub retransmit_requests: u64,
    /// Times that the broker's stream was a different one than before.
    pub stream_resets: u64,
    /// Evidence snapshots applied.
    pub snapshots_applied: u64,
    /// A histogram of the time from the broker to this node: upper bounds in milliseconds, with the number of attempts
    /// above the previous bound and up to this one.
    pub delays: BTreeMap<u64, u64>,
    /// The sum of these times, in milliseconds.
    pub delayed_ms: u64,
}

/// The counts of shared pauses since the node joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SharedHostsJson {
    /// Pauses received from peers.
    pub received: u64,
    /// Pauses sent to peers.
    pub sent: u64,
    /// Pauses of peers that it rejected because there were too many.
    pub rejected: u64,
    /// Trials that it won.
    pub trials: u64,
    /// Trials that a peer won.
    pub lost: u64,
    /// Trials that it made without coordination because the broker did not respond.
    pub own_trials: u64,
}
