//! The core of the consumer: it stores messages of peers and learns from them once.
//!
//! Owns: which messages are accepted.
//!
//! Invariants: the broker never learns what was read; the position to continue from is in `peers/`.
//!
//! Must not know: how the node's own log is published.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use fetchwise::journal::replication::retract_domain;
use fetchwise::journal::{Journal, Tombstone, TombstoneTarget};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::FleetError;
use crate::model::codec::{Batch, DecodeError, peek};
use crate::model::evidence_snapshot::SnapshotNote;
use crate::model::heartbeat::Heartbeat;
use crate::model::node_id::NodeId;
use crate::model::options::Options;
use crate::model::peer_state::MAX_AHEAD_MS;
use crate::peer_store::PeerStore;
use crate::sync::consumer::rebalance::Rebalance;
use crate::sync::consumer::token_bucket::PeerQuota;
use crate::sync::forget::ForgetCell;
use crate::sync::{run_blocking, synced};
use crate::transport::{Cell, Delivery, Position, Table, Transport, is_broker_response};
use fetchwise::fleet_status::FleetCounts;

/// The number of messages without anything new after which the cursor is stored.
const CURSOR_INTERVAL: u64 = 4096;

/// The state of gap repair for one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct GapState {
    pub(super) since: Instant,
    /// The number of positions that were missing at the last request.
    pub(super) positions: u64,
    pub(super) asked: u32,
    pub(super) next: Instant,
}

/// The state of a peer that is not persisted.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerSession {
    pub(super) heartbeat: Option<Heartbeat>,
    pub(super) seen_at: Option<Instant>,
    pub(super) rejected: Option<String>,
    pub(super) missing: Option<GapState>,
    /// The note of a snapshot that could not be used, and the reason; cleared by the next applied
    /// one.
    pub(super) bad_snapshot: Option<(SnapshotNote, String)>,
    /// Its rate limits.
    pub(super) quota: PeerQuota,
}

/// The consumer.
pub(crate) struct Consumer {
    pub(super) own: NodeId,
    pub(super) peers: Option<PeerStore>,
    pub(super) selector: Arc<Selector>,
    pub(super) journal: Arc<Journal>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) options: Options,
    pub(super) seen: HashMap<NodeId, PeerSession>,
    pub(crate) counts: FleetCounts,
    pub(super) idle: u64,
    /// The size of all waiting messages in bytes.
    pub(super) waiting_bytes: usize,
    /// Nodes whose keys are to be marked for early eviction.
    pub(super) excess_key_nodes: Vec<NodeId>,
    /// The handover of sites to this node.
    pub(super) rebalance: Rebalance,
    /// Whether attempts that this node's own log has lost were learned again.
    pub(crate) has_learned_past: bool,
    /// Whether this node itself is excluded.
    pub(crate) is_excluded: bool,
    /// Whether the initial snapshots are still to be read.
    pub(crate) is_starting: bool,
    /// Whether reading must start over at the stored cursor.
    pub(crate) must_reopen: bool,
    /// The last position in a message of this node, and the time at which the broker stored it.
    pub(crate) own_seen: Option<(u64, Timestamp)>,
}

impl Consumer {
    pub(crate) fn new(
        own: NodeId,
        mut peers: PeerStore,
        (journal, selector): (Arc<Journal>, Arc<Selector>),
        transport: Arc<dyn Transport>,
        options: Options,
    ) -> Self {
        peers.states.counts_twice = !options.safeguards.intervals;
        peers.counts_late_as_new = !options.safeguards.late;
        (peers.max_snapshot_bytes, peers.takes_apart) =
            (options.limits.max_snapshot_bytes, options.safeguards.apart);
        peers.set_egress_group(&options.egress_group);
        Self {
            own,
            peers: Some(peers),
            selector,
            journal,
            transport,
            options,
            seen: HashMap::new(),
            counts: FleetCounts::default(),
            idle: 0,
            waiting_bytes: 0,
            excess_key_nodes: Vec::new(),
            rebalance: Rebalance::default(),
            has_learned_past: false,
            is_excluded: false,
            is_starting: true,
            must_reopen: false,
            own_seen: None,
        }
    }

