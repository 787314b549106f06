//! Snapshots of `peers/`, taken in the background: the evidence of each node, and the peer states.
//!
//! Owns: when a record may be dropped.
//!
//! Invariants: a snapshot holds what a fold of the records up to it visits. A record is dropped only when two snapshots
//! hold it.
//!
//! Must not know: brokers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fetchwise::evidence::{Fact, Share};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_log::{CompactOptions, Maintenance, Reader, Section, SnapshotMeta};

use super::fold::{BOOK, FOLDER, GENERAL, IMAGE, Learns, MIXED, each, fold, mixed};
use crate::error::FleetError;
use crate::failpoints;
use crate::model::evidence_snapshot::{Head, pack};
use crate::model::intervals::Intervals;
use crate::model::node_id::Origin;
use crate::model::peer_state::{Book, Held, Peer};
use crate::peer_store::apply::{Apart, Teaches};
use crate::peer_store::record::{Event, FINGERPRINT, general_bytes};

/// Entries with less decayed weight than this have faded.
const FADED: f64 = 0.01;

/// A visitor that folds the evidence of each node separately.
struct Each<'s> {
    like: &'s Selector,
    all: HashMap<Origin, Apart>,
    /// Nodes whose evidence is mixed already: it is folded under the first of them.
    mixed: Vec<Origin>,
    failed: Option<String>,
}

impl Each<'_> {
    fn of(&mut self, origin: Origin) -> Option<&mut Apart> {
        let origin = if self.mixed.contains(&origin) { self.mixed[0] } else { origin };
        if !self.all.contains_key(&origin) {
            match self.like.blank() {
                Ok(selector) => {
                    drop(self.all.insert(origin, Apart { selector, newest: Timestamp::default(), with_general: false }))
                }
                Err(error) => self.failed = Some(error.to_string()),
            }
        }
        self.all.get_mut(&origin)
    }
}

impl Learns for Each<'_> {
    fn share(&mut self, of: &[Origin], share: &Share) {
        if let Some(apart) = of.first().and_then(|origin| self.of(*origin)) {
            apart.share(of, share);
        }
    }

    fn fact(&mut self, origin: Origin, fact: &Fact<'_>) {
        if let Some(apart) = self.of(origin) {
            apart.fact(origin, fact);
        }
    }

    fn general(&mut self, _: Origin, _: &Share) {
        // Stored as received: the peer states have it.
    }
}

/// The report of a snapshot of `peers/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The last record that the snapshot covers.
    pub covers: u64,
    /// The number of nodes with evidence.
    pub origins: usize,
    /// The length of the snapshot in bytes.
    pub bytes: u64,
}

/// A closed node without evidence left, and the positions that were seen of it.
pub(crate) type Faded = (Origin, BTreeMap<u32, Intervals>);

/// Everything needed to take a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    pub(super) dir: PathBuf,
    pub(super) own: (Origin, BTreeMap<u32, Intervals>),
    pub(super) selector: Arc<Selector>,
    /// The maximum size of all evidence in the snapshot, in bytes.
    pub(super) max_snapshot_bytes: u64,
    pub(super) gate: Gate,
}

/// Held while a snapshot with mixed evidence is written, and while a record is appended that changes one of its nodes.
/// Neither can overtake the other unnoticed.
pub(super) type Gate = Arc<Mutex<()>>;

pub(super) fn hold(gate: &Gate) -> MutexGuard<'_, ()> {
    gate.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Evidence as a section of a snapshot, with its nodes.
struct Image {
    of: Vec<Origin>,
    apart: Apart,
    packed: Bytes,
}

impl Image {
    /// With `is_closed`, nothing is left once all evidence has faded. Otherwise the counts that all domains share are
    /// kept, however small they are.
    fn new(of: Vec<Origin>, apart: Apart, as_of: Timestamp, is_closed: bool) -> std::io::Result<Self> {
        let share = apart.selector.share(as_of, FADED);
        let is_empty = share.keys() == 0 || is_closed && share.has_faded(FADED);
        let packed = if is_empty { Bytes::new() } else { pack(&Head::default(), &share)? };
        Ok(Self { of, apart, packed })
    }

