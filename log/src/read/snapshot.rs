//! Reading snapshots: containers of checksummed sections with the evidence of the records up to a
//! sequence number.
//!
//! Owns: the file format of FORMAT.md section 6, and finding the newest good snapshot.
//!
//! Invariant: a snapshot is valid only if `SNAPSHOT` names it and every checksum is correct.
//!
//! Must not know: how one is written, what is in a section.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::directory::manifest::{SNAPSHOT, SnapshotManifest, SnapshotRef};
use crate::error::{Damage, Error};
use crate::format::AlignedBuf;
use crate::format::{FieldReader, HEADER_LEN, MAJOR, is_sealed};
use crate::fs::{Fs, FsFile, RealFs, read_full_at};
use crate::read::catalog::Catalog;
use xxhash_rust::xxh3::Xxh3;

pub(crate) const HEADER_MAGIC: [u8; 8] = *b"\x89FWS\r\n\x1a\n";
pub(crate) const FOOTER_MAGIC: [u8; 8] = *b"\x89FWE\r\n\x1a\n";
pub(crate) const FOOTER_LEN: usize = 64;
pub(crate) const SECTION_HEADER_LEN: usize = 32;
pub(crate) const SECTION_ALIGN: usize = 64;

/// The metadata of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// The last sequence number whose evidence it contains.
    pub covers_seq: u64,
    /// Landmark of the decay, ms since the Unix epoch.
    pub landmark_ms: i64,
    /// Half-life, ms.
    pub half_life_ms: u64,
    /// Hash of the configuration that affects a fold.
    pub config_hash: [u8; 16],
    /// Schema fingerprint of the sections.
    pub fingerprint: [u8; 16],
    /// Creation time, ms. Set when it is written.
    pub taken_ms: i64,
}

/// A section to write.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    /// The application's kind.
    pub kind: u32,
    /// The application's version of that kind.
    pub version: u32,
    /// Plain little-endian arrays.
    pub bytes: &'a [u8],
}

/// A snapshot that was read and checked.
#[derive(Debug)]
pub struct Snapshot {
    meta: SnapshotMeta,
    path: PathBuf,
    bytes: AlignedBuf,
    sections: Vec<(u32, u32, std::ops::Range<usize>)>,
}

impl Snapshot {
    /// Returns its metadata.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns version and bytes of the first section of a kind. The bytes start at an address
    /// divisible by 16.
    pub fn section(&self, kind: u32) -> Option<(u32, &[u8])> {
        let (_, version, range) = self.sections.iter().find(|(k, _, _)| *k == kind)?;
        Some((*version, self.bytes.bytes().get(range.clone())?))
    }

    /// Returns every section, in the order of writing.
    pub fn sections(&self) -> impl Iterator<Item = Section<'_>> {
        self.sections.iter().map(|(kind, version, range)| Section {
            kind: *kind,
            version: *version,
            bytes: self.bytes.bytes().get(range.clone()).unwrap_or_default(),
        })
    }
}

/// A check of a snapshot's content by the application, which alone knows what the sections mean.
/// The error is the damage that it found.
pub type SnapshotCheck<'c> = dyn Fn(&Snapshot) -> Result<(), &'static str> + 'c;

/// The result of [`load_snapshot`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct SnapshotSearch {
    /// The newest good snapshot.
    pub snapshot: Option<Snapshot>,
    /// Snapshots that are named but not good. The caller reports them and replays more records.
    pub rejected: Vec<Damage>,
    /// Records up to here may be gone from the segments.
    pub floor_seq: u64,
}

/// Returns the last sequence number that the files prove durable. A snapshot up to it needs no wait
/// for a writer. Takes no lock.
///
/// # Errors
///
/// [`Error::Corrupt`] for a log whose headers or manifests are damaged; or the system's error.
pub fn durable_seq(dir: &Path) -> Result<u64, Error> {
    let catalog = Catalog::read(&RealFs, dir)?;
    if !catalog.damage.is_empty() {
        return Err(Error::Corrupt { dir: dir.to_owned(), damage: catalog.damage });
    }
    catalog.proven_seq(&RealFs)
}

/// Returns the previous snapshot if it is good. A re-fold that checks the newest snapshot starts
/// from it. Takes no lock.
///
/// # Errors
///
/// As [`load_snapshot`]; a damaged previous snapshot counts as missing.
pub fn load_previous_snapshot(dir: &Path) -> Result<Option<Snapshot>, Error> {
    let catalog = Catalog::read(&RealFs, dir)?;
    let Some(manifest) = &catalog.snapshot else { return Ok(None) };
    let Some(named) = manifest.previous else { return Ok(None) };
    Ok(read_named(&RealFs, dir, &named, &manifest.store)?.ok())
}

/// Finds the newest good snapshot in `dir`; takes no lock. Replay goes on from `covers_seq + 1`.
///
/// # Errors
///
/// [`Error::Corrupt`] if no good snapshot covers the records below the floor, or if `SNAPSHOT` is
/// damaged; [`Error::NewerFormat`]; or the system's error.
pub fn load_snapshot(dir: &Path) -> Result<SnapshotSearch, Error> {
    load_snapshot_with(Arc::new(RealFs), dir)
}

