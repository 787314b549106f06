//! Writing and publication of a snapshot.
//!
//! Owns: the order of publication.
//!
//! Invariants: the content is synced, read back and decoded by the application before it gets a
//! name. `SNAPSHOT` names it before an older one is unlinked. The previous snapshot stays. Memory
//! holds one section at a time.
//!
//! Must not know: what is in a section.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

use crate::directory::manifest::{SNAPSHOT, SnapshotManifest, SnapshotRef, publish};
use crate::error::Error;
use crate::format::{FieldWriter, HEADER_LEN, MAJOR, MINOR, seal_bytes};
use crate::fs::{Fs, FsFile, SyncSite, sync, write_all_at};
use crate::read::catalog::Catalog;
use crate::read::snapshot::{
    FOOTER_LEN, FOOTER_MAGIC, HEADER_MAGIC, OpenError, SECTION_ALIGN, SECTION_HEADER_LEN, Section,
    SnapshotCheck, SnapshotMeta, open, read_checked, section_hcrc,
};

/// The number of waits for a live writer to prove what is durable: five seconds, for a slow disk.
const PATIENCE: u32 = 250;
const PAUSE: Duration = Duration::from_millis(20);
/// The bytes of small sections that are written at once.
const WRITE_BYTES: usize = 256 << 10;

/// Writes the sections of a snapshot, one after the other.
pub type SnapshotFill<'f> = dyn FnMut(&mut SectionWriter<'_>) -> Result<(), Error> + 'f;

/// A snapshot that is on disk and was checked, without a name. It is removed if it never gets one.
#[derive(Debug)]
pub struct PreparedSnapshot {
    fs: Arc<dyn Fs>,
    /// None once the file has its name.
    tmp: Option<PathBuf>,
    covers_seq: u64,
    len: u64,
    hash: [u8; 16],
}

impl PreparedSnapshot {
    /// Returns the length of its file.
    #[allow(clippy::len_without_is_empty, reason = "no snapshot is empty")]
    pub fn len(&self) -> u64 {
        self.len
    }
}

impl Drop for PreparedSnapshot {
    fn drop(&mut self) {
        if let Some(tmp) = self.tmp.take() {
            // What stays is removed with the next snapshot.
            let _ = self.fs.remove(&tmp);
        }
    }
}

/// Writes the file of a snapshot, syncs it and checks what is on disk. The caller holds
/// `MAINT.LOCK`.
pub(crate) fn prepare_snapshot(
    (fs, dir): (&Arc<dyn Fs>, &Path),
    meta: &SnapshotMeta,
    fill: &mut SnapshotFill<'_>,
    check: &SnapshotCheck<'_>,
) -> Result<PreparedSnapshot, Error> {
    let (store, old) = current(&**fs, dir, meta.covers_seq)?;
    let tmp = dir.join(format!("tmp-snap-{:08x}", old.generation + 1));
    // Removed on any error from here on.
    let mut prepared = PreparedSnapshot {
        fs: fs.clone(),
        tmp: Some(tmp.clone()),
        covers_seq: meta.covers_seq,
        len: 0,
        hash: [0; 16],
    };
    let meta = SnapshotMeta { taken_ms: fs.now_ms(), ..*meta };
    (prepared.len, prepared.hash) = write_file(&**fs, &tmp, (&meta, &store), fill)?;
    read_back(&prepared, &tmp, check)?;
    Ok(prepared)
}

/// Makes a prepared snapshot the current one. Returns its file.
pub(crate) fn publish_snapshot(
    dir: &Path,
    mut prepared: PreparedSnapshot,
    check: &SnapshotCheck<'_>,
) -> Result<PathBuf, Error> {
    let fs = &*prepared.fs.clone();
    let (store, old) = current(fs, dir, prepared.covers_seq)?;
    let generation = old.generation + 1;
    let named = SnapshotRef {
        covers_seq: prepared.covers_seq,
        generation: generation as u32,
        len: prepared.len,
        hash: prepared.hash,
    };
    let path = dir.join(named.file_name());
    if let Some(tmp) = &prepared.tmp {
        fs.rename(tmp, &path)
            .and_then(|()| fs.sync_dir(dir, SyncSite::SnapshotDir))
            .map_err(|e| Error::io("write", &path, e))?;
    }
    prepared.tmp = None;
    // A damaged snapshot cannot serve as the previous one.
    let is_good = match &old.current {
        Some(current) => read_checked(fs, dir, current, &store, check)?.is_ok(),
        None => true,
    };
    let previous = if is_good { old.current } else { old.previous };
    let manifest = SnapshotManifest { generation, current: Some(named), previous, ..old };
    publish_manifest(fs, dir, &manifest)?;
    remove_old(fs, dir, &manifest)?;
    Ok(path)
}

