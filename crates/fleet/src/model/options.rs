//! How a node takes part.

use std::time::Duration;

/// How a node takes part in a fleet. The defaults are right for a crawler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The pool: nodes of one pool share what they learn.
    pub pool: String,
    /// A name for the addresses that this node's requests come from; pauses hold for those who share it.
    pub egress_group: String,
    /// What others see as this node's version.
    pub version: String,
    /// What this node reads of the others: the same for all nodes of a pool.
    pub scope: Scope,
    /// Where this node runs, so that whoever is refused because of it finds it.
    pub place: String,
    /// How long the stream keeps messages.
    pub max_age: Duration,
    /// How often things are done.
    pub timing: Timing,
    /// What is taken of one other node.
    pub limits: Limits,
    /// For tests: what keeps things right, each of which can be switched off.
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
            max_age: Duration::from_secs(7 * 86_400),
            timing: Timing::default(),
            limits: Limits::default(),
            safeguards: Safeguards::default(),
        }
    }
}

/// What a node reads of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Every fact of every node.
    #[default]
    All,
    /// What belongs to no one site, of every node, as an image of each: for pools in which each site has its own node.
    Own,
}

impl Scope {
    /// What presences, settings and messages call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Own => "own",
        }
    }
}

/// How often things are done.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// What was recorded is published so often.
    pub batch: Duration,
    /// After a block, it is published this soon.
    pub urgent: Duration,
    /// A node says that it is there so often.
    pub presence: Duration,
    /// A node that has not said so for this long has gone.
    pub lease: Duration,
    /// What is missing for so long is asked for.
    pub hole: Duration,
    /// It is asked for again after twice as long each time, up to this.
    pub max_want: Duration,
    /// After so long without a message a reader asks whether there is one.
    pub silence: Duration,
    /// How often holes are looked for, and the end of the stream.
    pub look: Duration,
    /// How often the tables of nodes, of exclusions and of what is forgotten are read.
    pub tables: Duration,
    /// A share is made at least so often,
    pub share_every: Duration,
    /// and after so many positions.
    pub share_after: u64,
    /// A snapshot of `peers/` is taken after so many of its records,
    pub keep_after: u64,
    /// or so many bytes.
    pub keep_bytes: u64,
    /// A node that has not been seen for so long has left for good.
    pub close: Duration,
    /// A node is among those that sites are divided among for so long after it was seen.
    pub owner: Duration,
    /// In scope `own`, what belongs to no one site is said so often at most,
    pub general: Duration,
    /// and so often at least, though nothing has changed: a broker may have lost it.
    pub general_again: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            batch: Duration::from_secs(1),
            urgent: Duration::from_millis(20),
            presence: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            hole: Duration::from_secs(5),
            max_want: Duration::from_secs(600),
            silence: Duration::from_secs(2),
            look: Duration::from_secs(1),
            tables: Duration::from_secs(5),
            share_every: Duration::from_secs(86_400),
            share_after: 1_000_000,
            keep_after: 100_000,
            keep_bytes: 256 << 20,
            close: Duration::from_secs(30 * 86_400),
            owner: Duration::from_secs(600),
            general: Duration::from_secs(300),
            general_again: Duration::from_secs(3600),
        }
    }
}

/// What is taken of one other node. What is more waits, and is learned later.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// So many facts a second in the long run, by the broker's clock;
    pub facts_per_s: f64,
    /// and so many at once: a node that was away says up to a million of them when it is back.
    pub facts_at_once: f64,
    /// So many keys a second that nobody has heard of before;
    pub keys_per_s: f64,
    /// and so many at once.
    pub keys_at_once: f64,
    /// What waits takes at most so much memory, in bytes. The rest is asked for again when there is room.
    pub waiting_bytes: usize,
    /// In scope `own`, images of what belongs to no one site take at most so much memory together, in bytes; those of further nodes are
    /// refused.
    pub general_bytes: usize,
    /// Images of other nodes in a snapshot of `peers/` take about so much together, in bytes; while it is taken all are in memory once.
    /// What would be more is mixed: then leaving one of those nodes out means to take the shares of all of them anew.
    pub max_snapshot_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            facts_per_s: 2000.0,
            facts_at_once: 1e6,
            keys_per_s: 200.0,
            keys_at_once: 1e6,
            waiting_bytes: 64 << 20,
            general_bytes: 256 << 20,
            max_snapshot_bytes: 8 << 30,
        }
    }
}

/// What keeps things right. A test switches one off, and must fail.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Safeguards {
    /// What has been seen before does not count again.
    pub intervals: bool,
    /// A new stream is published to from the last share on.
    pub rewind: bool,
    /// What is missing is asked for.
    pub want: bool,
    /// Only what is on disk is published.
    pub sync: bool,
    /// What bears a time in the future never travels.
    pub withhold: bool,
    /// What is late does not move memories of what came last.
    pub late: bool,
    /// Who sends too much has to wait.
    pub floods: bool,
    /// Who brings too many keys has to wait.
    pub keys: bool,
    /// What was brought by who brings too many keys goes before all others.
    pub doubt: bool,
    /// Nobody asks for what somebody misses who has left for good.
    pub close: bool,
    /// Mixed images are taken apart before one of them goes.
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
