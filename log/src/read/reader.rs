//! The reader: reads the log without a lock and without repairs, also during a running writer or
//! compaction.
//!
//! Owns: iteration in order, by segment and from a sequence number.
//!
//! Invariant: a record is delivered once and in order, or its sequence number is in a reported
//! range.
//!
//! Must not know: what a record means, how to repair.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::directory::manifest::SNAPSHOT;
use crate::error::{Damage, Error, TornTail};
use crate::format::{AlignedBuf, BlockFormat, RECORD_HEADER_LEN, RecordRef, TIME_UNKNOWN};
use crate::fs::{Fs, RealFs};
use crate::read::catalog::Catalog;
use crate::read::chain::ChainSegment;
use crate::read::resume_mark::ResumeMark;
use crate::read::scan::Extent;
use crate::read::segment_check::{GoodFrame, scan_segment, scan_segment_from};
use crate::read::unpack::{FrameRecords, Unpacker};

/// The log at the time when the reader was opened; the last segment at the time when it is read.
///
/// Payloads start at addresses divisible by 8 (not always by 16); see [`RecordRef::payload`].
#[derive(Debug)]
pub struct Reader {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(super) catalog: Catalog,
    pub(super) blocks: Option<&'static dyn BlockFormat>,
}

/// One segment of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentInfo {
    /// The file, as a name in the data directory.
    pub file: String,
    /// The sequence number of its first record.
    pub first_seq: u64,
    /// The sequence number after its last record; `None` for the last segment, which may be
    /// growing.
    pub next_seq: Option<u64>,
    /// Length of the file, allocated zeros included.
    pub bytes: u64,
    /// True when compaction or repair wrote it.
    pub rewritten: bool,
    /// True when its records may be packed.
    pub packed: bool,
    /// The schema fingerprint in its header.
    pub fingerprint: [u8; 16],
}

/// The findings of a pass over the log or one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Records delivered.
    pub records: u64,
    /// Bytes of segments read.
    pub bytes: u64,
    /// The first sequence number delivered.
    pub first_seq: Option<u64>,
    /// The last sequence number delivered.
    pub last_seq: Option<u64>,
    /// The latest record time of the frames read, ms.
    pub max_time: Option<i64>,
    /// Present if the last writer died during a write (or is writing now).
    pub torn: Option<TornTail>,
    /// The unreadable ranges. Empty in a healthy log.
    pub damage: Vec<Damage>,
}

impl Summary {
    /// Adds the findings of another pass.
    pub fn merge(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.first_seq = match (self.first_seq, other.first_seq) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.last_seq = self.last_seq.max(other.last_seq);
        self.max_time = self.max_time.max(other.max_time);
        self.torn = self.torn.take().or(other.torn);
        self.damage.extend(other.damage);
    }
}

