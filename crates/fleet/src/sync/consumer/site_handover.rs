//! Site handover in scope `own`: applies what other nodes have recorded of sites that this node
//! owns now.
//!
//! Invariants: the evidence applied from a node replaces what was applied from it before.
//!
//! Must not know: how a snapshot becomes evidence.

use std::collections::BTreeSet;

use bytes::Bytes;
use tokio::time::Instant;

use super::accept_messages::Consumer;
use crate::error::FleetError;
use crate::model::codec::Batch;
use crate::model::evidence_snapshot::{SnapshotHead, unpack, validate};
use crate::model::node_id::NodeId;
use crate::model::peer_state::PeerStates;
use crate::model::rendezvous::owner_of_hash;
use crate::peer_store::{MAX_EVIDENCE_BYTES, part_of};
use crate::sync::run_blocking;
use crate::transport::{BlobInfo, Position, TransportError};

/// The maximum number of nodes per check, so that other work does not wait.
const MAX_PER_CHECK: usize = 4;

impl Consumer {
    /// Checks whether this node owns new sites, and applies what is known of them.
    pub(super) async fn take_over_sites(&mut self) -> Result<(), FleetError> {
        if !self.rebalance.heartbeats_are_complete(&self.options.timing) || self.is_starting {
            return Ok(());
        }
        let now: BTreeSet<NodeId> = self.owners().into_iter().collect();
        let from: Vec<NodeId> = match &self.rebalance.nodes {
            Some(before) => before.difference(&now).copied().collect(),
            None => self.known_peers(),
        };
        if self.rebalance.nodes.is_none() && self.is_restored() {
            self.rebalance.queue(self.own);
        }
        from.into_iter()
            .filter(|node_id| *node_id != self.own)
            .for_each(|node_id| self.rebalance.queue(node_id));
        self.rebalance.nodes = Some(now);
        for node_id in self.known_peers() {
            let is_due =
                self.rebalance.again_at.get(&node_id).is_none_or(|at| *at <= Instant::now());
            if self.is_stale(node_id) && is_due && node_id != self.own {
                self.rebalance.again_at.insert(node_id, Instant::now() + self.options.timing.lease);
                self.rebalance.queue(node_id);
            }
        }
        if self.rebalance.from.is_empty() {
            return Ok(());
        }
        let shares = self.transport.blobs().list().await?;
        for _ in 0..MAX_PER_CHECK {
            let Some(node_id) = self.rebalance.from.front().copied() else { break };
            match self.apply_sites(node_id, &shares).await {
                // A node with too large a snapshot or too many messages is reported, and does not
                // hold up the others.
                Err(FleetError::Transport(TransportError::Invalid(what))) => {
                    self.reject_sites(node_id, &what)?
                }
                taken => taken?,
            }
            self.rebalance.from.pop_front();
        }
        Ok(())
    }

    /// Starts over after mixed evidence was discarded: reads everything again and applies that of
    /// all nodes.
    pub(super) fn start_over(&mut self) {
        (self.is_starting, self.must_reopen) = (true, true);
        if self.is_own() {
            let (own, is_restored) = (self.own, self.is_restored());
            let from =
                self.known_peers().into_iter().filter(|node_id| *node_id != own || is_restored);
            from.for_each(|node_id| self.rebalance.queue(node_id));
        }
    }

    /// Applies what a node has recorded of this node's sites, from its snapshot and its later
    /// messages.
    async fn apply_sites(
        &mut self,
        node_id: NodeId,
        shares: &[BlobInfo],
    ) -> Result<(), FleetError> {
        if node_id == self.own {
            return self.apply_own_past().await;
        }
        if !self.peers()?.states.is_accepted(node_id) {
            return Ok(());
        }
        let name = node_id.to_string();
        let bytes = match shares.iter().any(|info| info.name == name) {
            true => self.transport.blobs().get(&name, MAX_EVIDENCE_BYTES).await?,
            false => None,
        };
        let (half_life_ms, brokers_now) =
            (self.selector.learned().half_life_ms(), self.transport.now().await?);
        let read = run_blocking(move || {
            let Some(bytes) = bytes else { return Ok(Default::default()) };
            let (head, share) = unpack(&bytes)?;
            validate(&head, &share, half_life_ms, brokers_now).map(|()| (head, share))
        });
        let (head, share): (SnapshotHead, _) = match read.await? {
            Ok(read) => read,
            Err(what) => return self.reject_sites(node_id, what),
        };
        let behind = head.behind();
        let from = if behind.incarnation == 0 {
            behind
        } else {
            Position { seq: behind.seq + 1, ..behind }
        };
        let said: Vec<Bytes> = self.transport.published_by(node_id, from).await?;
        let (nodes, own, now) = (self.owners(), self.own, self.selector.clock().date());
        let taken = self
            .with_peers(move |peers| {
                let mine = |site: u64| owner_of_hash(site, &nodes) == Some(own);
                let (head, part) = part_of(peers, (head, share), &said, now, mine)?;
                peers.apply_site_rows(node_id, &head, &part, now)
            })
            .await?;
        self.counts.snapshots_applied += u64::from(taken.is_some());
        if taken == Some(true) {
            self.start_over();
            // It was applied just now.
            self.rebalance.from.retain(|other| *other != node_id);
            self.rebalance.from.push_front(node_id);
        }
        Ok(())
    }

    /// Returns whether the node's log has begun another epoch because its directory was restored
    /// from a backup.
    fn is_restored(&self) -> bool {
        self.states().and_then(|states| states.own.as_ref()).is_some_and(|(_, held)| held.len() > 1)
    }

    /// Returns whether the lost positions of the log are known. The newest ones are applied first,
    /// so there is a gap until all are.
    fn knows_own_past(&self) -> bool {
        let states = self.states();
        let of = |states: &PeerStates| {
            let (own, held) = states.own.as_ref()?;
            let (peer, lost) = (states.peers.get(own)?, held.keys().rev().skip(1));
            Some(
                lost.into_iter().all(|epoch| peer.seen.contains_key(epoch))
                    && peer.holes(None).is_empty(),
            )
        };
        states.and_then(of).unwrap_or(false)
    }

    /// Applies the messages of this node that its log has lost, as far as the stream has them.
    /// Known positions are not learned twice.
    async fn apply_own_past(&mut self) -> Result<(), FleetError> {
        if self.knows_own_past() {
            return Ok(());
        }
        let (own, now) = (self.own, self.selector.clock().date());
        let said: Vec<Bytes> = self.transport.published_by(own, Position::default()).await?;
        let learned = self
            .with_peers(move |peers| {
                let (cursor, mut learned) = (peers.states.cursor, 0);
                for body in said.into_iter().rev() {
                    let Ok(batch) = Batch::decode(&body) else { continue };
                    let header = *batch.header();
                    if !peers.states.is_known(own, header.epoch, header.first, header.last) {
                        learned +=
                            peers.apply_message(own, (cursor, now), &body, &batch, false)?.learned;
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

    fn reject_sites(&mut self, node_id: NodeId, what: &str) -> Result<(), FleetError> {
        self.counts.rejected += 1;
        self.seen.entry(node_id).or_default().rejected = Some(format!("evidence snapshot: {what}"));
        Ok(())
    }
}
