//! How a node and its fleet are, for people and programs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a node is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub origin: String,
    /// The pool.
    pub pool: String,
    /// What it reads of the others: `all`, or `own` for what belongs to no one site.
    #[serde(default)]
    pub scope: String,
    /// Whether the broker answers.
    pub broker: bool,
    /// Whether everything that it knows of has been published, read and learned.
    pub quiet: bool,
    /// The history that its log goes on in: 1 until its directory is restored from a backup.
    pub epoch: u32,
    /// The last position of its log that is on disk.
    pub position: u64,
    /// The last one that is in the stream.
    pub published: u64,
    /// What its last share covers.
    pub share: u64,
    /// How many positions never travel, since they bear a time in the future.
    pub withheld: u64,
    /// By how much its clock is ahead of the broker's, in seconds; none where that is not known.
    pub clock_ahead_s: Option<f64>,
    /// Why it publishes nothing, where it does not.
    pub stopped: Option<String>,
    /// Whether an operator has excluded it.
    pub excluded: bool,
    /// How often it has forgotten a domain because some node of the fleet was told to.
    #[serde(default)]
    pub forgot: u64,
    /// In scope `own`, from how many others it is still to take what they know of sites that are its own.
    #[serde(default)]
    pub moving: u64,
    /// Of how many links others have said what became of them, and that may still matter.
    #[serde(default)]
    pub links: u64,
    /// How many of them wait here for that.
    #[serde(default)]
    pub links_waiting: u64,
    /// Shares that are still to be taken before it knows what the others know.
    pub starting: bool,
    /// The others.
    pub peers: Vec<PeerStatus>,
    /// What was counted since it joined.
    pub counts: Counts,
}

/// How another node is, seen from this one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name.
    pub origin: String,
    /// The last position of its log that is known here.
    pub position: u64,
    /// The last one that it has published, as far as it has said.
    pub published: u64,
    /// What its share covers.
    pub share: u64,
    /// How many positions are missing.
    pub holes: u64,
    /// How many of them nobody seems to have any more.
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
    pub aside: Option<String>,
    /// Why its last messages could not be read.
    pub rejected: Option<String>,
    /// How many of its facts wait, since it sends more than it may.
    #[serde(default)]
    pub waiting: u64,
    /// What it sends too much of, while some of it waits.
    #[serde(default)]
    pub limited: Option<String>,
    /// It has not been seen for so long that nobody asks for what is missing of it.
    #[serde(default)]
    pub closed: bool,
    /// The addresses that its requests come from.
    pub egress: String,
    /// By how much its clock is ahead of the broker's, in seconds.
    pub clock_ahead_s: f64,
}

/// What was counted since a node joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Facts published.
    pub published: u64,
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
    #[serde(default)]
    pub late: u64,
    /// How often something missing was asked for.
    pub wants: u64,
    /// How often the stream was another one.
    pub rewinds: u64,
    /// Shares taken.
    pub shares: u64,
    /// General images taken, in scope `own`.
    #[serde(default)]
    pub generals: u64,
    /// General images said.
    #[serde(default)]
    pub generals_said: u64,
    /// Their bytes.
    #[serde(default)]
    pub general_bytes: u64,
    /// Bytes published.
    pub bytes: u64,
    /// How often publishing failed.
    #[serde(default)]
    pub failures: u64,
    /// How long facts took from the broker to here: upper ends in milliseconds, and how many took at most so long and longer than the end
    /// before.
    pub delays: BTreeMap<u64, u64>,
    /// All of these times together, in milliseconds.
    #[serde(default)]
    pub delayed_ms: u64,
}

/// The ends of [`Counts::delays`], in milliseconds.
pub const DELAYS_MS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, u64::MAX];

impl Counts {
    /// Counts a delay.
    pub fn delayed(&mut self, ms: u64) {
        let end = DELAYS_MS.into_iter().find(|end| ms <= *end).unwrap_or(u64::MAX);
        *self.delays.entry(end).or_default() += 1;
        self.delayed_ms = self.delayed_ms.saturating_add(ms);
    }
}
