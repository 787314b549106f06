//! The limits of one node, and the messages that wait because of them.
//!
//! Owns: which messages wait.
//!
//! Invariants: their memory is bounded. Nothing is lost by waiting: a dropped message is a gap that
//! is requested when there is room.
//!
//! Must not know: the content of messages.

use bytes::Bytes;
use fetchwise::time::Timestamp;

use super::accept_messages::Consumer;
use crate::error::FleetError;
use crate::model::codec::{Batch, Header};
use crate::model::node_id::NodeId;
use crate::model::peer_link_states::DAY;
use crate::sync::consumer::token_bucket::WaitingMessage;
use crate::transport::Position;

impl Consumer {
    /// Returns the limit that a node has used up at a time of the broker.
    pub(super) fn exhausted_limit(
        &mut self,
        node_id: NodeId,
        at: Timestamp,
    ) -> Option<&'static str> {
        let (limits, safeguards) = (self.options.limits, self.options.safeguards);
        let quota = &mut self.seen.entry(node_id).or_default().quota;
        quota.fill(&limits, at);
        // With few keys in total, a node brings too many sooner than its limit.
        let tenth =
            self.selector.learned().max_keys().map_or(f64::INFINITY, |max| max as f64 / 10.0);
        let doubted_from = limits.new_key_burst.min(tenth);
        if safeguards.doubt && !quota.is_doubted && quota.keys.used >= doubted_from {
            quota.is_doubted = true;
            self.excess_key_nodes.push(node_id);
        } else if quota.keys.used < doubted_from / 2.0 && quota.waiting.is_empty() {
            // The keys that it has brought until then stay marked.
            quota.is_doubted = false;
        }
        if safeguards.floods && quota.attempts.used >= limits.attempt_burst {
            return Some("it sends more attempts than it may");
        }
        (safeguards.keys && quota.keys.used >= limits.new_key_burst)
            .then_some("it brings more new keys than it may")
    }

    /// Queues a message if it has to wait. Returns whether it does.
    pub(super) fn must_wait(
        &mut self,
        node_id: NodeId,
        header: &Header,
        (position, at): (Position, Timestamp),
        body: &Bytes,
    ) -> bool {
        // A later message waits after the queued ones.
        let exhausted_limit = self.exhausted_limit(node_id, at);
        let room = self.options.limits.waiting_bytes.saturating_sub(self.waiting_bytes);
        let quota = &mut self.seen.entry(node_id).or_default().quota;
        let has_waiting = exhausted_limit.is_some() || !quota.waiting.is_empty();
        if !has_waiting {
            return false;
        }
        quota.exhausted_limit = exhausted_limit.or(quota.exhausted_limit);
        let facts = u64::from(header.count);
        self.counts.throttled += facts;
        if body.len() <= room {
            self.waiting_bytes += body.len();
            quota.waiting.push_back(WaitingMessage { position, at, body: body.clone(), facts });
        }
        true
    }

    /// Returns whether a message with known attempts only has a newer link state that may still
    /// matter. The check counts against the node's limit.
    pub(super) fn has_newer_links(
        &mut self,
        node_id: NodeId,
        header: &Header,
        at: Timestamp,
        body: &Bytes,
    ) -> bool {
        if self.selector.clock().date().since(at) > DAY
            || self.exhausted_limit(node_id, at).is_some()
        {
            return false;
        }
        self.charge(node_id, header.count as usize, 0);
        let batch = Batch::decode(body);
        self.states()
            .zip(batch.ok())
            .is_some_and(|(states, batch)| states.has_newer_links(node_id, &batch, at))
    }

    /// Charges an applied message against the limits.
    pub(super) fn charge(&mut self, node_id: NodeId, facts: usize, keys: u64) {
        let quota = &mut self.seen.entry(node_id).or_default().quota;
        // An empty message costs work, too.
        quota.attempts.used += facts.max(1) as f64;
        quota.keys.used += keys as f64;
    }

    /// Marks the keys of nodes that were found to bring too many since the last check. Without a
    /// limit on keys nothing is marked.
    pub(super) async fn mark_excess_keys(&mut self) -> Result<(), FleetError> {
        for node_id in std::mem::take(&mut self.excess_key_nodes) {
            if self.selector.learned().max_keys().is_some() {
                self.with_peers(move |peers| peers.mark_keys(node_id)).await?;
            }
        }
        Ok(())
    }

    /// Returns whether the keys of a node are marked for early eviction.
    pub(super) fn is_doubted(&self, node_id: NodeId) -> bool {
        self.seen.get(&node_id).is_some_and(|seen| seen.quota.is_doubted)
    }

    /// Returns whether messages of a node wait. No more are requested from it then.
    pub(super) fn has_waiting(&self, node_id: NodeId) -> bool {
        self.seen.get(&node_id).is_some_and(|seen| !seen.quota.waiting.is_empty())
    }

    /// Applies waiting messages, as far as the limits allow now.
    pub(super) async fn apply_waiting(&mut self) -> Result<(), FleetError> {
        let waiting: Vec<NodeId> =
            self.seen.keys().copied().filter(|node_id| self.has_waiting(*node_id)).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let now = self.transport.now().await?.unwrap_or_else(|| self.selector.clock().date());
        for node_id in waiting {
            let is_accepted = self.peers()?.states.is_accepted(node_id);
            while !is_accepted || self.exhausted_limit(node_id, now).is_none() {
                let quota = &mut self.seen.entry(node_id).or_default().quota;
                let Some(message) = quota.waiting.pop_front() else { break };
                self.waiting_bytes = self.waiting_bytes.saturating_sub(message.body.len());
                self.apply_now(node_id, message.position, message.at, &message.body)?;
            }
        }
        Ok(())
    }
}
