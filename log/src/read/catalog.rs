//! The directory read as a chain of segments: which files count, up to where, and which are missing.
//!
//! Owns: listing, header pages, the rules of FORMAT.md section 3. Invariant: reads only, takes no lock, and looks at no
//! frame; so it is cheap and works beside a running writer. Must not know: what to do about damage.

use std::io;
use std::path::{Path, PathBuf};

use crate::directory::manifest::{ManifestError, SEGMENTS, SNAPSHOT, SegmentsManifest, SnapshotManifest, read_small};
use crate::error::{Damage, Error};
use crate::format::{HEADER_LEN, HeaderError, Link, SegmentHeader};
use crate::fs::{Fs, FsFile, read_full_at};
use crate::read::scan::Extent;

/// How often a listing is repeated when files vanish while it is read.
const RACES_MAX: usize = 8;
/// So many files stay open, so that a compaction beside a reader takes nothing away from it.
const OPEN_FILES_MAX: usize = 256;

/// A segment file with a good header.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) header: SegmentHeader,
    pub(crate) file_len: u64,
    open: Option<Box<dyn FsFile>>,
}

/// A segment that is part of the log.
#[derive(Debug)]
pub(crate) struct ChainSegment {
    pub(crate) file: SegmentFile,
    pub(crate) extent: Extent,
    /// What the successor says of the end; for an ordinary segment that has one.
    pub(crate) stated: Option<Link>,
    /// Known durable from outside the file: the manifest.
    pub(crate) durable_off: u64,
    /// The last sequence number known durable, from the manifest.
    pub(crate) durable_seq: u64,
}

impl ChainSegment {
    /// The sequence number after this segment, as far as headers tell.
    pub(crate) fn next_seq(&self) -> Option<u64> {
        if self.file.header.is_rewritten() {
            return Some(self.file.header.alias_next_seq());
        }
        self.stated.map(|link| link.last_seq.saturating_add(1))
    }
}

/// A directory, understood.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// The log, oldest first.
    pub(crate) chain: Vec<ChainSegment>,
    /// Segment files that are no part of the log: superseded, abandoned or below the floor.
    pub(crate) leftovers: Vec<String>,
    /// Segment files whose header cannot be read, by number.
    pub(crate) unreadable: Vec<(u32, u64, String)>,
    /// `tmp-*` files.
    pub(crate) unfinished: Vec<String>,
    /// What the headers and manifests contradict.
    pub(crate) damage: Vec<Damage>,
    pub(crate) segments: Option<SegmentsManifest>,
    pub(crate) snapshot: Option<SnapshotManifest>,
    /// The largest segment number seen anywhere.
    pub(crate) number_max: u32,
    pub(crate) epoch_max: u64,
    pub(crate) store: Option<[u8; 16]>,
}

impl Catalog {
    /// Reads a directory. One that does not exist is an empty log.
    pub(crate) fn read(fs: &dyn Fs, dir: &Path) -> Result<Self, Error> {
        let mut races = 0;
        loop {
            match Self::read_once(fs, dir) {
                Err(Error::Replaced { .. }) if races < RACES_MAX => races += 1,
                done => return done,
            }
        }
    }

    /// The floor under which segments may be missing.
    pub(crate) fn floor_seq(&self) -> u64 {
        self.snapshot.map_or(0, |s| s.floor_seq)
    }

    /// What the newest snapshot covers, 0 without one.
    pub(crate) fn covers_seq(&self) -> u64 {
        self.snapshot.and_then(|s| s.current).map_or(0, |s| s.covers_seq)
    }

