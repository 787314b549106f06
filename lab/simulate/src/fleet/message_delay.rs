//! The delivery of attempts from one node to the others, in virtual time: open messages, the
//! stream, and the read position of each node.
//!
//! Owns: the time at which a message closes and arrives.
//!
//! Invariants: remote attempts are encoded and decoded by the real codec, and arrive no later than
//! the delay.
//!
//! Must not know: how anything is decided.

use std::collections::{BTreeSet, VecDeque};

use fetchwise::attempt::Attempt;
use fetchwise::evidence::RemoteAttempt;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_fleet::model::codec::{Batch, Builder};
use fetchwise_fleet::model::node_id::NodeId;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::SimulateError;
use crate::run::BEGIN_MS;

/// A message closes after this time, like a real node's,
const BATCH_MS: i64 = 1000;
/// this soon after a block,
const URGENT_MS: i64 = 20;
/// and with this number of positions.
const MAX_POSITIONS: u64 = 4096;
/// The only epoch: nothing is restored here.
const EPOCH: u32 = 1;

/// A message in the stream.
pub(super) struct Message {
    pub(super) origin: NodeId,
    pub(super) batch: Batch,
    comes_ms: i64,
}

impl Message {
    /// Returns the time at which it arrives.
    pub(super) fn at(&self) -> Timestamp {
        Timestamp::from_millis(BEGIN_MS + self.comes_ms)
    }
}

/// A message being written.
struct OpenMessage {
    builder: Builder,
    closes_ms: i64,
}

/// The traffic of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) facts: u64,
}

/// The broker, and the unpublished attempts of nodes.
pub(super) struct MessageBroker {
    origins: Vec<NodeId>,
    open: Vec<Option<OpenMessage>>,
    /// The next position of each node.
    next: Vec<u64>,
    /// The times at which open messages close, and their nodes.
    closing: BTreeSet<(i64, usize)>,
    stream: VecDeque<Message>,
    /// The number of the oldest message in memory.
    first: u64,
    batch_ms: i64,
    travel_ms: i64,
    pub(super) traffic: Traffic,
}

impl MessageBroker {
    /// Creates a broker that delivers an attempt to all other nodes at most `delay_ms` after it was
    /// recorded.
    pub(super) fn new(origins: Vec<NodeId>, delay_ms: i64) -> Self {
        let batch_ms = delay_ms.clamp(0, BATCH_MS);
        Self {
            open: origins.iter().map(|_| None).collect(),
            next: vec![1; origins.len()],
            origins,
            closing: BTreeSet::new(),
            stream: VecDeque::new(),
            first: 0,
            batch_ms,
            travel_ms: (delay_ms - batch_ms).max(0),
            traffic: Traffic::default(),
        }
    }

    /// Records an attempt of node `of` at `now_ms`.
    pub(super) fn record(
        &mut self,
        of: usize,
        attempt: &Attempt,
        selector: &Selector,
        now_ms: i64,
    ) -> Result<(), SimulateError> {
        let position = self.next[of];
        self.next[of] += 1;
        let fresh = || OpenMessage {
            builder: Builder::new(EPOCH, 0, position),
            closes_ms: now_ms + self.batch_ms,
        };
        let open = self.open[of].get_or_insert_with(fresh);
        self.closing.remove(&(open.closes_ms, of));
        push(&mut open.builder, attempt, selector);
        if attempt.is_banned {
            open.closes_ms = open.closes_ms.min(now_ms + URGENT_MS);
        }
        let is_full = open.builder.positions() >= MAX_POSITIONS;
        let closes_ms = if is_full { now_ms } else { open.closes_ms };
        open.closes_ms = closes_ms;
        self.closing.insert((closes_ms, of));
        if is_full { self.advance(now_ms) } else { Ok(()) }
    }

