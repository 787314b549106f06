//! Snapshots of `peers/`, taken in the background: the evidence of each node, and the peer states.
//!
//! Owns: when a record may be dropped.
//!
//! Invariants: a snapshot holds what a fold of the records up to it visits. A record is dropped
//! only when two snapshots hold it.
//!
//! Must not know: brokers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fetchwise::evidence::{EvidenceSnapshot, Learned, RemoteAttempt};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_log::{CompactOptions, Maintenance, Reader, Section, SnapshotMeta};

use super::fold::{
    FOLDER, FoldVisitor, GENERAL, MIXED_EVIDENCE, NODE_EVIDENCE, PEER_STATES, each, fold, mixed,
};
use crate::error::FleetError;
use crate::failpoints;
use crate::model::evidence_snapshot::{SnapshotHead, pack};
use crate::model::node_id::NodeId;
use crate::model::peer_state::{HeldGlobalSnapshot, PeerState, PeerStates};
use crate::model::position_set::Intervals;
use crate::peer_store::fold_visitors::{LiveEvidence, SeparateEvidence};
use crate::peer_store::record::{FINGERPRINT, PeerEvent, general_bytes};

/// Entries with less decayed weight than this have faded.
const FADED: f64 = 0.01;

/// A visitor that folds the evidence of each node separately.
struct NodesFold<'s> {
    like: &'s Learned,
    all: HashMap<NodeId, SeparateEvidence>,
    /// Nodes whose evidence is mixed already: it is folded under the first of them.
    mixed: Vec<NodeId>,
    failed: Option<String>,
}

impl NodesFold<'_> {
    fn of(&mut self, node_id: NodeId) -> Option<&mut SeparateEvidence> {
        let node_id = if self.mixed.contains(&node_id) { self.mixed[0] } else { node_id };
        if !self.all.contains_key(&node_id) {
            match self.like.empty_copy() {
                Ok(learned) => drop(self.all.insert(
                    node_id,
                    SeparateEvidence { learned, newest: Timestamp::default(), with_general: false },
                )),
                Err(error) => self.failed = Some(error.to_string()),
            }
        }
        self.all.get_mut(&node_id)
    }
}

impl FoldVisitor for NodesFold<'_> {
    fn visit_snapshot(&mut self, of: &[NodeId], share: &EvidenceSnapshot) {
        if let Some(apart) = of.first().and_then(|node_id| self.of(*node_id)) {
            apart.visit_snapshot(of, share);
        }
    }

    fn visit_attempt(&mut self, node_id: NodeId, fact: &RemoteAttempt<'_>) {
        if let Some(apart) = self.of(node_id) {
            apart.visit_attempt(node_id, fact);
        }
    }

    fn visit_global(&mut self, _: NodeId, _: &EvidenceSnapshot) {
        // Stored as received: the peer states have it.
    }
}

/// The report of a snapshot of `peers/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerSnapshotReport {
    /// The last record that the snapshot covers.
    pub covers: u64,
    /// The number of nodes with evidence.
    pub node_ids: usize,
    /// The length of the snapshot in bytes.
    pub bytes: u64,
}

/// A closed node without evidence left, and the positions that were seen of it.
pub(crate) type FadedNode = (NodeId, BTreeMap<u32, Intervals>);

/// Everything needed to take a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct PeerSnapshotter {
    pub(super) dir: PathBuf,
    pub(super) own: (NodeId, BTreeMap<u32, Intervals>),
    pub(super) selector: Arc<Selector>,
    /// The maximum size of all evidence in the snapshot, in bytes.
    pub(super) max_snapshot_bytes: u64,
    pub(super) gate: MixGate,
}

/// Held while a snapshot with mixed evidence is written, and while a record is appended that
/// changes one of its nodes. Neither can overtake the other unnoticed.
pub(super) type MixGate = Arc<Mutex<()>>;

pub(super) fn hold(gate: &MixGate) -> MutexGuard<'_, ()> {
    gate.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Evidence as a section of a snapshot, with its nodes.
struct EvidenceSection {
    of: Vec<NodeId>,
    apart: SeparateEvidence,
    packed: Bytes,
}

impl EvidenceSection {
    /// With `is_closed`, nothing is left once all evidence has faded. Otherwise the counts that all
    /// domains share are kept, however small they are.
    fn new(
        of: Vec<NodeId>,
        apart: SeparateEvidence,
        as_of: Timestamp,
        is_closed: bool,
    ) -> std::io::Result<Self> {
        let share = apart.learned.evidence_snapshot(as_of, FADED);
        let is_empty = share.keys() == 0 || is_closed && share.has_faded(FADED);
        let packed = if is_empty { Bytes::new() } else { pack(&SnapshotHead::default(), &share)? };
        Ok(Self { of, apart, packed })
    }