    fn read_once(fs: &dyn Fs, dir: &Path) -> Result<Self, Error> {
        // The floor before the listing: it only rises, so a segment that was unlinked after this look was listed, or the
        // listing is repeated because opening it failed.
        let mut catalog = Self::default();
        catalog.read_manifests(fs, dir)?;
        let names = match fs.list(dir) {
            Ok(names) => names,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(catalog),
            Err(e) => return Err(Error::io("read", dir, e)),
        };
        let mut files = Vec::new();
        for name in names {
            if name.starts_with("tmp-") {
                catalog.unfinished.push(name);
            } else if let Some((number, first_seq)) = parse_segment_name(&name) {
                catalog.number_max = catalog.number_max.max(number);
                let keep_open = files.len() < OPEN_FILES_MAX;
                match open_segment(fs, dir, &name, number, first_seq, keep_open)? {
                    Ok(file) => files.push(Entry::Good(file)),
                    Err(damage) => files.push(Entry::Unreadable { number, first_seq, damage }),
                }
            }
        }
        files.sort_by_key(|file| (file.number(), std::cmp::Reverse(file.stands_to())));
        catalog.check_stores(&files);
        catalog.resolve(files);
        catalog.recheck_floor(fs, dir)?;
        let mut damage = std::mem::take(&mut catalog.damage);
        crate::read::judge::refine_damage(fs, &catalog.chain, &mut damage)?;
        catalog.damage = damage;
        Ok(catalog)
    }

    fn read_manifests(&mut self, fs: &dyn Fs, dir: &Path) -> Result<(), Error> {
        if let Some(bytes) = read_small(fs, &dir.join(SEGMENTS))? {
            self.segments = self.manifest(SegmentsManifest::decode(&bytes), dir, SEGMENTS)?;
        }
        if let Some(bytes) = read_small(fs, &dir.join(SNAPSHOT))? {
            self.snapshot = self.manifest(SnapshotManifest::decode(&bytes), dir, SNAPSHOT)?;
        }
        Ok(())
    }

    fn manifest<T>(&mut self, decoded: Result<T, ManifestError>, dir: &Path, name: &str) -> Result<Option<T>, Error> {
        match decoded {
            Ok(manifest) => Ok(Some(manifest)),
            Err(ManifestError::Newer(found)) => Err(newer(&dir.join(name), found)),
            Err(ManifestError::Bad) => {
                let what = "the manifest's checksum is wrong";
                self.damage.push(Damage { file: name.to_owned(), offset: 0, len: 0, records: None, what });
                Ok(None)
            }
        }
    }

    /// A compaction may have raised the floor and unlinked between our two looks: then what seems missing is not.
    fn recheck_floor(&self, fs: &dyn Fs, dir: &Path) -> Result<(), Error> {
        if self.damage.is_empty() {
            return Ok(());
        }
        let now = read_small(fs, &dir.join(SNAPSHOT))?.and_then(|bytes| SnapshotManifest::decode(&bytes).ok());
        if now.is_some() && now.map(|m| m.generation) != self.snapshot.map(|m| m.generation) {
            return Err(Error::Replaced { file: dir.join(SNAPSHOT) });
        }
        Ok(())
    }

    fn check_stores(&mut self, files: &[Entry]) {
        let manifest_store = self.segments.map(|m| m.store).or(self.snapshot.map(|m| m.store));
        for file in files.iter().rev().filter_map(Entry::good) {
            self.epoch_max = self.epoch_max.max(file.header.epoch);
            let expected = *self.store.get_or_insert(manifest_store.unwrap_or(file.header.store));
            if expected != file.header.store {
                let what = "the segment belongs to another store";
                let (file, len) = (file.name.clone(), file.file_len);
                self.damage.push(Damage { file, offset: 0, len, records: None, what });
            }
        }
        self.epoch_max = self.epoch_max.max(self.segments.map_or(0, |m| m.epoch));
        self.number_max = self.number_max.max(self.segments.map_or(0, |m| m.number));
        self.store = self.store.or(manifest_store);
    }

