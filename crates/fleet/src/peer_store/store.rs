//! `peers/`, open for writing.
//!
//! Owns: the order of updates: the record first, then the evidence, then the peer states.
//!
//! Invariants: evidence and peer states are both folds of the log, so they agree whenever the
//! process dies.
//!
//! Must not know: brokers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fetchwise::evidence::EvidenceSnapshot;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_log::{Durability, Log, LogOptions, OnFull, OpenCheck, Record, Recovery};

use super::fold::{self, FOLDER, fold, mixed};
use crate::error::FleetError;
use crate::failpoints;
use crate::model::codec::Batch;
use crate::model::evidence_snapshot::{SnapshotHead, tombstone_hash};
use crate::model::node_id::NodeId;
use crate::model::peer_state::{MessageCounts, PeerStates};
use crate::model::position_set::Intervals;
use crate::peer_store::background_snapshot::{MixGate, PeerSnapshotter, hold};
use crate::peer_store::fold_visitors::{
    DomainAttempts, LiveEvidence, OwnedAttempt, SeparateEvidence,
};
use crate::peer_store::record::{AppliedSnapshot, FINGERPRINT, PeerEvent, SCHEMA};
use crate::transport::Position;

/// The interval between removals of expired link states.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

/// `peers/`, open.
#[derive(Debug)]
pub(crate) struct PeerStore {
    dir: PathBuf,
    log: Log,
    /// The state of all peers.
    pub(crate) states: PeerStates,
    own: (NodeId, BTreeMap<u32, Intervals>),
    pub(super) selector: Arc<Selector>,
    /// The number of records after the newest snapshot, and their bytes.
    pub(crate) behind: (u64, u64),
    shares: u64,
    /// The egress group of this node. Link states of that group apply to its visits.
    egress: String,
    /// The time of the next removal of expired link states.
    sweep_at: Timestamp,
    /// The maximum size of the evidence in a snapshot, in bytes.
    pub(crate) max_snapshot_bytes: u64,
    gate: MixGate,
    /// The snapshot whose mixed evidence was discarded since.
    dissolved: Option<u64>,
    /// For tests: whether mixed evidence is discarded before one of its nodes is removed.
    pub(crate) takes_apart: bool,
    /// For tests: whether late attempts change which outcome counts as the last one.
    pub(crate) counts_late_as_new: bool,
}

impl PeerStore {
    /// Opens `peers/` in the data directory, creates it if needed, and teaches the selector its
    /// content.
    pub(crate) fn open(
        data: &Path,
        own: (NodeId, BTreeMap<u32, Intervals>),
        selector: Arc<Selector>,
    ) -> Result<Self, FleetError> {
        let dir = data.join(FOLDER);
        let (log, recovery) = open(&dir)?;
        let (states, last) =
            fold(&dir, &own, None, u64::MAX, &mut LiveEvidence { learned: selector.learned() })?;
        let covers =
            fetchwise_log::load_snapshot(&dir)?.snapshot.map_or(0, |found| found.meta().covers_seq);
        let behind = (last.saturating_sub(covers), 0);
        let shares = recovery.next_seq;
        Ok(Self {
            dir,
            log,
            states,
            own,
            selector,
            behind,
            shares,
            egress: String::new(),
            sweep_at: Timestamp::default(),
            max_snapshot_bytes: u64::MAX,
            gate: MixGate::default(),
            dissolved: None,
            takes_apart: true,
            counts_late_as_new: false,
        })
    }

    /// Works like [`append`].
    pub(super) fn append(
        &mut self,
        event: &PeerEvent<'_>,
        at: Timestamp,
    ) -> Result<(), FleetError> {
        let bytes = append(&self.log, event, at)?;
        self.behind = (self.behind.0 + 1, self.behind.1 + bytes);
        Ok(())
    }