    /// Closes every message that is due.
    pub(super) fn advance(&mut self, now_ms: i64) -> Result<(), SimulateError> {
        while let Some((closes_ms, of)) =
            self.closing.first().copied().filter(|(at, _)| *at <= now_ms)
        {
            self.closing.remove(&(closes_ms, of));
            let Some(open) = self.open[of].take() else { continue };
            let failed = |error: &dyn std::fmt::Display| SimulateError::Codec(error.to_string());
            let (header, body) = open.builder.finish(0).map_err(|error| failed(&error))?;
            // The message is the same for all nodes, so one decoding is enough.
            let batch = Batch::decode(&body).map_err(|error| failed(&error))?;
            self.traffic.messages += 1;
            self.traffic.bytes += body.len() as u64;
            self.traffic.facts += u64::from(header.count);
            let comes_ms = closes_ms + self.travel_ms;
            self.stream.push_back(Message { origin: self.origins[of], batch, comes_ms });
        }
        Ok(())
    }

    /// Returns the message with the number `at`, if it has arrived by `now_ms`.
    pub(super) fn come(&self, at: u64, now_ms: i64) -> Option<&Message> {
        let message = self.stream.get(usize::try_from(at.checked_sub(self.first)?).ok()?)?;
        (message.comes_ms <= now_ms).then_some(message)
    }

    /// Drops the messages before the number `upto`, which all nodes have read.
    pub(super) fn forget(&mut self, upto: u64) {
        while self.first < upto && self.stream.pop_front().is_some() {
            self.first += 1;
        }
    }
}

/// Adds an attempt like a real node: as a remote attempt, or as a position without evidence.
fn push(builder: &mut Builder, attempt: &Attempt, selector: &Selector) {
    let link = xxh3_64(attempt.url.as_bytes());
    if with_fact(attempt, selector, |fact| builder.push(fact, link)).is_none() {
        builder.skip();
    }
}

/// Calls `f` with the remote attempt that the others receive; returns none if they receive nothing.
pub(super) fn with_fact<T>(
    attempt: &Attempt,
    selector: &Selector,
    f: impl FnOnce(&RemoteAttempt<'_>) -> T,
) -> Option<T> {
    if !(attempt.weight > 0.0 && attempt.weight.is_finite()) {
        return None;
    }
    let heuristics: Vec<(&str, &str)> = attempt
        .heuristics
        .iter()
        .map(|tag| (&*tag.heuristic.kind, &*tag.heuristic.value))
        .collect();
    Some(f(&RemoteAttempt {
        at: attempt.attempted_at,
        fetcher: &attempt.fetcher,
        weight: attempt.weight.min(1.0),
        success: attempt.success,
        is_banned: attempt.is_banned,
        duration_ms: attempt.duration_ms,
        hint: attempt.hint,
        is_file: selector.learned().is_file(&attempt.url),
        heuristics: &heuristics,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    fn attempt(ms: i64) -> Attempt {
        let url = Url::parse("https://www.site1.com/s1/p1").unwrap();
        Attempt::new(&url, "direct_access", Timestamp::from_millis(ms)).unwrap().delivered()
    }

    #[test]
    fn an_attempt_arrives_after_the_delay_and_a_block_sooner() {
        let selector = Selector::builder().without_pace().build().unwrap();
        let origins = vec![NodeId::from_bytes([1; 16]), NodeId::from_bytes([2; 16])];
        let mut wire = MessageBroker::new(origins.clone(), 2000);
        wire.record(0, &attempt(0), &selector, 0).unwrap();
        wire.record(0, &attempt(500), &selector, 500).unwrap();
        wire.advance(5000).unwrap();
        assert!(wire.come(0, 1999).is_none());
        let message = wire.come(0, 2000).unwrap();
        assert_eq!(
            (message.origin, message.batch.header().count, message.batch.header().last),
            (origins[0], 2, 2)
        );
        let blocked = Attempt { is_banned: true, success: false, ..attempt(6000) };
        wire.record(1, &attempt(6000), &selector, 6000).unwrap();
        wire.record(1, &blocked, &selector, 6000).unwrap();
        wire.advance(6020).unwrap();
        assert!(wire.come(1, 7019).is_none() && wire.come(1, 7020).is_some());
        wire.forget(1);
        assert!(
            wire.come(0, 9000).is_none()
                && wire.come(1, 9000).is_some()
                && wire.come(2, 9000).is_none()
        );
        assert_eq!((wire.traffic.messages, wire.traffic.facts), (2, 4));
    }
}