/// Returns the store and the manifest that a snapshot up to `covers_seq` follows.
fn current(
    fs: &dyn Fs,
    dir: &Path,
    covers_seq: u64,
) -> Result<([u8; 16], SnapshotManifest), Error> {
    let catalog = await_durable(fs, dir, covers_seq)?;
    let Some(store) = catalog.store else {
        return Err(Error::Invalid("cannot take a snapshot: there is no log".into()));
    };
    let old = catalog.snapshot.unwrap_or(SnapshotManifest { store, ..SnapshotManifest::default() });
    let is_newer = old.current.is_none_or(|current| current.covers_seq <= covers_seq);
    if covers_seq > 0 && is_newer {
        return Ok((store, old));
    }
    Err(Error::Invalid("a snapshot must cover more records than the previous one".into()))
}

/// Waits until the files prove that the records up to `covers_seq` are durable. A writer writes
/// that proof with its next frame, or with a marker once it is idle. Without the proof, a power cut
/// could remove records that the snapshot covers, and other records would get their numbers.
pub(crate) fn await_durable(fs: &dyn Fs, dir: &Path, covers_seq: u64) -> Result<Catalog, Error> {
    for _ in 0..PATIENCE {
        let catalog = Catalog::read(fs, dir)?;
        if !catalog.damage.is_empty() {
            return Err(Error::Corrupt { dir: dir.to_owned(), damage: catalog.damage });
        }
        if catalog.proven_seq(fs)? >= covers_seq {
            return Ok(catalog);
        }
        fs.pause(PAUSE);
    }
    Err(Error::Invalid(format!(
        "records up to {covers_seq} are not known to be on disk; flush or close the log first"
    )))
}

pub(crate) fn publish_manifest(
    fs: &dyn Fs,
    dir: &Path,
    manifest: &SnapshotManifest,
) -> Result<(), Error> {
    let sites = [SyncSite::SnapshotManifest, SyncSite::SnapshotManifestDir];
    publish(fs, dir, SNAPSHOT, &manifest.encode(), sites)
}

/// Unlinks snapshots that the manifest, which is durable by now, does not name.
pub(crate) fn remove_old(
    fs: &dyn Fs,
    dir: &Path,
    manifest: &SnapshotManifest,
) -> Result<(), Error> {
    let named = [manifest.current, manifest.previous].map(|s| s.map(|s| s.file_name()));
    let names = fs.list(dir).map_err(|e| Error::io("read", dir, e))?;
    let mut removed = false;
    for name in names {
        let is_snapshot = name.starts_with("snap-") && name.ends_with(".fws");
        if (is_snapshot && !named.contains(&Some(name.clone()))) || name.starts_with("tmp-snap-") {
            removed |= fs.remove(&dir.join(&name)).is_ok();
        }
    }
    if removed {
        fs.sync_dir(dir, SyncSite::UnlinkDir).map_err(|e| Error::io("sync", dir, e))
    } else {
        Ok(())
    }
}

