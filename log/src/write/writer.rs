//! The writing side as a plain state machine: frames, syncs, markers, seals, new segments, and what
//! to do when the disk fails. It has no thread and no clock, so the fault suite drives it call by
//! call.
//!
//! Owns: the active segment and the frames that are not durable yet.
//!
//! Invariants: a frame stays in memory until a sync after its write has succeeded; nothing is
//! written or synced again on a descriptor that has failed once; `durable` never runs ahead of the
//! disk. A segment whose frames may be blocks says so from its first byte on.
//!
//! Must not know: queues, waiters, durability levels.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::Batch;
use super::segment::{Active, Point};
use super::young_segment::{Due, YoungSegment};
use crate::directory::manifest::{SEGMENTS, SegmentsManifest, publish};
use crate::error::Error;
use crate::format::{
    BlockFormat, FrameKind, HEADER_LEN, INCOMPAT_BLOCKS, Link, MINOR, Seal, SegmentHeader,
    TIME_UNKNOWN, frame_len, segment_name,
};
use crate::fs::{Fs, SyncSite, sync, write_all_at};
use crate::write::directory_lock::StoreIdentity;

/// The state of a store at open, and the settings for writing it.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) fingerprint: [u8; 16],
    pub(crate) segment_bytes: u64,
    pub(crate) store: [u8; 16],
    pub(crate) epoch: u64,
    /// The number of the last segment, 0 when there is none, and its end.
    pub(crate) prev_number: u32,
    pub(crate) prev: Link,
    pub(crate) next_number: u32,
    pub(crate) manifest_generation: u64,
    pub(crate) durable_seq: u64,
    /// The first sequence number that this process has written to the directory as it is now.
    pub(crate) here_since: u64,
    /// The layout to pack batches in.
    pub(crate) blocks: Option<&'static dyn BlockFormat>,
    /// How many records a batch has at least that is packed.
    pub(crate) pack_from: u32,
    /// How many bytes of smaller batches may wait to be packed.
    pub(crate) repack_bytes: u64,
}

/// The counts of the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriterCounts {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) syncs: u64,
    /// The successful syncs.
    pub(crate) synced: u64,
    pub(crate) segments: u64,
    /// Failures that were overcome by continuing in a new segment.
    pub(crate) heals: u64,
    pub(crate) failures: u64,
    pub(crate) manifest_failures: u64,
}

/// The writing side.
#[derive(Debug)]
pub(crate) struct Writer {
    setup: Setup,
    active: Option<Active>,
    /// The durable frames of the active segment.
    young: YoungSegment,
    /// Frames not yet durable, oldest first; the first `written` of them are in the active segment.
    retained: VecDeque<Batch>,
    written: usize,
    retained_bytes: usize,
    /// The active descriptor has failed and must not be used again.
    broken: bool,
    /// Records before this sequence number are in files of the directory, if no sync has failed.
    found_next: u64,
    /// A sync has failed, so the records that it was for may be on disk or not.
    in_doubt: bool,
    spare: Vec<Vec<u8>>,
    pub(crate) counts: WriterCounts,
}

impl Writer {
    pub(crate) fn new(setup: Setup) -> Self {
        Self {
            found_next: setup.durable_seq + 1,
            in_doubt: false,
            setup,
            active: None,
            young: YoungSegment::default(),
            retained: VecDeque::new(),
            written: 0,
            retained_bytes: 0,
            broken: false,
            spare: Vec::new(),
            counts: WriterCounts::default(),
        }
    }

    /// Memory for a batch.
    pub(crate) fn spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a batch, and packs it if it has enough records; [`pump`](Self::pump) writes it.
    pub(crate) fn push(&mut self, mut batch: Batch) {
        if let Some(format) = self.setup.blocks
            && batch.kind == FrameKind::Records
            && batch.count >= self.setup.pack_from
            && let Some(unused) = batch.pack(format)
        {
            self.keep_spare(unused);
        }
        self.retained_bytes += batch.bytes.len();
        self.retained.push_back(batch);
    }

    /// The sequence number up to which (exclusively) records are in the hands of the operating
    /// system.
    pub(crate) fn written_next(&self) -> u64 {
        match &self.active {
            Some(active) if !self.broken => active.written.next_seq.max(self.durable_next()),
            _ => self.durable_next(),
        }
    }

    /// The sequence number up to which (exclusively) records are on disk.
    pub(crate) fn durable_next(&self) -> u64 {
        self.setup.durable_seq + 1
    }

