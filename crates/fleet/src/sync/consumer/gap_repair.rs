//! What is missing of others: it is looked for, asked for, and given up with who has gone.
//!
//! Owns: when something missing is asked for, and of whom. Invariant: who is asked again and again is asked ever less often. Must not know
//! what messages say.

use tokio::time::Instant;

use super::reader::{Consumer, Missing};
use crate::error::FleetError;
use crate::model::intervals::count;
use crate::model::node_id::Origin;
use crate::model::peer_state::Peer;
use crate::transport::Want;

/// A hole that was asked for so often without an answer is counted as lost; it is asked for all the same.
pub(super) const LOST_AFTER: u32 = 6;
/// Positions asked for at one time.
const WANT_POSITIONS: u64 = 65_536;
/// Holes of one origin that are asked for at one time.
const WANT_HOLES: usize = 16;
/// With more positions missing than this, a share is looked for first.
const SHARE_RATHER: u64 = 200_000;

impl Consumer {
    /// Looks for what is missing, and does something about it.
    pub(crate) async fn mend(&mut self) -> Result<(), FleetError> {
        if self.is_own() {
            // An image replaces its origin's one before as a whole: nothing is ever missing.
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
                // Something has come: there may be more on its way.
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
            // Who is there can send what is missing. A share says it all, and is taken where that fails.
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
            self.counts.wants += 1;
            self.transport.signal(origin, Want { epoch: *epoch, first: *first, last }).await?;
        }
        Ok(())
    }

    /// All others that anything is known of.
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

    /// What is missing of an origin.
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

    /// Closes a node that has not been seen for long, and opens one that is back.
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
