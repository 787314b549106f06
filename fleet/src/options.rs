//! How a node takes part.

use std::time::Duration;

/// How a node takes part in a fleet. The defaults are right for a crawler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The pool: nodes of one pool share what they learn.
    pub pool: String,
    /// A name for the addresses that this node's requests come from; pauses hold for those who share it.
    pub egress: String,
    /// What others see as this node's version.
    pub version: String,
    /// Where this node runs, so that whoever is refused because of it finds it.
    pub place: String,
    /// How long the stream keeps messages.
    pub max_age: Duration,
    /// How often things are done.
    pub timing: Timing,
    /// For tests: what keeps things right, each of which can be switched off.
    #[doc(hidden)]
    pub safeguards: Safeguards,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pool: "default".into(),
            egress: String::new(),
            version: env!("CARGO_PKG_VERSION").into(),
            place: format!("process {}", std::process::id()),
            max_age: Duration::from_secs(7 * 86_400),
            timing: Timing::default(),
            safeguards: Safeguards::default(),
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
    pub want_max: Duration,
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
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            batch: Duration::from_secs(1),
            urgent: Duration::from_millis(20),
            presence: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            hole: Duration::from_secs(5),
            want_max: Duration::from_secs(600),
            silence: Duration::from_secs(2),
            look: Duration::from_secs(1),
            tables: Duration::from_secs(5),
            share_every: Duration::from_secs(86_400),
            share_after: 1_000_000,
            keep_after: 100_000,
            keep_bytes: 256 << 20,
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
}

impl Default for Safeguards {
    fn default() -> Self {
        Self { intervals: true, rewind: true, want: true, sync: true, withhold: true, late: true }
    }
}
