//! Token buckets for what a node may send, and the messages that wait.
//!
//! Owns: how buckets drain and refill, by the broker's clock.
//!
//! Must not know: which node waits.

use std::collections::VecDeque;

use bytes::Bytes;
use fetchwise::time::Timestamp;

use crate::model::options::Limits;
use crate::transport::Position;

/// A token bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TokenBucket {
    pub(super) used: f64,
}

impl TokenBucket {
    fn fill(&mut self, seconds: f64, per_s: f64) {
        self.used = (self.used - seconds * per_s).max(0.0);
    }
}

/// A waiting message.
#[derive(Clone, Debug)]
pub(super) struct WaitingMessage {
    pub(super) position: Position,
    pub(super) at: Timestamp,
    pub(super) body: Bytes,
    pub(super) facts: u64,
}

/// The rate limits of one node, and its waiting messages.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerQuota {
    pub(super) attempts: TokenBucket,
    pub(super) keys: TokenBucket,
    filled_at: Option<Timestamp>,
    pub(super) waiting: VecDeque<WaitingMessage>,
    /// The exhausted limit, while messages wait.
    pub(super) exhausted_limit: Option<&'static str>,
    /// Whether its keys are marked for early eviction, because it has brought more than it may.
    pub(super) is_doubted: bool,
}

impl PeerQuota {
    /// Refills the buckets up to the time `at`.
    pub(super) fn fill(&mut self, limits: &Limits, at: Timestamp) {
        let before = *self.filled_at.get_or_insert(at);
        if at > before {
            let seconds = at.since(before).as_secs_f64();
            self.attempts.fill(seconds, limits.attempts_per_s);
            self.keys.fill(seconds, limits.new_keys_per_s);
            self.filled_at = Some(at);
        }
    }

    /// Returns the number of waiting attempts.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.iter().map(|message| message.facts).sum()
    }

    /// Returns the limit that they wait for.
    pub(super) fn waiting_for(&self) -> Option<&'static str> {
        self.exhausted_limit.filter(|_| !self.waiting.is_empty())
    }
}