    /// Follows the links backwards. `files` is sorted by number.
    fn resolve(&mut self, mut files: Vec<Entry>) {
        self.drop_superseded(&mut files);
        let mut successor: Option<SegmentHeader> = None;
        while let Some(entry) = files.pop() {
            let file = match entry {
                Entry::Good(file) => file,
                Entry::Unreadable { number, first_seq, damage } => {
                    self.unreadable.push((number, first_seq, damage.file.clone()));
                    self.damage.push(damage);
                    continue;
                }
            };
            match &successor {
                None => self.begin_chain(&file),
                Some(next) if next.prev_number > file.header.stands_to => {
                    if next.prev.last_seq <= self.floor_seq() {
                        // Its successor is gone, legally; so this one may go as well.
                        self.leftovers.push(file.name);
                        continue;
                    }
                    self.missing(next.prev_number, file.header.stands_to, next.prev.last_seq);
                }
                Some(next) if next.prev_number < file.header.number => {
                    self.leftovers.push(file.name);
                    continue;
                }
                Some(next) => self.check_link(&file, next),
            }
            successor = Some(file.header.clone());
            self.link(file);
        }
        self.chain.reverse();
        self.unreadable.reverse();
        if let Some(next) = successor
            && next.prev_number != 0
            && next.prev.last_seq > self.floor_seq()
        {
            self.missing(next.prev_number, 0, next.prev.last_seq);
        }
        if self.chain.is_empty() {
            self.check_emptiness();
        }
    }

    /// Of files that stand for the same numbers, the one with the larger range counts.
    fn drop_superseded(&mut self, files: &mut Vec<Entry>) {
        let mut covered_to = 0;
        let leftovers = &mut self.leftovers;
        files.retain(|entry| {
            let keep = entry.number() > covered_to;
            match entry {
                Entry::Good(file) if !keep => leftovers.push(file.name.clone()),
                Entry::Unreadable { damage, .. } if !keep => leftovers.push(damage.file.clone()),
                _ => covered_to = entry.stands_to(),
            }
            keep
        });
    }

    fn begin_chain(&mut self, last: &SegmentFile) {
        let Some(manifest) = self.segments else { return };
        let gone = manifest.number > last.header.stands_to && manifest.durable_seq > self.floor_seq();
        if gone {
            let file = segment_name(manifest.number, manifest.first_seq);
            // Without records in it, what is lost is the file alone.
            let first = last.header.first_seq.max(manifest.first_seq);
            let records = (manifest.durable_seq >= first).then_some((first, manifest.durable_seq));
            self.damage.push(Damage { file, offset: 0, len: 0, records, what: "the last segment is missing" });
        }
    }

    fn check_emptiness(&mut self) {
        let Some(manifest) = self.segments else { return };
        if manifest.durable_seq > self.floor_seq() && self.damage.is_empty() {
            let records = Some((self.floor_seq() + 1, manifest.durable_seq));
            let file = segment_name(manifest.number, manifest.first_seq);
            self.damage.push(Damage { file, offset: 0, len: 0, records, what: "every segment is missing" });
        }
    }

    fn missing(&mut self, number: u32, below: u32, last_seq: u64) {
        // An unreadable segment in between has been reported already, under its own name.
        if self.damage.iter().filter_map(|d| parse_segment_name(&d.file)).any(|(n, _)| n > below && n <= number) {
            return;
        }
        let file = format!("seg-{number:08x}-*.fwl");
        let records = Some((self.floor_seq() + 1, last_seq));
        self.damage.push(Damage { file, offset: 0, len: 0, records, what: "a segment is missing" });
    }

    fn check_link(&mut self, file: &SegmentFile, next: &SegmentHeader) {
        let alias_ok = !file.header.is_rewritten() || file.header.alias == next.prev;
        let continues = next.first_seq == next.prev.last_seq.wrapping_add(1) && file.header.first_seq <= next.first_seq;
        if !alias_ok || !continues || next.prev.valid_len < HEADER_LEN as u64 {
            let records = Some((file.header.first_seq, next.first_seq.saturating_sub(1)));
            let what = "the next segment's link does not fit";
            self.damage.push(Damage { file: file.name.clone(), offset: 0, len: HEADER_LEN as u64, records, what });
        }
    }

    fn link(&mut self, file: SegmentFile) {
        let rewritten = file.header.is_rewritten();
        let stated = self.chain.last().map(|next| next.file.header.prev);
        let (durable_off, durable_seq) = match self.segments {
            Some(m) if m.number == file.header.number && !rewritten => (m.durable_off, m.durable_seq),
            _ => (0, 0),
        };
        // A successor that does not name this file says nothing of its end.
        let named = self.chain.last().is_some_and(|next| next.file.header.prev_number == file.header.stands_to);
        let extent = match stated {
            _ if rewritten => Extent::Fixed(file.header.born_len),
            Some(link) if named => Extent::Fixed(link.valid_len),
            _ => Extent::Open,
        };
        let stated = stated.filter(|_| named && !rewritten);
        self.chain.push(ChainSegment { file, extent, stated, durable_off, durable_seq });
    }
}

