//! What `peers/` holds, folded: from its newest snapshot on, up to a record.
//!
//! Owns: which records still matter to an origin's evidence. Invariant: a fold shows exactly the facts and shares that count, so that a
//! node which opens `peers/` knows what it knew when it closed it. Must not know where evidence goes.

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

/// The folder's name in the data directory.
pub const FOLDER: &str = "peers";

/// The sections of a snapshot.
pub(super) const BOOK: u32 = 100;
/// One for each origin that has evidence, in the order of the book.
pub(super) const IMAGE: u32 = 101;
/// One for several origins together, where there would be too much otherwise.
pub(super) const MIXED: u32 = 102;
/// One for each origin of which a general image is held: when the broker had it, and the image as it came.
pub(super) const GENERAL: u32 = 103;

/// A whole share with its head does not get larger than this.
pub(crate) const SHARE_MAX: u64 = 8 << 30;

/// What a fold shows.
pub(crate) trait Learns {
    /// All that was known of an origin up to some record; of several where it is mixed.
    fn share(&mut self, of: &[Origin], share: &Share);
    /// A fact.
    fn fact(&mut self, origin: Origin, fact: &Fact<'_>);
    /// What an origin has said of what belongs to no one site.
    fn general(&mut self, origin: Origin, share: &Share) {
        self.share(&[origin], share);
    }
}

/// What a first look at the records behind the snapshot shows.
#[derive(Default)]
struct Ahead {
    /// Where an origin's evidence began anew, the last time.
    begins: HashMap<Origin, u64>,
    forgotten: Vec<(String, Timestamp)>,
    /// Where an origin was excluded, the last time.
    excluded: HashMap<Origin, u64>,
    /// Where an origin's newest general image stands.
    generals: HashMap<Origin, u64>,
}

/// Folds `dir` up to the record `upto`; `only` one origin's evidence is shown where it is given. Returns the book, and the last record
/// that was folded.
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
            // A mixed image goes as a whole: see `Event::Dissolve`.
            if !group.iter().all(is_shown) {
                continue;
            }
            let (_, mut share) = unpack(packed).map_err(|what| FleetError::Record(what.to_owned()))?;
            // What was forgotten before the snapshot is not in it any more.
            for (domain, _) in &ahead.forgotten {
                if share.has_domain(domain) {
                    share.forget_domain(domain);
                    group.iter().for_each(|origin| book.peers.entry(*origin).or_default().is_stale = true);
                }
            }
            learns.share(&group, &share);
        }
    }
    // What is forgotten later is not shown before.
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

/// Puts a general image into the book, and shows it where nothing has taken its place since.
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
        // What is forgotten has been looked for before.
        Event::Forget { .. } => {}
        Event::Exclude(origin) => book.exclude(origin),
        Event::Include(origin) => book.include(origin),
        Event::Aside { origin, why } => book.set_aside(origin, why),
        Event::Cursor(position) => book.cursor = position,
        Event::Close(origin) => book.close(origin),
        Event::Dissolve(group) => book.dissolve(&group),
        // It is looked at where it is known whether it is the newest.
        Event::General { .. } => {}
    }
    Ok(())
}

/// Whose image a section of a snapshot is, and the image; none where it is none.
fn image_of(kind: u32, bytes: &[u8]) -> Option<(Vec<Origin>, &[u8])> {
    let (count, rest) = match kind {
        IMAGE => (1, bytes),
        MIXED => bytes.split_first_chunk().map(|(count, rest)| (u32::from_le_bytes(*count) as usize, rest))?,
        _ => return None,
    };
    let (origins, packed) = rest.split_at_checked(count.checked_mul(16)?)?;
    Some((origins.as_chunks().0.iter().copied().map(Origin::from_bytes).collect(), packed))
}

/// What the newest snapshot covers, and the origins whose evidence is mixed in it.
pub(super) fn mixed(dir: &Path) -> Result<(u64, Vec<Origin>), FleetError> {
    let found = fetchwise_log::load_snapshot(dir)?.snapshot;
    let of = |snapshot: &fetchwise_log::Snapshot| {
        let (_, bytes) = snapshot.section(MIXED)?;
        image_of(MIXED, bytes).map(|(group, _)| group)
    };
    let covers = found.as_ref().map_or(0, |snapshot| snapshot.meta().covers_seq);
    Ok((covers, found.as_ref().and_then(of).unwrap_or_default()))
}

/// Takes out of a share what was forgotten; whether some of it is mixed with other evidence and cannot be.
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

/// A share's file in `peers/`.
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

/// Shows the records behind `covers` up to `upto`.
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
