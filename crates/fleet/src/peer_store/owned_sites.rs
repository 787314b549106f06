//! Evidence in `peers/` of sites that this node owns now, as a snapshot with the rows of these
//! sites alone.
//!
//! Must not know: which sites these are.

use bytes::Bytes;
use fetchwise::evidence::EvidenceSnapshot;
use fetchwise::time::Timestamp;

use super::store::PeerStore;
use crate::error::FleetError;
use crate::model::codec::Batch;
use crate::model::evidence_snapshot::{SnapshotHead, pack};
use crate::model::node_id::NodeId;
use crate::model::peer_state::MAX_AHEAD_MS;
use crate::model::rendezvous::hash_of;

/// Returns the part of a node's evidence that belongs to some sites, from its snapshot and its
/// later messages, each position once. Forgotten evidence is left out.
pub(crate) fn part_of(
    peers: &PeerStore,
    (mut head, share): (SnapshotHead, EvidenceSnapshot),
    said: &[Bytes],
    now: Timestamp,
    mine: impl Fn(u64) -> bool,
) -> Result<(SnapshotHead, EvidenceSnapshot), FleetError> {
    let folded = peers
        .selector
        .learned()
        .empty_copy()
        .map_err(|error| FleetError::Selector(error.to_string()))?;
    folded.add_snapshot(&share.of_sites(&mine));
    let (mut newest, states) = (share.as_of(), &peers.states);
    head.half_life_ms = peers.selector.learned().half_life_ms();
    // The domain of a link does not tell its site.
    head.links.clear();
    for batch in said.iter().filter_map(|body| Batch::decode(body).ok()) {
        let header = *batch.header();
        if header.count > 0
            && header.newest.as_millis() > now.as_millis().saturating_add(MAX_AHEAD_MS)
        {
            continue;
        }
        (head.epoch, head.base) = (head.epoch, head.base).max((header.epoch, header.base));
        let seen = head.covers.entry(header.epoch).or_default();
        batch.each(|position, fact, _| {
            let is_mine = fact.site().is_some_and(|site| mine(hash_of(site)));
            if is_mine && !seen.contains(position) && !states.is_forgotten(fact) {
                folded.receive_attempt(fact);
                newest = newest.max(fact.at);
            }
        });
        seen.insert(header.first, header.last);
    }
    Ok((head, folded.evidence_snapshot(newest, 0.0).of_sites(&mine)))
}

impl PeerStore {
    /// Replaces the part of a node's evidence that belongs to this node's sites. Returns none if
    /// there is none and was none. Otherwise returns whether evidence of other nodes was mixed with
    /// it and has to be fetched again.
    pub(crate) fn apply_site_rows(
        &mut self,
        node_id: NodeId,
        head: &SnapshotHead,
        part: &EvidenceSnapshot,
        now: Timestamp,
    ) -> Result<Option<bool>, FleetError> {
        if part.keys() == 0
            && self.states.peers.get(&node_id).is_none_or(|peer| peer.seen.is_empty())
        {
            return Ok(None);
        }
        let bytes = pack(head, part).map_err(|error| FleetError::Record(error.to_string()))?;
        self.put_snapshot((node_id, now), &bytes, head, part, true).map(Some)
    }
}
