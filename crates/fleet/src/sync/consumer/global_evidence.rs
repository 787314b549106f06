//! The global snapshots of peers: which are accepted and applied.
//!
//! Invariants: their memory is bounded. No more is accepted from a node than from one whose
//! attempts are read.
//!
//! Must not know: how a snapshot becomes evidence.

use bytes::Bytes;
use fetchwise::time::Timestamp;

use super::accept_messages::Consumer;
use crate::error::FleetError;
use crate::model::global_evidence::unpack;
use crate::model::node_id::NodeId;
use crate::model::options::Scope;
use crate::transport::GlobalDelivery;

/// The bytes of a snapshot that count as one attempt for the limits.
const BYTES_PER_ATTEMPT: usize = 20;

impl Consumer {
    /// Returns whether this node reads global snapshots instead of attempts.
    pub(crate) fn is_own(&self) -> bool {
        self.options.scope == Scope::Own
    }

    /// Applies a delivery. Returns whether the broker has lost the global snapshots.
    pub(crate) async fn apply_global(&mut self, came: GlobalDelivery) -> Result<bool, FleetError> {
        match came {
            GlobalDelivery::Snapshot { node_id, at, body } => {
                self.apply_global_snapshot(node_id, at, body).await?
            }
            GlobalDelivery::CaughtUp => self.is_starting = false,
            GlobalDelivery::Wiped => {
                self.counts.stream_resets += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn apply_global_snapshot(
        &mut self,
        node_id: NodeId,
        at: Timestamp,
        body: Bytes,
    ) -> Result<(), FleetError> {
        let states = &self.peers()?.states;
        let held = states.global_snapshots.get(&node_id);
        if node_id == self.own
            || !states.is_accepted(node_id)
            || held.is_some_and(|held| held.body == body)
        {
            return Ok(());
        }
        if self.exhausted_limit(node_id, at).is_some() {
            self.counts.throttled += 1;
            return self
                .reject_global_snapshot(node_id, "sent too often, or with too many new keys");
        }
        let others: usize = held_bytes(self.peers()?, node_id);
        if others + body.len() > self.options.limits.max_global_bytes {
            return self.reject_global_snapshot(node_id, "too many global snapshots");
        }
        self.charge(node_id, body.len() / BYTES_PER_ATTEMPT, 0);
        let (head, share) = match unpack(&body, self.selector.learned().half_life_ms(), at) {
            Ok(read) => read,
            Err(what) => return self.reject_global_snapshot(node_id, what),
        };
        let held = self.peers()?.states.global_snapshots.get(&node_id);
        if held.is_some_and(|held| (held.epoch, held.position) > (head.epoch, head.position())) {
            // It was published before the held one and arrives late.
            self.counts.duplicate += 1;
            return Ok(());
        }
        let keys = self.selector.learned().keys_seen();
        self.with_peers(move |peers| peers.set_global_snapshot(node_id, at, &body, &head, &share))
            .await?;
        let brought = self.selector.learned().keys_seen().saturating_sub(keys);
        self.charge(node_id, 0, brought);
        self.counts.global_snapshots_applied += 1;
        self.seen.entry(node_id).or_default().rejected = None;
        Ok(())
    }

    fn reject_global_snapshot(&mut self, node_id: NodeId, what: &str) -> Result<(), FleetError> {
        self.counts.rejected += 1;
        self.seen.entry(node_id).or_default().rejected = Some(format!("global snapshot: {what}"));
        Ok(())
    }
}

/// Returns the size of all held global snapshots other than that of `node_id`, in bytes.
fn held_bytes(peers: &crate::peer_store::PeerStore, node_id: NodeId) -> usize {
    peers
        .states
        .global_snapshots
        .iter()
        .filter(|(of, _)| **of != node_id)
        .map(|(_, held)| held.body.len())
        .sum()
}
