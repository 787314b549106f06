//! Evidence in `peers/` of sites that this node owns now, as a snapshot with the rows of these sites alone.
//!
//! Must not know: which sites these are.

use bytes::Bytes;
use fetchwise::evidence::Share;
use fetchwise::time::Timestamp;

use super::store::Peers;
use crate::error::FleetError;
use crate::model::codec::Batch;
use crate::model::evidence_snapshot::{Head, pack};
use crate::model::node_id::Origin;
use crate::model::peer_state::MAX_AHEAD_MS;
use crate::model::rendezvous::hash_of;

/// Returns the part of a node's evidence that belongs to some sites, from its snapshot and its later messages, each
/// position once. Forgotten evidence is left out.
pub(crate) fn part_of(
    peers: &Peers,
    (mut head, share): (Head, Share),
    said: &[Bytes],
    now: Timestamp,
    mine: impl Fn(u64) -> bool,
) -> Result<(Head, Share), FleetError> {
    let folded = peers.selector.blank().map_err(|error| FleetError::Selector(error.to_string()))?;
    folded.take_share(&share.of_sites(&mine));
    let (mut newest, book) = (share.as_of(), &peers.book);
    head.half_life_ms = peers.selector.half_life_ms();
    // The domain of a link does not tell its site.
    head.links.clear();
    for batch in said.iter().filter_map(|body| Batch::decode(body).ok()) {
        let header = *batch.header();
        if header.count > 0 && header.newest.as_millis() > now.as_millis().saturating_add(MAX_AHEAD_MS) {
            continue;
        }
        (head.epoch, head.base) = (head.epoch, head.base).max((header.epoch, header.base));
        let seen = head.covers.entry(header.epoch).or_default();
        batch.each(|position, fact, _| {
            let is_mine = fact.site().is_some_and(|site| mine(hash_of(site)));
            if is_mine && !seen.contains(position) && !book.is_forgotten(fact) {
                folded.learn_fact(fact);
                newest = newest.max(fact.at);
            }
        });
        seen.insert(header.first, header.last);
    }
    Ok((head, folded.share(newest, 0.0).of_sites(&mine)))
}

impl Peers {
    /// Replaces the part of a node's evidence that belongs to this node's sites. Returns none if there is none and was
    /// none. Otherwise returns whether evidence of other nodes was mixed with it and has to be fetched again.
    pub(crate) fn sites(
        &mut self,
        origin: Origin,
        head: &Head,
        part: &Share,
        now: Timestamp,
    ) -> Result<Option<bool>, FleetError> {
        if part.keys() == 0 && self.book.peers.get(&origin).is_none_or(|peer| peer.seen.is_empty()) {
            return Ok(None);
        }
        let bytes = pack(head, part).map_err(|error| FleetError::Record(error.to_string()))?;
        self.put_share(origin, &bytes, head, part, now, true).map(Some)
    }
}