/// As [`load_snapshot`], on another file system.
pub fn load_snapshot_with(fs: Arc<dyn Fs>, dir: &Path) -> Result<SnapshotSearch, Error> {
    find_snapshot(&*fs, dir, &|_| Ok(()))
}

/// As [`load_snapshot`], with a check of the content: a snapshot that fails it counts as damaged,
/// so that the one before it is used, or none.
///
/// # Errors
///
/// As [`load_snapshot`].
pub fn load_snapshot_checked(
    dir: &Path,
    check: &SnapshotCheck<'_>,
) -> Result<SnapshotSearch, Error> {
    find_snapshot(&RealFs, dir, check)
}

pub(crate) fn find_snapshot(
    fs: &dyn Fs,
    dir: &Path,
    check: &SnapshotCheck<'_>,
) -> Result<SnapshotSearch, Error> {
    // A newer snapshot may be published, and these unlinked, while they are read.
    for _ in 0..4 {
        let catalog = Catalog::read(fs, dir)?;
        let search = search(fs, dir, &catalog, check)?;
        let again = crate::directory::manifest::read_small(fs, &dir.join(SNAPSHOT))?;
        let same =
            again.and_then(|bytes| SnapshotManifest::decode(&bytes).ok()) == catalog.snapshot;
        if search.rejected.is_empty() || same {
            return settle(dir, search, &catalog);
        }
    }
    Err(Error::Replaced { file: dir.join(SNAPSHOT) })
}

fn settle(
    dir: &Path,
    mut search: SnapshotSearch,
    catalog: &Catalog,
) -> Result<SnapshotSearch, Error> {
    let manifest_damage: Vec<Damage> =
        catalog.damage.iter().filter(|d| d.file == SNAPSHOT).cloned().collect();
    search.floor_seq = catalog.floor_seq();
    let covered = search.snapshot.as_ref().map_or(0, |s| s.meta.covers_seq);
    if manifest_damage.is_empty() && covered >= search.floor_seq {
        return Ok(search);
    }
    let mut damage = manifest_damage;
    damage.append(&mut search.rejected);
    for lost in damage.iter_mut().filter(|d| d.records.is_none() && search.floor_seq > covered) {
        lost.records = Some((covered + 1, search.floor_seq));
    }
    if damage.is_empty() {
        let records = Some((covered + 1, search.floor_seq));
        let what = "no snapshot covers the records below the floor";
        damage.push(Damage { file: SNAPSHOT.to_owned(), offset: 0, len: 0, records, what });
    }
    Err(Error::Corrupt { dir: dir.to_owned(), damage })
}

fn search(
    fs: &dyn Fs,
    dir: &Path,
    catalog: &Catalog,
    check: &SnapshotCheck<'_>,
) -> Result<SnapshotSearch, Error> {
    let mut search = SnapshotSearch::default();
    let Some(manifest) = &catalog.snapshot else { return Ok(search) };
    for named in [manifest.current, manifest.previous].into_iter().flatten() {
        match read_checked(fs, dir, &named, &manifest.store, check)? {
            Ok(snapshot) => {
                search.snapshot = Some(snapshot);
                return Ok(search);
            }
            Err(damage) => search.rejected.push(damage),
        }
    }
    Ok(search)
}

/// As [`read_named`], with the application's check of the content.
pub(crate) fn read_checked(
    fs: &dyn Fs,
    dir: &Path,
    named: &SnapshotRef,
    store: &[u8; 16],
    check: &SnapshotCheck<'_>,
) -> Result<Result<Snapshot, Damage>, Error> {
    let damage = |what| Damage { file: named.file_name(), offset: 0, len: 0, records: None, what };
    let read = read_named(fs, dir, named, store)?;
    Ok(read.and_then(|snapshot| check(&snapshot).map(|()| snapshot).map_err(damage)))
}

/// Reads and checks a snapshot that a manifest names: an error for I/O, the inner error for damage.
pub(crate) fn read_named(
    fs: &dyn Fs,
    dir: &Path,
    named: &SnapshotRef,
    store: &[u8; 16],
) -> Result<Result<Snapshot, Damage>, Error> {
    let name = named.file_name();
    let path = dir.join(&name);
    let bad = |what| Ok(Err(Damage { file: name.clone(), offset: 0, len: 0, records: None, what }));
    let file = match fs.open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return bad("the snapshot is missing");
        }
        Err(e) => return Err(Error::io("read", &path, e)),
    };
    let len = file.len().map_err(|e| Error::io("read", &path, e))?;
    if len != named.len {
        return bad("the snapshot's length is wrong");
    }
    let bytes = read_whole(&*file, &path, len)?;
    match parse(bytes, &path) {
        Ok((snapshot, hash, found_store)) => {
            let right = hash == named.hash
                && snapshot.meta.covers_seq == named.covers_seq
                && found_store == *store;
            if right {
                Ok(Ok(snapshot))
            } else {
                bad("the snapshot is not the one that SNAPSHOT names")
            }
        }
        Err(ParseError::Bad(what)) => bad(what),
        Err(ParseError::Newer(found)) => {
            Err(Error::NewerFormat { file: path, found, supported: format!("{MAJOR}.x") })
        }
    }
}

