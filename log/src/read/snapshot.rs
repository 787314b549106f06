//! Reading snapshots: containers of checksummed sections with the evidence of the records up to a
//! sequence number.
//!
//! Owns: the file format of FORMAT.md section 6, and finding the newest good snapshot.
//!
//! Invariants: a snapshot is valid only if `SNAPSHOT` names it and every checksum is correct. A
//! file is read in pieces: memory holds one piece, and where each section lies. A section's
//! checksum is compared again whenever the section is read.
//!
//! Must not know: how one is written, what is in a section.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::directory::manifest::{SNAPSHOT, SnapshotManifest, SnapshotRef};
use crate::error::{Damage, Error};
use crate::format::{FieldReader, HEADER_LEN, MAJOR, is_sealed};
use crate::fs::{Fs, FsFile, RealFs, read_full_at};
use crate::read::catalog::Catalog;
use xxhash_rust::xxh3::Xxh3;

pub(crate) const HEADER_MAGIC: [u8; 8] = *b"\x89FWS\r\n\x1a\n";
pub(crate) const FOOTER_MAGIC: [u8; 8] = *b"\x89FWE\r\n\x1a\n";
pub(crate) const FOOTER_LEN: usize = 64;
pub(crate) const SECTION_HEADER_LEN: usize = 32;
pub(crate) const SECTION_ALIGN: usize = 64;
/// How much of a file is read at once.
const PIECE_LEN: u64 = 1 << 20;

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

/// Where a section of a snapshot lies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredSection {
    /// The application's kind.
    pub kind: u32,
    /// The application's version of that kind.
    pub version: u32,
    /// Length in bytes.
    pub len: u64,
    offset: u64,
    crc: u32,
}

/// A snapshot that was checked. Its sections are on disk until they are read, and stay there while
/// it is open, even if a newer snapshot takes its place.
#[derive(Debug)]
pub struct Snapshot {
    meta: SnapshotMeta,
    path: PathBuf,
    file: Box<dyn FsFile>,
    sections: Vec<StoredSection>,
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

    /// Returns version and bytes of the first section of a kind.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn section(&self, kind: u32) -> Result<Option<(u32, Vec<u8>)>, Error> {
        let found = self.sections.iter().find(|section| section.kind == kind);
        found.map(|section| Ok((section.version, self.read(section)?))).transpose()
    }

    /// Returns every section, in the order of writing.
    pub fn sections(&self) -> &[StoredSection] {
        &self.sections
    }

    /// Reads the bytes of one of its sections.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if they have changed since the snapshot was opened; or the system's
    /// error.
    pub fn read(&self, section: &StoredSection) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.read_into(section, &mut bytes)?;
        Ok(bytes)
    }

    /// As [`read`](Self::read), into a buffer whose content is replaced.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_into(&self, section: &StoredSection, to: &mut Vec<u8>) -> Result<(), Error> {
        let len = usize::try_from(section.len)
            .map_err(|_| Error::Invalid(format!("{} is too large", self.path.display())))?;
        to.resize(len, 0);
        let read = read_full_at(&*self.file, to, section.offset)
            .map_err(|e| Error::io("read", &self.path, e))?;
        if read == len && crc32c::crc32c(to) == section.crc {
            return Ok(());
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let what = "a section of the snapshot has changed since it was checked";
        let damage =
            Damage { file: name, offset: section.offset, len: section.len, records: None, what };
        let dir = self.path.parent().unwrap_or(Path::new("")).to_owned();
        Err(Error::Corrupt { dir, damage: vec![damage] })
    }
}

/// A check of a snapshot's content by the application, which alone knows what the sections mean.
/// Returns the damage that it found, or the error that kept it from reading.
pub type SnapshotCheck<'c> = dyn Fn(&Snapshot) -> Result<Option<&'static str>, Error> + 'c;

