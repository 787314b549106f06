//! Gap repair: finds missing positions of peers, requests them, and closes nodes that have gone.
//!
//! Owns: when missing positions are requested, and from which node.
//!
//! Invariants: repeated requests to a node get ever less frequent.
//!
//! Must not know: the content of messages.

use tokio::time::Instant;

use super::reader::{Consumer, Missing};
use crate::error::FleetError;
use crate::model::intervals::count;
use crate::model::node_id::Origin;
use crate::model::peer_state::Peer;
use crate::transport::Want;

/// The number of unanswered requests after which a gap counts as lost. It is still requested.
pub(super) const LOST_AFTER: u32 = 6;
/// The maximum number of positions per round of requests.
const WANT_POSITIONS: u64 = 65_536;
/// The maximum number of gaps of one node per round of requests.
const WANT_HOLES: usize = 16;
/// The number of missing positions above which a snapshot is preferred.
const SHARE_RATHER: u64 = 200_000;

impl Consumer {
    /// Finds missing positions and requests them.
    pub(crate) async fn mend(&mut self) -> Result<(), FleetError> {
        if self.is_own() {
            // A global snapshot replaces the previous one as a whole, so nothing is ever missing.
            for origin in self.known() {
                self.close_if_gone(origin)?;
            }
            return self.move_sites().await;
        }
        let shares = if self.is_starting { Some(self.transport.blobs().list().await?) } else { None };
        if let Some(shares) = &shares {
            self.start(shares).await?;
        }
        let mut shares = shares;
        self.doubt().await?;
        self.take_waiting().await?;
        self.peers_mut()?.sweep_links();
        let origins: Vec<Origin> = self.known();
        for origin in origins {
            self.close_if_gone(origin)?;
            let holes = self.holes(origin);
            let is_stale = self.is_stale(origin);
            let missing: u64 = count(holes.iter().map(|(_, first, last)| (*first, *last)));
            let positions = missing.max(u64::from(is_stale));
            let (timing, waits) = (self.options.timing, self.waits(origin));
            let seen = self.seen.entry(origin).or_default();
            let Some(missing) = seen.missing.as_mut().filter(|_| positions > 0) else {
                let begun = Instant::now();
                let fresh = Missing { since: begun, positions, asked: 0, next: begun + timing.hole };
                seen.missing = (positions > 0).then_some(fresh);
                continue;
            };
            if positions < missing.positions {
                // Some positions have arrived; more may be on their way.
                (missing.positions, missing.asked) = (positions, 0);
            }
            if Instant::now() < missing.next || waits {
                continue;
            }
            missing.asked += 1;
            missing.positions = positions;
            let wait = timing.hole.saturating_mul(1 << missing.asked.min(10)).min(timing.max_want);
            missing.next = Instant::now() + wait;
            let (asked, is_there) = (missing.asked, self.is_there(origin));
            // A node that is present can send what is missing. A snapshot covers everything and is used when that
            // fails.
            if asked.is_multiple_of(2) || !is_there || is_stale || positions > SHARE_RATHER {
                if shares.is_none() {
                    shares = Some(self.transport.blobs().list().await?);
                }
                let found = shares.iter().flatten().find(|info| info.name == origin.to_string()).cloned();
                if let Some(info) = found
                    && self.take_share(origin, &info).await?
                {
                    continue;
                }
            }
            if self.options.safeguards.want {
                self.ask(origin, &holes).await?;
            }
        }
        Ok(())
    }

    async fn ask(&mut self, origin: Origin, holes: &[(u32, u64, u64)]) -> Result<(), FleetError> {
        for (epoch, first, last) in holes.iter().take(WANT_HOLES) {
            let last = (*last).min(first.saturating_add(WANT_POSITIONS - 1));
            self.counts.retransmit_requests += 1;
            self.transport.signal(origin, Want { epoch: *epoch, first: *first, last }).await?;
        }
        Ok(())
    }

    /// Returns all known peers.
    pub(super) fn known(&self) -> Vec<Origin> {
        let mut all: Vec<Origin> = self.seen.keys().copied().collect();
        all.extend(self.book().into_iter().flat_map(|book| book.peers.keys().chain(book.generals.keys()).copied()));
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(super) fn is_there(&self, origin: Origin) -> bool {
        let lease = self.options.timing.lease;
        self.seen.get(&origin).and_then(|seen| seen.seen_at).is_some_and(|at| at.elapsed() < lease * 2)
    }

    /// Returns the gaps of a node.
    pub(crate) fn holes(&self, origin: Origin) -> Vec<(u32, u64, u64)> {
        let nobody = Peer::default();
        let peer = self.book().and_then(|book| book.peers.get(&origin)).unwrap_or(&nobody);
        if !peer.is_heard() || peer.is_closed || self.is_own() {
            return Vec::new();
        }
        let presence = self.seen.get(&origin).and_then(|seen| seen.presence.as_ref());
        let presence = presence.filter(|_| origin != self.own);
        peer.holes(presence.map(|said| (said.epoch, said.base, said.position)))
    }

    /// Closes a node after a long absence, and reopens one that is back.
    fn close_if_gone(&mut self, origin: Origin) -> Result<(), FleetError> {
        let now = self.selector.now();
        let peer = self.book().and_then(|book| book.peers.get(&origin));
        let is_there = self.is_there(origin);
        if is_there && peer.is_some_and(|peer| peer.is_closed) {
            self.peers_mut()?.book.reopen(origin, now);
            return Ok(());
        }
        let is_gone = peer.is_some_and(|peer| {
            !peer.is_closed && peer.heard_at > 0 && now.since(peer.heard()) >= self.options.timing.close
        });
        if is_gone && !is_there && origin != self.own && self.options.safeguards.close {
            self.peers_mut()?.close(origin, now)?;
        }
        Ok(())
    }
}