    fn section(&self) -> (u32, Vec<u8>) {
        let count = u32::try_from(self.of.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut bytes = if self.of.len() == 1 { Vec::new() } else { count.to_vec() };
        self.of.iter().for_each(|origin| bytes.extend_from_slice(origin.as_bytes()));
        bytes.extend_from_slice(&self.packed);
        (if self.of.len() == 1 { IMAGE } else { MIXED }, bytes)
    }
}

impl Keeper {
    /// Takes a snapshot of everything on disk, and drops the records that two snapshots hold. Blocks while all evidence
    /// of peers is folded, and needs as much memory again as that.
    pub(crate) fn keep(&self, now: Timestamp) -> Result<(Kept, Vec<Faded>), FleetError> {
        let maintenance = Maintenance::lock(&self.dir)?;
        let upto = fetchwise_log::durable_seq(&self.dir)?;
        let before = fetchwise_log::load_snapshot(&self.dir)?.snapshot.map_or(0, |found| found.meta().covers_seq);
        if upto <= before {
            return Ok((Kept { covers: before, ..Kept::default() }, Vec::new()));
        }
        let (_, mut mixed) = mixed(&self.dir)?;
        if says_of(&self.dir, before, &mixed)? {
            mixed.clear();
        }
        let mut folded = Each { like: &self.selector, all: HashMap::new(), mixed, failed: None };
        let (mut book, covers) = fold(&self.dir, &self.own, None, upto, &mut folded)?;
        if let Some(error) = folded.failed {
            return Err(FleetError::Selector(error));
        }
        failpoints::reached(failpoints::FOLDED);
        let images = self.images(folded, &mut book, now)?;
        let mut sections = vec![(BOOK, book.encode())];
        sections.extend(images.iter().map(Image::section));
        let general = |(origin, held): (&Origin, &Held)| (GENERAL, general_bytes(*origin, held.at, &held.body));
        sections.extend(book.generals.iter().map(general));
        let group = images.iter().find(|image| image.of.len() > 1).map(|image| &image.of);
        let held = group.map(|_| hold(&self.gate));
        if let Some(group) = group
            && says_of(&self.dir, covers, group)?
        {
            // The fold lacks a newer record of one of its nodes. The next snapshot has it.
            return Ok((Kept { covers: before, ..Kept::default() }, Vec::new()));
        }
        let meta = SnapshotMeta { covers_seq: covers, fingerprint: FINGERPRINT, ..SnapshotMeta::default() };
        let borrowed: Vec<Section<'_>> =
            sections.iter().map(|(kind, bytes)| Section { kind: *kind, version: 1, bytes }).collect();
        let (_, bytes) = maintenance.write_snapshot(&meta, &borrowed)?;
        drop(held);
        failpoints::reached(failpoints::SNAPSHOT);
        let mut options = CompactOptions::new(before, now.as_millis());
        options.max_jump = None;
        maintenance.compact(&options, &mut |seq, _| seq > before, &mut |_| {})?;
        failpoints::reached(failpoints::COMPACTED);
        self.drop_shares()?;
        let origins = images.iter().map(|image| image.of.len()).sum();
        let has_image = |origin: &Origin| images.iter().any(|image| image.of.contains(origin));
        // If only a part of a node was applied, the rest may still be needed.
        let is_gone = |peer: &Peer| peer.is_closed && peer.is_heard() && !peer.is_part;
        let gone = book.peers.iter().filter(|(origin, peer)| is_gone(peer) && !has_image(origin));
        let faded = gone.map(|(origin, peer)| (*origin, peer.seen.clone())).collect();
        Ok((Kept { covers, origins, bytes }, faded))
    }

