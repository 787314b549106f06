//! The catalog of a directory: its chain of segments, their valid lengths, and the missing ones.
//!
//! Owns: listing the directory, and the rules of FORMAT.md section 3.
//!
//! Invariant: it only reads and takes no lock, so it works during a running writer. In a healthy
//! log it reads only the header pages. It reads frames only to name the exact records of a missing
//! segment.
//!
//! Must not know: what to do about damage.

use std::io;
use std::path::Path;

use super::chain::{ChainSegment, SegmentFile, SegmentName, newer, open_segment};
use super::scan::Extent;
use crate::directory::manifest::{
    ManifestError, SEGMENTS, SNAPSHOT, SegmentsManifest, SnapshotManifest, read_small,
};
use crate::error::{Damage, Error};
use crate::format::{HEADER_LEN, SegmentHeader, parse_segment_name, segment_name};
use crate::fs::Fs;
use crate::read::segment_check::{refine_damage, scan_segment};

/// How often a listing is repeated when files vanish while it is read.
const MAX_RACES: usize = 8;
/// The number of files that stay open, so that a concurrent compaction does not take them away from
/// a reader.
const MAX_OPEN_FILES: usize = 256;

/// The catalog of a directory.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// The log, oldest first.
    pub(crate) chain: Vec<ChainSegment>,
    /// Segment files that are not part of the log: superseded, abandoned or below the floor.
    pub(crate) leftovers: Vec<String>,
    /// Segment files whose header cannot be read, by number.
    pub(crate) unreadable: Vec<(u32, u64, String)>,
    /// `tmp-*` files.
    pub(crate) unfinished: Vec<String>,
    /// Contradictions between headers and manifests.
    pub(crate) damage: Vec<Damage>,
    pub(crate) segments: Option<SegmentsManifest>,
    pub(crate) snapshot: Option<SnapshotManifest>,
    /// The largest segment number seen anywhere.
    pub(crate) number_max: u32,
    pub(crate) epoch_max: u64,
    pub(crate) store: Option<[u8; 16]>,
}

