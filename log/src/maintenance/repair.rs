//! Repair of a damaged log, on request.
//!
//! Owns: `repair`.
//!
//! Invariants: before any change, a copy of the bytes that will be lost is on disk in
//! `quarantine/`. Good records keep their sequence numbers. Lost numbers are reported.
//!
//! Must not know: what a record means.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::directory::lock::{LOCK, acquire};
use crate::directory::manifest::{
    SEGMENTS, SNAPSHOT, SegmentsManifest, SnapshotManifest, SnapshotRef, publish,
};
use crate::error::{Damage, Error};
use crate::format::{FrameKind, HEADER_LEN, Link, Records, SegmentHeader};
use crate::format::{parse_snapshot_name, segment_name};
use crate::fs::{Fs, FsFile, RealFs, SyncSite, read_full_at, sync, write_all_at};
use crate::maintenance::compact::Maintenance;
use crate::maintenance::rewrite::{Builder, Identity};
use crate::maintenance::snapshot::{publish_manifest, remove_old};
use crate::maintenance::verify::check_all;
use crate::read::catalog::Catalog;
use crate::read::chain::ChainSegment;
use crate::read::scan::{Extent, Scanner, Step};
use crate::read::segment_check::{GoodFrame, scan_segment};
use crate::read::snapshot::{OpenError, Opened, SnapshotCheck, open, unchecked};

const QUARANTINE: &str = "quarantine";

/// The options of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairOptions {
    /// Rewrite damaged segments from their good frames, and set damaged snapshots aside. Otherwise
    /// bad ranges are only copied to `quarantine/`.
    pub salvage: bool,
    /// Rebuild `SEGMENTS` and `SNAPSHOT` from the directory if they are damaged.
    pub rebuild_manifest: bool,
}

impl RepairOptions {
    /// Rewrites damaged segments and leaves manifests unchanged.
    pub fn salvaging() -> Self {
        Self { salvage: true, rebuild_manifest: false }
    }

    /// Repairs as much as possible.
    pub fn everything() -> Self {
        Self { salvage: true, rebuild_manifest: true }
    }
}

/// The result of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// The damage before the repair. With salvage, these sequence numbers are lost permanently.
    pub damage: Vec<Damage>,
    /// Files written to `quarantine/`.
    pub quarantined: Vec<PathBuf>,
    /// Rewritten segments.
    pub rewritten: usize,
    /// Rebuilt manifests.
    pub manifests: Vec<&'static str>,
    /// The remaining damage.
    pub remaining: Vec<Damage>,
}

/// Repairs the log in `dir` as `options` request. Takes both locks. A repair that was killed at any
/// point can be repeated.
///
/// # Errors
///
/// [`Error::Locked`] while a writer or another maintenance command runs, [`Error::NewerFormat`], or
/// the system's error.
pub fn repair(dir: &Path, options: RepairOptions) -> Result<RepairReport, Error> {
    repair_with(Arc::new(RealFs), dir, options)
}

/// As [`repair`], on another file system.
pub fn repair_with(
    fs: Arc<dyn Fs>,
    dir: &Path,
    options: RepairOptions,
) -> Result<RepairReport, Error> {
    repair_both(fs, dir, options, &unchecked)
}

/// As [`repair`], with a check of the content of snapshots: one that fails it counts as damaged.
///
/// # Errors
///
/// As [`repair`].
pub fn repair_checked(
    dir: &Path,
    options: RepairOptions,
    check: &SnapshotCheck<'_>,
) -> Result<RepairReport, Error> {
    repair_both(Arc::new(RealFs), dir, options, check)
}