    /// Returns the evidence of all nodes that have some left. Beyond the limit, the largest ones are mixed.
    fn images(&self, folded: Each<'_>, book: &mut Book, now: Timestamp) -> Result<Vec<Image>, FleetError> {
        let failed = |error| FleetError::io(&self.dir, error);
        let (mixed, mut images) = (folded.mixed, Vec::new());
        for (origin, apart) in folded.all {
            let of = if mixed.contains(&origin) { mixed.clone() } else { vec![origin] };
            // A node that is present may still report on faded entries. A closed one does not.
            let is_closed = of.iter().all(|origin| book.peers.get(origin).is_some_and(|peer| peer.is_closed));
            let as_of = if is_closed { apart.newest.max(now) } else { apart.newest };
            let image = Image::new(of, apart, as_of, is_closed).map_err(failed)?;
            match image.packed.is_empty() {
                true => image.of.iter().for_each(|origin| book.fade(*origin)),
                false => images.push(image),
            }
        }
        images.sort_by_key(|image| std::cmp::Reverse(image.packed.len()));
        let total = |images: &[Image]| images.iter().map(|image| image.packed.len() as u64).sum::<u64>();
        while images.len() > 1 && total(&images) > self.max_snapshot_bytes {
            let (first, mut second) = (images.remove(0), images.remove(0));
            let newest = first.apart.newest.max(second.apart.newest);
            second.apart.selector.take_share(&first.apart.selector.share(newest, 0.0));
            second.apart.newest = newest;
            let of = first.of.into_iter().chain(second.of).collect();
            images.insert(0, Image::new(of, second.apart, newest, false).map_err(failed)?);
        }
        Ok(images)
    }

    /// Removes the files of evidence snapshots that no record names any more.
    fn drop_shares(&self) -> Result<(), FleetError> {
        let failed = |error| FleetError::io(&self.dir, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if name.starts_with("share-") {
                names.push(name);
            }
        }
        // A snapshot's file is written before its record. A listed file without a record may be about to get one. Only
        // files older than some file with a record are removed.
        let mut named = HashSet::new();
        each(&Reader::open(&self.dir)?, 0, u64::MAX, |_, record| {
            if let Ok(Event::Share(taken)) = Event::decode(record.kind, record.schema, record.payload) {
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
fn says_of(dir: &Path, covers: u64, group: &[Origin]) -> Result<bool, FleetError> {
    let mut says = false;
    each(&Reader::open(dir)?, covers, u64::MAX, |_, record| {
        says |= match Event::decode(record.kind, record.schema, record.payload) {
            Ok(Event::Share(taken)) => group.contains(&taken.origin),
            Ok(Event::Exclude(origin)) => group.contains(&origin),
            Ok(Event::Dissolve(of)) => of.iter().any(|origin| group.contains(origin)),
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

/// Teaches `selector` everything that the node in the data directory `data` has received from peers. The directory may
/// be open in another process. Returns the number of nodes; 0 without `peers/`.
///
/// # Errors
/// As [`Fleet::join`](crate::Fleet::join).
pub fn foreign(data: &Path, selector: &Selector) -> Result<usize, FleetError> {
    let (dir, state) = (data.join(FOLDER), crate::peer_store::node_state::State::load(data)?);
    let Some(state) = state.filter(|_| dir.is_dir()) else { return Ok(0) };
    let (book, _) = fold(&dir, &(state.origin, state.own()), None, u64::MAX, &mut Teaches { selector })?;
    Ok(book.peers.values().filter(|peer| !peer.seen.is_empty()).count() + book.generals.len())
}

/// Adds the lost epochs of this node that `peers/` has to the evidence of its own log.
pub(crate) fn with_own_past(
    data: &Path,
    state: &crate::peer_store::node_state::State,
    like: &Selector,
    own: Share,
    covers: &mut BTreeMap<u32, Intervals>,
) -> Result<Share, FleetError> {
    let dir = data.join(FOLDER);
    if state.forks.len() < 2 || !dir.is_dir() {
        return Ok(own);
    }
    let selector = like.blank().map_err(|error| FleetError::Selector(error.to_string()))?;
    selector.take_share(&own);
    let mut apart = Apart { selector, newest: own.as_of(), with_general: false };
    let (book, _) = fold(&dir, &(state.origin, state.own()), Some(&[state.origin]), u64::MAX, &mut apart)?;
    if let Some(peer) = book.peers.get(&state.origin) {
        for (epoch, seen) in &peer.seen {
            covers.entry(*epoch).or_default().extend(seen);
        }
    }
    Ok(apart.selector.share(apart.newest, FADED))
}
