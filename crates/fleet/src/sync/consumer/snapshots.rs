//! The evidence snapshots of peers: which are applied, and which are deleted from the store.
//!
//! Invariants: a snapshot that lacks known positions that no node could send again is not applied.
//!
//! Must not know: how snapshots become evidence.

use std::collections::BTreeSet;

use super::accept_messages::Consumer;
use crate::error::FleetError;
use crate::model::evidence_snapshot::{SnapshotNote, tombstone_hash, unpack, validate};
use crate::model::node_id::NodeId;
use crate::model::position_set::Intervals;
use crate::peer_store::{FadedNode, MAX_EVIDENCE_BYTES};
use crate::transport::{BlobInfo, Table, Transport, TransportError};

/// Deletes the snapshots of closed nodes without evidence left. A snapshot that goes beyond the
/// seen positions stays, and so does that of a node that is back. A broker that lets nodes delete
/// their own snapshots only refuses it; then it is up to its operator.
pub(crate) async fn delete_faded_snapshots(
    transport: &dyn Transport,
    own: NodeId,
    faded: Vec<FadedNode>,
) -> Result<(), TransportError> {
    if faded.is_empty() {
        return Ok(());
    }
    let there = transport.cells().list(Table::Nodes).await?;
    for info in transport.blobs().list().await? {
        let Ok(note) = serde_json::from_str::<SnapshotNote>(&info.note) else { continue };
        let is_gone = |(node_id, seen): &FadedNode| {
            let top = seen.get(&note.epoch).and_then(Intervals::top);
            *node_id != own
                && node_id.to_string() == info.name
                && top.is_some_and(|top| top >= note.position)
        };
        if there.iter().all(|(name, _)| *name != info.name) && faded.iter().any(is_gone) {
            match transport.blobs().delete(&info.name).await {
                Ok(()) | Err(TransportError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

impl Consumer {
    /// Applies the snapshots of all nodes that go beyond what is known.
    pub(super) async fn apply_initial_snapshots(
        &mut self,
        shares: &[BlobInfo],
    ) -> Result<(), FleetError> {
        // If a snapshot replaces mixed evidence, the snapshots of the other nodes of the mix are
        // needed again.
        self.is_starting = false;
        for info in shares {
            let Ok(node_id) = info.name.parse::<NodeId>() else { continue };
            let Ok(note) = serde_json::from_str::<SnapshotNote>(&info.note) else { continue };
            let peer = self
                .states()
                .and_then(|states| states.peers.get(&node_id))
                .cloned()
                .unwrap_or_default();
            if node_id == self.own
                || !peer.is_accepted()
                || peer.covers(note.epoch, peer.base(note.epoch).saturating_add(1), note.position)
            {
                continue;
            }
            if let Err(error) = self.apply_stored_snapshot(node_id, info).await {
                self.is_starting = true;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Applies a snapshot if it fills a gap.
    pub(super) async fn apply_stored_snapshot(
        &mut self,
        node_id: NodeId,
        info: &BlobInfo,
    ) -> Result<bool, FleetError> {
        let note = serde_json::from_str::<SnapshotNote>(&info.note).unwrap_or_default();
        let bad = self.seen.get(&node_id).and_then(|seen| seen.bad_snapshot.as_ref());
        if node_id == self.own || bad.is_some_and(|(bad, _)| *bad == note) {
            return Ok(false);
        }
        let Some(bytes) = self.transport.blobs().get(&info.name, MAX_EVIDENCE_BYTES).await? else {
            return Ok(false);
        };
        let (now, is_present) = (self.selector.clock().date(), self.is_present(node_id));
        let (half_life_ms, brokers_now) =
            (self.selector.learned().half_life_ms(), self.transport.now().await?);
        let taken = self
            .with_peers(move |peers| {
                let (head, share) = match unpack(&bytes) {
                    Ok(read) => read,
                    Err(what) => return Ok(Err(what.to_owned())),
                };
                if let Err(what) = validate(&head, &share, half_life_ms, brokers_now) {
                    return Ok(Err(what.to_owned()));
                }
                let (fills, lacks) = peers.compare_coverage(node_id, &head.covers);
                let fills = fills || peers.refreshes(node_id, &head);
                // Positions that it lacks are requested again or are in `peers/`. A node that is
                // away cannot be asked.
                if !fills
                    || (lacks > 0
                        && !is_present
                        && !peers.has_messages_for(node_id, &head.covers)?)
                {
                    return Ok(Ok((false, false)));
                }
                peers
                    .apply_snapshot(node_id, &bytes, &head, &share, now)
                    .map(|begins_anew| Ok((true, begins_anew)))
            })
            .await?;
        match taken {
            Ok((taken, begins_anew)) => {
                self.counts.snapshots_applied += u64::from(taken);
                self.seen.entry(node_id).or_default().bad_snapshot = None;
                if begins_anew {
                    (self.is_starting, self.must_reopen) = (true, true);
                }
                Ok(taken)
            }
            Err(what) => {
                self.counts.rejected += 1;
                self.seen.entry(node_id).or_default().bad_snapshot =
                    Some((note, format!("evidence snapshot: {what}")));
                Ok(false)
            }
        }
    }

    /// Returns the tombstones by the hashes that snapshots use.
    pub(crate) fn tombstones(&self) -> BTreeSet<u64> {
        let all = self.states().into_iter().flat_map(|states| &states.forgotten);
        all.map(|(domain, until)| tombstone_hash(domain, *until)).collect()
    }

    pub(super) fn is_stale(&self, node_id: NodeId) -> bool {
        self.states()
            .and_then(|states| states.peers.get(&node_id))
            .is_some_and(|peer| peer.is_stale && peer.is_accepted())
    }
}
