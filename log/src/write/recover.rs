//! Recovery: the check of a directory that is opened for writing, and the writer that continues it.
//!
//! Owns: the recovery rules.
//!
//! Invariants: a damaged log is refused before any change. A recovered segment is neither appended
//! to nor truncated. Rewritten frames were checked first.
//!
//! Must not know: threads, queues.

use std::path::Path;
use std::sync::Arc;

use super::batch::Batch;
use super::options::OpenCheck;
use super::writer::{Setup, Writer, new_store};
use crate::directory::manifest::SEGMENTS;
use crate::error::{Damage, Error, TornTail};
use crate::format::{BlockFormat, FrameKind, HEADER_LEN, Link};
use crate::fs::Fs;
use crate::read::catalog::Catalog;
use crate::read::chain::ChainSegment;
use crate::read::scan::{Extent, Scanner, Step};
use crate::read::segment_check::{SegmentReport, scan_segment};

/// The result of opening a directory for writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The number of times that the store has been opened for writing, this time included.
    pub epoch: u64,
    /// Segments in the log.
    pub segments: usize,
    /// The oldest record's sequence number is this or a later one.
    pub first_seq: u64,
    /// The sequence number that the next record gets.
    pub next_seq: u64,
    /// Records that were read and checked: all of them with [`OpenCheck::Full`], else those of the
    /// last segment.
    pub records_checked: u64,
    /// The latest record time that was seen, ms; `None` when none was.
    pub max_time: Option<i64>,
    /// Present if the last writer died during a write. The log is repaired already.
    pub torn: Option<TornTail>,
    /// Records that were good but not known durable, and were rewritten into a new segment.
    pub rewritten: u64,
    /// Records up to here may be gone from the segments, because snapshots cover them.
    pub floor_seq: u64,
}

/// What recovery needs to know.
pub(crate) struct Plan<'a> {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: &'a Path,
    pub(crate) fingerprint: [u8; 16],
    pub(crate) accepts: &'a [[u8; 16]],
    pub(crate) segment_bytes: u64,
    pub(crate) check: OpenCheck,
    pub(crate) begin_segment: bool,
    pub(crate) blocks: Option<&'static dyn BlockFormat>,
    pub(crate) pack_from: u32,
    pub(crate) repack_bytes: u64,
}

/// How often a compaction may take files away under us.
const MAX_RACES: usize = 8;

/// Reads the directory, repairs a torn tail, and returns a writer that stands behind the last
/// record. The caller holds the lock.
pub(crate) fn recover(plan: &Plan<'_>) -> Result<(Writer, Recovery), Error> {
    let mut races = 0;
    loop {
        match try_recover(plan) {
            Err(Error::Replaced { .. }) if races < MAX_RACES => races += 1,
            done => return done,
        }
    }
}

fn try_recover(plan: &Plan<'_>) -> Result<(Writer, Recovery), Error> {
    let fs = &*plan.fs;
    let catalog = Catalog::read(fs, plan.dir)?;
    catalog.check_fingerprints(plan.fingerprint, plan.accepts)?;
    if !catalog.damage.is_empty() {
        return Err(Error::Corrupt { dir: plan.dir.to_owned(), damage: catalog.damage });
    }
    let mut recovery = Recovery {
        epoch: catalog.epoch_max + 1,
        segments: catalog.chain.len(),
        floor_seq: catalog.floor_seq(),
        first_seq: catalog.chain.first().map_or(1, |s| s.file.header.first_seq),
        ..Recovery::default()
    };
    let tail = check_content(fs, plan, &catalog, &mut recovery)?;
    recovery.rewritten = tail.rest.iter().map(Batch::records).sum();
    recovery.next_seq = tail.rest.last().map_or(tail.durable.last_seq + 1, Batch::next_seq);
    let last_file = catalog.chain.last().map_or(SEGMENTS, |s| &s.file.name);
    if let Some(lost) = catalog.lost_behind(last_file, recovery.next_seq - 1) {
        return Err(Error::Corrupt { dir: plan.dir.to_owned(), damage: vec![lost] });
    }
    let mut writer = Writer::new(Setup {
        fs: plan.fs.clone(),
        dir: plan.dir.to_owned(),
        fingerprint: plan.fingerprint,
        segment_bytes: plan.segment_bytes,
        store: catalog.store.unwrap_or_else(|| new_store(fs)),
        epoch: recovery.epoch,
        prev_number: tail.number,
        prev: tail.durable,
        next_number: catalog
            .number_max
            .checked_add(1)
            .ok_or_else(|| Error::Invalid("no segment numbers are left".into()))?,
        manifest_generation: catalog.segments.map_or(0, |m| m.generation),
        durable_seq: tail.durable.last_seq,
        here_since: recovery.next_seq,
        blocks: plan.blocks,
        pack_from: plan.pack_from,
        repack_bytes: plan.repack_bytes,
    });
    remove_unfinished(fs, plan.dir, &catalog);
    // A last segment without records serves as the new one.
    let begin = plan.begin_segment
        && catalog.chain.last().is_some_and(|last| recovery.next_seq > last.file.header.first_seq);
    if recovery.torn.is_some() || !tail.rest.is_empty() || begin {
        tail.rest.into_iter().for_each(|batch| writer.push(batch));
        writer.begin_segment()?;
        recovery.segments += 1;
    }
    Ok((writer, recovery))
}