impl Reader {
    /// Opens the log in `dir`. An empty or missing directory is an empty log. Takes no lock; reads
    /// headers.
    ///
    /// # Errors
    ///
    /// [`Error::NewerFormat`], or the system's error. Damage is not an error here:
    /// [`damage`](Self::damage) returns the damage of headers and manifests, and each pass reports
    /// it again with its own findings.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Self::open_with(Arc::new(RealFs), dir)
    }

    /// As [`open`](Self::open), on another file system.
    pub fn open_with(fs: Arc<dyn Fs>, dir: &Path) -> Result<Self, Error> {
        let catalog = Catalog::read(&*fs, dir)?;
        Ok(Self { fs, dir: dir.to_owned(), catalog, blocks: None })
    }

    /// Reads packed records too, which have this layout. Without it, a pass over a packed segment
    /// is an [`Error::Invalid`].
    #[must_use]
    pub fn with_blocks(self, format: &'static dyn BlockFormat) -> Self {
        Self { blocks: Some(format), ..self }
    }

    /// Refuses segments whose schema fingerprint is not among `known` (the first of which is this
    /// build's own).
    ///
    /// # Errors
    ///
    /// [`Error::FingerprintMismatch`].
    pub fn check_fingerprints(&self, known: &[[u8; 16]]) -> Result<(), Error> {
        self.catalog.check_fingerprints(known.first().copied().unwrap_or_default(), known)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The segments, oldest first.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = SegmentInfo> + '_ {
        self.catalog.chain.iter().map(|segment| SegmentInfo {
            file: segment.file.name.clone(),
            first_seq: segment.file.header.first_seq,
            next_seq: segment.next_seq(),
            bytes: segment.file.file_len,
            rewritten: segment.file.header.is_rewritten(),
            packed: segment.file.header.has_blocks(),
            fingerprint: segment.file.header.fingerprint,
        })
    }

    pub(crate) fn chain(&self) -> &[ChainSegment] {
        &self.catalog.chain
    }

    /// Returns the damage of headers and manifests, before any frame is read.
    pub fn damage(&self) -> &[Damage] {
        &self.catalog.damage
    }

    /// Returns the identity of the store, which all its files have; none for an empty directory.
    pub fn store(&self) -> Option<[u8; 16]> {
        self.catalog.store
    }

    /// Returns the floor: records up to here may be gone from the segments, because snapshots cover
    /// them.
    pub fn floor_seq(&self) -> u64 {
        self.catalog.floor_seq()
    }

    /// Returns the time of the last compaction, or `None` before the first one. The newest
    /// compacted segment's file has it. If no compacted segment is left, this is the time of the
    /// newest snapshot, which may be later. Costs one system call for each compacted segment.
    pub fn compacted_at(&self) -> Option<SystemTime> {
        let changed = |file: &str| self.dir.join(file).metadata().ok()?.modified().ok();
        let newest = self
            .segments()
            .filter(|segment| segment.rewritten)
            .filter_map(|segment| changed(&segment.file))
            .max();
        newest.or_else(|| if self.floor_seq() > 0 { changed(SNAPSHOT) } else { None })
    }

    /// Calls `f` with every record, in order.
    ///
    /// # Errors
    ///
    /// The system's error, or [`Error::Replaced`] if a compaction removed a file that was not open
    /// yet. Damage and a torn tail are in the summary: a caller that ignores [`Summary::damage`]
    /// silently skips records.
    pub fn for_each(&self, f: impl FnMut(u64, RecordRef<'_>)) -> Result<Summary, Error> {
        self.for_each_from(0, f)
    }

    /// As [`for_each`](Self::for_each), from a sequence number on. Earlier segments are not read.
    pub fn for_each_from(
        &self,
        seq: u64,
        mut f: impl FnMut(u64, RecordRef<'_>),
    ) -> Result<Summary, Error> {
        let mut summary = Summary { damage: self.catalog.damage.clone(), ..Summary::default() };
        for (i, segment) in self.catalog.chain.iter().enumerate() {
            if segment.next_seq().is_none_or(|next| next > seq) {
                summary.merge(self.segment_for_each(i, seq, &mut f)?);
            }
        }
        Ok(summary)
    }

    /// Calls `f` with the records of the `index`-th segment from `seq` on, in order, for a replay
    /// with several threads.
    ///
    /// # Errors
    ///
    /// As [`for_each`](Self::for_each), and [`Error::Invalid`] for an index out of range.
    pub fn segment_for_each(
        &self,
        index: usize,
        seq: u64,
        mut f: impl FnMut(u64, RecordRef<'_>),
    ) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        self.frames(index, seq, &mut summary, |summary, frame| {
            for (number, record) in frame.numbered() {
                if number >= seq {
                    summary.first_seq = summary.first_seq.or(Some(number));
                    summary.last_seq = Some(number);
                    summary.records += 1;
                    f(number, record);
                }
            }
        })?;
        Ok(summary)
    }

    /// As [`segment_for_each`](Self::segment_for_each) up to `upto`, for repeated passes over a
    /// growing segment. `mark` stores the position, so that the next pass begins there. Bytes after
    /// `upto` are not read, and bytes before the mark are not checked again.
    ///
    /// # Errors
    ///
    /// As [`segment_for_each`](Self::segment_for_each).
    pub fn segment_for_each_marked(
        &self,
        index: usize,
        (seq, upto): (u64, u64),
        mark: &mut ResumeMark,
        mut f: impl FnMut(u64, RecordRef<'_>),
    ) -> Result<Summary, Error> {
        let Some(segment) = self.catalog.chain.get(index) else {
            return Err(Error::Invalid(format!("there is no segment {index}")));
        };
        let from = mark.before(&segment.file.header, seq);
        let mut summary = Summary::default();
        let (mut unpacker, mut failed) = (Unpacker::new(self.blocks, &self.dir), None);
        let report = segment.file.with_file(&*self.fs, |file| {
            scan_segment_from(&*self.fs, segment, file, from.as_ref(), &mut |frame| {
                let records = if frame.header.next_seq() > seq && frame.header.first_seq <= upto {
                    unpacker.records(&segment.file.name, &frame)
                } else {
                    Ok(None)
                };
                let records = match records {
                    Ok(records) => records,
                    Err(error) => {
                        failed = Some(error);
                        return false;
                    }
                };
                if let Some(records) = records {
                    for (number, record) in records.numbered() {
                        if number >= seq && number <= upto {
                            summary.first_seq = summary.first_seq.or(Some(number));
                            summary.last_seq = Some(number);
                            summary.records += 1;
                            f(number, record);
                        }
                    }
                }
                if let Some(reached) =
                    frame.reached.filter(|reached| reached.next_seq <= upto.saturating_add(1))
                {
                    mark.keep(&segment.file.header, reached);
                }
                frame.header.next_seq() <= upto
            })
        })?;
        summary.max_time = (report.max_time != TIME_UNKNOWN).then_some(report.max_time);
        if let Some(error) = failed {
            return Err(error);
        }
        (summary.torn, summary.damage) = (report.torn, report.damage);
        Ok(summary)
    }

    /// Returns the records as an iterator, with buffers of about a segment. Damage and a torn tail
    /// are items too, at their position, so that callers cannot overlook them.
    /// [`for_each`](Self::for_each) is faster.
    pub fn records(&self) -> RecordIter<'_> {
        let ready = self
            .catalog
            .damage
            .iter()
            .cloned()
            .map(|damage| Ok(ReadItem::Damage(damage)))
            .collect();
        RecordIter { reader: self, segment: 0, ready }
    }

    /// Calls `f` with the records of each frame that has some from `seq` on.
    pub(crate) fn frames(
        &self,
        index: usize,
        seq: u64,
        summary: &mut Summary,
        mut f: impl FnMut(&mut Summary, FrameRecords<'_>),
    ) -> Result<(), Error> {
        let file = self.catalog.chain.get(index).map_or("", |segment| &segment.file.name);
        let (mut unpacker, mut failed) = (Unpacker::new(self.blocks, &self.dir), None);
        self.good_frames(index, summary, |summary, frame| {
            if frame.header.next_seq() <= seq {
                return true;
            }
            match unpacker.records(file, &frame) {
                Ok(Some(records)) => f(summary, records),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
            failed.is_none()
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Checks the `index`-th segment as [`segment_for_each`](Self::segment_for_each) does, without
    /// unpacking anything if this reader does not know the layout.
    pub(crate) fn check_segment(&self, index: usize) -> Result<Summary, Error> {
        if self.blocks.is_some() {
            return self.segment_for_each(index, 0, |_, _| {});
        }
        let mut summary = Summary::default();
        self.good_frames(index, &mut summary, |summary, frame| {
            summary.records += u64::from(frame.records);
            if frame.records > 0 {
                summary.first_seq = summary.first_seq.or(Some(frame.header.first_seq));
                summary.last_seq = Some(frame.header.next_seq() - 1);
            }
            true
        })?;
        Ok(summary)
    }

    /// Calls `f` with each good frame of the `index`-th segment, until `f` returns false.
    pub(super) fn good_frames(
        &self,
        index: usize,
        summary: &mut Summary,
        mut f: impl FnMut(&mut Summary, GoodFrame<'_>) -> bool,
    ) -> Result<(), Error> {
        let Some(segment) = self.catalog.chain.get(index) else {
            return Err(Error::Invalid(format!("there is no segment {index}")));
        };
        let report = segment.file.with_file(&*self.fs, |file| {
            scan_segment(&*self.fs, segment, file, &mut |frame| f(summary, frame))
        })?;
        summary.bytes += match segment.extent {
            Extent::Fixed(end) => end,
            Extent::Open => report.end.valid_len,
        };
        summary.max_time =
            summary.max_time.max((report.max_time != TIME_UNKNOWN).then_some(report.max_time));
        summary.torn = report.torn;
        let whole = report.damage.is_empty();
        summary.damage.extend(report.damage);
        let at_end = index + 1 == self.catalog.chain.len();
        if let Some(Damage { records: Some((_, last)), .. }) =
            summary.damage.last_mut().filter(|_| at_end && !whole)
            && *last >= report.end.last_seq
        {
            // A snapshot is taken of durable records only. So the records that it covers were
            // there, even if no frame is left that shows it.
            *last = (*last).max(self.catalog.covers_seq());
        }
        if whole && at_end {
            let last_seq = segment.next_seq().map_or(report.end.last_seq, |next| next - 1);
            summary.damage.extend(self.catalog.lost_behind(&segment.file.name, last_seq));
        }
        Ok(())
    }
}

/// An item of a [`RecordIter`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReadItem {
    /// A record.
    Record(OwnedRecord),
    /// The log ends with a torn tail. Always the last item.
    Torn(TornTail),
    /// A range is unreadable. Good records may follow.
    Damage(Damage),
}

/// A record that shares its frame's buffer with the others of that frame.
#[derive(Clone, Debug)]
pub struct OwnedRecord {
    seq: u64,
    kind: u16,
    schema: u16,
    key_hash: u64,
    frame: Arc<AlignedBuf>,
    range: Range<usize>,
}

impl OwnedRecord {
    /// Its sequence number.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The record.
    pub fn as_ref(&self) -> RecordRef<'_> {
        let payload = self.frame.bytes().get(self.range.clone()).unwrap_or_default();
        RecordRef { kind: self.kind, schema: self.schema, key_hash: self.key_hash, payload }
    }
}

/// The records of a log; see [`Reader::records`].
#[derive(Debug)]
pub struct RecordIter<'r> {
    reader: &'r Reader,
    segment: usize,
    ready: VecDeque<Result<ReadItem, Error>>,
}

impl Iterator for RecordIter<'_> {
    type Item = Result<ReadItem, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && self.segment < self.reader.catalog.chain.len() {
            self.load();
        }
        self.ready.pop_front()
    }
}

impl RecordIter<'_> {
    fn load(&mut self) {
        let mut summary = Summary::default();
        let ready = &mut self.ready;
        let read = self.reader.frames(self.segment, 0, &mut summary, |_, frame| {
            let mut at = 0;
            let buf = Arc::new(AlignedBuf::copy_of(frame.payload));
            for (seq, record) in frame.numbered() {
                let start = at + RECORD_HEADER_LEN;
                let range = start..start + record.payload.len();
                at = range.end.next_multiple_of(8);
                let RecordRef { kind, schema, key_hash, .. } = record;
                ready.push_back(Ok(ReadItem::Record(OwnedRecord {
                    seq,
                    kind,
                    schema,
                    key_hash,
                    frame: buf.clone(),
                    range,
                })));
            }
        });
        self.segment += 1;
        // Damage is delivered in the order of sequence numbers: before the records that come after
        // it.
        for damage in summary.damage {
            let at = self.ready.iter().position(|item| {
                let first = damage.records.map_or(u64::MAX, |(first, _)| first);
                matches!(item, Ok(ReadItem::Record(record)) if record.seq > first)
            });
            self.ready.insert(at.unwrap_or(self.ready.len()), Ok(ReadItem::Damage(damage)));
        }
        self.ready.extend(summary.torn.map(|torn| Ok(ReadItem::Torn(torn))));
        if let Err(e) = read {
            self.ready.push_back(Err(e));
            self.segment = usize::MAX;
        }
    }
}
