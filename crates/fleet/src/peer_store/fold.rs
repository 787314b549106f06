//! The fold of `peers/`: from its newest snapshot up to a record.
//!
//! Owns: which records still matter to a node's evidence.
//!
//! Invariants: a fold visits exactly the attempts and snapshots that count. A node that opens
//! `peers/` knows what it knew when it closed it.
//!
//! Must not know: where the evidence goes.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use bytes::Bytes;
use fetchwise::evidence::{EvidenceSnapshot, RemoteAttempt};
use fetchwise::time::Timestamp;
use fetchwise_log::{Error as LogError, Reader, RecordRef, Snapshot};

use crate::error::FleetError;
use crate::model::codec::Batch;
use crate::model::evidence_snapshot::{SnapshotHead, tombstone_hash, unpack};
use crate::model::node_id::NodeId;
use crate::model::peer_state::{HeldGlobalSnapshot, PeerStates};
use crate::model::position_set::Intervals;
use crate::peer_store::record::{FINGERPRINT, PeerEvent, general};

/// The name of the folder in the data directory.
pub const FOLDER: &str = "peers";

/// The section of a snapshot with the peer states.
pub(super) const PEER_STATES: u32 = 100;
/// One section for each node with evidence, in the order of the peer states.
pub(super) const NODE_EVIDENCE: u32 = 101;
/// One section for several nodes together, when separate ones would be too large.
pub(super) const MIXED_EVIDENCE: u32 = 102;
/// One section for each node with a held global snapshot: the time at the broker, and the bytes as
/// received.
pub(super) const GENERAL: u32 = 103;

/// The maximum size of an evidence snapshot with its head, in bytes.
pub(crate) const MAX_EVIDENCE_BYTES: u64 = 8 << 30;