    /// Applies a message that was decoded to `batch`. With `is_doubted`, its keys are evicted
    /// first.
    pub(crate) fn apply_message(
        &mut self,
        node_id: NodeId,
        (position, at): (Position, Timestamp),
        body: &Bytes,
        batch: &Batch,
        is_doubted: bool,
    ) -> Result<MessageCounts, FleetError> {
        self.append(&PeerEvent::Message { node_id, position, at, body }, at)?;
        failpoints::reached(failpoints::APPENDED);
        let changed = self.states.apply_links(node_id, batch, at);
        self.pass_link_states(&changed);
        let (learned, counts_late_as_new) = (self.selector.learned(), self.counts_late_as_new);
        let counted = self.states.apply_message(node_id, batch, at, |fact| {
            match (counts_late_as_new, is_doubted) {
                (true, _) => learned.receive_attempt_in_order(fact),
                (false, true) => learned.receive_attempt_low_priority(fact),
                (false, false) => learned.receive_attempt(fact),
            }
        });
        self.states.cursor = position;
        failpoints::reached(failpoints::LEARNED);
        Ok(counted)
    }

    /// Sets the egress group of this node, and applies the link states of that group to visits.
    pub(crate) fn set_egress_group(&mut self, egress: &str) {
        egress.clone_into(&mut self.egress);
        self.drop_expired_links();
        self.pass_link_states(&self.states.links.all());
    }

    /// Passes the current states of these links to visits.
    fn pass_link_states(&self, links: &[u64]) {
        // The states have dates.
        let to_time_ms = self.selector.clock().ahead_ms().saturating_neg();
        for link in links {
            let state = self
                .states
                .links
                .state(*link, &self.egress)
                .map(|state| state.moved_by(to_time_ms));
            self.selector.set_remote_link_state(*link, state);
        }
    }

    /// Removes expired link states from time to time.
    pub(crate) fn drop_expired_links(&mut self) {
        let now = self.selector.clock().date();
        if now >= self.sweep_at {
            self.sweep_at = now.saturating_add(EXPIRY_INTERVAL);
            let gone = self.states.links.drop_expired(now);
            self.pass_link_states(&gone);
        }
    }

    /// Records that everything up to a position had nothing new. It is written only with `keep`;
    /// reading again does no harm.
    pub(crate) fn passed(
        &mut self,
        position: Position,
        keep: bool,
        now: Timestamp,
    ) -> Result<(), FleetError> {
        if keep {
            self.append(&PeerEvent::Cursor(position), now)?;
        }
        self.states.cursor = position;
        Ok(())
    }

    pub(crate) fn set_aside(
        &mut self,
        node_id: NodeId,
        why: String,
        now: Timestamp,
    ) -> Result<(), FleetError> {
        self.append(&PeerEvent::Aside { node_id, why: why.clone() }, now)?;
        self.states.set_aside(node_id, why);
        Ok(())
    }

    /// Closes a node that has left for good.
    pub(crate) fn close(&mut self, node_id: NodeId, now: Timestamp) -> Result<(), FleetError> {
        self.append(&PeerEvent::Close(node_id), now)?;
        self.states.close(node_id);
        Ok(())
    }

    /// Folds everything that counts of some nodes separately; `with_general` includes global
    /// snapshots. Blocks.
    fn fold_evidence(
        &self,
        of: &[NodeId],
        with_general: bool,
    ) -> Result<EvidenceSnapshot, FleetError> {
        let _ = self.log.flush().wait();
        let blank = self
            .selector
            .learned()
            .empty_copy()
            .map_err(|error| FleetError::Selector(error.to_string()))?;
        let mut apart =
            SeparateEvidence { learned: blank, newest: Timestamp::default(), with_general };
        fold(&self.dir, &self.own, Some(of), u64::MAX, &mut apart)?;
        Ok(apart.learned.evidence_snapshot(apart.newest, 0.0))
    }

    /// Marks the keys that a node has brought for early eviction, unless its evidence is mixed.
    /// Blocks.
    pub(crate) fn mark_keys(&mut self, node_id: NodeId) -> Result<(), FleetError> {
        self.fold_evidence(&[node_id], true)
            .map(|evidence| self.selector.learned().mark_low_priority(&evidence))
    }

