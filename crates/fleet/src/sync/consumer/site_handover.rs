//! Site handover in scope `own`: applies what other nodes have recorded of sites that this node owns now.
//!
//! Invariants: the evidence applied from a node replaces what was applied from it before.
//!
//! Must not know: how a snapshot becomes evidence.

use std::collections::BTreeSet;

use bytes::Bytes;
use tokio::time::Instant;

use super::reader::Consumer;
use crate::background::blocking;
use crate::error::FleetError;
use crate::model::codec::Batch;
use crate::model::evidence_snapshot::{Head, believe, unpack};
use crate::model::node_id::Origin;
use crate::model::peer_state::Book;
use crate::model::rendezvous::owner_of_hash;
use crate::peer_store::{MAX_SHARE, part_of};
use crate::transport::{BlobInfo, Position, TransportError};

/// The maximum number of nodes per check, so that other work does not wait.
const AT_ONCE: usize = 4;

impl Consumer {
    /// Checks whether this node owns new sites, and applies what is known of them.
    pub(super) async fn move_sites(&mut self) -> Result<(), FleetError> {
        if !self.moves.sees_who_is_there(&self.options.timing) || self.is_starting {
            return Ok(());
        }
        let now: BTreeSet<Origin> = self.owners().into_iter().collect();
        let from: Vec<Origin> = match &self.moves.nodes {
            Some(before) => before.difference(&now).copied().collect(),
            None => self.known(),
        };
        if self.moves.nodes.is_none() && self.is_restored() {
            self.moves.again(self.own);
        }
        from.into_iter().filter(|origin| *origin != self.own).for_each(|origin| self.moves.again(origin));
        self.moves.nodes = Some(now);
        for origin in self.known() {
            let is_due = self.moves.again_at.get(&origin).is_none_or(|at| *at <= Instant::now());
            if self.is_stale(origin) && is_due && origin != self.own {
                self.moves.again_at.insert(origin, Instant::now() + self.options.timing.lease);
                self.moves.again(origin);
            }
        }
        if self.moves.from.is_empty() {
            return Ok(());
        }
        let shares = self.transport.blobs().list().await?;
        for _ in 0..AT_ONCE {
            let Some(origin) = self.moves.from.front().copied() else { break };
            match self.take_sites(origin, &shares).await {
                // A node with too large a snapshot or too many messages is reported, and does not hold up the others.
                Err(FleetError::Transport(TransportError::Invalid(what))) => self.refuse_sites(origin, &what)?,
                taken => taken?,
            }
            self.moves.from.pop_front();
        }
        Ok(())
    }

    /// Starts over after mixed evidence was discarded: reads everything again and applies that of all nodes.
    pub(super) fn begin_anew(&mut self) {
        (self.is_starting, self.must_reopen) = (true, true);
        if self.is_own() {
            let (own, is_restored) = (self.own, self.is_restored());
            let from = self.known().into_iter().filter(|origin| *origin != own || is_restored);
            from.for_each(|origin| self.moves.again(origin));
        }
    }

    /// Applies what a node has recorded of this node's sites, from its snapshot and its later messages.
    async fn take_sites(&mut self, origin: Origin, shares: &[BlobInfo]) -> Result<(), FleetError> {
        if origin == self.own {
            return self.take_own_past().await;
        }
        if !self.peers()?.book.is_heard(origin) {
            return Ok(());
        }
        let name = origin.to_string();
        let bytes = match shares.iter().any(|info| info.name == name) {
            true => self.transport.blobs().get(&name, MAX_SHARE).await?,
            false => None,
        };
        let (half_life_ms, brokers_now) = (self.selector.half_life_ms(), self.transport.now().await?);
        let read = blocking(move || {
            let Some(bytes) = bytes else { return Ok(Default::default()) };
            let (head, share) = unpack(&bytes)?;
            believe(&head, &share, half_life_ms, brokers_now).map(|()| (head, share))
        });
        let (head, share): (Head, _) = match read.await? {
            Ok(read) => read,
            Err(what) => return self.refuse_sites(origin, what),
        };
        let behind = head.behind();
        let from = if behind.incarnation == 0 { behind } else { Position { seq: behind.seq + 1, ..behind } };
        let said: Vec<Bytes> = self.transport.said_by(origin, from).await?;
        let (nodes, own, now) = (self.owners(), self.own, self.selector.now());
        let taken = self
            .with_peers(move |peers| {
                let mine = |site: u64| owner_of_hash(site, &nodes) == Some(own);
                let (head, part) = part_of(peers, (head, share), &said, now, mine)?;
                peers.sites(origin, &head, &part, now)
            })
            .await?;
        self.counts.snapshots_applied += u64::from(taken.is_some());
        if taken == Some(true) {
            self.begin_anew();
            // It was applied just now.
            self.moves.from.retain(|other| *other != origin);
            self.moves.from.push_front(origin);
        }
        Ok(())
    }

    /// Returns whether the node's log has begun another epoch because its directory was restored from a backup.
    fn is_restored(&self) -> bool {
        self.book().and_then(|book| book.own.as_ref()).is_some_and(|(_, held)| held.len() > 1)
    }

    /// Returns whether the lost positions of the log are known. The newest ones are applied first, so there is a gap
    /// until all are.
    fn knows_own_past(&self) -> bool {
        let book = self.book();
        let of = |book: &Book| {
            let (own, held) = book.own.as_ref()?;
            let (peer, lost) = (book.peers.get(own)?, held.keys().rev().skip(1));
            Some(lost.into_iter().all(|epoch| peer.seen.contains_key(epoch)) && peer.holes(None).is_empty())
        };
        book.and_then(of).unwrap_or(false)
    }

    /// Applies the messages of this node that its log has lost, as far as the stream has them. Known positions are not
    /// learned twice.
    async fn take_own_past(&mut self) -> Result<(), FleetError> {
        if self.knows_own_past() {
            return Ok(());
        }
        let (own, now) = (self.own, self.selector.now());
        let said: Vec<Bytes> = self.transport.said_by(own, Position::default()).await?;
        let learned = self
            .with_peers(move |peers| {
                let (cursor, mut learned) = (peers.book.cursor, 0);
                for body in said.into_iter().rev() {
                    let Ok(batch) = Batch::decode(&body) else { continue };
                    let header = *batch.header();
                    if !peers.book.knows(own, header.epoch, header.first, header.last) {
                        learned += peers.message(own, (cursor, now), &body, &batch, false)?.learned;
                    }
                }
                // The next global snapshot is folded from disk.
                peers.flush().wait().map_err(|error| FleetError::Record(error.to_string()))?;
                Ok(learned)
            })
            .await?;
        self.counts.received += learned;
        self.has_learned_past |= learned > 0;
        Ok(())
    }

    fn refuse_sites(&mut self, origin: Origin, what: &str) -> Result<(), FleetError> {
        self.counts.rejected += 1;
        self.seen.entry(origin).or_default().rejected = Some(format!("its share: {what}"));
        Ok(())
    }
}