/// A check that finds nothing.
pub(crate) fn unchecked(_: &Snapshot) -> Result<Option<&'static str>, Error> {
    Ok(None)
}

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
    find_snapshot(&*fs, dir, &unchecked)
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
    let snapshot = match read_named(fs, dir, named, store)? {
        Ok(snapshot) => snapshot,
        Err(damage) => return Ok(Err(damage)),
    };
    Ok(match check(&snapshot)? {
        None => Ok(snapshot),
        Some(what) => {
            Err(Damage { file: named.file_name(), offset: 0, len: 0, records: None, what })
        }
    })
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
    match open(file, path, len) {
        Ok(found) => {
            let right = found.hash == named.hash
                && found.snapshot.meta.covers_seq == named.covers_seq
                && found.store == *store;
            if right {
                Ok(Ok(found.snapshot))
            } else {
                bad("the snapshot is not the one that SNAPSHOT names")
            }
        }
        Err(OpenError::Bad(what)) => bad(what),
        Err(OpenError::Failed(error)) => Err(error),
    }
}

/// The reason why a file is not opened as a snapshot.
pub(crate) enum OpenError {
    Bad(&'static str),
    /// The system's error, or a newer format.
    Failed(Error),
}

/// A snapshot that was opened, with the hash in its footer and its store.
pub(crate) struct Opened {
    pub(crate) snapshot: Snapshot,
    pub(crate) hash: [u8; 16],
    pub(crate) store: [u8; 16],
}

/// Opens a snapshot file of `len` bytes: reads all of it once, and checks every checksum.
pub(crate) fn open(file: Box<dyn FsFile>, path: PathBuf, len: u64) -> Result<Opened, OpenError> {
    let read = |bytes: &mut [u8], at: u64| match read_full_at(&*file, bytes, at) {
        Ok(read) if read == bytes.len() => Ok(()),
        Ok(_) => Err(OpenError::Bad("the snapshot is cut short")),
        Err(e) => Err(OpenError::Failed(Error::io("read", &path, e))),
    };
    match parse(&read, len) {
        Ok(Parsed { meta, store, hash, sections }) => {
            Ok(Opened { snapshot: Snapshot { meta, path, file, sections }, hash, store })
        }
        Err(ParseError::Bad(what)) => Err(OpenError::Bad(what)),
        Err(ParseError::Read(error)) => Err(error),
        Err(ParseError::Newer(found)) => Err(OpenError::Failed(Error::NewerFormat {
            file: path,
            found,
            supported: format!("{MAJOR}.x"),
        })),
    }
}

/// Fills a buffer from an offset.
pub(crate) type ReadAt<'r, E> = dyn Fn(&mut [u8], u64) -> Result<(), E> + 'r;

pub(crate) enum ParseError<E> {
    Bad(&'static str),
    Newer(String),
    Read(E),
}

/// What a whole snapshot file says.
pub(crate) struct Parsed {
    meta: SnapshotMeta,
    store: [u8; 16],
    hash: [u8; 16],
    sections: Vec<StoredSection>,
}

/// Checks a whole snapshot file of `len` bytes, in one pass.
pub(crate) fn parse<E>(read: &ReadAt<'_, E>, len: u64) -> Result<Parsed, ParseError<E>> {
    let Some(end) = len.checked_sub(FOOTER_LEN as u64).filter(|end| *end >= HEADER_LEN as u64)
    else {
        return Err(ParseError::Bad("the snapshot is cut short"));
    };
    let mut page = [0; HEADER_LEN];
    read(&mut page, 0).map_err(ParseError::Read)?;
    let (meta, store) = parse_header(&page)?;
    let mut footer = [0; FOOTER_LEN];
    read(&mut footer, end).map_err(ParseError::Read)?;
    let (count, hash) = parse_footer(&footer, len)?;
    let mut body = Body::new(read, end);
    body.skip(HEADER_LEN as u64).map_err(ParseError::Read)?;
    let found = match body.sections() {
        Err(ParseError::Read(error)) => return Err(ParseError::Read(error)),
        found => found,
    };
    // A wrong section of a file with a wrong hash is a consequence.
    body.skip(u64::MAX).map_err(ParseError::Read)?;
    if body.hasher.digest128().to_le_bytes() != hash {
        return Err(ParseError::Bad("the snapshot's hash is wrong"));
    }
    let sections = found?;
    if sections.len() as u64 != count {
        return Err(ParseError::Bad("the snapshot's sections do not add up"));
    }
    Ok(Parsed { meta, store, hash, sections })
}

/// Returns the number of sections and the hash in a footer.
fn parse_footer<E>(footer: &[u8], len: u64) -> Result<(u64, [u8; 16]), ParseError<E>> {
    let mut r = FieldReader { bytes: footer, at: 8 };
    let (count, total) = (r.u64(), r.u64());
    r.u64();
    let hash = r.bytes16();
    let is_right = footer[..8] == FOOTER_MAGIC
        && is_sealed(footer)
        && total == len
        && footer[48..60].iter().all(|&b| b == 0)
        && footer[24..32].iter().all(|&b| b == 0);
    if is_right {
        Ok((count, hash))
    } else {
        Err(ParseError::Bad("the snapshot's footer is wrong"))
    }
}

/// Everything before the footer, read from front to back and hashed on the way.
struct Body<'r, E> {
    read: &'r ReadAt<'r, E>,
    end: u64,
    /// The offset of the next byte.
    at: u64,
    /// What was read and not used yet is `piece[used..]`.
    piece: Vec<u8>,
    used: usize,
    hasher: Xxh3,
}

impl<'r, E> Body<'r, E> {
    fn new(read: &'r ReadAt<'r, E>, end: u64) -> Self {
        Self { read, end, at: 0, piece: Vec::new(), used: 0, hasher: Xxh3::new() }
    }