    /// If a node's evidence is mixed with that of others, retracts the evidence of all of them. It
    /// is fetched again from their snapshots and the stream. Returns whether it was mixed. Blocks;
    /// the gate must be held.
    fn dissolve(&mut self, node_id: NodeId, now: Timestamp) -> Result<bool, FleetError> {
        let (covers, group) = mixed(&self.dir)?;
        // Evidence that was dissolved after the snapshot is not mixed any more.
        if !self.takes_apart || !group.contains(&node_id) || self.dissolved == Some(covers) {
            return Ok(false);
        }
        let evidence = self.fold_evidence(&group, false)?;
        self.append(&PeerEvent::Dissolve(group.clone()), now)?;
        self.selector.learned().retract_snapshot(&evidence);
        self.states.dissolve(&group);
        self.dissolved = Some(covers);
        let begin = Position { seq: 0, ..self.states.cursor };
        self.passed(begin, true, now)?;
        Ok(true)
    }

    /// Retracts a node's evidence. Returns whether evidence of other nodes has gone, too, and has
    /// to be fetched again. Blocks.
    pub(crate) fn exclude(&mut self, node_id: NodeId, now: Timestamp) -> Result<bool, FleetError> {
        let gate = Arc::clone(&self.gate);
        let _held = hold(&gate);
        let begins_anew = self.dissolve(node_id, now)?;
        let evidence = self.fold_evidence(&[node_id], true)?;
        self.append(&PeerEvent::Exclude(node_id), now)?;
        self.selector.learned().retract_snapshot(&evidence);
        let links = self.states.links.drop_node(node_id);
        self.states.exclude(node_id);
        self.pass_link_states(&links);
        Ok(begins_anew)
    }

    /// Includes a node again. Its evidence is read again, from its snapshot and from the beginning
    /// of the stream.
    pub(crate) fn include(&mut self, node_id: NodeId, now: Timestamp) -> Result<(), FleetError> {
        self.append(&PeerEvent::Include(node_id), now)?;
        self.states.include(node_id);
        let begin = Position { seq: 0, ..self.states.cursor };
        self.passed(begin, true, now)
    }

    /// Sets the epochs of the node's own log.
    pub(crate) fn set_own(&mut self, own: (NodeId, BTreeMap<u32, Intervals>)) {
        self.own = own.clone();
        self.states.own = Some(own);
    }

    /// Returns whether `peers/` still has messages for the positions that a snapshot lacks.
    pub(crate) fn has_messages_for(
        &self,
        node_id: NodeId,
        covers: &BTreeMap<u32, Intervals>,
    ) -> Result<bool, FleetError> {
        let mut all = covers.clone();
        for (_, body) in self.messages_behind(node_id, covers)? {
            if let Ok(header) = crate::model::codec::peek(&body) {
                all.entry(header.epoch).or_default().insert(header.first, header.last);
            }
        }
        Ok(self.compare_coverage(node_id, &all).1 == 0)
    }

    /// Returns whether a snapshot would fill a gap, and how many known positions it lacks. Those
    /// are requested again.
    pub(crate) fn compare_coverage(
        &self,
        node_id: NodeId,
        covers: &BTreeMap<u32, Intervals>,
    ) -> (bool, u64) {
        let Some(peer) = self.states.peers.get(&node_id) else { return (true, 0) };
        let nothing = Intervals::default();
        let seen = |epoch: &u32| peer.seen.get(epoch).unwrap_or(&nothing);
        let fills = covers.iter().any(|(epoch, covered)| !seen(epoch).includes(covered));
        let lacked = peer.seen.iter().map(|(epoch, seen)| {
            let covered = covers.get(epoch).unwrap_or(&nothing);
            seen.runs().iter().fold(0, |sum: u64, (first, last)| {
                sum.saturating_add(covered.missing(*first, *last))
            })
        });
        (fills, lacked.fold(0, u64::saturating_add))
    }