    /// The sequence number up to which (exclusively) a reader would find records in the directory.
    /// What a failed sync was for is not counted on: it may be there or not.
    pub(crate) fn found_next(&self) -> u64 {
        if self.in_doubt { self.durable_next() } else { self.found_next }
    }

    /// Which log this is.
    pub(crate) fn identity(&self) -> StoreIdentity {
        StoreIdentity { store: self.setup.store, epoch: self.setup.epoch }
    }

    /// Whether a segment has been begun.
    pub(crate) fn has_segment(&self) -> bool {
        self.active.is_some()
    }

    /// The segment being written, if it was deleted or moved away. What the system cannot say
    /// counts as no.
    pub(crate) fn missing_segment(&self) -> Option<&Path> {
        let active = self.active.as_ref()?;
        let is_there = active.file.is_at(&active.path).unwrap_or(true);
        (!is_there).then_some(&*active.path)
    }

    /// Refuses to leave a segment that is missing as if it were there.
    fn check_presence(&self) -> Result<(), Error> {
        match self.missing_segment() {
            Some(path) => Err(Error::io("write", path, io::ErrorKind::NotFound.into())),
            None => Ok(()),
        }
    }

    /// Gives up the segment being written, which is gone. Returns how many durable records were in
    /// it; those that are in memory will be written to the next segment, whose link to the missing
    /// one makes the loss show.
    pub(crate) fn lose_segment(&mut self) -> u64 {
        let Some(active) = self.leave_segment() else { return 0 };
        self.broken = true;
        self.found_next = self.durable_next();
        self.durable_next().saturating_sub(active.header.first_seq)
    }

    /// Gives up the directory, which is gone with all that was in it. Returns how many durable
    /// records this process had written to it; those that are in memory will be written to a new
    /// store, under the numbers that they have.
    pub(crate) fn lose_directory(&mut self) -> u64 {
        let next_seq = self.durable_next();
        let gone = next_seq.saturating_sub(self.setup.here_since);
        self.active = None;
        self.young = YoungSegment::default();
        self.broken = true;
        self.written = 0;
        self.found_next = next_seq;
        self.in_doubt = false;
        self.setup.store = new_store(&*self.setup.fs);
        self.setup.epoch = 1;
        self.setup.prev_number = 0;
        self.setup.prev = Link { last_seq: next_seq - 1, ..Link::default() };
        self.setup.next_number = 1;
        self.setup.manifest_generation = 0;
        self.setup.here_since = next_seq;
        gone
    }

