//! The limits of one node, and the messages that wait because of them.
//!
//! Owns: which messages wait.
//!
//! Invariants: their memory is bounded. Nothing is lost by waiting: a dropped message is a gap that is requested when
//! there is room.
//!
//! Must not know: the content of messages.

use bytes::Bytes;
use fetchwise::time::Timestamp;

use super::reader::Consumer;
use crate::error::FleetError;
use crate::model::codec::{Batch, Header};
use crate::model::links::DAY;
use crate::model::node_id::Origin;
use crate::sync::consumer::token_bucket::Waiting;
use crate::transport::Position;

impl Consumer {
    /// Returns the limit that a node has used up at a time of the broker.
    pub(super) fn short_of(&mut self, origin: Origin, at: Timestamp) -> Option<&'static str> {
        let (limits, safeguards) = (self.options.limits, self.options.safeguards);
        let allowance = &mut self.seen.entry(origin).or_default().allowance;
        allowance.fill(&limits, at);
        // With few keys in total, a node brings too many sooner than its limit.
        let tenth = self.selector.max_keys().map_or(f64::INFINITY, |max| max as f64 / 10.0);
        let doubted_from = limits.keys_at_once.min(tenth);
        if safeguards.doubt && !allowance.is_doubted && allowance.keys.used >= doubted_from {
            allowance.is_doubted = true;
            self.doubts.push(origin);
        } else if allowance.keys.used < doubted_from / 2.0 && allowance.waiting.is_empty() {
            // The keys that it has brought until then stay marked.
            allowance.is_doubted = false;
        }
        if safeguards.floods && allowance.facts.used >= limits.facts_at_once {
            return Some("it sends more facts than it may");
        }
        (safeguards.keys && allowance.keys.used >= limits.keys_at_once).then_some("it brings more new keys than it may")
    }

    /// Queues a message if it has to wait. Returns whether it does.
    pub(super) fn must_wait(
        &mut self,
        origin: Origin,
        header: &Header,
        (position, at): (Position, Timestamp),
        body: &Bytes,
    ) -> bool {
        // A later message waits after the queued ones.
        let short_of = self.short_of(origin, at);
        let room = self.options.limits.waiting_bytes.saturating_sub(self.waiting_bytes);
        let allowance = &mut self.seen.entry(origin).or_default().allowance;
        let waits = short_of.is_some() || !allowance.waiting.is_empty();
        if !waits {
            return false;
        }
        allowance.short_of = short_of.or(allowance.short_of);
        let facts = u64::from(header.count);
        self.counts.throttled += facts;
        if body.len() <= room {
            self.waiting_bytes += body.len();
            allowance.waiting.push_back(Waiting { position, at, body: body.clone(), facts });
        }
        true
    }

    /// Returns whether a message with known attempts only has a newer link state that may still matter. The check
    /// counts against the node's limit.
    pub(super) fn has_news_of_links(&mut self, origin: Origin, header: &Header, at: Timestamp, body: &Bytes) -> bool {
        if self.selector.now().since(at) > DAY || self.short_of(origin, at).is_some() {
            return false;
        }
        self.charge(origin, header.count as usize, 0);
        let batch = Batch::decode(body);
        self.book().zip(batch.ok()).is_some_and(|(book, batch)| book.has_news_of_links(origin, &batch, at))
    }

    /// Charges an applied message against the limits.
    pub(super) fn charge(&mut self, origin: Origin, facts: usize, keys: u64) {
        let allowance = &mut self.seen.entry(origin).or_default().allowance;
        // An empty message costs work, too.
        allowance.facts.used += facts.max(1) as f64;
        allowance.keys.used += keys as f64;
    }

    /// Marks the keys of nodes that were found to bring too many since the last check. Without a limit on keys nothing
    /// is marked.
    pub(super) async fn doubt(&mut self) -> Result<(), FleetError> {
        for origin in std::mem::take(&mut self.doubts) {
            if self.selector.max_keys().is_some() {
                self.with_peers(move |peers| peers.doubt(origin)).await?;
            }
        }
        Ok(())
    }

    /// Returns whether the keys of a node are marked for early eviction.
    pub(super) fn is_doubted(&self, origin: Origin) -> bool {
        self.seen.get(&origin).is_some_and(|seen| seen.allowance.is_doubted)
    }

    /// Returns whether messages of a node wait. No more are requested from it then.
    pub(super) fn waits(&self, origin: Origin) -> bool {
        self.seen.get(&origin).is_some_and(|seen| !seen.allowance.waiting.is_empty())
    }

    /// Applies waiting messages, as far as the limits allow now.
    pub(super) async fn take_waiting(&mut self) -> Result<(), FleetError> {
        let waiting: Vec<Origin> = self.seen.keys().copied().filter(|origin| self.waits(*origin)).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let now = self.transport.now().await?.unwrap_or_else(|| self.selector.now());
        for origin in waiting {
            let is_heard = self.peers()?.book.is_heard(origin);
            while !is_heard || self.short_of(origin, now).is_none() {
                let allowance = &mut self.seen.entry(origin).or_default().allowance;
                let Some(message) = allowance.waiting.pop_front() else { break };
                self.waiting_bytes = self.waiting_bytes.saturating_sub(message.body.len());
                self.take_now(origin, message.position, message.at, &message.body)?;
            }
        }
        Ok(())
    }
}