    /// Replaces everything known of a node by an evidence snapshot. Messages after it that `peers/`
    /// still has are applied again. Blocks.
    pub(crate) fn apply_snapshot(
        &mut self,
        node_id: NodeId,
        bytes: &Bytes,
        head: &SnapshotHead,
        share: &EvidenceSnapshot,
        now: Timestamp,
    ) -> Result<bool, FleetError> {
        self.put_snapshot((node_id, now), bytes, head, share, false)
    }

    /// Works like [`apply_snapshot`](Self::apply_snapshot); `is_part` if it holds some sites only.
    pub(super) fn put_snapshot(
        &mut self,
        (node_id, now): (NodeId, Timestamp),
        bytes: &Bytes,
        head: &SnapshotHead,
        share: &EvidenceSnapshot,
        is_part: bool,
    ) -> Result<bool, FleetError> {
        let gate = Arc::clone(&self.gate);
        let _held = hold(&gate);
        let begins_anew = self.dissolve(node_id, now)?;
        let known = self.states.peers.get(&node_id).is_some_and(|peer| !peer.seen.is_empty());
        let evidence = if known { Some(self.fold_evidence(&[node_id], false)?) } else { None };
        let again = if known && !is_part {
            self.messages_behind(node_id, &head.covers)?
        } else {
            Vec::new()
        };
        self.shares += 1;
        let file = format!("share-{node_id}-{:016x}.fwp", self.shares);
        write_synced(&self.dir, &file, bytes)?;
        failpoints::reached(failpoints::SHARE_FILE);
        let (covers, epoch, base) = (head.covers.clone(), head.epoch, head.base);
        let taken = AppliedSnapshot {
            node_id,
            covers: covers.clone(),
            epoch,
            base,
            file,
            at: now,
            is_part,
        };
        self.append(&PeerEvent::Snapshot(taken), now)?;
        failpoints::reached(failpoints::SHARE_RECORD);
        if let Some(evidence) = evidence {
            self.selector.learned().retract_snapshot(&evidence);
        }
        let mut share = share.clone();
        let is_stale = fold::without_forgotten(&self.states, head, &mut share);
        self.selector.learned().add_snapshot(&share);
        self.states.apply_snapshot(node_id, &covers, (epoch, base), is_stale, now);
        self.states.set_partial(node_id, is_part);
        let links =
            self.states.links.apply_stored((node_id, now), &head.links, &self.states.forgotten);
        self.pass_link_states(&links);
        let cursor = self.states.cursor;
        for (at, body) in again {
            if let Ok(batch) = Batch::decode(&body) {
                self.apply_message(node_id, (cursor, at), &body, &batch, false)?;
            }
        }
        Ok(begins_anew)
    }

    /// Returns whether a snapshot lacks everything that was forgotten, while the known evidence of
    /// its node does not.
    pub(crate) fn refreshes(&self, node_id: NodeId, head: &SnapshotHead) -> bool {
        let states = &self.states;
        states.peers.get(&node_id).is_some_and(|peer| peer.is_stale)
            && states
                .forgotten
                .iter()
                .all(|(domain, until)| head.forgot.contains(&tombstone_hash(domain, *until)))
    }