/// Reads a file of `len` bytes.
pub(crate) fn read_whole(file: &dyn FsFile, path: &Path, len: u64) -> Result<AlignedBuf, Error> {
    let len = usize::try_from(len)
        .map_err(|_| Error::Invalid(format!("{} is too large", path.display())))?;
    let mut bytes = AlignedBuf::zeroed(len);
    read_full_at(file, bytes.bytes_mut(), 0).map_err(|e| Error::io("read", path, e))?;
    Ok(bytes)
}

pub(crate) enum ParseError {
    Bad(&'static str),
    Newer(String),
}

/// Checks a whole snapshot file. Returns it with the hash in its footer and its store.
pub(crate) fn parse(
    bytes: AlignedBuf,
    path: &Path,
) -> Result<(Snapshot, [u8; 16], [u8; 16]), ParseError> {
    let all = bytes.bytes();
    if all.len() < HEADER_LEN + FOOTER_LEN {
        return Err(ParseError::Bad("the snapshot is cut short"));
    }
    let (body, footer) = all.split_at(all.len() - FOOTER_LEN);
    let (meta, store) = parse_header(&body[..HEADER_LEN])?;
    if footer[..8] != FOOTER_MAGIC || !is_sealed(footer) {
        return Err(ParseError::Bad("the snapshot's footer is wrong"));
    }
    let mut r = FieldReader { bytes: footer, at: 8 };
    let (count, total) = (r.u64(), r.u64());
    r.u64();
    let hash = r.bytes16();
    if total != all.len() as u64
        || footer[48..60].iter().any(|&b| b != 0)
        || footer[24..32].iter().any(|&b| b != 0)
    {
        return Err(ParseError::Bad("the snapshot's footer is wrong"));
    }
    let mut hasher = Xxh3::new();
    hasher.update(body);
    if hasher.digest128().to_le_bytes() != hash {
        return Err(ParseError::Bad("the snapshot's hash is wrong"));
    }
    let mut sections = Vec::new();
    let mut at = HEADER_LEN;
    while at < body.len() {
        let section = parse_section(body, at)?;
        at = section.2.end.next_multiple_of(SECTION_ALIGN);
        sections.push(section);
    }
    if sections.len() as u64 != count || at != body.len() {
        return Err(ParseError::Bad("the snapshot's sections do not add up"));
    }
    Ok((Snapshot { meta, path: path.to_owned(), bytes, sections }, hash, store))
}

fn parse_header(page: &[u8]) -> Result<(SnapshotMeta, [u8; 16]), ParseError> {
    if page[..8] != HEADER_MAGIC || !is_sealed(page) {
        return Err(ParseError::Bad("the snapshot's header is wrong"));
    }
    let mut r = FieldReader { bytes: page, at: 8 };
    let major = r.u16();
    if major > MAJOR {
        return Err(ParseError::Newer(format!("major version {major}")));
    }
    r.u16();
    r.u32();
    let store = r.bytes16();
    let covers_seq = r.u64();
    let landmark_ms = r.i64();
    let half_life_ms = r.u64();
    let config_hash = r.bytes16();
    let fingerprint = r.bytes16();
    let taken_ms = r.i64();
    r.u64();
    let incompat = r.u64();
    if incompat != 0 {
        return Err(ParseError::Newer(format!("incompatible flags {incompat:#x}")));
    }
    Ok((
        SnapshotMeta { covers_seq, landmark_ms, half_life_ms, config_hash, fingerprint, taken_ms },
        store,
    ))
}

fn parse_section(body: &[u8], at: usize) -> Result<(u32, u32, std::ops::Range<usize>), ParseError> {
    let bad = ParseError::Bad("a section of the snapshot is wrong");
    let Some(header) = body.get(at..at + SECTION_HEADER_LEN) else { return Err(bad) };
    let mut r = FieldReader { bytes: header, at: 0 };
    let (kind, version, len, crc, hcrc) = (r.u32(), r.u32(), r.u64(), r.u32(), r.u32());
    let start = at + SECTION_HEADER_LEN;
    let Some(end) = usize::try_from(len).ok().and_then(|len| start.checked_add(len)) else {
        return Err(bad);
    };
    match body.get(start..end) {
        Some(bytes) if section_hcrc(at, header) == hcrc && crc32c::crc32c(bytes) == crc => {
            Ok((kind, version, start..end))
        }
        _ => Err(bad),
    }
}

/// The checksum of a section's header at `at`.
pub(crate) fn section_hcrc(at: usize, header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&(at as u64).to_le_bytes()), &header[..20])
}
