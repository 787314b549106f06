//! The fold of `peers/`: from its newest snapshot up to a record.
//!
//! Owns: which records still matter to a node's evidence.
//!
//! Invariants: a fold visits exactly the attempts and snapshots that count. A node that opens `peers/` knows what it
//! knew when it closed it.
//!
//! Must not know: where the evidence goes.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use bytes::Bytes;
use fetchwise::evidence::{Fact, Share};
use fetchwise::time::Timestamp;
use fetchwise_log::{Error as LogError, Reader, RecordRef};

use crate::error::FleetError;
use crate::model::codec::Batch;
use crate::model::evidence_snapshot::{Head, forgot, unpack};
use crate::model::intervals::Intervals;
use crate::model::node_id::Origin;
use crate::model::peer_state::{Book, Held};
use crate::peer_store::record::{Event, FINGERPRINT, general};

/// The name of the folder in the data directory.
pub const FOLDER: &str = "peers";

/// The section of a snapshot with the peer states.
pub(super) const BOOK: u32 = 100;
/// One section for each node with evidence, in the order of the peer states.
pub(super) const IMAGE: u32 = 101;
/// One section for several nodes together, when separate ones would be too large.
pub(super) const MIXED: u32 = 102;
/// One section for each node with a held global snapshot: the time at the broker, and the bytes as received.
pub(super) const GENERAL: u32 = 103;

/// The maximum size of an evidence snapshot with its head, in bytes.
pub(crate) const MAX_SHARE: u64 = 8 << 30;