    /// Returns the messages of a node in `peers/` that go beyond a snapshot.
    fn messages_behind(
        &self,
        node_id: NodeId,
        covers: &BTreeMap<u32, Intervals>,
    ) -> Result<Vec<(Timestamp, Bytes)>, FleetError> {
        let _ = self.log.flush().wait();
        let reader = fetchwise_log::Reader::open(&self.dir)?;
        let mut found = Vec::new();
        fold::each(&reader, 0, u64::MAX, |_, record| {
            if let Ok(PeerEvent::Message { node_id: by, at, body, .. }) =
                PeerEvent::decode(record.kind, record.schema, record.payload)
                && by == node_id
                && let Ok(header) = crate::model::codec::peek(body)
                && !covers
                    .get(&header.epoch)
                    .is_some_and(|all| all.covers(header.first, header.last))
            {
                found.push((at, Bytes::copy_from_slice(body)));
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Forgets a domain up to a time: everything of peers that is not later. Blocks.
    pub(crate) fn forget(
        &mut self,
        domain: &str,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<bool, FleetError> {
        if self.states.forgotten.get(domain).is_some_and(|known| *known >= until) {
            return Ok(false);
        }
        let (counted, mixed) = self.fold_attempts(domain, until)?;
        self.append(&PeerEvent::Forget { domain: domain.to_owned(), until }, now)?;
        let links = self.states.links.forget(domain, until);
        self.states.forget(domain, until);
        self.pass_link_states(&links);
        for node_id in mixed {
            self.states.peers.entry(node_id).or_default().is_stale = true;
        }
        self.selector.forget_domain(domain);
        counted.iter().for_each(|fact| {
            fact.with(|fact| self.selector.learned().retract_attempt(fact, false))
        });
        Ok(true)
    }

    /// Returns the attempts of a domain that count, as far as `peers/` still has them one by one.
    fn fold_attempts(
        &self,
        domain: &str,
        until: Timestamp,
    ) -> Result<(Vec<OwnedAttempt>, Vec<NodeId>), FleetError> {
        let _ = self.log.flush().wait();
        let mut of = DomainAttempts {
            domain: domain.to_owned(),
            until,
            found: Vec::new(),
            mixed: Vec::new(),
        };
        fold(&self.dir, &self.own, None, u64::MAX, &mut of)?;
        Ok((of.found, of.mixed))
    }

    /// Requests a sync.
    pub(crate) fn flush(&self) -> fetchwise_log::Acknowledgement {
        self.log.flush()
    }

    /// Returns everything needed to take a snapshot in the background.
    pub(crate) fn snapshotter(&self) -> PeerSnapshotter {
        let (dir, own, selector) = (self.dir.clone(), self.own.clone(), Arc::clone(&self.selector));
        PeerSnapshotter {
            dir,
            own,
            selector,
            max_snapshot_bytes: self.max_snapshot_bytes,
            gate: Arc::clone(&self.gate),
        }
    }
}

/// Opens the log in `peers/`, and creates it if needed.
pub(super) fn open(dir: &Path) -> Result<(Log, Recovery), FleetError> {
    let mut options = LogOptions::default();
    (options.fingerprint, options.durability) = (FINGERPRINT, Durability::default());
    (options.on_full, options.check) = (OnFull::Error, OpenCheck::Tail);
    Ok(Log::open(dir, options)?)
}

/// Appends an event. On an error nothing has changed. Returns its length in bytes.
pub(super) fn append(log: &Log, event: &PeerEvent<'_>, at: Timestamp) -> Result<u64, FleetError> {
    let (kind, payload) = event.encode();
    let key_hash = match event {
        PeerEvent::Message { node_id, .. } | PeerEvent::GlobalSnapshot { node_id, .. } => {
            u64::from_le_bytes(*node_id.as_bytes().first_chunk().unwrap_or(&[0; 8]))
        }
        _ => 0,
    };
    let record =
        Record { kind, schema: SCHEMA, key_hash, time_ms: at.as_millis(), payload: &payload };
    let failed = |error: fetchwise_log::AppendError| FleetError::Record(error.to_string());
    match log.append(record) {
        Ok(_) => {}
        Err(fetchwise_log::AppendError::Full) => {
            // Records arrive faster than the disk writes: wait for room.
            let _ = log.flush().wait();
            log.append(record).map_err(failed)?;
        }
        Err(error) => return Err(failed(error)),
    }
    Ok(payload.len() as u64)
}

/// Writes a whole file and syncs it and its name.
fn write_synced(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), FleetError> {
    use std::io::Write;
    let (tmp, path) = (dir.join(format!("tmp-{name}")), dir.join(name));
    let written = (|| {
        let mut file = fs::File::create(&tmp)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&tmp, &path)?;
        fs::File::open(dir)?.sync_all()
    })();
    written.map_err(|error| FleetError::io(&path, error))
}