    pub(super) fn peers(&self) -> Result<&PeerStore, FleetError> {
        self.peers.as_ref().ok_or(FleetError::Left)
    }

    pub(super) fn peers_mut(&mut self) -> Result<&mut PeerStore, FleetError> {
        self.peers.as_mut().ok_or(FleetError::Left)
    }

    /// Returns the position to read from.
    pub(crate) fn cursor(&self) -> Position {
        let cursor = self.peers.as_ref().map(|peers| peers.states.cursor).unwrap_or_default();
        if cursor.incarnation == 0 { cursor } else { Position { seq: cursor.seq + 1, ..cursor } }
    }

    /// Returns the state of all peers.
    pub(crate) fn states(&self) -> Option<&crate::model::peer_state::PeerStates> {
        self.peers.as_ref().map(|peers| &peers.states)
    }

    /// Runs long work on `peers/` in the background.
    pub(super) async fn with_peers<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut PeerStore) -> Result<T, FleetError> + Send + 'static,
    ) -> Result<T, FleetError> {
        let mut peers = self.peers.take().ok_or(FleetError::Left)?;
        let (peers, done) = run_blocking(move || {
            let done = work(&mut peers);
            (peers, done)
        })
        .await?;
        self.peers = Some(peers);
        done
    }

    /// Sets the epochs of the node's own log, and what it holds of them.
    pub(crate) fn set_own(
        &mut self,
        held: BTreeMap<u32, crate::model::position_set::Intervals>,
    ) -> Result<(), FleetError> {
        let (own, is_restored) = (self.own, held.len() > 1);
        self.peers_mut()?.set_own((own, held));
        if is_restored && self.is_own() {
            self.rebalance.queue(own);
        }
        Ok(())
    }

    /// Applies a delivery of the stream.
    pub(crate) async fn deliver(&mut self, delivery: Delivery) -> Result<(), FleetError> {
        let now = self.selector.clock().date();
        let (node_id, position, at, body) = match delivery {
            Delivery::Wiped(bounds) => {
                self.counts.stream_resets += 1;
                let begin = Position { incarnation: bounds.incarnation, seq: 0 };
                return self.peers_mut()?.passed(begin, true, now);
            }
            Delivery::Message { node_id, position, at, body } => (node_id, position, at, body),
        };
        if self.apply(node_id, position, at, &body)? {
            self.idle = 0;
            return Ok(());
        }
        self.idle += 1;
        let keep = self.idle.is_multiple_of(CURSOR_INTERVAL);
        // The cursor is not moved back for a delayed message: reading continues from the latest
        // one.
        let cursor = self.peers()?.states.cursor;
        let is_later = position.incarnation != cursor.incarnation || position.seq > cursor.seq;
        if is_later { self.peers_mut()?.passed(position, keep, now) } else { Ok(()) }
    }

    /// Records that there is nothing to read up to this position.
    pub(crate) fn skip_to(&mut self, end: Position) -> Result<(), FleetError> {
        let now = self.selector.clock().date();
        self.peers_mut()?.passed(end, false, now)
    }

    /// Applies a message. Returns whether it had anything new.
    fn apply(
        &mut self,
        node_id: NodeId,
        position: Position,
        at: Timestamp,
        body: &Bytes,
    ) -> Result<bool, FleetError> {
        let own = self.own;
        let peers = self.peers_mut()?;
        if !peers.states.is_accepted(node_id) {
            return Ok(false);
        }
        let header = match peek(body) {
            Ok(header) => header,
            Err(error) => return self.reject(node_id, &error),
        };
        if node_id == own {
            self.own_seen = Some((header.last, at));
        }
        if self.peers()?.states.is_known(node_id, header.epoch, header.first, header.last) {
            // Its own messages come back with all others.
            self.counts.duplicate += if node_id == own { 0 } else { u64::from(header.count) };
            if node_id == own || !self.has_newer_links(node_id, &header, at, body) {
                return Ok(false);
            }
        }
        if self.must_wait(node_id, &header, (position, at), body) {
            return Ok(false);
        }
        self.apply_now(node_id, position, at, body)
    }

    /// Works like [`take`](Self::take), for a message that does not have to wait.
    pub(super) fn apply_now(
        &mut self,
        node_id: NodeId,
        position: Position,
        at: Timestamp,
        body: &Bytes,
    ) -> Result<bool, FleetError> {
        let now = self.selector.clock().date();
        if !self.peers()?.states.is_accepted(node_id) {
            return Ok(false);
        }
        let batch = match Batch::decode(body) {
            Ok(batch) => batch,
            Err(error) => return self.reject(node_id, &error),
        };
        let header = *batch.header();
        let ahead = header.newest.as_millis().saturating_sub(at.as_millis());
        if header.count > 0 && ahead > MAX_AHEAD_MS {
            self.counts.rejected += 1;
            let why = format!(
                "its attempts have times {} minutes ahead of the broker's clock",
                ahead / 60_000
            );
            self.peers_mut()?.set_aside(node_id, why, now)?;
            return Ok(false);
        }
        let cursor = self.peers()?.states.cursor;
        // Messages may arrive out of order; reading continues from the last of them.
        let kept = if cursor.incarnation == position.incarnation {
            position.max(cursor)
        } else {
            position
        };
        let keys = self.selector.learned().keys_seen();
        let is_doubted = self.is_doubted(node_id);
        let counted =
            self.peers_mut()?.apply_message(node_id, (kept, at), body, &batch, is_doubted)?;
        let brought = self.selector.learned().keys_seen().saturating_sub(keys);
        self.charge(node_id, header.count as usize + batch.links(), brought);
        self.counts.received += counted.learned;
        self.counts.duplicate += counted.duplicate;
        self.counts.forgotten += counted.forgotten;
        self.counts.record_delay(now.since(at).as_millis() as u64);
        if counted.learned > 0 {
            self.count_remote_blocks(node_id, &batch);
        }
        if let Some(seen) = self.seen.get_mut(&node_id) {
            seen.rejected = None;
        }
        Ok(true)
    }

    /// Counts blocks of nodes in the same egress group for host pauses, as if they were this node's
    /// own. All blocks of a node at a host count as one link: a node that meets more pauses the
    /// host itself, within its quota of pauses.
    fn count_remote_blocks(&self, node_id: NodeId, batch: &Batch) {
        let heartbeat = self.seen.get(&node_id).and_then(|seen| seen.heartbeat.as_ref());
        if heartbeat.is_none_or(|heartbeat| heartbeat.egress != self.options.egress_group) {
            return;
        }
        let (link, clock, now) =
            (xxh3_64(node_id.as_bytes()), self.selector.clock(), self.selector.now());
        batch.each(|_, fact, _| {
            if let Some(domain) = fact.domain().filter(|_| fact.is_banned) {
                self.selector.observe_remote_block(domain, link, clock.time_of(fact.at), now);
            }
        });
    }

    fn reject(&mut self, node_id: NodeId, error: &DecodeError) -> Result<bool, FleetError> {
        self.counts.rejected += 1;
        self.seen.entry(node_id).or_default().rejected = Some(error.to_string());
        Ok(false)
    }

    /// Reads the tables: heartbeats, exclusions and tombstones.
    pub(crate) async fn check_tables(&mut self) -> Result<(), FleetError> {
        self.check_heartbeats().await?;
        self.check_exclusions().await?;
        self.check_forgotten().await
    }

    async fn check_heartbeats(&mut self) -> Result<(), FleetError> {
        let nodes = self.transport.cells().list(Table::Nodes).await?;
        // This node sends a heartbeat every few seconds, so the newest one in the table stands for
        // the broker's clock.
        let newest = nodes.iter().map(|(_, cell)| cell.at).max().unwrap_or_default();
        let now = Instant::now();
        for (key, cell) in nodes {
            let (Ok(node_id), Some(heartbeat)) = (key.parse(), Heartbeat::decode(&cell.value))
            else {
                continue;
            };
            if node_id == self.own {
                continue;
            }
            let seen = self.seen.entry(node_id).or_default();
            seen.seen_at = seen.seen_at.max(now.checked_sub(newest.since(cell.at)));
            seen.heartbeat = Some(heartbeat);
        }
        Ok(())
    }

    async fn check_exclusions(&mut self) -> Result<(), FleetError> {
        let cells = self.transport.cells().list(Table::Excluded).await?;
        let now = self.selector.clock().date();
        let held = &self.peers()?.states.peers;
        let is_excluded = |node_id: &NodeId| held.get(node_id).is_some_and(|peer| peer.is_excluded);
        // A response of the broker excludes nobody, and does not end an exclusion in whose place it
        // was stored.
        let counts = |node_id: &NodeId, cell: &Cell| {
            let was_excluded =
                if *node_id == self.own { self.is_excluded } else { is_excluded(node_id) };
            was_excluded || !is_broker_response(&cell.value)
        };
        let nodes = cells.iter().filter_map(|(key, cell)| Some((key.parse().ok()?, cell)));
        let excluded: Vec<NodeId> =
            nodes.filter(|(node_id, cell)| counts(node_id, cell)).map(|(o, _)| o).collect();
        let is_own_excluded = excluded.contains(&self.own);
        let new: Vec<NodeId> =
            excluded.iter().filter(|o| **o != self.own && !is_excluded(o)).copied().collect();
        let back: Vec<NodeId> = held
            .iter()
            .filter(|(o, peer)| peer.is_excluded && !excluded.contains(o))
            .map(|(o, _)| *o)
            .collect();
        self.is_excluded = is_own_excluded;
        for node_id in new {
            if self.with_peers(move |peers| peers.exclude(node_id, now)).await? {
                self.start_over();
            }
        }
        for node_id in back {
            self.include(node_id).await?;
        }
        Ok(())
    }

    /// Includes a node again that was excluded or set aside.
    pub(crate) async fn include(&mut self, node_id: NodeId) -> Result<(), FleetError> {
        let now = self.selector.clock().date();
        self.with_peers(move |peers| peers.include(node_id, now)).await?;
        self.rebalance.queue(node_id);
        (self.is_starting, self.must_reopen) = (true, true);
        Ok(())
    }

    async fn check_forgotten(&mut self) -> Result<(), FleetError> {
        for (domain, cell) in self.transport.cells().list(Table::Forget).await? {
            let Ok(ForgetCell { until }) = serde_json::from_slice(&cell.value) else { continue };
            let until = Timestamp::from_millis(until);
            if self.peers()?.states.forgotten.get(&domain).is_some_and(|known| *known >= until) {
                continue;
            }
            self.forget(domain, until).await?;
        }
        Ok(())
    }

    /// Forgets a domain: in the node's own log first, so that a crash in between only repeats it.
    async fn forget(&mut self, domain: String, until: Timestamp) -> Result<(), FleetError> {
        let stone = Tombstone { target: TombstoneTarget::Domain(domain.clone()), at: until };
        let seq = self.journal.append_tombstone(&stone)?.seq().unwrap_or(u64::MAX);
        synced(self.journal.flush()).await?;
        let (journal, selector, now) =
            (Arc::clone(&self.journal), Arc::clone(&self.selector), self.selector.clock().date());
        self.with_peers(move |peers| {
            retract_domain(journal.dir(), selector.learned(), &domain, seq)?;
            peers.forget(&domain, until, now)
        })
        .await
        .map(|_| ())
    }

    /// Returns a snapshotter if a snapshot of `peers/` is due.
    pub(crate) fn due_snapshotter(&self) -> Option<crate::peer_store::PeerSnapshotter> {
        let peers = self.peers.as_ref()?;
        let (records, bytes) = peers.behind;
        let timing = &self.options.timing;
        (records >= timing.store_snapshot_after || bytes >= timing.store_snapshot_bytes)
            .then(|| peers.snapshotter())
    }

    #[cfg(test)]
    pub(crate) fn take_snapshot_now(
        &self,
        now: Timestamp,
    ) -> Result<crate::peer_store::PeerSnapshotReport, FleetError> {
        self.peers()?.snapshotter().take_snapshot(now).map(|(kept, _)| kept)
    }

    /// Records that a snapshot was taken.
    pub(crate) fn record_snapshot(&mut self) {
        if let Some(peers) = &mut self.peers {
            peers.behind = (0, 0);
        }
    }

    /// Requests a sync of `peers/`.
    pub(crate) fn flush(&self) -> Option<fetchwise_log::Acknowledgement> {
        self.peers.as_ref().map(PeerStore::flush)
    }
}