impl Catalog {
    /// Reads a directory. A missing directory is an empty log.
    pub(crate) fn read(fs: &dyn Fs, dir: &Path) -> Result<Self, Error> {
        let mut races = 0;
        loop {
            match Self::read_once(fs, dir) {
                Err(Error::Replaced { .. }) if races < MAX_RACES => races += 1,
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

    /// The last sequence number of the log that is known to be durable, by what is on disk.
    pub(crate) fn proven_seq(&self, fs: &dyn Fs) -> Result<u64, Error> {
        let Some(last) = self.chain.last() else { return Ok(self.floor_seq()) };
        if last.file.header.is_rewritten() {
            return Ok(last.file.header.alias.last_seq);
        }
        last.file.with_file(fs, |file| {
            let proven = scan_segment(fs, last, file, &mut |_| true)?.proven;
            let mut next_seq = last.file.header.first_seq;
            scan_segment(fs, last, file, &mut |frame| {
                let covered = frame.end <= proven;
                if covered {
                    next_seq = frame.header.next_seq();
                }
                covered
            })?;
            Ok(next_seq - 1)
        })
    }

    /// A snapshot is only taken of records that are durable; so when it covers more than the log
    /// has, which ends with `last_seq` in `file`, the log has lost some.
    pub(crate) fn lost_behind(&self, file: &str, last_seq: u64) -> Option<Damage> {
        let covers_seq = self.covers_seq();
        (covers_seq > last_seq).then(|| {
            let what = "a snapshot covers records that the log has lost";
            Damage {
                file: file.to_owned(),
                offset: 0,
                len: 0,
                records: Some((last_seq + 1, covers_seq)),
                what,
            }
        })
    }

    /// Refuses segments whose schema fingerprint is neither this build's `own` nor one that it
    /// `accepts`.
    pub(crate) fn check_fingerprints(
        &self,
        own: [u8; 16],
        accepts: &[[u8; 16]],
    ) -> Result<(), Error> {
        for segment in &self.chain {
            let found = segment.file.header.fingerprint;
            if found != own && !accepts.contains(&found) {
                return Err(Error::FingerprintMismatch {
                    file: segment.file.path.clone(),
                    expected: own,
                    found,
                });
            }
        }
        Ok(())
    }

    fn read_once(fs: &dyn Fs, dir: &Path) -> Result<Self, Error> {
        // The floor is read before the listing. A segment that is unlinked after that is either
        // missing from the listing, which `recheck_manifests` notices, or it was listed and opening
        // it fails; both times the listing is repeated.
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
                let keep_open = files.len() < MAX_OPEN_FILES;
                match open_segment(
                    fs,
                    dir,
                    SegmentName { name: &name, number, first_seq },
                    keep_open,
                )? {
                    Ok(file) => files.push(Entry::Good(file)),
                    Err(damage) => files.push(Entry::Unreadable { number, first_seq, damage }),
                }
            }
        }
        files.sort_by_key(|file| (file.number(), std::cmp::Reverse(file.stands_to())));
        catalog.check_stores(&files);
        catalog.resolve(files);
        catalog.recheck_manifests(fs, dir)?;
        let mut damage = std::mem::take(&mut catalog.damage);
        refine_damage(fs, &catalog.chain, &mut damage)?;
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

    fn manifest<T>(
        &mut self,
        decoded: Result<T, ManifestError>,
        dir: &Path,
        name: &str,
    ) -> Result<Option<T>, Error> {
        match decoded {
            Ok(manifest) => Ok(Some(manifest)),
            Err(ManifestError::Newer(found)) => Err(newer(&dir.join(name), found)),
            Err(ManifestError::Bad) => {
                let what = "the manifest's checksum is wrong";
                self.damage.push(Damage {
                    file: name.to_owned(),
                    offset: 0,
                    len: 0,
                    records: None,
                    what,
                });
                Ok(None)
            }
        }
    }

    /// A compaction may have raised the floor and unlinked segments between the two reads, and a
    /// writer may have replaced the last segment. Then segments that seem missing are not.
    fn recheck_manifests(&self, fs: &dyn Fs, dir: &Path) -> Result<(), Error> {
        if self.damage.is_empty() {
            return Ok(());
        }
        let now = read_small(fs, &dir.join(SNAPSHOT))?
            .and_then(|bytes| SnapshotManifest::decode(&bytes).ok());
        if now.is_some() && now.map(|m| m.generation) != self.snapshot.map(|m| m.generation) {
            return Err(Error::Replaced { file: dir.join(SNAPSHOT) });
        }
        let now = read_small(fs, &dir.join(SEGMENTS))?
            .and_then(|bytes| SegmentsManifest::decode(&bytes).ok());
        if now.is_some() && now.map(|m| m.generation) != self.segments.map(|m| m.generation) {
            return Err(Error::Replaced { file: dir.join(SEGMENTS) });
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
                        // Its successor is gone and was below the floor, so this one is below the
                        // floor too.
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

    /// Drops superseded files. Among files for the same numbers, the one with the larger range is
    /// valid.
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
        let gone =
            manifest.number > last.header.stands_to && manifest.durable_seq > self.floor_seq();
        if gone {
            let file = segment_name(manifest.number, manifest.first_seq);
            // When the missing segment had no records, the file is all that is lost.
            let first = last.header.first_seq.max(manifest.first_seq);
            let records = (manifest.durable_seq >= first).then_some((first, manifest.durable_seq));
            self.damage.push(Damage {
                file,
                offset: 0,
                len: 0,
                records,
                what: "the last segment is missing",
            });
        }
    }

    fn check_emptiness(&mut self) {
        let Some(manifest) = self.segments else { return };
        if manifest.durable_seq > self.floor_seq() && self.damage.is_empty() {
            let records = Some((self.floor_seq() + 1, manifest.durable_seq));
            let file = segment_name(manifest.number, manifest.first_seq);
            self.damage.push(Damage {
                file,
                offset: 0,
                len: 0,
                records,
                what: "every segment is missing",
            });
        }
    }

    fn missing(&mut self, number: u32, below: u32, last_seq: u64) {
        // An unreadable segment in between has been reported already, under its own name.
        if self
            .damage
            .iter()
            .filter_map(|d| parse_segment_name(&d.file))
            .any(|(n, _)| n > below && n <= number)
        {
            return;
        }
        let file = format!("seg-{number:08x}-*.fwl");
        let records = Some((self.floor_seq() + 1, last_seq));
        self.damage.push(Damage { file, offset: 0, len: 0, records, what: "a segment is missing" });
    }

    fn check_link(&mut self, file: &SegmentFile, next: &SegmentHeader) {
        let alias_ok = !file.header.is_rewritten() || file.header.alias == next.prev;
        let continues = next.first_seq == next.prev.last_seq.wrapping_add(1)
            && file.header.first_seq <= next.first_seq;
        if !alias_ok || !continues || next.prev.valid_len < HEADER_LEN as u64 {
            let records = Some((file.header.first_seq, next.first_seq.saturating_sub(1)));
            let what = "the link of the next segment does not match";
            self.damage.push(Damage {
                file: file.name.clone(),
                offset: 0,
                len: HEADER_LEN as u64,
                records,
                what,
            });
        }
    }

    fn link(&mut self, file: SegmentFile) {
        let rewritten = file.header.is_rewritten();
        let stated = self.chain.last().map(|next| next.file.header.prev);
        let (durable_off, durable_seq) = match self.segments {
            Some(m) if m.number == file.header.number && !rewritten => {
                (m.durable_off, m.durable_seq)
            }
            _ => (0, 0),
        };
        // A successor that does not name this file says nothing of its end.
        let named = self
            .chain
            .last()
            .is_some_and(|next| next.file.header.prev_number == file.header.stands_to);
        let extent = match stated {
            _ if rewritten => Extent::Fixed(file.header.born_len),
            Some(link) if named => Extent::Fixed(link.valid_len),
            _ => Extent::Open,
        };
        let stated = stated.filter(|_| named && !rewritten);
        self.chain.push(ChainSegment { file, extent, stated, durable_off, durable_seq });
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
