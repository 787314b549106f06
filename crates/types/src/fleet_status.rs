//! The status of a fleet's node: what the node counts, what its commands print and what its server
//! answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The status of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetStatus {
    /// Its id.
    pub node: String,
    /// The pool.
    pub pool: String,
    /// The scope in which it reads other nodes: `all`, or `own` for evidence that belongs to no
    /// single site.
    #[serde(default)]
    pub scope: String,
    /// Whether the broker responds.
    pub broker: bool,
    /// Whether everything known was published, read and learned.
    pub converged: bool,
    /// The epoch of its log: 1 until its directory is restored from a backup.
    pub epoch: u32,
    /// The last synced position of its log.
    pub position: u64,
    /// The last position in the stream.
    pub published: u64,
    /// The last position that its evidence snapshot covers.
    pub snapshot_position: u64,
    /// The number of positions that are never published because they have a future time.
    pub withheld: u64,
    /// The time by which its clock is ahead of the broker's, in seconds; none if unknown.
    pub clock_ahead_s: Option<f64>,
    /// The reason why it publishes nothing, if it does not.
    pub stopped: Option<String>,
    /// Whether an operator has excluded it.
    pub excluded: bool,
    /// The number of domains that it has forgotten because of another node's request.
    #[serde(default)]
    pub forgot: u64,
    /// In scope `own`: the number of nodes whose evidence of this node's sites is still to be
    /// applied.
    #[serde(default)]
    pub handover_pending: u64,
    /// The number of links with a state from peers that may still matter.
    #[serde(default)]
    pub links: u64,
    /// The number of these links that are paused here.
    #[serde(default)]
    pub links_waiting: u64,
    /// Whether snapshots are still to be applied before it knows what the others know.
    pub syncing: bool,
    /// The peers.
    pub peers: Vec<PeerStatus>,
    /// The counters since it joined.
    pub counts: FleetCounts,
}

/// The status of a peer, as seen by this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "FleetNode"))]
pub struct PeerStatus {
    /// Its id.
    pub node: String,
    /// The last position of its log that is known here.
    pub position: u64,
    /// The last position that it has published, as far as it has reported.
    pub published: u64,
    /// The last position that its evidence snapshot covers.
    pub snapshot_position: u64,
    /// The number of missing positions.
    pub missing_records: u64,
    /// The number of missing positions that no node seems to have any more.
    pub lost: u64,
    /// The time for which positions have been missing, in seconds.
    pub lag_s: f64,
    /// Its version.
    pub version: String,
    /// Whether its heartbeat is recent.
    pub present: bool,
    /// Whether an operator has excluded it.
    pub excluded: bool,
    /// The reason why its messages are not read.
    pub set_aside_reason: Option<String>,
    /// The reason why its last messages were rejected.
    pub rejected: Option<String>,
    /// The number of its attempts that wait because it sends more than it may.
    #[serde(default)]
    pub waiting: u64,
    /// The limit that it exceeds while attempts wait.
    #[serde(default)]
    pub limited: Option<String>,
    /// Whether it is away for so long that nobody asks for its missing messages.
    #[serde(default)]
    pub closed: bool,
    /// Its egress group.
    pub egress_group: String,
    /// The time by which its clock is ahead of the broker's, in seconds.
    pub clock_ahead_s: f64,
}

/// The counters since a node joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetCounts {
    /// Attempts published.
    pub published: u64,
    /// Remote attempts learned.
    pub received: u64,
    /// Remote attempts received again.
    pub duplicate: u64,
    /// Positions withheld.
    pub withheld: u64,
    /// Messages that could not be read or were not accepted.
    pub rejected: u64,
    /// Remote attempts of forgotten domains.
    pub forgotten: u64,
    /// Remote attempts that had to wait because their node exceeded a limit.
    #[serde(default)]
    pub throttled: u64,
    /// Requests for missing positions.
    pub retransmit_requests: u64,
    /// Times that the stream was a different one than before.
    pub stream_resets: u64,
    /// Evidence snapshots applied.
    pub snapshots_applied: u64,
    /// Global snapshots applied, in scope `own`.
    #[serde(default)]
    pub global_snapshots_applied: u64,
    /// Global snapshots published.
    #[serde(default)]
    pub global_snapshots_published: u64,
    /// The bytes of published global snapshots.
    #[serde(default)]
    pub global_snapshot_bytes: u64,
    /// Bytes published.
    pub bytes: u64,
    /// Failed publish calls.
    #[serde(default)]
    pub failures: u64,
    /// A histogram of the delay from the broker to this node: upper bounds in milliseconds, and the
    /// number of attempts in each bucket.
    pub delays: BTreeMap<u64, u64>,
    /// The sum of these delays in milliseconds.
    #[serde(default)]
    pub delayed_ms: u64,
}

/// The bucket bounds of [`FleetCounts::delays`] in milliseconds.
pub const DELAYS_MS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, u64::MAX];

impl FleetCounts {
    /// FleetCounts a delay.
    pub fn record_delay(&mut self, ms: u64) {
        let end = DELAYS_MS.into_iter().find(|end| ms <= *end).unwrap_or(u64::MAX);
        *self.delays.entry(end).or_default() += 1;
        self.delayed_ms = self.delayed_ms.saturating_add(ms);
    }
    /// Returns the counters with all bounds of [`DELAYS_MS`], so that sums over time always have
    /// the same ones.
    #[must_use]
    pub fn with_all_bounds(mut self) -> Self {
        for end in DELAYS_MS {
            self.delays.entry(end).or_default();
        }
        self
    }
}
