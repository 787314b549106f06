//! Writing and publication of a snapshot.
//!
//! Owns: the order of publication.
//!
//! Invariants: the content is synced, read back and decoded by the application before it gets a
//! name. `SNAPSHOT` names it before an older one is unlinked. The previous snapshot stays.
//!
//! Must not know: what is in a section.

use std::path::{Path, PathBuf};
use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

use crate::directory::manifest::{SNAPSHOT, SnapshotManifest, SnapshotRef, publish};
use crate::error::Error;
use crate::format::{FieldWriter, HEADER_LEN, MAJOR, MINOR, seal_bytes};
use crate::fs::{Fs, FsFile, SyncSite, sync, write_all_at};
use crate::read::catalog::Catalog;
use crate::read::snapshot::{
    FOOTER_LEN, FOOTER_MAGIC, HEADER_MAGIC, SECTION_ALIGN, SECTION_HEADER_LEN, Section,
    SnapshotCheck, SnapshotMeta, parse, read_checked, read_whole, section_hcrc,
};

/// The number of waits for a live writer to prove what is durable: five seconds, for a slow disk.
const PATIENCE: u32 = 250;
const PAUSE: Duration = Duration::from_millis(20);

/// Writes a snapshot and makes it the current one. The caller holds `MAINT.LOCK`.
pub(crate) fn write_snapshot(
    fs: &dyn Fs,
    dir: &Path,
    meta: &SnapshotMeta,
    sections: &[Section<'_>],
    check: &SnapshotCheck<'_>,
) -> Result<(PathBuf, u64), Error> {
    let catalog = await_durable(fs, dir, meta.covers_seq)?;
    let Some(store) = catalog.store else {
        return Err(Error::Invalid("cannot take a snapshot: there is no log".into()));
    };
    let old = catalog.snapshot.unwrap_or(SnapshotManifest { store, ..SnapshotManifest::default() });
    if meta.covers_seq == 0
        || old.current.is_some_and(|current| current.covers_seq > meta.covers_seq)
    {
        return Err(Error::Invalid(
            "a snapshot must cover more records than the previous one".into(),
        ));
    }
    let generation = old.generation + 1;
    let mut named = SnapshotRef {
        covers_seq: meta.covers_seq,
        generation: generation as u32,
        ..SnapshotRef::default()
    };
    let tmp = dir.join(format!("tmp-snap-{generation:08x}"));
    let path = dir.join(named.file_name());
    let written =
        write_file(fs, &tmp, &SnapshotMeta { taken_ms: fs.now_ms(), ..*meta }, &store, sections);
    let written = written.and_then(|(len, hash)| {
        named = SnapshotRef { len, hash, ..named };
        read_back(fs, &tmp, &named, check)?;
        let done = fs.rename(&tmp, &path).and_then(|()| fs.sync_dir(dir, SyncSite::SnapshotDir));
        done.map_err(|e| Error::io("write", &path, e))
    });
    if let Err(e) = written {
        let _ = fs.remove(&tmp);
        return Err(e);
    }
    // A damaged snapshot cannot serve as the previous one.
    let is_good = match &old.current {
        Some(current) => read_checked(fs, dir, current, &store, check)?.is_ok(),
        None => true,
    };
    let previous = if is_good { old.current } else { old.previous };
    let manifest = SnapshotManifest { generation, current: Some(named), previous, ..old };
    publish_manifest(fs, dir, &manifest)?;
    remove_old(fs, dir, &manifest)?;
    Ok((path, named.len))
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
    meta: &SnapshotMeta,
    store: &[u8; 16],
    sections: &[Section<'_>],
) -> Result<(u64, [u8; 16]), Error> {
    let failed = |e| Error::io("write", tmp, e);
    let _ = fs.remove(tmp);
    let file = fs.create_new(tmp).map_err(failed)?;
    let mut out = Out { file: &*file, at: 0, hasher: Xxh3::new() };
    out.put(&header_page(meta, store)).map_err(failed)?;
    for section in sections {
        let mut header = [0; SECTION_HEADER_LEN];
        let mut w = FieldWriter { bytes: &mut header, at: 0 };
        w.u32(section.kind)
            .u32(section.version)
            .u64(section.bytes.len() as u64)
            .u32(crc32c::crc32c(section.bytes));
        let hcrc = section_hcrc(out.at as usize, &header);
        header[20..24].copy_from_slice(&hcrc.to_le_bytes());
        out.put(&header).and_then(|()| out.put(section.bytes)).map_err(failed)?;
        let padding = (out.at as usize).next_multiple_of(SECTION_ALIGN) - out.at as usize;
        out.put(&[0; SECTION_ALIGN][..padding]).map_err(failed)?;
    }
    let hash = out.hasher.digest128().to_le_bytes();
    let mut footer = [0; FOOTER_LEN];
    let mut w = FieldWriter { bytes: &mut footer, at: 0 };
    w.put(&FOOTER_MAGIC)
        .u64(sections.len() as u64)
        .u64(out.at + FOOTER_LEN as u64)
        .u64(0)
        .put(&hash);
    seal_bytes(&mut footer);
    out.put(&footer).map_err(failed)?;
    let len = out.at;
    sync(&*file, SyncSite::Snapshot).map_err(failed)?;
    Ok((len, hash))
}

struct Out<'a> {
    file: &'a dyn FsFile,
    at: u64,
    hasher: Xxh3,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        write_all_at(self.file, bytes, self.at)?;
        self.hasher.update(bytes);
        self.at += bytes.len() as u64;
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
    fs: &dyn Fs,
    tmp: &Path,
    named: &SnapshotRef,
    check: &SnapshotCheck<'_>,
) -> Result<(), Error> {
    let file = fs.open(tmp).map_err(|e| Error::io("read", tmp, e))?;
    file.drop_cache();
    let bytes = read_whole(&*file, tmp, named.len)?;
    match parse(bytes, tmp) {
        Ok((snapshot, hash, _)) if hash == named.hash => check(&snapshot).map_err(|what| {
            Error::Invalid(format!("cannot take a snapshot: what was written has {what}"))
        }),
        _ => Err(Error::io(
            "verify",
            tmp,
            std::io::Error::other("what was written reads back differently"),
        )),
    }
}