    /// Bytes in memory that are not durable yet.
    pub(crate) fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// True when something was written that no sync has covered.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.retained.is_empty()
    }

    /// True when records were written since the last sync marker.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.unmarked)
    }

    /// Writes the pending frames. After a failure, continues in a new segment; if that fails too,
    /// returns the error, and all frames stay in memory for the next call.
    pub(crate) fn pump(&mut self) -> Result<(), Error> {
        if !self.broken {
            if self.try_pump().is_ok() {
                return Ok(());
            }
            // When space could not be allocated, nothing was written, so the descriptor can still
            // be used.
            if !self.broken {
                let tried = self.try_pump();
                if tried.is_err() && self.written > 0 {
                    // Frames that were written are synced now. They must not wait until there is
                    // room for the others.
                    let _ = self.try_sync(SyncSite::Frames);
                }
                return tried;
            }
        }
        self.heal()
    }

    /// Makes everything durable that was pushed. Failures as with [`pump`](Self::pump).
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        self.pump()?;
        if self.is_dirty() && self.try_sync(SyncSite::Frames).is_err() {
            self.heal()?;
        }
        Ok(())
    }

    /// Writes and syncs a marker that tells everything before it durable.
    pub(crate) fn mark(&mut self) -> Result<(), Error> {
        self.sync()?;
        if !self.is_unmarked() {
            return Ok(());
        }
        let marked = self.write_plain(FrameKind::Marker, Vec::new());
        if marked.and_then(|()| self.try_sync(SyncSite::Marker)).is_err() {
            // The records are durable. What failed is the marker that proves it to later readers.
            self.heal()?;
        }
        if let Some(active) = &mut self.active {
            active.unmarked = false;
        }
        Ok(())
    }

    /// Closes the log: sync, seal, trim, publish.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        self.sync()?;
        if self.active.is_none() {
            return Ok(());
        }
        let is_worth_packing = self.young.is_worth_packing(self.setup.repack_bytes);
        let packed = if is_worth_packing { self.pack_segment() } else { Ok(()) };
        if packed.and_then(|()| self.seal()).is_err() {
            // All records are durable. A segment without a seal is read as after a crash, so
            // nothing is lost.
            return Ok(());
        }
        self.publish();
        self.active = None;
        Ok(())
    }

    fn try_pump(&mut self) -> Result<(), Error> {
        while self.written < self.retained.len() {
            let next = frame_len(self.retained[self.written].payload_len());
            let full = self.active.as_ref().is_some_and(|active| {
                // A frame larger than a segment gets a separate segment.
                let room = self.setup.segment_bytes.saturating_sub(active.written.offset);
                next > room && active.written.offset > HEADER_LEN as u64
            });
            if full {
                self.roll()?;
            }
            if self.active.is_none() {
                return self.begin_segment();
            }
            self.write_frame()?;
        }
        Ok(())
    }

    /// Seals the active segment and leaves it; the next one is begun by the frame that needs it.
    fn roll(&mut self) -> Result<(), Error> {
        self.check_presence()?;
        if self.written > 0 {
            self.try_sync(SyncSite::BeforeSeal)?;
        }
        self.seal()?;
        self.leave_segment();
        Ok(())
    }

    /// Stops writing to the active segment. The next one follows its durable end.
    fn leave_segment(&mut self) -> Option<Active> {
        self.young = YoungSegment::default();
        let active = self.active.take()?;
        self.setup.prev_number = active.header.number;
        self.setup.prev = active.durable.link();
        Some(active)
    }

    /// What is due with what was written in small batches.
    fn due(&self) -> Option<Due> {
        let is_possible = self.setup.blocks.is_some() && self.active.is_some() && !self.broken;
        let due = self.young.due(self.retained_bytes as u64, self.setup.repack_bytes);
        due.filter(|_| is_possible)
    }

    /// Whether [`repack`](Self::repack) has something to do.
    pub(crate) fn is_repack_due(&self) -> bool {
        self.due().is_some()
    }

    /// Packs what was written in small batches, once it is enough. Failures as with
    /// [`pump`](Self::pump).
    pub(crate) fn repack(&mut self) -> Result<(), Error> {
        if self.due().is_none() {
            return Ok(());
        }
        self.sync()?;
        let is_full = match self.due() {
            Some(Due::Pack) => {
                self.pack_segment()?;
                self.young.is_full(self.setup.repack_bytes)
            }
            Some(Due::Roll) => true,
            None => false,
        };
        if is_full && self.roll().is_err() {
            self.heal()?;
        }
        Ok(())
    }

    /// Writes the active segment again, with its records in blocks, and removes the old one.
    /// Everything is durable already. The new segment follows what the old one followed, so the old
    /// one is not part of the log once the new one has its name.
    fn pack_segment(&mut self) -> Result<(), Error> {
        let (Some(format), Some(active)) = (self.setup.blocks, &self.active) else { return Ok(()) };
        self.check_presence()?;
        let old = active.path.clone();
        self.retained = self.young.take_packed(format).into();
        self.retained_bytes = self.retained.iter().map(|batch| batch.bytes.len()).sum();
        let unpublished = self.counts.manifest_failures;
        match self.try_begin() {
            Ok(()) => {
                // A reader that finds neither of the two sees by the manifest that it came at the
                // wrong moment.
                if self.counts.manifest_failures == unpublished {
                    let _ = self.setup.fs.remove(&old);
                }
            }
            Err(failure) if failure.may_have_name => {
                // After a crash the new segment may count, so nothing may be appended to the old
                // one.
                self.active = None;
                self.heal()?;
            }
            // The old segment is as it was. Packing is tried again when more has been written.
            Err(_) => self.release(self.retained.len()),
        }
        self.young.forget_unpacked();
        Ok(())
    }

    /// Writes and syncs the seal. Everything before it is durable already.
    fn seal(&mut self) -> Result<(), Error> {
        let Some(active) = &self.active else { return Ok(()) };
        let seal = Seal {
            count: active.records,
            first_seq: active.header.first_seq,
            last_seq: active.written.next_seq - 1,
            digest: active.written.digest,
            min_time: if active.min_time == i64::MAX { TIME_UNKNOWN } else { active.min_time },
            max_time: active.max_time,
        };
        self.write_plain(FrameKind::Seal, seal.encode().to_vec())?;
        if let Some(active) = &self.active
            && active.allocated != u64::MAX
        {
            // The cut only saves space: readers ignore zeros behind a seal. So a failure does not
            // matter.
            let _ = active.file.set_len(active.written.offset);
        }
        self.try_sync(SyncSite::Seal)
    }

    fn write_frame(&mut self) -> Result<(), Error> {
        let (Some(active), Some(batch)) = (&mut self.active, self.retained.get_mut(self.written))
        else {
            return Ok(());
        };
        let len = frame_len(batch.payload_len());
        let durable_off = active.durable.offset;
        // Not far beyond where the segment is written again.
        let young = self
            .setup
            .blocks
            .and(self.young.allocation_limit(active.header.born_len, self.setup.repack_bytes));
        let limit =
            young.map_or(self.setup.segment_bytes, |limit| limit.min(self.setup.segment_bytes));
        if let Err(e) = active.reserve(len, limit) {
            self.counts.failures += 1;
            return Err(e);
        }
        if let Err(e) = active.write(batch, batch.kind, durable_off) {
            self.counts.failures += 1;
            self.broken = true;
            return Err(e);
        }
        active.unmarked = true;
        self.found_next = active.written.next_seq;
        self.written += 1;
        self.counts.frames += 1;
        self.counts.bytes += len;
        Ok(())
    }

    /// Writes a frame without records. Everything written so far is durable.
    fn write_plain(&mut self, kind: FrameKind, payload: Vec<u8>) -> Result<(), Error> {
        let Some(active) = &mut self.active else { return Ok(()) };
        let mut batch = Batch::new(active.written.next_seq, Vec::new());
        batch.bytes.extend_from_slice(&payload);
        batch.max_time = active.max_time;
        let len = frame_len(payload.len());
        let durable_off = active.durable.offset;
        let written = active.reserve(len, self.setup.segment_bytes + len);
        if let Err(e) = written.and_then(|()| active.write(&mut batch, kind, durable_off)) {
            self.counts.failures += 1;
            self.broken = true;
            return Err(e);
        }
        self.counts.bytes += len;
        self.young.count_plain(len);
        Ok(())
    }

    fn try_sync(&mut self, site: SyncSite) -> Result<(), Error> {
        let Some(active) = &mut self.active else { return Ok(()) };
        self.counts.syncs += 1;
        if let Err(e) = sync(&*active.file, site) {
            self.broken = true;
            self.in_doubt = true;
            self.counts.failures += 1;
            return Err(Error::io("sync", &active.path, e));
        }
        self.counts.synced += 1;
        active.durable = active.written;
        self.setup.durable_seq = self.setup.durable_seq.max(active.durable.next_seq - 1);
        self.release(self.written);
        Ok(())
    }

    /// Forgets the first `n` retained frames: they are durable.
    fn release(&mut self, n: usize) {
        for _ in 0..n {
            let Some(batch) = self.retained.pop_front() else { break };
            self.retained_bytes -= batch.bytes.len();
            let unused = match self.setup.blocks {
                Some(_) => self.young.keep(batch, self.setup.repack_bytes),
                None => Some(batch.bytes),
            };
            unused.into_iter().for_each(|memory| self.keep_spare(memory));
        }
        self.written = 0;
    }

    fn keep_spare(&mut self, memory: Vec<u8>) {
        if self.spare.len() < 4 && memory.capacity() <= 2 << 20 {
            self.spare.push(memory);
        }
    }

    /// Leaves a failed segment behind and goes on in a new one that holds every frame not known
    /// durable.
    fn heal(&mut self) -> Result<(), Error> {
        self.check_presence()?;
        self.leave_segment();
        self.broken = true;
        self.written = 0;
        self.begin_segment()?;
        self.counts.heals += 1;
        Ok(())
    }

    /// Begins a segment that holds all retained frames. Afterwards they are durable.
    pub(crate) fn begin_segment(&mut self) -> Result<(), Error> {
        self.try_begin().map_err(|failure| failure.error)
    }

    fn try_begin(&mut self) -> Result<(), NotBegun> {
        let number = self.setup.next_number;
        let first_seq = self.setup.prev.last_seq + 1;
        let tmp = self.setup.dir.join(format!("tmp-seg-{number:08x}"));
        let path = self.setup.dir.join(segment_name(number, first_seq));
        // Each attempt has a new number, because after a failed directory sync the old name may or
        // may not survive a crash.
        self.setup.next_number = number.checked_add(1).ok_or_else(|| NotBegun {
            error: Error::Invalid("no segment numbers are left".into()),
            may_have_name: false,
        })?;
        let born_len = self.retained.iter().map(|b| frame_len(b.payload_len())).sum::<u64>()
            + HEADER_LEN as u64;
        // A recovered block is kept by a writer that packs nothing, too.
        let has_blocks =
            self.setup.blocks.is_some() || self.retained.iter().any(|b| b.kind == FrameKind::Block);
        let fs = self.setup.fs.clone();
        let header = SegmentHeader {
            minor: MINOR,
            store: self.setup.store,
            number,
            stands_to: number,
            first_seq,
            epoch: self.setup.epoch,
            nonce: fs.random(),
            created_ms: fs.now_ms(),
            prev_number: self.setup.prev_number,
            prev: self.setup.prev,
            fingerprint: self.setup.fingerprint,
            compat: 0,
            incompat: if has_blocks { INCOMPAT_BLOCKS } else { 0 },
            born_len,
            alias: Link::default(),
        };
        let mut may_have_name = false;
        match self.build_segment(&*fs, header, (&tmp, &path), &mut may_have_name) {
            Ok(active) => {
                self.setup.durable_seq = self.setup.durable_seq.max(active.durable.next_seq - 1);
                self.found_next = active.durable.next_seq;
                self.active = Some(active);
                self.broken = false;
                self.in_doubt = false;
                self.counts.segments += 1;
                self.release(self.retained.len());
                self.publish();
                Ok(())
            }
            Err(e) => {
                self.counts.failures += 1;
                // Best effort. A file that is left over is ignored, because of its name or because
                // no later segment links to it.
                let _ = fs.remove(&tmp);
                if may_have_name {
                    let _ = fs.remove(&path);
                }
                Err(NotBegun { error: Error::io("write", &path, e), may_have_name })
            }
        }
    }

    fn build_segment(
        &mut self,
        fs: &dyn Fs,
        header: SegmentHeader,
        (tmp, path): (&Path, &Path),
        may_have_name: &mut bool,
    ) -> io::Result<Active> {
        let file = fs.create_new(tmp)?;
        write_all_at(&*file, &header.encode(), 0)?;
        let start = Point {
            offset: HEADER_LEN as u64,
            next_seq: header.first_seq,
            digest: header.digest(),
        };
        let mut active = Active {
            file,
            path: path.to_owned(),
            header,
            written: start,
            durable: start,
            allocated: HEADER_LEN as u64,
            records: 0,
            min_time: i64::MAX,
            max_time: TIME_UNKNOWN,
            unmarked: false,
        };
        for batch in &mut self.retained {
            // The file gets its name only when all of it is durable. So each frame may say that
            // everything before it is durable.
            let durable_off = active.written.offset;
            active.write_raw(batch, batch.kind, durable_off)?;
            self.counts.frames += 1;
        }
        self.counts.bytes += active.written.offset;
        self.counts.syncs += 2;
        sync(&*active.file, SyncSite::NewSegment)?;
        *may_have_name = true;
        fs.rename(tmp, path)?;
        fs.sync_dir(&self.setup.dir, SyncSite::NewSegmentDir)?;
        self.counts.synced += 1;
        active.durable = active.written;
        active.allocated = active.written.offset;
        Ok(active)
    }

    /// Publishes `SEGMENTS`. A failure costs detection of a lost last segment, no data, so it is
    /// only counted.
    fn publish(&mut self) {
        let Some(active) = &self.active else { return };
        self.setup.manifest_generation += 1;
        let manifest = SegmentsManifest {
            store: self.setup.store,
            generation: self.setup.manifest_generation,
            epoch: self.setup.epoch,
            number: active.header.number,
            first_seq: active.header.first_seq,
            durable_off: active.durable.offset,
            durable_seq: self.setup.durable_seq,
        };
        let sites = [SyncSite::SegmentsManifest, SyncSite::SegmentsManifestDir];
        if publish(&*self.setup.fs, &self.setup.dir, SEGMENTS, &manifest.encode(), sites).is_err() {
            self.counts.manifest_failures += 1;
        }
    }
}

/// Why a segment was not begun.
struct NotBegun {
    error: Error,
    /// Whether its file may be found under its name after a crash.
    may_have_name: bool,
}

/// A random UUID, version 4.
pub(crate) fn new_store(fs: &dyn Fs) -> [u8; 16] {
    let mut store = [0; 16];
    store[..8].copy_from_slice(&fs.random().to_le_bytes());
    store[8..].copy_from_slice(&fs.random().to_le_bytes());
    store[6] = store[6] & 0x0f | 0x40;
    store[8] = store[8] & 0x3f | 0x80;
    store
}