impl SegmentFile {
    /// Runs `f` with the open file.
    pub(crate) fn with_file<T>(
        &self,
        fs: &dyn Fs,
        f: impl FnOnce(&dyn FsFile) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some(file) = &self.open {
            return f(&**file);
        }
        let file = match fs.open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::Replaced { file: self.path.clone() }),
            Err(e) => return Err(Error::io("read", &self.path, e)),
        };
        let mut page = vec![0; HEADER_LEN];
        let read = read_full_at(&*file, &mut page, 0).map_err(|e| Error::io("read", &self.path, e))?;
        page.truncate(read);
        match SegmentHeader::decode(&page) {
            Ok(header) if header == self.header => f(&*file),
            _ => Err(Error::Replaced { file: self.path.clone() }),
        }
    }
}

enum Entry {
    Good(SegmentFile),
    Unreadable { number: u32, first_seq: u64, damage: Damage },
}

impl Entry {
    fn number(&self) -> u32 {
        match self {
            Self::Good(file) => file.header.number,
            Self::Unreadable { number, .. } => *number,
        }
    }

    fn stands_to(&self) -> u32 {
        match self {
            Self::Good(file) => file.header.stands_to,
            Self::Unreadable { number, .. } => *number,
        }
    }

    fn good(&self) -> Option<&SegmentFile> {
        match self {
            Self::Good(file) => Some(file),
            Self::Unreadable { .. } => None,
        }
    }
}

/// Opens a segment and reads its header page: an error for I/O, the inner error for damage.
fn open_segment(
    fs: &dyn Fs,
    dir: &Path,
    name: &str,
    number: u32,
    first_seq: u64,
    keep_open: bool,
) -> Result<Result<SegmentFile, Damage>, Error> {
    let path = dir.join(name);
    let file = match fs.open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::Replaced { file: path }),
        Err(e) => return Err(Error::io("read", &path, e)),
    };
    let mut page = vec![0; HEADER_LEN];
    let read = read_full_at(&*file, &mut page, 0).map_err(|e| Error::io("read", &path, e))?;
    page.truncate(read);
    let file_len = file.len().map_err(|e| Error::io("read", &path, e))?;
    let damaged = |what| {
        let records = Some((first_seq, u64::MAX));
        Damage { file: name.to_owned(), offset: 0, len: file_len, records, what }
    };
    let header = match SegmentHeader::decode(&page) {
        Ok(header) => header,
        Err(HeaderError::Newer(found)) => return Err(newer(&path, found)),
        Err(HeaderError::Bad(what)) => return Ok(Err(damaged(what))),
    };
    if header.number != number || header.first_seq != first_seq {
        return Ok(Err(damaged("the file's name and its header disagree")));
    }
    let open = keep_open.then_some(file);
    Ok(Ok(SegmentFile { name: name.to_owned(), path, header, file_len, open }))
}

fn newer(path: &Path, found: String) -> Error {
    let supported = format!("{}.x", crate::format::MAJOR);
    Error::NewerFormat { file: path.to_owned(), found, supported }
}

/// The name of a segment.
pub(crate) fn segment_name(number: u32, first_seq: u64) -> String {
    format!("seg-{number:08x}-{first_seq:016x}.fwl")
}

/// Number and first sequence number in a segment's name.
pub(crate) fn parse_segment_name(name: &str) -> Option<(u32, u64)> {
    let (number, first_seq) = name.strip_prefix("seg-")?.strip_suffix(".fwl")?.split_once('-')?;
    let hex = |s: &str, len| s.len() == len && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !hex(number, 8) || !hex(first_seq, 16) {
        return None;
    }
    Some((u32::from_str_radix(number, 16).ok()?, u64::from_str_radix(first_seq, 16).ok()?))
}
