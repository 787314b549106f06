//! The check of one whole segment: good, torn at the end, or damaged.
//!
//! Owns: FORMAT.md section 4.
//!
//! Invariant: every byte that should be part of the log is either visited as part of a good frame
//! or named in a [`Damage`].
//!
//! Must not know: locks, writing, what a record means.

use std::time::Duration;

use crate::error::{Damage, Error, TornTail};
use crate::format::{FrameHeader, HEADER_LEN, Link};
use crate::fs::{Fs, FsFile};
use crate::read::chain::ChainSegment;
use crate::read::scan::{Extent, Reached, Scanner, Step};

/// How often a bad frame in the last segment is read again before it is judged: a writer may be in
/// the middle of it.
const REREADS: u32 = 4;

/// The result of a scan.
#[derive(Debug)]
pub(crate) struct SegmentReport {
    /// The end of the good frames.
    pub(crate) end: Link,
    /// Records in good frames.
    pub(crate) records: u64,
    /// Everything before this offset is known to have been durable.
    pub(crate) proven: u64,
    pub(crate) max_time: i64,
    pub(crate) torn: Option<TornTail>,
    pub(crate) damage: Vec<Damage>,
}

/// A good frame, handed to a visitor.
pub(crate) struct GoodFrame<'a> {
    pub(crate) header: FrameHeader,
    /// How many records it holds.
    pub(crate) records: u32,
    /// Where it ends in the file.
    pub(crate) end: u64,
    /// From where a later scan may go on behind it.
    pub(crate) reached: Option<Reached>,
    /// Starts at an address divisible by 16.
    pub(crate) payload: &'a [u8],
}