/// Where the log ends.
struct Tail {
    number: u32,
    /// The end of what is known durable.
    durable: Link,
    /// Good frames behind it.
    rest: Vec<Batch>,
}

fn check_content(
    fs: &dyn Fs,
    plan: &Plan<'_>,
    catalog: &Catalog,
    recovery: &mut Recovery,
) -> Result<Tail, Error> {
    let mut damage: Vec<Damage> = Vec::new();
    let mut last_report = None;
    for (i, segment) in catalog.chain.iter().enumerate() {
        let is_last = i + 1 == catalog.chain.len();
        if !is_last && plan.check == OpenCheck::Tail {
            // The frames are not read here, but a file that was cut short shows in its length.
            damage.extend(check_len(segment));
            continue;
        }
        let report =
            segment.file.with_file(fs, |file| scan_segment(fs, segment, file, &mut |_| true))?;
        recovery.records_checked += report.records;
        if report.max_time != crate::format::TIME_UNKNOWN {
            recovery.max_time = recovery.max_time.max(Some(report.max_time));
        }
        damage.extend(report.damage.iter().cloned());
        last_report = is_last.then_some(report);
    }
    if !damage.is_empty() {
        return Err(Error::Corrupt { dir: plan.dir.to_owned(), damage });
    }
    match (catalog.chain.last(), last_report) {
        (Some(segment), Some(report)) => {
            recovery.torn = report.torn.clone();
            find_tail(fs, plan.dir, segment, &report)
        }
        _ => {
            let durable = Link { last_seq: catalog.floor_seq(), ..Link::default() };
            Ok(Tail { number: 0, durable, rest: Vec::new() })
        }
    }
}

fn check_len(segment: &ChainSegment) -> Option<Damage> {
    let Extent::Fixed(end) = segment.extent else { return None };
    (segment.file.file_len < end).then(|| {
        let last = segment.next_seq().map_or(u64::MAX, |next| next - 1);
        let records = Some((segment.file.header.first_seq, last));
        let what = "the file is cut short";
        let offset = segment.file.file_len;
        Damage { file: segment.file.name.clone(), offset, len: end - offset, records, what }
    })
}

/// Walks the last segment once more, to the proven end, and collects what lies behind it.
fn find_tail(
    fs: &dyn Fs,
    dir: &Path,
    segment: &ChainSegment,
    report: &SegmentReport,
) -> Result<Tail, Error> {
    let header = &segment.file.header;
    let number = header.stands_to;
    if header.is_rewritten() {
        return Ok(Tail { number, durable: header.alias, rest: Vec::new() });
    }
    if report.end.valid_len <= report.proven {
        return Ok(Tail { number, durable: report.end, rest: Vec::new() });
    }
    segment.file.with_file(fs, |file| {
        let mut scanner = Scanner::new(file, &segment.file.path, header, Extent::Open);
        let mut durable = (report.proven == HEADER_LEN as u64).then(|| scanner.link());
        let mut rest = Vec::new();
        while scanner.offset < report.end.valid_len {
            let Step::Frame(frame) = scanner.step()? else { break };
            if durable.is_some() && matches!(frame.kind, FrameKind::Records | FrameKind::Block) {
                rest.push(Batch::from_frame(&frame, scanner.in_frame, scanner.payload()?));
            } else if scanner.offset == report.proven {
                durable = Some(scanner.link());
            }
        }
        match durable {
            Some(durable) if scanner.offset == report.end.valid_len => {
                Ok(Tail { number, durable, rest })
            }
            _ => {
                let what = "the durable part does not end with a frame";
                let records = Some((header.first_seq, report.end.last_seq))
                    .filter(|(first, last)| first <= last);
                let damage = Damage {
                    file: segment.file.name.clone(),
                    offset: report.proven,
                    len: 0,
                    records,
                    what,
                };
                Err(Error::Corrupt { dir: dir.to_owned(), damage: vec![damage] })
            }
        }
    })
}

/// Removes what a writer that died left unfinished. Best effort: the names are never read.
fn remove_unfinished(fs: &dyn Fs, dir: &Path, catalog: &Catalog) {
    for name in &catalog.unfinished {
        if name.starts_with("tmp-seg-") || name == "tmp-SEGMENTS" {
            let _ = fs.remove(&dir.join(name));
        }
    }
}