    /// Returns the next bytes, at most `most`; none at the end.
    fn next(&mut self, most: u64) -> Result<&[u8], E> {
        if self.used == self.piece.len() {
            let left = self.end - self.at;
            self.piece.resize(left.min(PIECE_LEN) as usize, 0);
            self.used = 0;
            (self.read)(&mut self.piece, self.at)?;
            self.hasher.update(&self.piece);
        }
        let rest = (self.piece.len() - self.used) as u64;
        let taken = self.used..self.used + rest.min(most) as usize;
        self.used = taken.end;
        self.at += taken.len() as u64;
        Ok(self.piece.get(taken).unwrap_or_default())
    }

    /// Passes the next bytes to `f`, until there are `len` or no more. Returns their number.
    fn each(&mut self, len: u64, mut f: impl FnMut(&[u8])) -> Result<u64, E> {
        let mut done = 0;
        while done < len {
            let bytes = self.next(len - done)?;
            if bytes.is_empty() {
                break;
            }
            f(bytes);
            done += bytes.len() as u64;
        }
        Ok(done)
    }

    fn skip(&mut self, len: u64) -> Result<u64, E> {
        self.each(len, |_| {})
    }

    /// Reads sections up to the end.
    fn sections(&mut self) -> Result<Vec<StoredSection>, ParseError<E>> {
        let mut sections = Vec::new();
        while self.at < self.end {
            sections.push(self.section()?);
            let padding = self.at.next_multiple_of(SECTION_ALIGN as u64) - self.at;
            if self.skip(padding).map_err(ParseError::Read)? < padding {
                return Err(ParseError::Bad("the snapshot's sections do not add up"));
            }
        }
        Ok(sections)
    }

    fn section(&mut self) -> Result<StoredSection, ParseError<E>> {
        let at = self.at;
        let mut header = Vec::with_capacity(SECTION_HEADER_LEN);
        self.each(SECTION_HEADER_LEN as u64, |bytes| header.extend_from_slice(bytes))
            .map_err(ParseError::Read)?;
        let bad = ParseError::Bad("a section of the snapshot is wrong");
        if header.len() < SECTION_HEADER_LEN {
            return Err(bad);
        }
        let mut r = FieldReader { bytes: &header, at: 0 };
        let (kind, version, len, crc, hcrc) = (r.u32(), r.u32(), r.u64(), r.u32(), r.u32());
        let (offset, mut found) = (self.at, 0);
        if section_hcrc(at, &header) != hcrc || len > self.end - offset {
            return Err(bad);
        }
        self.each(len, |bytes| found = crc32c::crc32c_append(found, bytes))
            .map_err(ParseError::Read)?;
        if found == crc { Ok(StoredSection { kind, version, len, offset, crc }) } else { Err(bad) }
    }
}

fn parse_header<E>(page: &[u8]) -> Result<(SnapshotMeta, [u8; 16]), ParseError<E>> {
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

/// The checksum of a section's header at `at`.
pub(crate) fn section_hcrc(at: u64, header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&at.to_le_bytes()), &header[..20])
}
