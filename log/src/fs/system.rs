//! The interface to the system: files, names, syncs, locks, the clock and random numbers.
//!
//! Owns: the [`Fs`] and [`FsFile`] traits, the loops over short reads and writes, and the order of
//! calls that makes a small file or a directory durable.
//!
//! Invariant: nothing else in the crate touches `std::fs`, so that a simulated file system can
//! stand in and lose power at any call.
//!
//! Must not know: what the bytes mean.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::time::Duration;

/// A file system.
pub trait Fs: Send + Sync + Debug {
    /// Creates a directory and those above it.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Returns the names in a directory, unsorted; names that are not valid UTF-8 are left out.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;
    /// Creates a file for reading and writing; an existing one is an error.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn FsFile>>;
    /// Renames a file, replacing any file of that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path, site: SyncSite) -> io::Result<()>;
    /// Tries to take the exclusive lock on `path`, creating the file if it does not exist, and
    /// writes `holder` into it.
    fn try_lock(&self, path: &Path, holder: &str) -> io::Result<LockAttempt>;
    /// Returns an unpredictable random number.
    fn random(&self) -> u64;
    /// Returns milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;
    /// Sleeps, to wait for another process.
    fn pause(&self, time: Duration);
}

/// An open file.
#[allow(clippy::len_without_is_empty, reason = "no caller needs is_empty")]
pub trait FsFile: Send + Sync + Debug {
    /// Reads at an offset; 0 at the end. May read less than requested.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at an offset. May write less than requested.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes content and length durable.
    fn sync(&self, site: SyncSite) -> io::Result<()>;
    /// Allocates disk space for a range, growing the file with zeros. `Unsupported` if the system
    /// cannot.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Sets the length.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The length.
    fn len(&self) -> io::Result<u64>;
    /// Asks the system to drop cached content, so that the next read comes from the disk. Best
    /// effort.
    fn drop_cache(&self);
    /// Returns whether `path` still refers to this file; false if the file or its directory was
    /// deleted, moved or replaced. A file system that no other program can change need not
    /// implement it.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Ok(true)
    }
}

/// The result of an attempt to lock.
#[derive(Debug)]
pub enum LockAttempt {
    /// Locked until the guard is dropped.
    Held(Box<dyn Send + Sync + LockGuard>),
    /// Another holder has the lock; its text in the lock file.
    Taken(String),
}

/// Holds a lock while it lives.
pub trait LockGuard: Debug {
    /// Returns whether `path` still refers to the locked file; as [`FsFile::is_at`].
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Ok(true)
    }
}

/// The site of a sync call. The fault suite disables each site in turn and expects a test to fail,
/// which proves that each is needed.
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
    /// The directory, after a rewritten segment got its name and before what it replaces is
    /// unlinked.
    RewriteDir,
    /// The directory, after segments were unlinked.
    UnlinkDir,
    /// A quarantined range.
    Quarantine,
    /// The quarantine directory.
    QuarantineDir,
    /// The parent of a log's directory, after the directory was made.
    LogDirParent,
}

impl SyncSite {
    /// Every site.
    pub const ALL: [Self; 18] = [
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
        Self::LogDirParent,
    ];

    /// Returns its name, for tables.
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
            Self::LogDirParent => "new directory: parent",
        }
    }
}

/// Writes all of `buf`, continuing after short writes and interruptions.
pub fn write_all_at(file: &dyn FsFile, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
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

/// Reads until `buf` is full or the file ends; returns the number of bytes.
pub fn read_full_at(file: &dyn FsFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
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

/// Syncs, continuing after interruptions. Any other error is final: a second attempt may succeed
/// although the data is gone.
pub fn sync(file: &dyn FsFile, site: SyncSite) -> io::Result<()> {
    loop {
        match file.sync(site) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Publishes a small file under `name`: write, sync, rename, sync of the directory. On success it
/// is durable; on an error the old one may still be valid.
pub fn publish(
    fs: &dyn Fs,
    dir: &Path,
    name: &str,
    bytes: &[u8],
    sites: [SyncSite; 2],
) -> io::Result<()> {
    let tmp = dir.join(format!("tmp-{name}"));
    let published = (|| {
        let _ = fs.remove(&tmp);
        let file = fs.create_new(&tmp)?;
        write_all_at(&*file, bytes, 0)?;
        sync(&*file, sites[0])?;
        drop(file);
        fs.rename(&tmp, &dir.join(name))?;
        fs.sync_dir(dir, sites[1])
    })();
    published.inspect_err(|_| {
        let _ = fs.remove(&tmp);
    })
}

/// Makes a store's directory unless it exists, and syncs the parent of each directory that it
/// makes. Without that, a power loss could remove a new store with all that is durable in it.
/// `is_used` tells the names of a store that is not new. The error comes with what failed.
pub fn create_dir_durably<'a>(
    fs: &dyn Fs,
    dir: &'a Path,
    is_used: impl Fn(&str) -> bool,
) -> Result<(), (&'static str, &'a Path, io::Error)> {
    let is_missing = |dir: &Path| fs.list(dir).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    let is_named = |dir: &&Path| !dir.as_os_str().is_empty();
    let mut made: Vec<&Path> =
        dir.ancestors().take_while(is_named).take_while(|dir| is_missing(dir)).collect();
    fs.create_dir_all(dir).map_err(|e| ("create", dir, e))?;
    let names = fs.list(dir).map_err(|e| ("read", dir, e))?;
    if made.is_empty() && !names.iter().any(|name| is_used(name)) {
        // A process that made it may have died before it synced the parent.
        made.push(dir);
    }
    for made in made {
        let parent =
            made.parent().map(|parent| if is_named(&parent) { parent } else { Path::new(".") });
        match parent.map_or(Ok(()), |parent| fs.sync_dir(parent, SyncSite::LogDirParent)) {
            // A process that may not read the parent cannot sync it.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced.map_err(|e| ("sync", parent.unwrap_or(made), e))?,
        }
    }
    Ok(())
}
