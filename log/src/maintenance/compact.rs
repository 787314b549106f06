//! Maintenance during a running writer: snapshots and compaction, under a separate lock.
//!
//! Owns: which segments are rewritten, merged or unlinked.
//!
//! Invariants: the last segment, which a writer may be using, is never touched. No record above the
//! floor is dropped. The floor is durable before any record below it goes, and a replacement is
//! durable before the replaced files go. So after a crash at any point, the log opens and is
//! complete.
//!
//! Must not know: what a record means; the caller decides which records stay.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::directory::lock::{Guard, LOCK, MAINT_LOCK, acquire};
use crate::directory::manifest::SnapshotManifest;
use crate::directory::reserve;
use crate::error::{Damage, Error};
use crate::format::{
    BLOCK_BYTES, BLOCK_RECORDS, BlockFormat, FrameKind, Link, RecordRef, TIME_UNKNOWN, record_len,
};
use crate::fs::{Fs, RealFs, SyncSite};
use crate::maintenance::rewrite::{Builder, Identity};
use crate::maintenance::snapshot::{
    PreparedSnapshot, SectionWriter, SnapshotFill, await_durable, prepare_snapshot,
    publish_manifest, publish_snapshot,
};
use crate::maintenance::throttle::Throttle;
use crate::read::catalog::Catalog;
use crate::read::chain::ChainSegment;
use crate::read::progress::Progress;
use crate::read::segment_check::{GoodFrame, SegmentReport, scan_segment};
use crate::read::snapshot::{Section, SnapshotCheck, SnapshotMeta, unchecked};
use crate::read::unpack::{FrameRecords, Unpacker};

/// The options of a compaction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompactOptions {
    /// The last sequence number whose record may be dropped. The older of the two snapshots is a
    /// bound too: both must contain the evidence of a dropped record.
    pub floor_seq: u64,
    /// Neighbouring segments smaller than this are merged.
    pub small_bytes: u64,
    /// Merged segments are not made larger than about this.
    pub segment_bytes: u64,
    /// The current time, ms.
    pub now_ms: i64,
    /// Refuses to compact if the newest record is older than this, because the clock has probably
    /// jumped. `None` disables the check.
    pub max_jump: Option<Duration>,
    /// Only report what would be done.
    pub dry_run: bool,
    /// A dry run assumes that both snapshots cover the records up to here.
    pub suppose_covered: u64,
    /// A dry run assumes that the last segment is sealed, as it is once a writer begins a new one.
    pub suppose_sealed: bool,
    /// The layout of packed records. With it, packed segments can be read.
    pub blocks: Option<&'static dyn BlockFormat>,
    /// With a layout, segments that maintenance has not packed yet are rewritten so. Otherwise they
    /// hold records, and only those that are packed stay so.
    pub pack: bool,
    /// The throttle, which can stop the compaction with [`Error::Stopped`].
    pub throttle: Option<Arc<Throttle>>,
}

impl CompactOptions {
    /// Returns the default settings.
    pub fn new(floor_seq: u64, now_ms: i64) -> Self {
        Self {
            floor_seq,
            small_bytes: 16 << 20,
            segment_bytes: 64 << 20,
            now_ms,
            max_jump: Some(Duration::from_secs(48 * 3600)),
            dry_run: false,
            suppose_covered: 0,
            suppose_sealed: false,
            blocks: None,
            pack: true,
            throttle: None,
        }
    }
}

/// The result of a compaction or of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactReport {
    /// Segments before and after, the last one included.
    pub segments: (usize, usize),
    /// Records before and after, those of the last segment left out.
    pub records: (u64, u64),
    /// Bytes of segment files before and after.
    pub bytes: (u64, u64),
    /// Segments unlinked because no record in them was kept.
    pub unlinked: usize,
    /// Segments written as replacements of others.
    pub rewritten: usize,
    /// Left-overs of earlier compactions and crashes that were removed.
    pub leftovers: usize,
    /// Records up to this sequence number may be gone.
    pub floor_seq: u64,
}

/// The maintenance of a directory, under `MAINT.LOCK`. A writer and readers may run meanwhile.
#[derive(Debug)]
pub struct Maintenance {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    _lock: Guard,
}

impl Maintenance {
    /// Takes the lock.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] if another maintenance command runs; [`Error::Io`] if the directory does
    /// not exist.
    pub fn lock(dir: &Path) -> Result<Self, Error> {
        Self::lock_with(Arc::new(RealFs), dir)
    }

