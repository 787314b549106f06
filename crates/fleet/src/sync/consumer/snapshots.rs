//! The evidence snapshots of peers: which are applied, and which are deleted from the store.
//!
//! Invariants: a snapshot that lacks known positions that no node could send again is not applied.
//!
//! Must not know: how snapshots become evidence.

use std::collections::BTreeSet;

use super::reader::Consumer;
use crate::error::FleetError;
use crate::model::evidence_snapshot::{Note, believe, forgot, unpack};
use crate::model::intervals::Intervals;
use crate::model::node_id::Origin;
use crate::peer_store::{Faded, MAX_SHARE};
use crate::transport::{BlobInfo, Table, Transport, TransportError};

/// Deletes the snapshots of closed nodes without evidence left. A snapshot that goes beyond the seen positions stays,
/// and so does that of a node that is back. A broker that lets nodes delete their own snapshots only refuses it; then
/// it is up to its operator.
pub(crate) async fn drop_shares(
    transport: &dyn Transport,
    own: Origin,
    faded: Vec<Faded>,
) -> Result<(), TransportError> {
    if faded.is_empty() {
        return Ok(());
    }
    let there = transport.cells().list(Table::Nodes).await?;
    for info in transport.blobs().list().await? {
        let Ok(note) = serde_json::from_str::<Note>(&info.note) else { continue };
        let is_gone = |(origin, seen): &Faded| {
            let top = seen.get(&note.epoch).and_then(Intervals::top);
            *origin != own && origin.to_string() == info.name && top.is_some_and(|top| top >= note.position)
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
    pub(super) async fn start(&mut self, shares: &[BlobInfo]) -> Result<(), FleetError> {
        // If a snapshot replaces mixed evidence, the snapshots of the other nodes of the mix are needed again.
        self.is_starting = false;
        for info in shares {
            let Ok(origin) = info.name.parse::<Origin>() else { continue };
            let Ok(note) = serde_json::from_str::<Note>(&info.note) else { continue };
            let peer = self.book().and_then(|book| book.peers.get(&origin)).cloned().unwrap_or_default();
            if origin == self.own
                || !peer.is_heard()
                || peer.covers(note.epoch, peer.base(note.epoch).saturating_add(1), note.position)
            {
                continue;
            }
            if let Err(error) = self.take_share(origin, info).await {
                self.is_starting = true;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Applies a snapshot if it fills a gap.
    pub(super) async fn take_share(&mut self, origin: Origin, info: &BlobInfo) -> Result<bool, FleetError> {
        let note = serde_json::from_str::<Note>(&info.note).unwrap_or_default();
        let bad = self.seen.get(&origin).and_then(|seen| seen.bad_share.as_ref());
        if origin == self.own || bad.is_some_and(|(bad, _)| *bad == note) {
            return Ok(false);
        }
        let Some(bytes) = self.transport.blobs().get(&info.name, MAX_SHARE).await? else { return Ok(false) };
        let (now, is_there) = (self.selector.now(), self.is_there(origin));
        let (half_life_ms, brokers_now) = (self.selector.half_life_ms(), self.transport.now().await?);
        let taken = self
            .with_peers(move |peers| {
                let (head, share) = match unpack(&bytes) {
                    Ok(read) => read,
                    Err(what) => return Ok(Err(what.to_owned())),
                };
                if let Err(what) = believe(&head, &share, half_life_ms, brokers_now) {
                    return Ok(Err(what.to_owned()));
                }
                let (fills, lacks) = peers.lacks(origin, &head.covers);
                let fills = fills || peers.refreshes(origin, &head);
                // Positions that it lacks are requested again or are in `peers/`. A node that is away cannot be asked.
                if !fills || (lacks > 0 && !is_there && !peers.has_messages_for(origin, &head.covers)?) {
                    return Ok(Ok((false, false)));
                }
                peers.share(origin, &bytes, &head, &share, now).map(|begins_anew| Ok((true, begins_anew)))
            })
            .await?;
        match taken {
            Ok((taken, begins_anew)) => {
                self.counts.snapshots_applied += u64::from(taken);
                self.seen.entry(origin).or_default().bad_share = None;
                if begins_anew {
                    (self.is_starting, self.must_reopen) = (true, true);
                }
                Ok(taken)
            }
            Err(what) => {
                self.counts.rejected += 1;
                self.seen.entry(origin).or_default().bad_share = Some((note, format!("its share: {what}")));
                Ok(false)
            }
        }
    }

    /// Returns the tombstones by the hashes that snapshots use.
    pub(crate) fn forgot(&self) -> BTreeSet<u64> {
        let all = self.book().into_iter().flat_map(|book| &book.forgotten);
        all.map(|(domain, until)| forgot(domain, *until)).collect()
    }

    pub(super) fn is_stale(&self, origin: Origin) -> bool {
        self.book().and_then(|book| book.peers.get(&origin)).is_some_and(|peer| peer.is_stale && peer.is_heard())
    }
}
