//! The status of a consumer and its peers.

use fetchwise::time::Timestamp;

use super::reader::{Consumer, Seen};
use crate::model::intervals::count;
use crate::model::node_id::Origin;
use crate::model::peer_state::Peer;
use crate::model::status::PeerStatus;
use crate::sync::consumer::gap_repair::LOST_AFTER;

impl Consumer {
    /// Returns whether everything known was learned.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_moved = !self.is_own() || self.moves.left() == Some(0);
        !self.is_starting
            && is_moved
            && self.known().into_iter().all(|origin| {
                let lost = self.seen.get(&origin).and_then(|seen| seen.missing).is_some_and(|m| m.asked >= LOST_AFTER);
                lost || self.holes(origin).is_empty() && (origin == self.own || !self.is_stale(origin))
            })
    }

    /// Returns the time by this node's clock, and its id.
    pub(crate) fn own_time(&self) -> (Timestamp, Origin) {
        (self.selector.now(), self.own)
    }

    /// Returns the nodes that own sites.
    pub(crate) fn owners(&self) -> Vec<Origin> {
        let is_recent = |seen: &Seen| seen.seen_at.is_some_and(|at| at.elapsed() < self.options.timing.owner);
        let mut all: Vec<Origin> = self.seen.iter().filter(|(_, seen)| is_recent(seen)).map(|(o, _)| *o).collect();
        all.push(self.own);
        all.sort_unstable();
        all
    }

    /// Returns the number of nodes whose evidence of this node's sites is still to be applied.
    pub(crate) fn moving(&self) -> u64 {
        self.moves.left().unwrap_or(0) as u64
    }

    /// Returns the number of links with a state from peers, and how many of them are paused here.
    pub(crate) fn links(&self) -> (u64, u64) {
        let now = self.selector.now();
        self.book().map_or((0, 0), |book| book.links.counts(&self.options.egress_group, now))
    }

    /// Returns the status of all peers.
    pub(crate) fn status(&self) -> Vec<PeerStatus> {
        let nobody = Peer::default();
        let all = self.known().into_iter().filter(|origin| *origin != self.own);
        all.map(|origin| {
            let peer = self.book().and_then(|book| book.peers.get(&origin)).unwrap_or(&nobody);
            let seen = self.seen.get(&origin).cloned().unwrap_or_default();
            let presence = seen.presence.unwrap_or_default();
            let holes: u64 = count(self.holes(origin).iter().map(|(_, first, last)| (*first, *last)));
            let missing = seen.missing.filter(|_| holes > 0);
            let general = self.book().and_then(|book| book.generals.get(&origin)).map_or(0, |held| held.position);
            PeerStatus {
                origin: origin.to_string(),
                position: peer.top(peer.epoch().max(presence.epoch)).max(peer.base(peer.epoch())).max(general),
                published: presence.position,
                share: presence.share,
                holes,
                lost: if missing.is_some_and(|m| m.asked >= LOST_AFTER) { holes } else { 0 },
                lag_s: missing.map_or(0.0, |missing| missing.since.elapsed().as_secs_f64()),
                version: presence.version,
                present: self.is_there(origin),
                excluded: peer.is_excluded,
                aside: peer.aside.clone(),
                rejected: seen.rejected.or(seen.bad_share.map(|(_, what)| what)),
                waiting: seen.allowance.waiting(),
                limited: seen.allowance.why().map(str::to_owned),
                closed: peer.is_closed,
                egress: presence.egress,
                clock_ahead_s: presence.clock_ahead_ms as f64 / 1000.0,
            }
        })
        .collect()
    }
}