    /// As [`lock`](Self::lock), on another file system.
    pub fn lock_with(fs: Arc<dyn Fs>, dir: &Path) -> Result<Self, Error> {
        let lock = match acquire(&*fs, dir, MAINT_LOCK) {
            Err(Error::StorageFull { .. }) => {
                reserve::release(&*fs, dir);
                acquire(&*fs, dir, MAINT_LOCK)?
            }
            done => done?,
        };
        Ok(Self { fs, dir: dir.to_owned(), _lock: lock })
    }

    /// Returns whether a writer has the directory open.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn has_writer(&self) -> Result<bool, Error> {
        match acquire(&*self.fs, &self.dir, LOCK) {
            Ok(_) => Ok(false),
            Err(Error::Locked { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Waits until the files prove that the records up to `seq` are on disk. A live writer writes
    /// that proof with its next records, or once it has been idle for a moment, so it comes later
    /// than the writer's own acknowledgement.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] when there is no proof after five seconds; [`Error::Corrupt`] for a
    /// damaged log; or what the system says.
    pub fn await_durable(&self, seq: u64) -> Result<(), Error> {
        await_durable(&*self.fs, &self.dir, seq).map(drop)
    }

    /// Writes a snapshot, reads it back, and makes it the current one; the one before it stays,
    /// older ones go. Returns the file and its length.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] when it covers less than the current one; as
    /// [`await_durable`](Self::await_durable); or what the system says, in which case the current
    /// snapshot stays what it was.
    pub fn write_snapshot(
        &self,
        meta: &SnapshotMeta,
        sections: &[Section<'_>],
    ) -> Result<(PathBuf, u64), Error> {
        let mut fill = |writer: &mut SectionWriter<'_>| {
            sections.iter().try_for_each(|section| writer.put(*section))
        };
        self.fill_snapshot(meta, &mut fill, &unchecked)
    }

    /// As [`write_snapshot`](Self::write_snapshot), with sections that need not be in memory
    /// together, and a check of the content. `fill` is called again if the disk is full and the
    /// reserved space may do. What was written is read back and checked before it gets a name. A
    /// current snapshot that fails the check is not kept as the previous one.
    ///
    /// # Errors
    ///
    /// As [`write_snapshot`](Self::write_snapshot); the error of `fill`; [`Error::Invalid`] when
    /// what was written fails the check.
    pub fn fill_snapshot(
        &self,
        meta: &SnapshotMeta,
        fill: &mut SnapshotFill<'_>,
        check: &SnapshotCheck<'_>,
    ) -> Result<(PathBuf, u64), Error> {
        self.with_reserve(|| {
            let prepared = prepare_snapshot((&self.fs, &self.dir), meta, fill, check)?;
            let len = prepared.len();
            Ok((publish_snapshot(&self.dir, prepared, check)?, len))
        })
    }

    /// Does the first part of [`fill_snapshot`](Self::fill_snapshot): the snapshot is on disk, and
    /// counts once [`publish_snapshot`](Self::publish_snapshot) gives it a name. Another snapshot
    /// that gets its name first removes it.
    ///
    /// # Errors
    ///
    /// As [`fill_snapshot`](Self::fill_snapshot).
    pub fn prepare_snapshot(
        &self,
        meta: &SnapshotMeta,
        fill: &mut SnapshotFill<'_>,
        check: &SnapshotCheck<'_>,
    ) -> Result<PreparedSnapshot, Error> {
        self.with_reserve(|| prepare_snapshot((&self.fs, &self.dir), meta, fill, check))
    }

    /// Makes a prepared snapshot the current one; returns its file.
    ///
    /// # Errors
    ///
    /// As [`fill_snapshot`](Self::fill_snapshot).
    pub fn publish_snapshot(
        &self,
        prepared: PreparedSnapshot,
        check: &SnapshotCheck<'_>,
    ) -> Result<PathBuf, Error> {
        publish_snapshot(&self.dir, prepared, check)
    }

    /// Drops the records that `keep` rejects from sealed segments at or below the floor, merges
    /// small segments, and removes left-overs. `keep` sees every record at or below the floor in
    /// order, perhaps twice (first to count, then to write), so it must be deterministic.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] for a damaged log, which stays unchanged; [`Error::Invalid`] if the clock
    /// seems to have jumped; or the system's error. Each finished step is complete in itself.
    pub fn compact(
        &self,
        options: &CompactOptions,
        keep: &mut dyn FnMut(u64, RecordRef<'_>) -> bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<CompactReport, Error> {
        let mut keep = keep;
        self.with_reserve(|| Compaction::run(&*self.fs, &self.dir, options, &mut keep, progress))
    }

    /// On a full disk, retries with the reserved space.
    fn with_reserve<T>(&self, mut f: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        match f() {
            Err(e) if e.is_storage_full() && reserve::release(&*self.fs, &self.dir) => {
                let done = f();
                reserve::keep(&*self.fs, &self.dir);
                done
            }
            done => done,
        }
    }
}

/// What is known of a segment before anything is changed.
struct Census {
    records: u64,
    kept: u64,
    kept_bytes: u64,
}

struct Compaction<'a> {
    fs: &'a dyn Fs,
    dir: &'a Path,
    options: &'a CompactOptions,
    catalog: Catalog,
    floor_seq: u64,
    report: CompactReport,
}

impl<'a> Compaction<'a> {
    fn run(
        fs: &'a dyn Fs,
        dir: &'a Path,
        options: &'a CompactOptions,
        keep: &mut dyn FnMut(u64, RecordRef<'_>) -> bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<CompactReport, Error> {
        let catalog = Catalog::read(fs, dir)?;
        if !catalog.damage.is_empty() {
            return Err(Error::Corrupt { dir: dir.to_owned(), damage: catalog.damage });
        }
        let covered = catalog.snapshot.and_then(|s| s.previous).map_or(0, |s| s.covers_seq);
        // A floor that was published before was covered by both snapshots then. Asking for a lower
        // one only drops less.
        let supposed = if options.dry_run { options.suppose_covered } else { 0 };
        let floor_seq = options.floor_seq.min(covered.max(catalog.floor_seq()).max(supposed));
        let mut this =
            Self { fs, dir, options, catalog, floor_seq, report: CompactReport::default() };
        let (census, newest_ms) = this.count(keep, progress)?;
        this.check_clock(newest_ms)?;
        let plan = this.plan(&census);
        if !options.dry_run {
            this.carry_out(&plan, keep)?;
        }
        Ok(this.report)
    }

    /// Segments that may be touched: all but the last.
    fn sealed(&self) -> &[ChainSegment] {
        match self.catalog.chain.split_last() {
            Some(_) if self.options.dry_run && self.options.suppose_sealed => &self.catalog.chain,
            Some((_, sealed)) => sealed,
            None => &[],
        }
    }

    fn check_clock(&self, newest_ms: i64) -> Result<(), Error> {
        let Some(max_jump) = self.options.max_jump else { return Ok(()) };
        let age = self.options.now_ms.saturating_sub(newest_ms);
        if newest_ms != TIME_UNKNOWN
            && age > i64::try_from(max_jump.as_millis()).unwrap_or(i64::MAX)
        {
            let hours = age / 3_600_000;
            return Err(Error::Invalid(format!(
                "the newest record is {hours} hours old: check the clock, or confirm that it is right"
            )));
        }
        Ok(())
    }

    fn count(
        &mut self,
        keep: &mut dyn FnMut(u64, RecordRef<'_>) -> bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Vec<Census>, i64), Error> {
        let total = self.sealed().iter().map(|s| s.file.file_len).sum();
        let mut done = 0;
        let mut all = Vec::new();
        let mut damage: Vec<Damage> = Vec::new();
        let mut newest_ms = TIME_UNKNOWN;
        if let Some(last) = self.catalog.chain.last() {
            let report =
                last.file.with_file(self.fs, |f| scan_segment(self.fs, last, f, &mut |_| true))?;
            newest_ms = report.max_time;
            damage.extend(report.damage);
        }
        for segment in self.sealed() {
            let mut census = Census { records: 0, kept: 0, kept_bytes: 0 };
            let report = self.each_frame(segment, &mut |_, records| {
                for (seq, record) in records.numbered() {
                    census.records += 1;
                    if seq > self.floor_seq || keep(seq, record) {
                        census.kept += 1;
                        census.kept_bytes += record_len(record.payload.len()) as u64;
                    }
                }
                Ok(())
            })?;
            newest_ms = newest_ms.max(report.max_time);
            damage.extend(report.damage);
            done += segment.file.file_len;
            progress(Progress { done, total });
            all.push(census);
        }
        if !damage.is_empty() {
            return Err(Error::Corrupt { dir: self.dir.to_owned(), damage });
        }
        Ok((all, newest_ms))
    }

    /// Calls `f` with each frame that has records, and with these.
    fn each_frame(
        &self,
        segment: &ChainSegment,
        f: &mut dyn FnMut(&GoodFrame<'_>, &FrameRecords<'_>) -> Result<(), Error>,
    ) -> Result<SegmentReport, Error> {
        let mut failed = None;
        let mut unpacker = Unpacker::new(self.options.blocks, self.dir);
        let mut visit = |frame: GoodFrame<'_>| {
            if self.options.throttle.as_ref().is_some_and(|throttle| !throttle.checkpoint()) {
                failed = Some(Error::Stopped);
                return false;
            }
            let done = match unpacker.records(&segment.file.name, &frame) {
                Ok(Some(records)) => f(&frame, &records),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            failed = done.err();
            failed.is_none()
        };
        let report = segment
            .file
            .with_file(self.fs, |file| scan_segment(self.fs, segment, file, &mut visit))?;
        failed.map_or(Ok(report), Err)
    }

    /// Which segments go, and which runs of segments become one.
    fn plan(&mut self, census: &[Census]) -> Plan {
        let sealed = self.sealed();
        let below_floor = |s: &ChainSegment| {
            s.next_seq().is_some_and(|next| next.saturating_sub(1) <= self.floor_seq)
        };
        let gone =
            sealed.iter().zip(census).take_while(|(s, c)| c.kept == 0 && below_floor(s)).count();
        let mut runs: Vec<Run> = Vec::new();
        for i in gone..sealed.len() {
            let (segment, count) = (&sealed[i], &census[i]);
            let drops = count.kept < count.records;
            let small = segment.file.file_len < self.options.small_bytes;
            let joins = runs.last().is_some_and(|run| {
                let alike = sealed[run.segments.start].file.header.fingerprint
                    == segment.file.header.fingerprint;
                alike && run.open && run.bytes + count.kept_bytes <= self.options.segment_bytes
            });
            // A writer packs some of its batches; maintenance packs everything, once.
            let packs = self.options.blocks.is_some() && self.options.pack && !is_packed(segment);
            let open = drops || small || packs;
            match runs.last_mut() {
                Some(run) if joins && open => {
                    run.segments.end = i + 1;
                    run.bytes += count.kept_bytes;
                    run.drops |= drops;
                    run.packs |= packs;
                }
                _ => runs.push(Run {
                    segments: i..i + 1,
                    bytes: count.kept_bytes,
                    drops,
                    packs,
                    open,
                }),
            }
        }
        runs.retain(|run| run.drops || run.packs || run.segments.len() > 1);
        let file_len =
            |range: Range<usize>| sealed[range].iter().map(|s| s.file.file_len).sum::<u64>();
        let all_bytes = self.catalog.chain.iter().map(|s| s.file.file_len).sum::<u64>();
        let replaced: u64 =
            file_len(0..gone) + runs.iter().map(|run| file_len(run.segments.clone())).sum::<u64>();
        let merged: usize = runs.iter().map(|run| run.segments.len() - 1).sum();
        let estimate: u64 = runs.iter().map(|run| run.bytes + 4096).sum();
        let records = census.iter().map(|c| c.records).sum::<u64>();
        let dropped =
            |range: Range<usize>| census[range].iter().map(|c| c.records - c.kept).sum::<u64>();
        let lost =
            dropped(0..gone) + runs.iter().map(|run| dropped(run.segments.clone())).sum::<u64>();
        self.report = CompactReport {
            segments: (self.catalog.chain.len(), self.catalog.chain.len() - gone - merged),
            records: (records, records - lost),
            bytes: (all_bytes, all_bytes - replaced + estimate),
            unlinked: gone,
            rewritten: runs.len(),
            leftovers: self.catalog.leftovers.len(),
            floor_seq: self.floor_seq.max(self.catalog.floor_seq()),
        };
        Plan { gone, runs }
    }

    fn carry_out(
        &mut self,
        plan: &Plan,
        keep: &mut dyn FnMut(u64, RecordRef<'_>) -> bool,
    ) -> Result<(), Error> {
        self.raise_floor()?;
        self.remove_leftovers()?;
        // Whole segments are unlinked first, and replaced segments with their run, so that little
        // extra space is needed.
        self.unlink(&self.sealed()[..plan.gone])?;
        let mut bytes = self.report.bytes.0
            - self.sealed()[..plan.gone].iter().map(|s| s.file.file_len).sum::<u64>();
        for run in &plan.runs {
            let old = run.segments.clone();
            match self.rewrite(run, keep)? {
                Some(written) => {
                    bytes = bytes
                        - self.sealed()[old.clone()].iter().map(|s| s.file.file_len).sum::<u64>()
                        + written;
                    // The first one's name is the new segment's, which has replaced it.
                    self.unlink(&self.sealed()[old][1..])?;
                }
                None => {
                    self.report.rewritten -= 1;
                    self.report.segments.1 += old.len() - 1;
                }
            }
        }
        self.report.bytes.1 = bytes;
        Ok(())
    }

    fn unlink(&self, segments: &[ChainSegment]) -> Result<(), Error> {
        if segments.is_empty() {
            return Ok(());
        }
        for segment in segments {
            self.fs
                .remove(&segment.file.path)
                .map_err(|e| Error::io("remove", &segment.file.path, e))?;
        }
        self.fs.sync_dir(self.dir, SyncSite::UnlinkDir).map_err(|e| Error::io("sync", self.dir, e))
    }

    fn raise_floor(&self) -> Result<(), Error> {
        match self.catalog.snapshot {
            Some(old) if old.floor_seq < self.floor_seq => {
                let manifest = SnapshotManifest {
                    floor_seq: self.floor_seq,
                    generation: old.generation + 1,
                    ..old
                };
                publish_manifest(self.fs, self.dir, &manifest)
            }
            _ => Ok(()),
        }
    }

    /// Removes files that do not count. What makes them not count must be durable first.
    fn remove_leftovers(&self) -> Result<(), Error> {
        let tmp = self.catalog.unfinished.iter().filter(|name| name.starts_with("tmp-maint-"));
        let names: Vec<&String> = self.catalog.leftovers.iter().chain(tmp).collect();
        if names.is_empty() {
            return Ok(());
        }
        self.fs
            .sync_dir(self.dir, SyncSite::RewriteDir)
            .map_err(|e| Error::io("sync", self.dir, e))?;
        for name in names {
            let _ = self.fs.remove(&self.dir.join(name));
        }
        self.fs.sync_dir(self.dir, SyncSite::UnlinkDir).map_err(|e| Error::io("sync", self.dir, e))
    }

    /// Writes one segment in place of a run of them and returns its length. `None` if nothing has
    /// to go and the new one would be larger; then the old ones stay.
    fn rewrite(
        &self,
        run: &Run,
        keep: &mut dyn FnMut(u64, RecordRef<'_>) -> bool,
    ) -> Result<Option<u64>, Error> {
        let segments = &self.sealed()[run.segments.clone()];
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
            return Ok(None);
        };
        let identity = Identity {
            store: first.file.header.store,
            number: first.file.header.number,
            stands_to: last.file.header.stands_to,
            first_seq: first.file.header.first_seq,
            epoch: last.file.header.epoch,
            prev_number: first.file.header.prev_number,
            prev: first.file.header.prev,
            fingerprint: first.file.header.fingerprint,
            alias: Ok(alias_of(last)),
            blocks: self
                .options
                .blocks
                .filter(|_| self.options.pack || segments.iter().any(is_packed)),
        };
        let mut builder = Builder::create(self.fs, self.dir, &identity)?;
        for segment in segments {
            let report = self.each_frame(segment, &mut |frame, records| {
                let mut wants = |seq, record| seq > self.floor_seq || keep(seq, record);
                let kept: Vec<bool> =
                    records.numbered().map(|(seq, record)| wants(seq, record)).collect();
                // A block that has about the size of a new one would be packed to the same again.
                let is_large =
                    kept.len() * 2 >= BLOCK_RECORDS || records.payload.len() * 2 >= BLOCK_BYTES;
                if frame.header.kind == FrameKind::Block
                    && is_large
                    && kept.iter().all(|kept| *kept)
                {
                    return builder.add_block(&frame.header, frame.records, frame.payload);
                }
                let mut kept = records.numbered().zip(kept).filter(|(_, kept)| *kept);
                kept.try_for_each(|((seq, record), _)| {
                    builder.add(seq, &record, frame.header.max_time)
                })
            })?;
            let damage = report.damage;
            if !damage.is_empty() {
                // The segment was read before, to count its records, and was good then.
                return Err(Error::Corrupt { dir: self.dir.to_owned(), damage });
            }
        }
        let old_len: u64 = segments.iter().map(|segment| segment.file.file_len).sum();
        if !run.drops && builder.len_at_end()? > old_len {
            builder.discard();
            return Ok(None);
        }
        builder.finish().map(Some)
    }
}

struct Plan {
    /// The number of segments, from the oldest on, that are unlinked.
    gone: usize,
    runs: Vec<Run>,
}

struct Run {
    segments: Range<usize>,
    bytes: u64,
    /// Whether records in it go.
    drops: bool,
    /// Whether records in it may be packed.
    packs: bool,
    /// Whether more may join.
    open: bool,
}

/// Whether maintenance has packed a segment.
fn is_packed(segment: &ChainSegment) -> bool {
    segment.file.header.is_rewritten() && segment.file.header.has_blocks()
}

/// What the successor's link says of a segment.
fn alias_of(segment: &ChainSegment) -> Link {
    match segment.stated {
        Some(stated) => stated,
        None => segment.file.header.alias,
    }
}
