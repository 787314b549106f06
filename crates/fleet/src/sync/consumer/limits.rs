//! What one node may send, and what waits because it has sent more.
//!
//! Owns: which messages wait. Invariants: memory for them is bounded; nothing is lost by waiting, since what is not kept is a hole that is
//! asked for when there is room. Must not know what messages say.

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
    /// What a node has used up, at a time of the broker's.
    pub(super) fn short_of(&mut self, origin: Origin, at: Timestamp) -> Option<&'static str> {
        let (limits, safeguards) = (self.options.limits, self.options.safeguards);
        let allowance = &mut self.seen.entry(origin).or_default().allowance;
        allowance.fill(&limits, at);
        // Where few keys are kept, a node brings too many sooner than it has to wait for.
        let tenth = self.selector.max_keys().map_or(f64::INFINITY, |max| max as f64 / 10.0);
        let doubted_from = limits.keys_at_once.min(tenth);
        if safeguards.doubt && !allowance.is_doubted && allowance.keys.used >= doubted_from {
            allowance.is_doubted = true;
            self.doubts.push(origin);
        } else if allowance.keys.used < doubted_from / 2.0 && allowance.waiting.is_empty() {
            // What it has brought until then stays in doubt.
            allowance.is_doubted = false;
        }
        if safeguards.floods && allowance.facts.used >= limits.facts_at_once {
            return Some("it sends more facts than it may");
        }
        (safeguards.keys && allowance.keys.used >= limits.keys_at_once).then_some("it brings more new keys than it may")
    }

    /// Whether a message has to wait; then it does.
    pub(super) fn must_wait(
        &mut self,
        origin: Origin,
        header: &Header,
        (position, at): (Position, Timestamp),
        body: &Bytes,
    ) -> bool {
        // Who comes later than those that wait waits behind them.
        let short_of = self.short_of(origin, at);
        let room = self.options.limits.waiting_bytes.saturating_sub(self.waiting_bytes);
        let allowance = &mut self.seen.entry(origin).or_default().allowance;
        let waits = short_of.is_some() || !allowance.waiting.is_empty();
        if !waits {
            return false;
        }
        allowance.short_of = short_of.or(allowance.short_of);
        let facts = u64::from(header.count);
        self.counts.late += facts;
        if body.len() <= room {
            self.waiting_bytes += body.len();
            allowance.waiting.push_back(Waiting { position, at, body: body.clone(), facts });
        }
        true
    }

    /// Whether a message whose facts are all known says something new of links that may still hold. To look is work for who sends much.
    pub(super) fn has_news_of_links(&mut self, origin: Origin, header: &Header, at: Timestamp, body: &Bytes) -> bool {
        if self.selector.now().since(at) > DAY || self.short_of(origin, at).is_some() {
            return false;
        }
        self.charge(origin, header.count as usize, 0);
        let batch = Batch::decode(body);
        self.book().zip(batch.ok()).is_some_and(|(book, batch)| book.has_news_of_links(origin, &batch, at))
    }

    /// A message was taken: what it has used up.
    pub(super) fn charge(&mut self, origin: Origin, facts: usize, keys: u64) {
        let allowance = &mut self.seen.entry(origin).or_default().allowance;
        // An empty message is work, too.
        allowance.facts.used += facts.max(1) as f64;
        allowance.keys.used += keys as f64;
    }

    /// Doubts what nodes have brought that were found to bring too many keys since the last look. Where there is no limit to keys nobody has
    /// to go first.
    pub(super) async fn doubt(&mut self) -> Result<(), FleetError> {
        for origin in std::mem::take(&mut self.doubts) {
            if self.selector.max_keys().is_some() {
                self.with_peers(move |peers| peers.doubt(origin)).await?;
            }
        }
        Ok(())
    }

    /// Whether what a node brings is doubted.
    pub(super) fn is_doubted(&self, origin: Origin) -> bool {
        self.seen.get(&origin).is_some_and(|seen| seen.allowance.is_doubted)
    }

    /// Whether something of a node's waits: then nobody asks for more of it.
    pub(super) fn waits(&self, origin: Origin) -> bool {
        self.seen.get(&origin).is_some_and(|seen| !seen.allowance.waiting.is_empty())
    }

    /// Takes what waits, as far as there is room for it now.
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