    fn section(&self) -> (u32, Vec<u8>) {
        let count = u32::try_from(self.of.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut bytes = if self.of.len() == 1 { Vec::new() } else { count.to_vec() };
        self.of.iter().for_each(|node_id| bytes.extend_from_slice(node_id.as_bytes()));
        bytes.extend_from_slice(&self.packed);
        (if self.of.len() == 1 { NODE_EVIDENCE } else { MIXED_EVIDENCE }, bytes)
    }
}

impl PeerSnapshotter {
    /// Takes a snapshot of everything on disk, and drops the records that two snapshots hold.
    /// Blocks while all evidence of peers is folded, and needs as much memory again as that.
    pub(crate) fn take_snapshot(
        &self,
        now: Timestamp,
    ) -> Result<(PeerSnapshotReport, Vec<FadedNode>), FleetError> {
        let maintenance = Maintenance::lock(&self.dir)?;
        let upto = fetchwise_log::durable_seq(&self.dir)?;
        let before = fetchwise_log::load_snapshot(&self.dir)?
            .snapshot
            .map_or(0, |found| found.meta().covers_seq);
        if upto <= before {
            return Ok((
                PeerSnapshotReport { covers: before, ..PeerSnapshotReport::default() },
                Vec::new(),
            ));
        }
        let (_, mut mixed) = mixed(&self.dir)?;
        if restarts_any(&self.dir, before, &mixed)? {
            mixed.clear();
        }
        let mut folded =
            NodesFold { like: self.selector.learned(), all: HashMap::new(), mixed, failed: None };
        let (mut states, covers) = fold(&self.dir, &self.own, None, upto, &mut folded)?;
        if let Some(error) = folded.failed {
            return Err(FleetError::Selector(error));
        }
        failpoints::reached(failpoints::FOLDED);
        let images = self.evidence_sections(folded, &mut states, now)?;
        let mut sections = vec![(PEER_STATES, states.encode())];
        sections.extend(images.iter().map(EvidenceSection::section));
        let general = |(node_id, held): (&NodeId, &HeldGlobalSnapshot)| {
            (GENERAL, general_bytes(*node_id, held.at, &held.body))
        };
        sections.extend(states.global_snapshots.iter().map(general));
        let group = images.iter().find(|image| image.of.len() > 1).map(|image| &image.of);
        let held = group.map(|_| hold(&self.gate));
        if let Some(group) = group
            && restarts_any(&self.dir, covers, group)?
        {
            // The fold lacks a newer record of one of its nodes. The next snapshot has it.
            return Ok((
                PeerSnapshotReport { covers: before, ..PeerSnapshotReport::default() },
                Vec::new(),
            ));
        }
        let meta = SnapshotMeta {
            covers_seq: covers,
            fingerprint: FINGERPRINT,
            ..SnapshotMeta::default()
        };
        let borrowed: Vec<Section<'_>> = sections
            .iter()
            .map(|(kind, bytes)| Section { kind: *kind, version: 1, bytes })
            .collect();
        let (_, bytes) = maintenance.write_snapshot(&meta, &borrowed)?;
        drop(held);
        failpoints::reached(failpoints::SNAPSHOT);
        let mut options = CompactOptions::new(before, now.as_millis());
        options.max_jump = None;
        maintenance.compact(&options, &mut |seq, _| seq > before, &mut |_| {})?;
        failpoints::reached(failpoints::COMPACTED);
        self.drop_snapshot_files()?;
        let node_ids = images.iter().map(|image| image.of.len()).sum();
        let has_image = |node_id: &NodeId| images.iter().any(|image| image.of.contains(node_id));
        // If only a part of a node was applied, the rest may still be needed.
        let is_gone = |peer: &PeerState| peer.is_closed && peer.is_accepted() && !peer.is_part;
        let gone =
            states.peers.iter().filter(|(node_id, peer)| is_gone(peer) && !has_image(node_id));
        let faded = gone.map(|(node_id, peer)| (*node_id, peer.seen.clone())).collect();
        Ok((PeerSnapshotReport { covers, node_ids, bytes }, faded))
    }