fn repair_both(
    fs: Arc<dyn Fs>,
    dir: &Path,
    options: RepairOptions,
    check: &SnapshotCheck<'_>,
) -> Result<RepairReport, Error> {
    let _writer = acquire(&*fs, dir, LOCK)?;
    let _maintenance = Maintenance::lock_with(fs.clone(), dir)?;
    let before = damage_of(&fs, dir, check)?;
    let mut report = RepairReport { damage: before, ..RepairReport::default() };
    let mut repair = Repair { fs: &*fs, dir, report: &mut report };
    repair.quarantine()?;
    if options.rebuild_manifest {
        repair.rebuild_manifests()?;
    }
    if options.salvage {
        repair.drop_snapshots()?;
        repair.salvage()?;
    }
    report.remaining = damage_of(&fs, dir, check)?;
    Ok(report)
}

fn damage_of(
    fs: &Arc<dyn Fs>,
    dir: &Path,
    check: &SnapshotCheck<'_>,
) -> Result<Vec<Damage>, Error> {
    let report = check_all(fs.clone(), dir, check, &mut |_| {})?;
    let mut all = report.log.damage;
    // Damage of `SNAPSHOT` itself is in the reader's list already.
    all.extend(
        report.snapshot_damage.into_iter().filter(|d| d.file != SNAPSHOT || d.records.is_some()),
    );
    all.extend(report.snapshots_rejected);
    Ok(all)
}

struct Repair<'a> {
    fs: &'a dyn Fs,
    dir: &'a Path,
    report: &'a mut RepairReport,
}

