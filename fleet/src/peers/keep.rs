//! Snapshots of `peers/`, taken beside everything else: one image for each origin, and the book.
//!
//! Owns: when a record may go. Invariant: what a snapshot holds is what the records up to it show, and a record goes only when two
//! snapshots hold it. Must not know brokers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fetchwise::evidence::{Fact, Share};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_log::{CompactOptions, Maintenance, Reader, Section, SnapshotMeta};

use super::event::{Event, FINGERPRINT};
use super::fold::{BOOK, FOLDER, IMAGE, Learns, each, fold};
use super::learn::{Apart, Teaches};
use crate::error::FleetError;
use crate::intervals::Intervals;
use crate::origin::Origin;
use crate::points;
use crate::share::{Head, pack};

/// Entries whose decayed weight is under this have faded.
const FADED: f64 = 0.01;

/// Evidence of each origin, folded apart.
struct Each<'s> {
    like: &'s Selector,
    all: HashMap<Origin, Apart>,
    failed: Option<String>,
}

impl Each<'_> {
    fn of(&mut self, origin: Origin) -> Option<&mut Apart> {
        if !self.all.contains_key(&origin) {
            match self.like.blank() {
                Ok(selector) => drop(self.all.insert(origin, Apart { selector, newest: Timestamp::default() })),
                Err(error) => self.failed = Some(error.to_string()),
            }
        }
        self.all.get_mut(&origin)
    }
}

impl Learns for Each<'_> {
    fn share(&mut self, origin: Origin, share: &Share) {
        if let Some(apart) = self.of(origin) {
            apart.share(origin, share);
        }
    }

    fn fact(&mut self, origin: Origin, fact: &Fact<'_>) {
        if let Some(apart) = self.of(origin) {
            apart.fact(origin, fact);
        }
    }
}

/// What a snapshot of `peers/` did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// It holds what the records up to here say.
    pub covers: u64,
    /// Origins with evidence.
    pub origins: usize,
    /// The snapshot's length, in bytes.
    pub bytes: u64,
}

/// What it takes to take a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    pub(super) dir: PathBuf,
    pub(super) own: (Origin, BTreeMap<u32, Intervals>),
    pub(super) selector: Arc<Selector>,
}

impl Keeper {
    /// Takes a snapshot of what is on disk, and drops the records that two snapshots hold. Blocks for as long as all evidence of others
    /// takes to be folded; memory as much again as that.
    pub(crate) fn keep(&self, now: Timestamp) -> Result<Kept, FleetError> {
        let maintenance = Maintenance::lock(&self.dir)?;
        let upto = fetchwise_log::durable_seq(&self.dir)?;
        let before = fetchwise_log::load_snapshot(&self.dir)?.snapshot.map_or(0, |found| found.meta().covers_seq);
        if upto <= before {
            return Ok(Kept { covers: before, ..Kept::default() });
        }
        let mut folded = Each { like: &self.selector, all: HashMap::new(), failed: None };
        let (book, covers) = fold(&self.dir, &self.own, None, upto, &mut folded)?;
        if let Some(error) = folded.failed {
            return Err(FleetError::Selector(error));
        }
        points::reached(points::FOLDED);
        let mut sections = vec![(BOOK, book.encode())];
        for (origin, apart) in &folded.all {
            let share = apart.selector.share(apart.newest, FADED);
            let packed = pack(&Head::default(), &share).map_err(|error| FleetError::io(&self.dir, error))?;
            let mut bytes = origin.as_bytes().to_vec();
            bytes.extend_from_slice(&packed);
            sections.push((IMAGE, bytes));
        }
        let meta = SnapshotMeta { covers_seq: covers, fingerprint: FINGERPRINT, ..SnapshotMeta::default() };
        let borrowed: Vec<Section<'_>> =
            sections.iter().map(|(kind, bytes)| Section { kind: *kind, version: 1, bytes }).collect();
        let (_, bytes) = maintenance.write_snapshot(&meta, &borrowed)?;
        points::reached(points::SNAPSHOT);
        let mut options = CompactOptions::new(before, now.as_millis());
        options.max_jump = None;
        maintenance.compact(&options, &mut |seq, _| seq > before, &mut |_| {})?;
        points::reached(points::COMPACTED);
        self.drop_shares()?;
        Ok(Kept { covers, origins: folded.all.len(), bytes })
    }

    /// Removes the files of shares that no record names any more.
    fn drop_shares(&self) -> Result<(), FleetError> {
        let failed = |error| FleetError::io(&self.dir, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if name.starts_with("share-") {
                names.push(name);
            }
        }
        // A share gets its file before its record: those that are listed now and have no record afterwards may be on their way. So only
        // those go that are older than some share which has a record.
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

/// The number in the name of a share's file.
fn number_of(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_suffix(".fwp")?.rsplit_once('-')?.1, 16).ok()
}

/// Teaches `selector` what others have told the node in the data directory `data`, beside whoever has it open. Without `peers/` that is
/// nothing. Returns how many origins there are.
///
/// # Errors
/// As [`Fleet::join`](crate::Fleet::join).
pub fn foreign(data: &Path, selector: &Selector) -> Result<usize, FleetError> {
    let (dir, state) = (data.join(FOLDER), crate::state::State::load(data)?);
    let Some(state) = state.filter(|_| dir.is_dir()) else { return Ok(0) };
    let (book, _) = fold(&dir, &(state.origin, state.own()), None, u64::MAX, &mut Teaches { selector })?;
    Ok(book.peers.values().filter(|peer| !peer.seen.is_empty()).count())
}

/// Adds what `peers/` has of histories of this very node which its log has lost, to what its log has taught.
pub(crate) fn with_own_past(
    data: &Path,
    state: &crate::state::State,
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
    let mut apart = Apart { selector, newest: own.as_of() };
    let (book, _) = fold(&dir, &(state.origin, state.own()), Some(state.origin), u64::MAX, &mut apart)?;
    if let Some(peer) = book.peers.get(&state.origin) {
        for (epoch, seen) in &peer.seen {
            covers.entry(*epoch).or_default().extend(seen);
        }
    }
    Ok(apart.selector.share(apart.newest, FADED))
}