    /// Returns the evidence of all nodes that have some left. Beyond the limit, the largest ones
    /// are mixed.
    fn evidence_sections(
        &self,
        folded: NodesFold<'_>,
        states: &mut PeerStates,
        now: Timestamp,
    ) -> Result<Vec<EvidenceSection>, FleetError> {
        let failed = |error| FleetError::io(&self.dir, error);
        let (mixed, mut images) = (folded.mixed, Vec::new());
        for (node_id, apart) in folded.all {
            let of = if mixed.contains(&node_id) { mixed.clone() } else { vec![node_id] };
            // A node that is present may still report on faded entries. A closed one does not.
            let is_closed = of
                .iter()
                .all(|node_id| states.peers.get(node_id).is_some_and(|peer| peer.is_closed));
            let as_of = if is_closed { apart.newest.max(now) } else { apart.newest };
            let image = EvidenceSection::new(of, apart, as_of, is_closed).map_err(failed)?;
            match image.packed.is_empty() {
                true => image.of.iter().for_each(|node_id| states.drop_faded(*node_id)),
                false => images.push(image),
            }
        }
        images.sort_by_key(|image| std::cmp::Reverse(image.packed.len()));
        let total = |images: &[EvidenceSection]| {
            images.iter().map(|image| image.packed.len() as u64).sum::<u64>()
        };
        while images.len() > 1 && total(&images) > self.max_snapshot_bytes {
            let (first, mut second) = (images.remove(0), images.remove(0));
            let newest = first.apart.newest.max(second.apart.newest);
            second.apart.learned.add_snapshot(&first.apart.learned.evidence_snapshot(newest, 0.0));
            second.apart.newest = newest;
            let of = first.of.into_iter().chain(second.of).collect();
            images
                .insert(0, EvidenceSection::new(of, second.apart, newest, false).map_err(failed)?);
        }
        Ok(images)
    }

    /// Removes the files of evidence snapshots that no record names any more.
    fn drop_snapshot_files(&self) -> Result<(), FleetError> {
        let failed = |error| FleetError::io(&self.dir, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if name.starts_with("share-") {
                names.push(name);
            }
        }
        // A snapshot's file is written before its record. A listed file without a record may be
        // about to get one. Only files older than some file with a record are removed.
        let mut named = HashSet::new();
        each(&Reader::open(&self.dir)?, 0, u64::MAX, |_, record| {
            if let Ok(PeerEvent::Snapshot(taken)) =
                PeerEvent::decode(record.kind, record.schema, record.payload)
            {
                named.insert(taken.file);
            }
            Ok(())
        })?;
        let newest = named.iter().filter_map(|name| number_of(name)).max().unwrap_or(0);
        for name in names.iter().filter(|name| !named.contains(*name)) {
            if number_of(name).is_some_and(|number| number < newest) {
                let _ = fs::remove_file(self.dir.join(name));
            }
        }
        Ok(())
    }
}

/// Returns whether a record after `covers` starts one of these nodes over.
fn restarts_any(dir: &Path, covers: u64, group: &[NodeId]) -> Result<bool, FleetError> {
    let mut says = false;
    each(&Reader::open(dir)?, covers, u64::MAX, |_, record| {
        says |= match PeerEvent::decode(record.kind, record.schema, record.payload) {
            Ok(PeerEvent::Snapshot(taken)) => group.contains(&taken.node_id),
            Ok(PeerEvent::Exclude(node_id)) => group.contains(&node_id),
            Ok(PeerEvent::Dissolve(of)) => of.iter().any(|node_id| group.contains(node_id)),
            _ => false,
        };
        Ok(())
    })?;
    Ok(says)
}

/// Returns the number in the name of a snapshot's file.
fn number_of(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_suffix(".fwp")?.rsplit_once('-')?.1, 16).ok()
}

/// Teaches `selector` everything that the node in the data directory `data` has received from
/// peers. The directory may be open in another process. Returns the number of nodes; 0 without
/// `peers/`.
///
/// # Errors
/// As [`Fleet::join`](crate::Fleet::join).
pub fn load_peers(data: &Path, selector: &Selector) -> Result<usize, FleetError> {
    let (dir, state) =
        (data.join(FOLDER), crate::peer_store::own_state_file::NodeState::load(data)?);
    let Some(state) = state.filter(|_| dir.is_dir()) else { return Ok(0) };
    let (states, _) = fold(
        &dir,
        &(state.node_id, state.own()),
        None,
        u64::MAX,
        &mut LiveEvidence { learned: selector.learned() },
    )?;
    Ok(states.peers.values().filter(|peer| !peer.seen.is_empty()).count()
        + states.global_snapshots.len())
}

/// Adds the lost epochs of this node that `peers/` has to the evidence of the node's log.
pub(crate) fn with_own_past(
    data: &Path,
    state: &crate::peer_store::own_state_file::NodeState,
    like: &Learned,
    own: EvidenceSnapshot,
    covers: &mut BTreeMap<u32, Intervals>,
) -> Result<EvidenceSnapshot, FleetError> {
    let dir = data.join(FOLDER);
    if state.forks.len() < 2 || !dir.is_dir() {
        return Ok(own);
    }
    let learned = like.empty_copy().map_err(|error| FleetError::Selector(error.to_string()))?;
    learned.add_snapshot(&own);
    let mut apart = SeparateEvidence { learned, newest: own.as_of(), with_general: false };
    let (states, _) =
        fold(&dir, &(state.node_id, state.own()), Some(&[state.node_id]), u64::MAX, &mut apart)?;
    if let Some(peer) = states.peers.get(&state.node_id) {
        for (epoch, seen) in &peer.seen {
            covers.entry(*epoch).or_default().extend(seen);
        }
    }
    Ok(apart.learned.evidence_snapshot(apart.newest, FADED))
}
