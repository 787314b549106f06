//! What the log needs of the outside: reading, writing and syncing files, names, locks, the clock and random numbers.
//!
//! Owns: the [`Fs`] and [`FsFile`] traits and the loops over short reads and writes. Invariant: nothing else in the crate
//! touches `std::fs`, so that a simulated file system can stand in and lose power at any call. Must not know: what the
//! bytes mean.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::time::Duration;

/// A file system, as the log needs one.
pub trait Fs: Send + Sync + Debug {
    /// Creates a directory and those above it.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// The names in a directory, unsorted; names that are no UTF-8 are left out.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;
    /// Creates a file for reading and writing; an existing one is an error.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path, site: SyncSite) -> io::Result<()>;
    /// Tries to take the exclusive lock on `path`, creating the file when there is none, and writes `holder` into it.
    fn try_lock(&self, path: &Path, holder: &str) -> io::Result<LockAttempt>;
    /// A random number nobody can foresee.
    fn random(&self) -> u64;
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;
    /// Waits a little for somebody else.
    fn pause(&self, time: Duration);
}

/// An open file.
#[allow(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait FsFile: Send + Sync + Debug {
    /// Reads at an offset; 0 at the end. May read less than asked.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at an offset. May write less than asked.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes content and length durable.
    fn sync(&self, site: SyncSite) -> io::Result<()>;
    /// Makes sure that a range has space on disk, growing the file with zeros. `Unsupported` when the system cannot.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Sets the length.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The length.
    fn len(&self) -> io::Result<u64>;
    /// Asks the system to forget cached content, so that the next read comes from the disk. Best effort.
    fn drop_cache(&self);
    /// Whether `path` still leads to this file. False when the file or its directory was deleted, moved or replaced. A file
    /// system on which nobody else can do that need not implement it.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Ok(true)
    }
}

/// What came of trying to lock.
#[derive(Debug)]
pub enum LockAttempt {
    /// Locked until the guard is dropped.
    Held(Box<dyn Send + Sync + LockGuard>),
    /// Somebody else has it; the text they left.
    Taken(String),
}

/// Holds a lock while it lives.
pub trait LockGuard: Debug {
    /// Whether `path` still leads to the locked file; as [`FsFile::is_at`].
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Ok(true)
    }
}

/// Which sync call this is. Each has its own reason to exist; the fault suite switches each off in turn and expects a
/// test to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SyncSite {
    /// Frames, for an acknowledgement or a flush.
    Frames,
    /// The sync marker after an idle time.
    Marker,
    /// Frames before the seal is written: the seal claims that they are durable.
    BeforeSeal,
    /// The seal.
    Seal,
    /// A new segment's content, before it gets its name.
    NewSegment,
    /// The directory, after a new segment got its name.
    NewSegmentDir,
    /// `SEGMENTS` before it gets its name.
    SegmentsManifest,
    /// The directory, after `SEGMENTS` got its name.
    SegmentsManifestDir,
    /// A snapshot before it gets its name.
    Snapshot,
    /// The directory, after a snapshot got its name.
    SnapshotDir,
    /// `SNAPSHOT` before it gets its name.
    SnapshotManifest,
    /// The directory, after `SNAPSHOT` got its name.
    SnapshotManifestDir,
    /// A rewritten segment before it gets its name.
    Rewrite,
    /// The directory, after a rewritten segment got its name and before what it replaces is unlinked.
    RewriteDir,
    /// The directory, after segments were unlinked.
    UnlinkDir,
    /// A quarantined range.
    Quarantine,
    /// The quarantine directory.
    QuarantineDir,
}

impl SyncSite {
    /// Every site.
    pub const ALL: [Self; 17] = [
        Self::Frames,
        Self::Marker,
        Self::BeforeSeal,
        Self::Seal,
        Self::NewSegment,
        Self::NewSegmentDir,
        Self::SegmentsManifest,
        Self::SegmentsManifestDir,
        Self::Snapshot,
        Self::SnapshotDir,
        Self::SnapshotManifest,
        Self::SnapshotManifestDir,
        Self::Rewrite,
        Self::RewriteDir,
        Self::UnlinkDir,
        Self::Quarantine,
        Self::QuarantineDir,
    ];

    /// Its name, for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::Marker => "sync marker",
            Self::BeforeSeal => "frames before the seal",
            Self::Seal => "seal",
            Self::NewSegment => "new segment",
            Self::NewSegmentDir => "new segment: directory",
            Self::SegmentsManifest => "SEGMENTS",
            Self::SegmentsManifestDir => "SEGMENTS: directory",
            Self::Snapshot => "snapshot",
            Self::SnapshotDir => "snapshot: directory",
            Self::SnapshotManifest => "SNAPSHOT",
            Self::SnapshotManifestDir => "SNAPSHOT: directory",
            Self::Rewrite => "rewritten segment",
            Self::RewriteDir => "rewritten segment: directory",
            Self::UnlinkDir => "unlinked segments: directory",
            Self::Quarantine => "quarantine",
            Self::QuarantineDir => "quarantine: directory",
        }
    }
}

/// Writes all of `buf`, going on after short writes and interruptions.
pub(crate) fn write_all_at(file: &dyn FsFile, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match file.write_at(buf, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                buf = buf.get(n..).unwrap_or_default();
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads until `buf` is full or the file ends; returns how much.
pub(crate) fn read_full_at(file: &dyn FsFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Syncs, going on after interruptions. Any other error is final: a second try may succeed though the data is gone.
pub(crate) fn sync(file: &dyn FsFile, site: SyncSite) -> io::Result<()> {
    loop {
        match file.sync(site) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
