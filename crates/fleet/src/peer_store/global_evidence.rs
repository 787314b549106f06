//! The global snapshots of peers in `peers/`: each replaces the previous one of its node.
//!
//! Invariants: the record comes first, then the evidence, then the peer states, as in the rest of
//! the store.
//!
//! Must not know: when a snapshot is accepted.

use bytes::Bytes;
use fetchwise::evidence::EvidenceSnapshot;
use fetchwise::time::Timestamp;

use super::store::PeerStore;
use crate::error::FleetError;
use crate::failpoints;
use crate::model::evidence_snapshot::{SnapshotHead, unpack};
use crate::model::node_id::NodeId;
use crate::model::peer_state::HeldGlobalSnapshot;
use crate::peer_store::record::PeerEvent;

impl PeerStore {
    /// Replaces the global snapshot of a node.
    pub(crate) fn set_global_snapshot(
        &mut self,
        node_id: NodeId,
        at: Timestamp,
        body: &Bytes,
        head: &SnapshotHead,
        share: &EvidenceSnapshot,
    ) -> Result<(), FleetError> {
        let before = match self.states.global_snapshots.get(&node_id) {
            Some(held) => {
                Some(unpack(&held.body).map_err(|what| FleetError::Record(what.to_owned()))?.1)
            }
            None => None,
        };
        self.append(&PeerEvent::GlobalSnapshot { node_id, at, body }, at)?;
        failpoints::reached(failpoints::APPENDED);
        // Added before the old one is retracted, so that the evidence is never lower than it should
        // be.
        self.selector.learned().add_snapshot(share);
        if let Some(before) = before {
            self.selector.learned().retract_snapshot(&before);
        }
        self.states.set_global_snapshot(node_id, HeldGlobalSnapshot::new(head, at, body.clone()));
        failpoints::reached(failpoints::LEARNED);
        Ok(())
    }
}