impl Repair<'_> {
    /// Copies every damaged range, and every damaged manifest or unreadable segment whole.
    fn quarantine(&mut self) -> Result<(), Error> {
        let damage = self.report.damage.clone();
        if damage.is_empty() {
            return Ok(());
        }
        let folder = self.dir.join(QUARANTINE);
        self.fs.create_dir_all(&folder).map_err(|e| Error::io("create", &folder, e))?;
        for (i, place) in damage.iter().enumerate() {
            if damage[..i].iter().any(|d| d.file == place.file && d.offset == place.offset) {
                continue;
            }
            self.copy_range(&folder, place)?;
        }
        let synced = self.fs.sync_dir(&folder, SyncSite::QuarantineDir);
        let synced = synced.and_then(|()| self.fs.sync_dir(self.dir, SyncSite::QuarantineDir));
        synced.map_err(|e| Error::io("sync", &folder, e))
    }

    fn copy_range(&mut self, folder: &Path, place: &Damage) -> Result<(), Error> {
        let path = self.dir.join(&place.file);
        let file = match self.fs.open(&path) {
            Ok(file) => file,
            // A missing file leaves nothing to copy.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(Error::io("read", &path, e)),
        };
        let file_len = file.len().map_err(|e| Error::io("read", &path, e))?;
        let rest = file_len.saturating_sub(place.offset);
        let len = if place.len == 0 { rest } else { place.len.min(rest) };
        if len == 0 {
            return Ok(());
        }
        // An earlier repair may have left a file of that name. What it saved is kept, so this one
        // takes another name.
        let mut target = folder.join(format!("{}-{:x}", place.file, place.offset));
        let mut out = self.fs.create_new(&target);
        for copy in 1..1000 {
            if !out.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::AlreadyExists) {
                break;
            }
            target = folder.join(format!("{}-{:x}.{copy}", place.file, place.offset));
            out = self.fs.create_new(&target);
        }
        let out = out.map_err(|e| Error::io("write", &target, e))?;
        copy(&*file, &*out, place.offset, len).map_err(|e| Error::io("write", &target, e))?;
        self.report.quarantined.push(target);
        Ok(())
    }

    fn rebuild_manifests(&mut self) -> Result<(), Error> {
        let catalog = Catalog::read(self.fs, self.dir)?;
        let damaged = |name| catalog.damage.iter().any(|d| d.file == name);
        let Some(store) = catalog.store else { return Ok(()) };
        if damaged(SNAPSHOT) {
            self.rebuild_snapshot(&catalog, store)?;
            self.report.manifests.push(SNAPSHOT);
        }
        if damaged(SEGMENTS) {
            self.rebuild_segments(store)?;
            self.report.manifests.push(SEGMENTS);
        }
        Ok(())
    }

    /// Names the two newest snapshots that are good. The floor rises to where the segments begin,
    /// if both cover that.
    fn rebuild_snapshot(&self, catalog: &Catalog, store: [u8; 16]) -> Result<(), Error> {
        let names = self.fs.list(self.dir).map_err(|e| Error::io("read", self.dir, e))?;
        let mut found: Vec<SnapshotRef> = Vec::new();
        for name in names {
            let Some((covers_seq, generation)) = parse_snapshot_name(&name) else { continue };
            let path = self.dir.join(&name);
            let file = self.fs.open(&path).map_err(|e| Error::io("read", &path, e))?;
            let len = file.len().map_err(|e| Error::io("read", &path, e))?;
            match open(file, path, len) {
                Ok(Opened { snapshot, hash, store: of })
                    if of == store && snapshot.meta().covers_seq == covers_seq =>
                {
                    found.push(SnapshotRef { covers_seq, len, hash, generation });
                }
                Ok(_) | Err(OpenError::Bad(_)) => {}
                Err(OpenError::Failed(error)) => return Err(error),
            }
        }
        found.sort_by_key(|s| std::cmp::Reverse((s.covers_seq, s.generation)));
        let current = found.first().copied();
        let previous =
            found.iter().copied().find(|s| current.is_some_and(|c| c.covers_seq > s.covers_seq));
        let covered = previous.or(current).map_or(0, |s| s.covers_seq);
        let begins = catalog.chain.first().map_or(0, |s| s.file.header.prev.last_seq);
        let floor_seq = if begins <= covered { begins } else { 0 };
        let generation = u64::from(found.iter().map(|s| s.generation).max().unwrap_or(0)) + 1;
        publish_manifest(
            self.fs,
            self.dir,
            &SnapshotManifest { store, generation, floor_seq, current, previous },
        )
    }

    /// Sets damaged snapshots aside: `SNAPSHOT` no longer names them. Copies of them are in
    /// quarantine by now. If what remains does not cover the floor, the floor is lowered, so that
    /// the lost records show as a gap in the segments, which the salvage then fills.
    fn drop_snapshots(&mut self) -> Result<(), Error> {
        let catalog = Catalog::read(self.fs, self.dir)?;
        let Some(manifest) = catalog.snapshot else { return Ok(()) };
        let named: Vec<SnapshotRef> =
            [manifest.current, manifest.previous].into_iter().flatten().collect();
        let is_damaged =
            |named: &SnapshotRef| self.report.damage.iter().any(|d| d.file == named.file_name());
        let good: Vec<SnapshotRef> =
            named.iter().copied().filter(|named| !is_damaged(named)).collect();
        if good.len() == named.len() {
            return Ok(());
        }
        let covered = good.first().map_or(0, |good| good.covers_seq);
        let next = SnapshotManifest {
            generation: manifest.generation + 1,
            current: good.first().copied(),
            previous: good.get(1).copied(),
            floor_seq: if manifest.floor_seq <= covered { manifest.floor_seq } else { 0 },
            ..manifest
        };
        publish_manifest(self.fs, self.dir, &next)?;
        remove_old(self.fs, self.dir, &next)?;
        self.report.manifests.push(SNAPSHOT);
        Ok(())
    }

    /// Says of the last segment what can be read of it.
    fn rebuild_segments(&self, store: [u8; 16]) -> Result<(), Error> {
        let catalog = Catalog::read(self.fs, self.dir)?;
        let Some(last) = catalog.chain.last() else { return Ok(()) };
        let end = self.end_of(last)?;
        self.publish_segments(store, &catalog, last, end)
    }

    fn publish_segments(
        &self,
        store: [u8; 16],
        catalog: &Catalog,
        last: &ChainSegment,
        end: Link,
    ) -> Result<(), Error> {
        let manifest = SegmentsManifest {
            store,
            generation: catalog.segments.map_or(0, |m| m.generation) + 1,
            epoch: catalog.epoch_max,
            number: last.file.header.stands_to,
            first_seq: last.file.header.first_seq,
            durable_off: HEADER_LEN as u64,
            durable_seq: end.last_seq,
        };
        let sites = [SyncSite::SegmentsManifest, SyncSite::SegmentsManifestDir];
        publish(self.fs, self.dir, SEGMENTS, &manifest.encode(), sites)
    }

    fn end_of(&self, segment: &ChainSegment) -> Result<Link, Error> {
        if segment.file.header.is_rewritten() {
            return Ok(segment.file.header.alias);
        }
        if let Some(stated) = segment.stated {
            return Ok(stated);
        }
        let report = segment
            .file
            .with_file(self.fs, |f| scan_segment(self.fs, segment, f, &mut |_| true))?;
        Ok(report.end)
    }

    /// Rewrites every damaged, unreadable or missing segment, oldest first, so that the chain is
    /// complete again.
    fn salvage(&mut self) -> Result<(), Error> {
        // Each round repairs the first broken link; a repaired one never breaks again.
        let rounds =
            Catalog::read(self.fs, self.dir)?.chain.len() * 2 + self.report.damage.len() + 8;
        for _ in 0..rounds {
            let catalog = Catalog::read(self.fs, self.dir)?;
            if !self.salvage_next(&catalog)? {
                return self.drop_superseded();
            }
            self.report.rewritten += 1;
        }
        Ok(())
    }

    /// Repairs the oldest broken link; returns false if there is none.
    fn salvage_next(&self, catalog: &Catalog) -> Result<bool, Error> {
        let Some(store) = catalog.store else { return Ok(false) };
        // The end of what has been looked at, number and link, and the one before that.
        let mut end: Option<(u32, Link)> = None;
        let mut before = None;
        for (i, segment) in catalog.chain.iter().enumerate() {
            let header = &segment.file.header;
            if header.store != store {
                // The whole file is in quarantine by now.
                let removed = self.fs.remove(&segment.file.path);
                let removed =
                    removed.and_then(|()| self.fs.sync_dir(self.dir, SyncSite::UnlinkDir));
                removed.map_err(|e| Error::io("remove", &segment.file.path, e))?;
                return Ok(true);
            }
            let expected =
                end.unwrap_or((0, Link { last_seq: catalog.floor_seq(), ..Link::default() }));
            let gap = header.prev_number > expected.0 && header.prev.last_seq > catalog.floor_seq();
            if gap {
                let slot =
                    Slot { after: expected, until: Some((header.prev_number, header.prev)), store };
                self.fill(catalog, &slot, header)?;
                return Ok(true);
            }
            let report = segment
                .file
                .with_file(self.fs, |f| scan_segment(self.fs, segment, f, &mut |_| true))?;
            let linked = catalog.damage.iter().any(|d| d.file == segment.file.name);
            if !report.damage.is_empty() || linked {
                let next = catalog.chain.get(i + 1).map(|next| next.file.header.prev);
                self.rewrite(segment, next, end, catalog.covers_seq())?;
                return Ok(true);
            }
            before = end;
            end = Some((header.stands_to, self.end_of(segment)?));
        }
        // Behind the chain: unreadable segments, or one that the manifest knows of.
        let (number, link) =
            end.unwrap_or((0, Link { last_seq: catalog.floor_seq(), ..Link::default() }));
        let unreadable =
            catalog.unreadable.iter().map(|(n, _, _)| *n).filter(|n| *n > number).max();
        let known =
            catalog.segments.filter(|m| m.number > number && m.durable_seq > catalog.floor_seq());
        let Some(until) = unreadable.max(known.map(|m| m.number)) else {
            return match catalog.chain.last() {
                // A snapshot knows of more records than are left: their numbers must not be given
                // out again.
                Some(last) if link.last_seq < catalog.covers_seq() => {
                    self.rewrite(last, None, before, catalog.covers_seq()).map(|()| true)
                }
                _ => Ok(false),
            };
        };
        let Some(model) = catalog
            .chain
            .last()
            .map(|s| s.file.header.clone())
            .or_else(|| self.any_header(catalog))
        else {
            return Ok(false);
        };
        let lost_to = known.map_or(0, |m| m.durable_seq).max(catalog.covers_seq());
        let slot = Slot { after: (number, link), until: None, store };
        self.fill_end(catalog, &slot, until, lost_to, &model)?;
        Ok(true)
    }

    fn any_header(&self, catalog: &Catalog) -> Option<SegmentHeader> {
        catalog.unreadable.iter().find_map(|(_, _, name)| self.damaged_header(name).ok().flatten())
    }

    /// Rewrites a segment from its good frames.
    fn rewrite(
        &self,
        segment: &ChainSegment,
        next: Option<Link>,
        before: Option<(u32, Link)>,
        covers_seq: u64,
    ) -> Result<(), Error> {
        let header = &segment.file.header;
        let (prev_number, prev) = before.unwrap_or((header.prev_number, header.prev));
        let alias = match next {
            Some(next) => Ok(next),
            // Sequence numbers that were acknowledged are not given out again.
            None if header.is_rewritten() => Err(header.alias.last_seq.max(covers_seq)),
            None => Err(segment.durable_seq.max(covers_seq)),
        };
        let identity = Identity {
            store: header.store,
            number: header.number,
            stands_to: header.stands_to,
            first_seq: header.first_seq,
            epoch: header.epoch,
            prev_number,
            prev,
            fingerprint: header.fingerprint,
            alias,
            blocks: None,
        };
        let limit = alias.ok().map(|link| link.last_seq);
        let mut builder = Builder::create(self.fs, self.dir, &identity)?;
        segment.file.with_file(self.fs, |file| {
            let mut failed = Ok(());
            scan_segment(self.fs, segment, file, &mut |frame| {
                failed = add_frame(&mut builder, &frame, limit);
                failed.is_ok()
            })?;
            failed
        })?;
        builder.finish().map(|_| ())
    }

    /// Fills a gap in the chain with one segment that has the readable records of the segments in
    /// it.
    fn fill(&self, catalog: &Catalog, slot: &Slot, model: &SegmentHeader) -> Result<(), Error> {
        let Some((until, alias)) = slot.until else { return Ok(()) };
        self.build_filler(catalog, slot, until, Ok(alias), model)
    }

    fn fill_end(
        &self,
        catalog: &Catalog,
        slot: &Slot,
        until: u32,
        lost_to: u64,
        model: &SegmentHeader,
    ) -> Result<(), Error> {
        self.build_filler(catalog, slot, until, Err(lost_to.max(slot.after.1.last_seq)), model)
    }

    fn build_filler(
        &self,
        catalog: &Catalog,
        slot: &Slot,
        until: u32,
        alias: Result<Link, u64>,
        model: &SegmentHeader,
    ) -> Result<(), Error> {
        let (after, prev) = slot.after;
        let identity = Identity {
            store: slot.store,
            number: after + 1,
            stands_to: until,
            first_seq: prev.last_seq + 1,
            epoch: model.epoch,
            prev_number: after,
            prev,
            fingerprint: model.fingerprint,
            alias,
            blocks: None,
        };
        let limit = alias.ok().map(|link| link.last_seq);
        let inside =
            catalog.unreadable.iter().filter(|(number, _, _)| *number > after && *number <= until);
        let mut saved = Vec::new();
        for (_, _, name) in inside.clone() {
            if let Some(header) = self.damaged_header(name)? {
                saved.push((name.clone(), header));
            }
        }
        let mut builder = Builder::create(self.fs, self.dir, &identity)?;
        let mut next_seq = identity.first_seq;
        for (name, header) in saved {
            let path = self.dir.join(&name);
            let file = self.fs.open(&path).map_err(|e| Error::io("read", &path, e))?;
            each_good_frame(&*file, &path, &header, &mut |frame| {
                if frame.header.first_seq < next_seq {
                    return Ok(());
                }
                next_seq = frame.header.next_seq();
                add_frame(&mut builder, &frame, limit)
            })?;
        }
        builder.finish()?;
        // Everything in these files is in the new segment or in quarantine. Their names are numbers
        // that the new one stands for.
        let own = segment_name(identity.number, identity.first_seq);
        for (_, _, name) in inside.filter(|(_, _, name)| *name != own) {
            let path = self.dir.join(name);
            self.fs.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
        self.fs.sync_dir(self.dir, SyncSite::UnlinkDir).map_err(|e| Error::io("sync", self.dir, e))
    }

    /// The header of a segment whose header page is damaged, if one of its copies is good.
    fn damaged_header(&self, name: &str) -> Result<Option<SegmentHeader>, Error> {
        let path = self.dir.join(name);
        let file = self.fs.open(&path).map_err(|e| Error::io("read", &path, e))?;
        let mut page = vec![0; HEADER_LEN];
        let read = read_full_at(&*file, &mut page, 0).map_err(|e| Error::io("read", &path, e))?;
        page.truncate(read);
        Ok(SegmentHeader::decode_damaged(&page))
    }

    /// The manifest may claim more of the last segment than was saved.
    fn drop_superseded(&self) -> Result<(), Error> {
        let catalog = Catalog::read(self.fs, self.dir)?;
        match (catalog.chain.last(), catalog.store) {
            (Some(last), Some(store)) if catalog.damage.iter().all(|d| d.file != SEGMENTS) => {
                let end = self.end_of(last)?;
                self.publish_segments(store, &catalog, last, end)
            }
            _ => Ok(()),
        }
    }
}