/// Scans a segment and calls `visit` with each good frame; `visit` ends the scan by returning
/// false.
pub(crate) fn scan_segment(
    fs: &dyn Fs,
    segment: &ChainSegment,
    file: &dyn FsFile,
    visit: &mut dyn FnMut(GoodFrame<'_>) -> bool,
) -> Result<SegmentReport, Error> {
    scan_segment_from(fs, segment, file, None, visit)
}

/// As [`scan_segment`], continuing from an earlier scan of the same file. Frames that were good are
/// not checked again.
pub(crate) fn scan_segment_from(
    fs: &dyn Fs,
    segment: &ChainSegment,
    file: &dyn FsFile,
    from: Option<&Reached>,
    visit: &mut dyn FnMut(GoodFrame<'_>) -> bool,
) -> Result<SegmentReport, Error> {
    let mut scanner = Scanner::new(file, &segment.file.path, &segment.file.header, segment.extent);
    from.iter().for_each(|from| scanner.go_on(from));
    let mut judge =
        Judge { fs, segment, damage: Vec::new(), torn: None, rereads: 0, suspect: None };
    loop {
        match scanner.step()? {
            Step::Frame(header) => {
                judge.rereads = 0;
                let (end, reached, records) = (scanner.offset, scanner.reached(), scanner.in_frame);
                if !visit(GoodFrame { header, records, end, reached, payload: scanner.payload()? })
                {
                    break;
                }
            }
            Step::End => {
                judge.end(&scanner);
                break;
            }
            Step::Bad(what) => {
                if !judge.bad(&mut scanner, what)? {
                    break;
                }
            }
        }
    }
    Ok(SegmentReport {
        end: scanner.link(),
        records: scanner.records,
        proven: scanner.proven.max(segment.durable_off),
        max_time: scanner.max_time,
        torn: judge.torn,
        damage: judge.damage,
    })
}

struct Judge<'s> {
    fs: &'s dyn Fs,
    segment: &'s ChainSegment,
    damage: Vec<Damage>,
    torn: Option<TornTail>,
    rereads: u32,
    /// A position that looked damaged. It is checked once more after the proof of the damage was
    /// read.
    suspect: Option<u64>,
}

impl Judge<'_> {
    /// The scanner met its end.
    fn end(&mut self, scanner: &Scanner<'_>) {
        let header = &self.segment.file.header;
        if self.segment.extent == Extent::Open {
            let known = scanner.proven.max(self.segment.durable_off);
            if known > scanner.offset {
                if scanner.proven <= scanner.offset && self.has_all_records(scanner.next_seq) {
                    let (file, offset) = (self.segment.file.name.clone(), scanner.offset);
                    self.torn =
                        Some(TornTail { file, offset, bytes: 0, records_kept: scanner.records });
                    return;
                }
                let last = self.last_lost_seq(scanner.next_seq, None);
                let what = "the segment ends before what had been durable";
                self.push(scanner.offset, known - scanner.offset, scanner.next_seq, last, what);
            }
            return;
        }
        let fits = match &self.segment.stated {
            Some(stated) => scanner.link() == *stated,
            None => !header.is_rewritten() || scanner.sealed,
        };
        if !fits && scanner.is_complete() {
            // Every frame is good, but the whole is not what the successor recorded. So no smaller
            // range can be named.
            let last = self.last_known_seq().unwrap_or(u64::MAX);
            let what = "the content does not match the link of the next segment";
            self.push(
                HEADER_LEN as u64,
                scanner.offset - HEADER_LEN as u64,
                header.first_seq,
                last,
                what,
            );
        }
    }

    /// The scanner met a frame that is not good. True when it shall go on.
    fn bad(&mut self, scanner: &mut Scanner<'_>, what: &'static str) -> Result<bool, Error> {
        let at = scanner.offset;
        if self.segment.extent == Extent::Open {
            if self.rereads < REREADS {
                // The first time there is no pause: later frames may have been written since the
                // first look.
                if self.rereads > 0 {
                    self.fs.pause(Duration::from_millis(u64::from(self.rereads)));
                }
                self.rereads += 1;
                scanner.refresh();
                return Ok(true);
            }
            let tail = scanner.scan_tail()?;
            scanner.proven = tail.proven;
            let behind = tail.next_seq.is_some_and(|next| next > scanner.next_seq);
            if tail.proven.max(self.segment.durable_off) <= at
                || tail.proven <= at && !behind && self.has_all_records(scanner.next_seq)
            {
                let file = self.segment.file.name.clone();
                self.torn = Some(TornTail {
                    file,
                    offset: at,
                    bytes: tail.bytes,
                    records_kept: scanner.records,
                });
                return Ok(false);
            }
            if self.suspect != Some(at) {
                // A writer may have finished this frame, and written what proves it durable, after
                // we looked. So look once more.
                self.suspect = Some(at);
                scanner.refresh();
                return Ok(true);
            }
        }
        let expected = scanner.next_seq;
        let good = scanner.skip_to_good()?;
        match good {
            Some(offset) => {
                self.push(at, offset - at, expected, scanner.next_seq.saturating_sub(1), what)
            }
            None => {
                let end = match self.segment.extent {
                    Extent::Fixed(end) => end,
                    Extent::Open => scanner.proven.max(self.segment.durable_off),
                };
                let behind = scanner.scan_tail()?.next_seq;
                let last = self.last_lost_seq(expected, behind);
                self.push(at, end.saturating_sub(at), expected, last, what);
            }
        }
        Ok(good.is_some())
    }

    /// Whether every record that the manifest knows of is there. It is written when the log is
    /// closed, and nothing is appended after that: what is missing behind the last record is the
    /// mark that closed it, and no loss.
    fn has_all_records(&self, next_seq: u64) -> bool {
        self.segment.durable_seq > 0 && self.segment.durable_seq + 1 == next_seq
    }

    /// The last record that is lost when everything from `expected` on is. What the manifest says
    /// may be of long ago; then a frame header that can still be read tells more, and without one
    /// nothing is known.
    fn last_lost_seq(&self, expected: u64, behind: Option<u64>) -> u64 {
        if let Some(next) = self.segment.next_seq() {
            return next - 1;
        }
        let known = self.last_known_seq().max(behind.map(|next| next - 1));
        known.filter(|last| *last >= expected).unwrap_or(u64::MAX)
    }

    fn last_known_seq(&self) -> Option<u64> {
        let from_manifest = (self.segment.durable_seq > 0).then_some(self.segment.durable_seq);
        self.segment.next_seq().map(|next| next - 1).or(from_manifest)
    }

    fn push(&mut self, offset: u64, len: u64, first: u64, last: u64, what: &'static str) {
        let records = (last >= first).then_some((first, last));
        self.damage.push(Damage {
            file: self.segment.file.name.clone(),
            offset,
            len,
            records,
            what,
        });
    }
}

/// Makes the ranges of missing and unreadable segments exact, by reading the ends of their
/// neighbours.
pub(crate) fn refine_damage(
    fs: &dyn Fs,
    chain: &[ChainSegment],
    damage: &mut [Damage],
) -> Result<(), Error> {
    for place in damage.iter_mut() {
        let Some((first, last)) = place.records else { continue };
        let next = chain.iter().position(|s| match last {
            u64::MAX => s.file.header.first_seq > first,
            _ => s.file.header.first_seq == last + 1,
        });
        let before =
            next.map_or(chain.last(), |next| next.checked_sub(1).and_then(|i| chain.get(i)));
        let end = match before {
            Some(segment) if segment.file.name == place.file => continue,
            Some(segment) => match segment.next_seq() {
                Some(next) => next,
                None => {
                    let report = segment
                        .file
                        .with_file(fs, |f| scan_segment(fs, segment, f, &mut |_| true))?;
                    report.end.last_seq + 1
                }
            },
            None => first,
        };
        let last = next.and_then(|i| chain.get(i)).map_or(last, |s| s.file.header.first_seq - 1);
        let first = first.max(end);
        place.records = (first <= last).then_some((first, last));
    }
    Ok(())
}
