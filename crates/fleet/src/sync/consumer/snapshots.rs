//! Shares of others: which are taken, and which go from the store.
//!
//! Invariant: a share that lacks what is known, and what nobody could send again, is left. Must not know how shares become evidence.

use std::collections::BTreeSet;

use super::reader::Consumer;
use crate::error::FleetError;
use crate::model::evidence_snapshot::{Note, believe, forgot, unpack};
use crate::model::intervals::Intervals;
use crate::model::node_id::Origin;
use crate::peer_store::{Faded, SHARE_MAX};
use crate::transport::{BlobInfo, Table, Transport, TransportError};

/// Deletes the shares of those who have left for good and of whose evidence nothing is left. One that says more than was seen stays, and so
/// does that of who is back. A broker that lets nodes delete no shares but their own refuses it; then that is for its operator.
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
    /// Takes the shares of all who have one that says more than is known.
    pub(super) async fn start(&mut self, shares: &[BlobInfo]) -> Result<(), FleetError> {
        // Where a share takes the place of mixed evidence, the others of it are to be looked through again.
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

    /// Takes a share, if it fills something in that is missing.
    pub(super) async fn take_share(&mut self, origin: Origin, info: &BlobInfo) -> Result<bool, FleetError> {
        let note = serde_json::from_str::<Note>(&info.note).unwrap_or_default();
        let bad = self.seen.get(&origin).and_then(|seen| seen.bad_share.as_ref());
        if origin == self.own || bad.is_some_and(|(bad, _)| *bad == note) {
            return Ok(false);
        }
        let Some(bytes) = self.transport.blobs().get(&info.name, SHARE_MAX).await? else { return Ok(false) };
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
                // What it lacks is asked for again, or comes out of `peers/`; nobody can be asked who is not there.
                if !fills || (lacks > 0 && !is_there && !peers.has_messages_for(origin, &head.covers)?) {
                    return Ok(Ok((false, false)));
                }
                peers.share(origin, &bytes, &head, &share, now).map(|begins_anew| Ok((true, begins_anew)))
            })
            .await?;
        match taken {
            Ok((taken, begins_anew)) => {
                self.counts.shares += u64::from(taken);
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

    /// What was forgotten, as shares name it.
    pub(crate) fn forgot(&self) -> BTreeSet<u64> {
        let all = self.book().into_iter().flat_map(|book| &book.forgotten);
        all.map(|(domain, until)| forgot(domain, *until)).collect()
    }

    pub(super) fn is_stale(&self, origin: Origin) -> bool {
        self.book().and_then(|book| book.peers.get(&origin)).is_some_and(|peer| peer.is_stale && peer.is_heard())
    }
}
