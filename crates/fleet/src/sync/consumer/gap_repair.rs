//! Gap repair: finds missing positions of peers, requests them, and closes nodes that have gone.
//!
//! Owns: when missing positions are requested, and from which node.
//!
//! Invariants: repeated requests to a node get ever less frequent.
//!
//! Must not know: the content of messages.

use tokio::time::Instant;

use super::accept_messages::{Consumer, GapState};
use crate::error::FleetError;
use crate::model::node_id::NodeId;
use crate::model::peer_state::PeerState;
use crate::model::position_set::count;
use crate::transport::RetransmitRequest;

/// The number of unanswered requests after which a gap counts as lost. It is still requested.
pub(super) const LOST_AFTER: u32 = 6;
/// The maximum number of positions per round of requests.
const MAX_REQUEST_POSITIONS: u64 = 65_536;
/// The maximum number of gaps of one node per round of requests.
const MAX_REQUEST_GAPS: usize = 16;
/// The number of missing positions above which a snapshot is preferred.
const PREFER_SNAPSHOT_ABOVE: u64 = 200_000;

impl Consumer {
    /// Finds missing positions and requests them.
    pub(crate) async fn repair_gaps(&mut self) -> Result<(), FleetError> {
        if self.is_own() {
            // A global snapshot replaces the previous one as a whole, so nothing is ever missing.
            for node_id in self.known_peers() {
                self.close_if_gone(node_id)?;
            }
            return self.take_over_sites().await;
        }
        let shares =
            if self.is_starting { Some(self.transport.blobs().list().await?) } else { None };
        if let Some(shares) = &shares {
            self.apply_initial_snapshots(shares).await?;
        }
        let mut shares = shares;
        self.mark_excess_keys().await?;
        self.apply_waiting().await?;
        self.peers_mut()?.drop_expired_links();
        let node_ids: Vec<NodeId> = self.known_peers();
        for node_id in node_ids {
            self.close_if_gone(node_id)?;
            let holes = self.holes(node_id);
            let is_stale = self.is_stale(node_id);
            let missing: u64 = count(holes.iter().map(|(_, first, last)| (*first, *last)));
            let positions = missing.max(u64::from(is_stale));
            let Some(asked) = self.next_request(node_id, positions) else { continue };
            let is_present = self.is_present(node_id);
            // A node that is present can send what is missing. A snapshot covers everything and is
            // used when that fails.
            if asked.is_multiple_of(2)
                || !is_present
                || is_stale
                || positions > PREFER_SNAPSHOT_ABOVE
            {
                if shares.is_none() {
                    shares = Some(self.transport.blobs().list().await?);
                }
                let found =
                    shares.iter().flatten().find(|info| info.name == node_id.to_string()).cloned();
                if let Some(info) = found
                    && self.apply_stored_snapshot(node_id, &info).await?
                {
                    continue;
                }
            }
            if self.options.safeguards.want {
                self.ask(node_id, &holes).await?;
            }
        }
        Ok(())
    }

    /// Notes that `positions` of a node are missing. Returns the number of requests so far with
    /// the one that is due now, or `None` if none is due yet.
    fn next_request(&mut self, node_id: NodeId, positions: u64) -> Option<u32> {
        let (timing, has_waiting) = (self.options.timing, self.has_waiting(node_id));
        let seen = self.seen.entry(node_id).or_default();
        let Some(missing) = seen.missing.as_mut().filter(|_| positions > 0) else {
            let begun = Instant::now();
            let fresh = GapState { since: begun, positions, asked: 0, next: begun + timing.gap };
            seen.missing = (positions > 0).then_some(fresh);
            return None;
        };
        if positions < missing.positions {
            // Some positions have arrived; more may be on their way.
            (missing.positions, missing.asked) = (positions, 0);
        }
        if Instant::now() < missing.next || has_waiting {
            return None;
        }
        missing.asked += 1;
        missing.positions = positions;
        let wait =
            timing.gap.saturating_mul(1 << missing.asked.min(10)).min(timing.max_request_interval);
        missing.next = Instant::now() + wait;
        Some(missing.asked)
    }

    async fn ask(&mut self, node_id: NodeId, holes: &[(u32, u64, u64)]) -> Result<(), FleetError> {
        for (epoch, first, last) in holes.iter().take(MAX_REQUEST_GAPS) {
            let last = (*last).min(first.saturating_add(MAX_REQUEST_POSITIONS - 1));
            self.counts.retransmit_requests += 1;
            self.transport
                .signal(node_id, RetransmitRequest { epoch: *epoch, first: *first, last })
                .await?;
        }
        Ok(())
    }

    /// Returns all known peers.
    pub(super) fn known_peers(&self) -> Vec<NodeId> {
        let mut all: Vec<NodeId> = self.seen.keys().copied().collect();
        all.extend(
            self.states().into_iter().flat_map(|states| {
                states.peers.keys().chain(states.global_snapshots.keys()).copied()
            }),
        );
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(super) fn is_present(&self, node_id: NodeId) -> bool {
        let lease = self.options.timing.lease;
        self.seen
            .get(&node_id)
            .and_then(|seen| seen.seen_at)
            .is_some_and(|at| at.elapsed() < lease * 2)
    }

    /// Returns the gaps of a node.
    pub(crate) fn holes(&self, node_id: NodeId) -> Vec<(u32, u64, u64)> {
        let nobody = PeerState::default();
        let peer = self.states().and_then(|states| states.peers.get(&node_id)).unwrap_or(&nobody);
        if !peer.is_accepted() || peer.is_closed || self.is_own() {
            return Vec::new();
        }
        let heartbeat = self.seen.get(&node_id).and_then(|seen| seen.heartbeat.as_ref());
        let heartbeat = heartbeat.filter(|_| node_id != self.own);
        peer.holes(heartbeat.map(|said| (said.epoch, said.base, said.position)))
    }

    /// Closes a node after a long absence, and reopens one that is back.
    fn close_if_gone(&mut self, node_id: NodeId) -> Result<(), FleetError> {
        let now = self.selector.clock().date();
        let peer = self.states().and_then(|states| states.peers.get(&node_id));
        let is_present = self.is_present(node_id);
        if is_present && peer.is_some_and(|peer| peer.is_closed) {
            self.peers_mut()?.states.reopen(node_id, now);
            return Ok(());
        }
        let is_gone = peer.is_some_and(|peer| {
            !peer.is_closed
                && peer.heard_at > 0
                && now.since(peer.last_heard()) >= self.options.timing.close
        });
        if is_gone && !is_present && node_id != self.own && self.options.safeguards.close {
            self.peers_mut()?.close(node_id, now)?;
        }
        Ok(())
    }
}