/// A visitor of a fold.
pub(crate) trait Learns {
    /// Visits all evidence of a node up to some record; of several nodes if it is mixed.
    fn share(&mut self, of: &[Origin], share: &Share);
    /// Visits an attempt.
    fn fact(&mut self, origin: Origin, fact: &Fact<'_>);
    /// Visits the global snapshot of a node.
    fn general(&mut self, origin: Origin, share: &Share) {
        self.share(&[origin], share);
    }
}

/// The result of a first pass over the records after the snapshot.
#[derive(Default)]
struct Ahead {
    /// The last record at which a node's evidence started over.
    begins: HashMap<Origin, u64>,
    forgotten: Vec<(String, Timestamp)>,
    /// The last record at which a node was excluded.
    excluded: HashMap<Origin, u64>,
    /// The record of each node's newest global snapshot.
    generals: HashMap<Origin, u64>,
}

/// Folds `dir` up to the record `upto`. Visits the evidence of node `only` alone, if it is given. Returns the peer
/// states and the last folded record.
pub(crate) fn fold(
    dir: &Path,
    own: &(Origin, BTreeMap<u32, Intervals>),
    only: Option<&[Origin]>,
    upto: u64,
    learns: &mut impl Learns,
) -> Result<(Book, u64), FleetError> {
    let reader = Reader::open(dir)?;
    reader.check_fingerprints(&[FINGERPRINT])?;
    let found = fetchwise_log::load_snapshot(dir)?.snapshot;
    let mut book = Book::default();
    let mut covers = 0;
    if let Some(snapshot) = &found {
        covers = snapshot.meta().covers_seq;
        let (_, bytes) =
            snapshot.section(BOOK).ok_or_else(|| FleetError::Record("a snapshot without a book".into()))?;
        book = Book::decode(bytes).map_err(FleetError::Record)?;
    }
    let ahead = look_ahead(&reader, covers, upto)?;
    let mut forgotten = book.forgotten.clone();
    for (domain, until) in &ahead.forgotten {
        book.links.forget(domain, *until);
        let known = forgotten.entry(domain.clone()).or_insert(*until);
        *known = (*known).max(*until);
    }
    if let Some(snapshot) = &found {
        for section in snapshot.sections() {
            if section.kind == GENERAL {
                let (origin, at, body) =
                    general(section.bytes).ok_or_else(|| FleetError::Record("a general image is cut off".into()))?;
                let has_newer = ahead.excluded.contains_key(&origin) || ahead.generals.contains_key(&origin);
                hold(
                    &mut book,
                    (origin, at, body),
                    !has_newer && only.is_none_or(|all| all.contains(&origin)),
                    learns,
                )?;
                continue;
            }
            let Some((group, packed)) = image_of(section.kind, section.bytes) else { continue };
            let is_shown =
                |origin: &Origin| !ahead.begins.contains_key(origin) && only.is_none_or(|only| only.contains(origin));
            // Mixed evidence is discarded as a whole: see `PeerEvent::Dissolve`.
            if !group.iter().all(is_shown) {
                continue;
            }
            let (_, mut share) = unpack(packed).map_err(|what| FleetError::Record(what.to_owned()))?;
            // Evidence that was forgotten before the snapshot is not in it any more.
            for (domain, _) in &ahead.forgotten {
                if share.has_domain(domain) {
                    share.forget_domain(domain);
                    group.iter().for_each(|origin| book.peers.entry(*origin).or_default().is_stale = true);
                }
            }
            learns.share(&group, &share);
        }
    }
    // Evidence that is forgotten later is not visited at all.
    book.own = Some(own.clone());
    let kept = std::mem::replace(&mut book.forgotten, forgotten);
    let mut last = covers;
    let mut failed = None;
    each(&reader, covers, upto, |seq, record| {
        last = seq;
        let event = Event::decode(record.kind, record.schema, record.payload).map_err(FleetError::Record)?;
        let begins = |origin: &Origin| ahead.begins.get(origin).copied().unwrap_or(0);
        let is_shown = |origin: &Origin| seq >= begins(origin) && only.is_none_or(|only| only.contains(origin));
        if let Event::General { origin, at, body } = event {
            let is_in = seq > ahead.excluded.get(&origin).copied().unwrap_or(0);
            let shows =
                is_in && only.is_none_or(|all| all.contains(&origin)) && ahead.generals.get(&origin) == Some(&seq);
            return hold(&mut book, (origin, at, body), shows, learns);
        }
        if let Err(error) = step(dir, &mut book, event, is_shown, learns) {
            failed.get_or_insert(error);
        }
        Ok(())
    })?;
    let _ = kept;
    failed.map_or(Ok((book, last)), Err)
}

/// Stores a global snapshot in the peer states, and visits it if no later one replaces it.
fn hold(
    book: &mut Book,
    (origin, at, body): (Origin, Timestamp, &[u8]),
    shows: bool,
    learns: &mut impl Learns,
) -> Result<(), FleetError> {
    let (head, share) = unpack(body).map_err(|what| FleetError::Record(what.to_owned()))?;
    if shows {
        learns.general(origin, &share);
    }
    book.general(origin, Held::new(&head, at, Bytes::copy_from_slice(body)));
    Ok(())
}

fn step(
    dir: &Path,
    book: &mut Book,
    event: Event<'_>,
    is_shown: impl Fn(&Origin) -> bool,
    learns: &mut impl Learns,
) -> Result<(), FleetError> {
    match event {
        Event::Message { origin, position, at, body } => {
            book.cursor = position;
            let batch = Batch::decode(body).map_err(|error| FleetError::Record(error.to_string()))?;
            let shown = is_shown(&origin);
            book.links_of(origin, &batch, at);
            book.message(origin, &batch, at, |fact| {
                if shown {
                    learns.fact(origin, fact);
                }
            });
        }
        Event::Share(taken) => {
            let mut is_stale = false;
            if is_shown(&taken.origin) {
                let (head, mut share) = read_share(dir, &taken.file)?;
                is_stale = without_forgotten(book, &head, &mut share);
                learns.share(&[taken.origin], &share);
                book.links.take_kept((taken.origin, taken.at), &head.links, &book.forgotten);
            }
            book.share(taken.origin, &taken.covers, (taken.epoch, taken.base), is_stale, taken.at);
            book.is_part(taken.origin, taken.is_part);
        }
        // Forgotten domains were collected in the first pass.
        Event::Forget { .. } => {}
        Event::Exclude(origin) => book.exclude(origin),
        Event::Include(origin) => book.include(origin),
        Event::Aside { origin, why } => book.set_aside(origin, why),
        Event::Cursor(position) => book.cursor = position,
        Event::Close(origin) => book.close(origin),
        Event::Dissolve(group) => book.dissolve(&group),
        // Decoded only for the newest one, which the first pass has found.
        Event::General { .. } => {}
    }
    Ok(())
}

/// Returns the nodes and the evidence of a snapshot's section; none for other sections.
fn image_of(kind: u32, bytes: &[u8]) -> Option<(Vec<Origin>, &[u8])> {
    let (count, rest) = match kind {
        IMAGE => (1, bytes),
        MIXED => bytes.split_first_chunk().map(|(count, rest)| (u32::from_le_bytes(*count) as usize, rest))?,
        _ => return None,
    };
    let (origins, packed) = rest.split_at_checked(count.checked_mul(16)?)?;
    Some((origins.as_chunks().0.iter().copied().map(Origin::from_bytes).collect(), packed))
}

/// Returns what the newest snapshot covers, and the nodes whose evidence is mixed in it.
pub(super) fn mixed(dir: &Path) -> Result<(u64, Vec<Origin>), FleetError> {
    let found = fetchwise_log::load_snapshot(dir)?.snapshot;
    let of = |snapshot: &fetchwise_log::Snapshot| {
        let (_, bytes) = snapshot.section(MIXED)?;
        image_of(MIXED, bytes).map(|(group, _)| group)
    };
    let covers = found.as_ref().map_or(0, |snapshot| snapshot.meta().covers_seq);
    Ok((covers, found.as_ref().and_then(of).unwrap_or_default()))
}

/// Removes forgotten domains from a snapshot. Returns whether some of them are mixed with other evidence and cannot be
/// removed.
pub(super) fn without_forgotten(book: &Book, head: &Head, share: &mut Share) -> bool {
    let mut is_stale = false;
    for (domain, until) in &book.forgotten {
        if !head.forgot.contains(&forgot(domain, *until)) && share.has_domain(domain) {
            share.forget_domain(domain);
            is_stale = true;
        }
    }
    is_stale
}

/// Reads the file of an evidence snapshot in `peers/`.
fn read_share(dir: &Path, file: &str) -> Result<(Head, Share), FleetError> {
    let path = dir.join(file);
    let bytes = std::fs::read(&path).map_err(|error| FleetError::io(&path, error))?;
    unpack(&bytes).map_err(|what| FleetError::Record(format!("{file}: {what}")))
}

fn look_ahead(reader: &Reader, covers: u64, upto: u64) -> Result<Ahead, FleetError> {
    let mut ahead = Ahead::default();
    each(reader, covers, upto, |seq, record| {
        match Event::decode(record.kind, record.schema, record.payload).map_err(FleetError::Record)? {
            Event::Share(taken) => drop(ahead.begins.insert(taken.origin, seq)),
            Event::Exclude(origin) => {
                ahead.begins.insert(origin, seq);
                ahead.excluded.insert(origin, seq);
            }
            Event::Dissolve(group) => ahead.begins.extend(group.into_iter().map(|origin| (origin, seq))),
            Event::General { origin, .. } => drop(ahead.generals.insert(origin, seq)),
            Event::Forget { domain, until } => ahead.forgotten.push((domain, until)),
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
        return Err(LogError::Corrupt { dir: reader.dir().to_owned(), damage: summary.damage }.into());
    }
    failed.map_or(Ok(()), Err)
}