/// A visitor of a fold.
pub(crate) trait FoldVisitor {
    /// Visits all evidence of a node up to some record; of several nodes if it is mixed.
    fn visit_snapshot(&mut self, of: &[NodeId], share: &EvidenceSnapshot);
    /// Visits an attempt.
    fn visit_attempt(&mut self, node_id: NodeId, fact: &RemoteAttempt<'_>);
    /// Visits the global snapshot of a node.
    fn visit_global(&mut self, node_id: NodeId, share: &EvidenceSnapshot) {
        self.visit_snapshot(&[node_id], share);
    }
}

/// The result of a first pass over the records after the snapshot.
#[derive(Default)]
struct LookAhead {
    /// The last record at which a node's evidence started over.
    begins: HashMap<NodeId, u64>,
    forgotten: Vec<(String, Timestamp)>,
    /// The last record at which a node was excluded.
    excluded: HashMap<NodeId, u64>,
    /// The record of each node's newest global snapshot.
    global_snapshots: HashMap<NodeId, u64>,
}

/// Folds `dir` up to the record `upto`. Visits the evidence of node `only` alone, if it is given.
/// Returns the peer states and the last folded record.
pub(crate) fn fold(
    dir: &Path,
    own: &(NodeId, BTreeMap<u32, Intervals>),
    only: Option<&[NodeId]>,
    upto: u64,
    visitor: &mut impl FoldVisitor,
) -> Result<(PeerStates, u64), FleetError> {
    let reader = Reader::open(dir)?;
    reader.check_fingerprints(&[FINGERPRINT])?;
    let found = fetchwise_log::load_snapshot(dir)?.snapshot;
    let mut states = PeerStates::default();
    let mut covers = 0;
    if let Some(snapshot) = &found {
        covers = snapshot.meta().covers_seq;
        let (_, bytes) = snapshot
            .section(PEER_STATES)?
            .ok_or_else(|| FleetError::Record("a snapshot without peer states".into()))?;
        states = PeerStates::decode(&bytes).map_err(FleetError::Record)?;
    }
    let ahead = look_ahead(&reader, covers, upto)?;
    let mut forgotten = states.forgotten.clone();
    for (domain, until) in &ahead.forgotten {
        states.links.forget(domain, *until);
        let known = forgotten.entry(domain.clone()).or_insert(*until);
        *known = (*known).max(*until);
    }
    if let Some(snapshot) = &found {
        visit_sections(snapshot, &ahead, only, &mut states, visitor)?;
    }
    // Evidence that is forgotten later is not visited at all.
    states.own = Some(own.clone());
    states.forgotten = forgotten;
    let mut last = covers;
    let mut failed = None;
    each(&reader, covers, upto, |seq, record| {
        last = seq;
        let event = PeerEvent::decode(record.kind, record.schema, record.payload)
            .map_err(FleetError::Record)?;
        let begins = |node_id: &NodeId| ahead.begins.get(node_id).copied().unwrap_or(0);
        let is_shown = |node_id: &NodeId| {
            seq >= begins(node_id) && only.is_none_or(|only| only.contains(node_id))
        };
        if let PeerEvent::GlobalSnapshot { node_id, at, body } = event {
            let is_in = seq > ahead.excluded.get(&node_id).copied().unwrap_or(0);
            let shows = is_in
                && only.is_none_or(|all| all.contains(&node_id))
                && ahead.global_snapshots.get(&node_id) == Some(&seq);
            return hold(&mut states, (node_id, at, body), shows, visitor);
        }
        if let Err(error) = step(dir, &mut states, event, is_shown, visitor) {
            failed.get_or_insert(error);
        }
        Ok(())
    })?;
    failed.map_or(Ok((states, last)), Err)
}

/// Visits the evidence of a snapshot that nothing after it replaces.
fn visit_sections(
    snapshot: &Snapshot,
    ahead: &LookAhead,
    only: Option<&[NodeId]>,
    states: &mut PeerStates,
    visitor: &mut impl FoldVisitor,
) -> Result<(), FleetError> {
    let mut bytes = Vec::new();
    for section in snapshot.sections() {
        if ![GENERAL, NODE_EVIDENCE, MIXED_EVIDENCE].contains(&section.kind) {
            continue;
        }
        snapshot.read_into(section, &mut bytes)?;
        if section.kind == GENERAL {
            let (node_id, at, body) = general(&bytes)
                .ok_or_else(|| FleetError::Record("truncated global snapshot".into()))?;
            let has_newer = ahead.excluded.contains_key(&node_id)
                || ahead.global_snapshots.contains_key(&node_id);
            let shows = !has_newer && only.is_none_or(|all| all.contains(&node_id));
            hold(states, (node_id, at, body), shows, visitor)?;
            continue;
        }
        let Some((group, packed)) = evidence_section(section.kind, &bytes) else { continue };
        let is_shown = |node_id: &NodeId| {
            !ahead.begins.contains_key(node_id) && only.is_none_or(|only| only.contains(node_id))
        };
        // Mixed evidence is discarded as a whole: see `PeerEvent::Dissolve`.
        if !group.iter().all(is_shown) {
            continue;
        }
        let (_, mut share) = unpack(packed).map_err(|what| FleetError::Record(what.to_owned()))?;
        // Evidence that was forgotten before the snapshot is not in it any more.
        for (domain, _) in &ahead.forgotten {
            if share.has_domain(domain) {
                share.forget_domain(domain);
                group
                    .iter()
                    .for_each(|node_id| states.peers.entry(*node_id).or_default().is_stale = true);
            }
        }
        visitor.visit_snapshot(&group, &share);
    }
    Ok(())
}

/// Stores a global snapshot in the peer states, and visits it if no later one replaces it.
fn hold(
    states: &mut PeerStates,
    (node_id, at, body): (NodeId, Timestamp, &[u8]),
    shows: bool,
    visitor: &mut impl FoldVisitor,
) -> Result<(), FleetError> {
    let (head, share) = unpack(body).map_err(|what| FleetError::Record(what.to_owned()))?;
    if shows {
        visitor.visit_global(node_id, &share);
    }
    states.set_global_snapshot(
        node_id,
        HeldGlobalSnapshot::new(&head, at, Bytes::copy_from_slice(body)),
    );
    Ok(())
}

fn step(
    dir: &Path,
    states: &mut PeerStates,
    event: PeerEvent<'_>,
    is_shown: impl Fn(&NodeId) -> bool,
    visitor: &mut impl FoldVisitor,
) -> Result<(), FleetError> {
    match event {
        PeerEvent::Message { node_id, position, at, body } => {
            states.cursor = position;
            let batch =
                Batch::decode(body).map_err(|error| FleetError::Record(error.to_string()))?;
            let shown = is_shown(&node_id);
            states.apply_links(node_id, &batch, at);
            states.apply_message(node_id, &batch, at, |fact| {
                if shown {
                    visitor.visit_attempt(node_id, fact);
                }
            });
        }
        PeerEvent::Snapshot(taken) => {
            let mut is_stale = false;
            if is_shown(&taken.node_id) {
                let (head, mut share) = read_share(dir, &taken.file)?;
                is_stale = without_forgotten(states, &head, &mut share);
                visitor.visit_snapshot(&[taken.node_id], &share);
                states.links.apply_stored(
                    (taken.node_id, taken.at),
                    &head.links,
                    &states.forgotten,
                );
            }
            states.apply_snapshot(
                taken.node_id,
                &taken.covers,
                (taken.epoch, taken.base),
                is_stale,
                taken.at,
            );
            states.set_partial(taken.node_id, taken.is_part);
        }
        // Forgotten domains were collected in the first pass.
        PeerEvent::Forget { .. } => {}
        PeerEvent::Exclude(node_id) => states.exclude(node_id),
        PeerEvent::Include(node_id) => states.include(node_id),
        PeerEvent::Aside { node_id, why } => states.set_aside(node_id, why),
        PeerEvent::Cursor(position) => states.cursor = position,
        PeerEvent::Close(node_id) => states.close(node_id),
        PeerEvent::Dissolve(group) => states.dissolve(&group),
        // Decoded only for the newest one, which the first pass has found.
        PeerEvent::GlobalSnapshot { .. } => {}
    }
    Ok(())
}

/// Returns the nodes and the evidence of a snapshot's section; none for other sections.
fn evidence_section(kind: u32, bytes: &[u8]) -> Option<(Vec<NodeId>, &[u8])> {
    let (count, rest) = match kind {
        NODE_EVIDENCE => (1, bytes),
        MIXED_EVIDENCE => bytes
            .split_first_chunk()
            .map(|(count, rest)| (u32::from_le_bytes(*count) as usize, rest))?,
        _ => return None,
    };
    let (node_ids, packed) = rest.split_at_checked(count.checked_mul(16)?)?;
    Some((node_ids.as_chunks().0.iter().copied().map(NodeId::from_bytes).collect(), packed))
}

/// Returns what the newest snapshot covers, and the nodes whose evidence is mixed in it.
pub(super) fn mixed(dir: &Path) -> Result<(u64, Vec<NodeId>), FleetError> {
    let found = fetchwise_log::load_snapshot(dir)?.snapshot;
    let Some(snapshot) = found else { return Ok((0, Vec::new())) };
    let group = snapshot
        .section(MIXED_EVIDENCE)?
        .and_then(|(_, bytes)| Some(evidence_section(MIXED_EVIDENCE, &bytes)?.0));
    Ok((snapshot.meta().covers_seq, group.unwrap_or_default()))
}

/// Removes forgotten domains from a snapshot. Returns whether some of them are mixed with other
/// evidence and cannot be removed.
pub(super) fn without_forgotten(
    states: &PeerStates,
    head: &SnapshotHead,
    share: &mut EvidenceSnapshot,
) -> bool {
    let mut is_stale = false;
    for (domain, until) in &states.forgotten {
        if !head.forgot.contains(&tombstone_hash(domain, *until)) && share.has_domain(domain) {
            share.forget_domain(domain);
            is_stale = true;
        }
    }
    is_stale
}

/// Reads the file of an evidence snapshot in `peers/`.
fn read_share(dir: &Path, file: &str) -> Result<(SnapshotHead, EvidenceSnapshot), FleetError> {
    let path = dir.join(file);
    let bytes = std::fs::read(&path).map_err(|error| FleetError::io(&path, error))?;
    unpack(&bytes).map_err(|what| FleetError::Record(format!("{file}: {what}")))
}

fn look_ahead(reader: &Reader, covers: u64, upto: u64) -> Result<LookAhead, FleetError> {
    let mut ahead = LookAhead::default();
    each(reader, covers, upto, |seq, record| {
        match PeerEvent::decode(record.kind, record.schema, record.payload)
            .map_err(FleetError::Record)?
        {
            PeerEvent::Snapshot(taken) => drop(ahead.begins.insert(taken.node_id, seq)),
            PeerEvent::Exclude(node_id) => {
                ahead.begins.insert(node_id, seq);
                ahead.excluded.insert(node_id, seq);
            }
            PeerEvent::Dissolve(group) => {
                ahead.begins.extend(group.into_iter().map(|node_id| (node_id, seq)))
            }
            PeerEvent::GlobalSnapshot { node_id, .. } => {
                ahead.global_snapshots.insert(node_id, seq);
            }
            PeerEvent::Forget { domain, until } => ahead.forgotten.push((domain, until)),
            _ => {}
        }
        Ok(())
    })?;
    Ok(ahead)
}

/// Visits the records after `covers` up to `upto`.
pub(super) fn each(
    reader: &Reader,
    covers: u64,
    upto: u64,
    mut f: impl FnMut(u64, RecordRef<'_>) -> Result<(), FleetError>,
) -> Result<(), FleetError> {
    let mut failed = None;
    let summary = reader.for_each_from(covers + 1, |seq, record| {
        if seq <= upto && failed.is_none() {
            failed = f(seq, record).err();
        }
    })?;
    if !summary.damage.is_empty() {
        return Err(
            LogError::Corrupt { dir: reader.dir().to_owned(), damage: summary.damage }.into()
        );
    }
    failed.map_or(Ok(()), Err)
}
