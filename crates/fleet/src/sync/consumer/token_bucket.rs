//! What a node may send, and what of it waits.
//!
//! Owns: how an allowance is used up and fills up again, by the broker's clock. Must not know who waits.

use std::collections::VecDeque;

use bytes::Bytes;
use fetchwise::time::Timestamp;

use crate::model::options::Limits;
use crate::transport::Position;

/// An amount that fills up again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    pub(super) used: f64,
}

impl Bucket {
    fn fill(&mut self, seconds: f64, per_s: f64) {
        self.used = (self.used - seconds * per_s).max(0.0);
    }
}

/// A message that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) position: Position,
    pub(super) at: Timestamp,
    pub(super) body: Bytes,
    pub(super) facts: u64,
}

/// What is left of a node's allowance, and what waits for more of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowance {
    pub(super) facts: Bucket,
    pub(super) keys: Bucket,
    filled_at: Option<Timestamp>,
    pub(super) waiting: VecDeque<Waiting>,
    /// What it has used up, as long as something waits.
    pub(super) short_of: Option<&'static str>,
    /// Since when it has brought more keys than it may, what it brings is doubted.
    pub(super) is_doubted: bool,
}

impl Allowance {
    /// Time has gone on to `at`.
    pub(super) fn fill(&mut self, limits: &Limits, at: Timestamp) {
        let before = *self.filled_at.get_or_insert(at);
        if at > before {
            let seconds = at.since(before).as_secs_f64();
            self.facts.fill(seconds, limits.facts_per_s);
            self.keys.fill(seconds, limits.keys_per_s);
            self.filled_at = Some(at);
        }
    }

    /// How many facts wait.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.iter().map(|message| message.facts).sum()
    }

    /// Why they do.
    pub(super) fn why(&self) -> Option<&'static str> {
        self.short_of.filter(|_| !self.waiting.is_empty())
    }
}
