//! The options of a node.

use std::time::Duration;

/// The options with which a node joins a fleet. The defaults suit a crawler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The pool. Nodes of one pool share what they learn.
    pub pool: String,
    /// The egress group of this node: a name for the addresses that its requests come from. Pauses
    /// apply to all nodes of a group.
    pub egress_group: String,
    /// The version that other nodes see.
    pub version: String,
    /// The scope in which this node reads other nodes. It is the same for all nodes of a pool.
    pub scope: Scope,
    /// The place where this node runs. It is printed on a node that this one keeps from joining.
    pub place: String,
    /// The work queue whose links this node fetches; empty if there is none.
    pub queue: String,
    /// The time for which the stream keeps messages.
    pub max_age: Duration,
    /// Intervals and timeouts.
    pub timing: Timing,
    /// Limits on what one other node may send.
    pub limits: Limits,
    /// For tests: safeguards that can be switched off one by one.
    #[doc(hidden)]
    pub safeguards: Safeguards,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pool: "default".into(),
            egress_group: String::new(),
            version: env!("CARGO_PKG_VERSION").into(),
            scope: Scope::All,
            place: format!("process {}", std::process::id()),
            queue: String::new(),
            max_age: Duration::from_secs(7 * 86_400),
            timing: Timing::default(),
            limits: Limits::default(),
            safeguards: Safeguards::default(),
        }
    }
}

/// The scope in which a node reads other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Every attempt of every node.
    #[default]
    All,
    /// Evidence that belongs to no single site, from every node as one global snapshot. For pools
    /// in which each site has its own node.
    Own,
}

impl Scope {
    /// Returns the name of the scope in heartbeats, settings and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Own => "own",
        }
    }
}

/// Intervals and timeouts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// The interval between published messages.
    pub batch: Duration,
    /// The delay until a block is published.
    pub urgent: Duration,
    /// The interval between heartbeats.
    pub heartbeat: Duration,
    /// The time without a heartbeat after which a node counts as gone.
    pub lease: Duration,
    /// The time for which a position is missing before it is requested.
    pub gap: Duration,
    /// The maximum interval between requests for the same gap. The interval doubles with each
    /// request.
    pub max_request_interval: Duration,
    /// The time without a message after which a reader checks the stream.
    pub silence: Duration,
    /// The interval between checks for gaps and for the end of the stream.
    pub check: Duration,
    /// The interval at which the tables of nodes, exclusions and tombstones are read.
    pub tables: Duration,
    /// The maximum interval between evidence snapshots.
    pub snapshot_interval: Duration,
    /// The maximum number of positions between evidence snapshots.
    pub snapshot_after: u64,
    /// The maximum number of records of `peers/` between its snapshots.
    pub store_snapshot_after: u64,
    /// The maximum number of bytes of `peers/` between its snapshots.
    pub store_snapshot_bytes: u64,
    /// The time without a heartbeat after which a node counts as closed.
    pub close: Duration,
    /// The time after its last heartbeat for which a node still owns sites.
    pub owner: Duration,
    /// In scope `own`: the minimum interval between global snapshots.
    pub global_min_interval: Duration,
    /// In scope `own`: the maximum interval between global snapshots. An unchanged snapshot is
    /// published again because a broker may have lost it.
    pub global_max_interval: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            batch: Duration::from_secs(1),
            urgent: Duration::from_millis(20),
            heartbeat: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            gap: Duration::from_secs(5),
            max_request_interval: Duration::from_secs(600),
            silence: Duration::from_secs(2),
            check: Duration::from_secs(1),
            tables: Duration::from_secs(5),
            snapshot_interval: Duration::from_secs(86_400),
            snapshot_after: 1_000_000,
            store_snapshot_after: 100_000,
            store_snapshot_bytes: 256 << 20,
            close: Duration::from_secs(30 * 86_400),
            owner: Duration::from_secs(600),
            global_min_interval: Duration::from_secs(300),
            global_max_interval: Duration::from_secs(3600),
        }
    }
}

/// Limits on what one other node may send. Anything beyond them waits and is learned later.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum rate of attempts per second in the long run, by the broker's clock.
    pub attempts_per_s: f64,
    /// The maximum burst of attempts. A node that was away sends up to a million at once when it is
    /// back.
    pub attempt_burst: f64,
    /// The maximum rate of new keys per second.
    pub new_keys_per_s: f64,
    /// The maximum burst of new keys.
    pub new_key_burst: f64,
    /// The maximum memory for waiting messages, in bytes. Further messages are requested again when
    /// there is room.
    pub waiting_bytes: usize,
    /// In scope `own`: the maximum memory for the global snapshots of all nodes, in bytes. Those of
    /// further nodes are refused.
    pub max_global_bytes: usize,
    /// The approximate maximum size of the evidence of all peers in a snapshot of `peers/`, in
    /// bytes. All of it is in memory at once while the snapshot is taken. Evidence beyond the limit
    /// is mixed. To drop one node of a mix, the snapshots of all of its nodes are fetched again.
    pub max_snapshot_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            attempts_per_s: 2000.0,
            attempt_burst: 1e6,
            new_keys_per_s: 200.0,
            new_key_burst: 1e6,
            waiting_bytes: 64 << 20,
            max_global_bytes: 256 << 20,
            max_snapshot_bytes: 8 << 30,
        }
    }
}

/// Safeguards. A test switches one off and must fail.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Safeguards {
    /// Positions that were seen before do not count again.
    pub intervals: bool,
    /// A node publishes to a new stream again, from its last snapshot on.
    pub rewind: bool,
    /// Missing positions are requested.
    pub want: bool,
    /// Only synced positions are published.
    pub sync: bool,
    /// Attempts with a future time are never published.
    pub withhold: bool,
    /// Late attempts do not change which outcome counts as the last one.
    pub late: bool,
    /// A node that sends too many attempts has to wait.
    pub floods: bool,
    /// A node that brings too many keys has to wait.
    pub keys: bool,
    /// Keys from a node that brings too many are evicted first.
    pub doubt: bool,
    /// Gaps of a closed node are not requested.
    pub close: bool,
    /// Mixed evidence is discarded before one of its nodes is removed.
    pub apart: bool,
}

impl Default for Safeguards {
    fn default() -> Self {
        Self {
            intervals: true,
            rewind: true,
            want: true,
            sync: true,
            withhold: true,
            late: true,
            floods: true,
            keys: true,
            doubt: true,
            close: true,
            apart: true,
        }
    }
}