/// A hole in the chain.
struct Slot {
    after: (u32, Link),
    until: Option<(u32, Link)>,
    store: [u8; 16],
}

fn add_frame(
    builder: &mut Builder<'_>,
    frame: &GoodFrame<'_>,
    limit: Option<u64>,
) -> Result<(), Error> {
    if frame.records == 0 || limit.is_some_and(|limit| frame.header.next_seq() > limit + 1) {
        return Ok(());
    }
    if frame.header.kind == FrameKind::Block {
        return builder.add_block(&frame.header, frame.records, frame.payload);
    }
    for (seq, record) in (frame.header.first_seq..).zip(Records::new(frame.payload)) {
        builder.add(seq, &record, frame.header.max_time)?;
    }
    Ok(())
}

/// Every good frame of a file whose context is not known.
fn each_good_frame(
    file: &dyn FsFile,
    path: &Path,
    header: &SegmentHeader,
    f: &mut dyn FnMut(GoodFrame<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut scanner = Scanner::new(file, path, header, Extent::Open);
    loop {
        match scanner.step()? {
            Step::Frame(header) => f(GoodFrame {
                header,
                records: scanner.in_frame,
                end: scanner.offset,
                reached: None,
                payload: scanner.payload()?,
            })?,
            Step::End => return Ok(()),
            Step::Bad(_) => {
                if scanner.skip_to_good()?.is_none() {
                    return Ok(());
                }
            }
        }
    }
}

fn copy(from: &dyn FsFile, to: &dyn FsFile, offset: u64, len: u64) -> std::io::Result<()> {
    let mut buf = vec![0; 1 << 16];
    let mut done = 0;
    while done < len {
        let want = usize::try_from(len - done).unwrap_or(buf.len()).min(buf.len());
        let read = read_full_at(from, &mut buf[..want], offset + done)?;
        if read == 0 {
            break;
        }
        write_all_at(to, &buf[..read], done)?;
        done += read as u64;
    }
    sync(to, SyncSite::Quarantine)
}