fn write_file(
    fs: &dyn Fs,
    tmp: &Path,
    (meta, store): (&SnapshotMeta, &[u8; 16]),
    fill: &mut SnapshotFill<'_>,
) -> Result<(u64, [u8; 16]), Error> {
    let failed = |e| Error::io("write", tmp, e);
    let _ = fs.remove(tmp);
    let file = fs.create_new(tmp).map_err(failed)?;
    let mut out = SectionWriter {
        file: &*file,
        path: tmp,
        waiting: header_page(meta, store).to_vec(),
        written: 0,
        count: 0,
        hasher: Xxh3::new(),
    };
    fill(&mut out)?;
    out.write_out(0)?;
    let hash = out.hasher.digest128().to_le_bytes();
    let mut footer = [0; FOOTER_LEN];
    let mut w = FieldWriter { bytes: &mut footer, at: 0 };
    w.put(&FOOTER_MAGIC).u64(out.count).u64(out.written + FOOTER_LEN as u64).u64(0).put(&hash);
    seal_bytes(&mut footer);
    write_all_at(&*file, &footer, out.written).map_err(failed)?;
    let len = out.written + FOOTER_LEN as u64;
    sync(&*file, SyncSite::Snapshot).map_err(failed)?;
    Ok((len, hash))
}

/// Takes the sections of a snapshot that is being written.
pub struct SectionWriter<'a> {
    file: &'a dyn FsFile,
    path: &'a Path,
    /// What comes behind `written`.
    waiting: Vec<u8>,
    written: u64,
    count: u64,
    hasher: Xxh3,
}

impl fmt::Debug for SectionWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SectionWriter")
            .field("path", &self.path)
            .field("sections", &self.count)
            .finish_non_exhaustive()
    }
}

impl SectionWriter<'_> {
    /// Appends a section.
    ///
    /// # Errors
    ///
    /// The system's error, which ends the snapshot.
    pub fn put(&mut self, section: Section<'_>) -> Result<(), Error> {
        let mut header = [0; SECTION_HEADER_LEN];
        let mut w = FieldWriter { bytes: &mut header, at: 0 };
        w.u32(section.kind)
            .u32(section.version)
            .u64(section.bytes.len() as u64)
            .u32(crc32c::crc32c(section.bytes));
        let hcrc = section_hcrc(self.written + self.waiting.len() as u64, &header);
        header[20..24].copy_from_slice(&hcrc.to_le_bytes());
        self.waiting.extend_from_slice(&header);
        self.waiting.extend_from_slice(section.bytes);
        self.waiting.resize(self.waiting.len().next_multiple_of(SECTION_ALIGN), 0);
        self.count += 1;
        self.write_out(WRITE_BYTES)
    }

    /// Writes what waits, if it is at least `min` bytes.
    fn write_out(&mut self, min: usize) -> Result<(), Error> {
        if self.waiting.len() < min {
            return Ok(());
        }
        write_all_at(self.file, &self.waiting, self.written)
            .map_err(|e| Error::io("write", self.path, e))?;
        self.hasher.update(&self.waiting);
        self.written += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }
}

fn header_page(meta: &SnapshotMeta, store: &[u8; 16]) -> [u8; HEADER_LEN] {
    let mut page = [0; HEADER_LEN];
    let mut w = FieldWriter { bytes: &mut page, at: 0 };
    w.put(&HEADER_MAGIC)
        .put(&MAJOR.to_le_bytes())
        .put(&MINOR.to_le_bytes())
        .u32(HEADER_LEN as u32)
        .put(store);
    w.u64(meta.covers_seq)
        .put(&meta.landmark_ms.to_le_bytes())
        .u64(meta.half_life_ms)
        .put(&meta.config_hash);
    w.put(&meta.fingerprint).put(&meta.taken_ms.to_le_bytes());
    seal_bytes(&mut page);
    page
}

/// Reads a snapshot back before it gets its name, from the disk if the system lets us.
fn read_back(
    prepared: &PreparedSnapshot,
    tmp: &Path,
    check: &SnapshotCheck<'_>,
) -> Result<(), Error> {
    let different = || {
        let source = std::io::Error::other("what was written reads back differently");
        Error::io("verify", tmp, source)
    };
    let file = prepared.fs.open(tmp).map_err(|e| Error::io("read", tmp, e))?;
    file.drop_cache();
    let found = match open(file, tmp.to_owned(), prepared.len) {
        Ok(found) if found.hash == prepared.hash => found,
        Ok(_) | Err(OpenError::Bad(_)) => return Err(different()),
        Err(OpenError::Failed(error)) => return Err(error),
    };
    match check(&found.snapshot)? {
        None => Ok(()),
        Some(what) => {
            Err(Error::Invalid(format!("cannot take a snapshot: what was written has {what}")))
        }
    }
}
