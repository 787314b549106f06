//! The status of a consumer and its peers.

use fetchwise::time::Timestamp;

use super::accept_messages::{Consumer, PeerSession};
use crate::model::node_id::NodeId;
use crate::model::peer_state::PeerState;
use crate::model::position_set::count;
use crate::sync::consumer::gap_repair::LOST_AFTER;
use fetchwise::fleet_status::PeerStatus;

impl Consumer {
    /// Returns whether everything known was learned.
    pub(crate) fn is_converged(&self) -> bool {
        let is_moved = !self.is_own() || self.rebalance.remaining() == Some(0);
        !self.is_starting
            && is_moved
            && self.known_peers().into_iter().all(|node_id| {
                let lost = self
                    .seen
                    .get(&node_id)
                    .and_then(|seen| seen.missing)
                    .is_some_and(|m| m.asked >= LOST_AFTER);
                // What waits may be newer than what its node's last heartbeat announced, and so no
                // hole.
                !self.has_waiting(node_id)
                    && (lost
                        || self.holes(node_id).is_empty()
                            && (node_id == self.own || !self.is_stale(node_id)))
            })
    }

    /// Returns the time by this node's clock, and its id.
    pub(crate) fn own_time(&self) -> (Timestamp, NodeId) {
        (self.selector.clock().date(), self.own)
    }

    /// Returns the nodes that own sites.
    pub(crate) fn owners(&self) -> Vec<NodeId> {
        let is_recent = |seen: &PeerSession| {
            seen.seen_at.is_some_and(|at| at.elapsed() < self.options.timing.owner)
        };
        let mut all: Vec<NodeId> =
            self.seen.iter().filter(|(_, seen)| is_recent(seen)).map(|(o, _)| *o).collect();
        all.push(self.own);
        all.sort_unstable();
        all
    }

    /// Returns the number of nodes whose evidence of this node's sites is still to be applied.
    pub(crate) fn handover_pending(&self) -> u64 {
        self.rebalance.remaining().unwrap_or(0) as u64
    }

    /// Returns the number of links with a state from peers, and how many of them are paused here.
    pub(crate) fn links(&self) -> (u64, u64) {
        let now = self.selector.clock().date();
        self.states().map_or((0, 0), |states| states.links.counts(&self.options.egress_group, now))
    }

    /// Returns the status of all peers.
    pub(crate) fn status(&self) -> Vec<PeerStatus> {
        let nobody = PeerState::default();
        let all = self.known_peers().into_iter().filter(|node_id| *node_id != self.own);
        all.map(|node_id| {
            let peer =
                self.states().and_then(|states| states.peers.get(&node_id)).unwrap_or(&nobody);
            let seen = self.seen.get(&node_id).cloned().unwrap_or_default();
            let heartbeat = seen.heartbeat.unwrap_or_default();
            let holes: u64 =
                count(self.holes(node_id).iter().map(|(_, first, last)| (*first, *last)));
            let missing = seen.missing.filter(|_| holes > 0);
            let general = self
                .states()
                .and_then(|states| states.global_snapshots.get(&node_id))
                .map_or(0, |held| held.position);
            PeerStatus {
                node: node_id.to_string(),
                position: peer
                    .top(peer.epoch().max(heartbeat.epoch))
                    .max(peer.base(peer.epoch()))
                    .max(general),
                published: heartbeat.position,
                snapshot_position: heartbeat.share,
                missing_records: holes,
                lost: if missing.is_some_and(|m| m.asked >= LOST_AFTER) { holes } else { 0 },
                lag_s: missing.map_or(0.0, |missing| missing.since.elapsed().as_secs_f64()),
                version: heartbeat.version,
                present: self.is_present(node_id),
                excluded: peer.is_excluded,
                set_aside_reason: peer.aside.clone(),
                rejected: seen.rejected.or(seen.bad_snapshot.map(|(_, what)| what)),
                waiting: seen.quota.waiting(),
                limited: seen.quota.waiting_for().map(str::to_owned),
                closed: peer.is_closed,
                egress_group: heartbeat.egress,
                clock_ahead_s: heartbeat.clock_ahead_ms as f64 / 1000.0,
            }
        })
        .collect()
    }
}
