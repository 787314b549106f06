//! Errors, distinguished by what the caller has to do about them.
//!
//! Owns: the error types of the crate's boundary.
//!
//! Invariant: damage (wrong bytes), a refusal (another writer's lock, another format or schema) and
//! a failing disk are never the same variant.
//!
//! Must not know: how any of them is found.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The reason why the log could not be opened, read or closed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process, or another `Log` of this process, has locked the directory.
    #[error("{} is locked by {holder}", dir.display())]
    Locked {
        /// The data directory.
        dir: PathBuf,
        /// The holder named in the lock file: normally `pid N`.
        holder: String,
    },
    /// The segments have a schema fingerprint that this build does not know.
    #[error(
        "{} was written with another record layout (fingerprint {}, this build has {})",
        file.display(), Hex(found), Hex(expected)
    )]
    FingerprintMismatch {
        /// The segment or snapshot.
        file: PathBuf,
        /// The fingerprint that this build writes.
        expected: [u8; 16],
        /// The fingerprint in the file.
        found: [u8; 16],
    },
    /// A newer release wrote this file in a format that this release cannot read.
    #[error("{} has a newer format ({found}); this release reads up to {supported}", file.display())]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// Its version or the unknown flags.
        found: String,
        /// What this release can read.
        supported: String,
    },
    /// Written bytes are wrong or missing. Nothing was changed on disk.
    #[error("the log in {} is damaged: {}", dir.display(), DamageList(damage))]
    Corrupt {
        /// The data directory.
        dir: PathBuf,
        /// The damaged ranges, in the order of the log; never empty.
        damage: Vec<Damage>,
    },
    /// The directory or a file in it cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    ReadOnly {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The file system is full or over quota, or the file would be longer than the process may
    /// write.
    #[error("no space left for {}: {source}", path.display())]
    StorageFull {
        /// The file that could not grow.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// Maintenance was stopped before it had finished ([`Throttle::stop`](crate::Throttle::stop)).
    /// Each finished step is complete in itself.
    #[error("stopped before it had finished")]
    Stopped,
    /// The system reported another error. The data may be intact.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The failed operation, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The log is closed, and some accepted records are not in it.
    #[error("the log has lost {lost}: {source}")]
    Unsaved {
        /// Every record since the log was opened that is not in it, refused ones included.
        lost: Lost,
        /// The last failure.
        source: Box<Error>,
    },
    /// The directory or the active segment was deleted or moved away. The log continues in a new
    /// directory or segment by itself.
    #[error("{} was deleted or moved away, and {lost} with it", path.display())]
    Removed {
        /// The data directory or the segment.
        path: PathBuf,
        /// The records that were in it. Those of earlier processes are not counted.
        lost: Lost,
    },
    /// The directory was replaced by one with another log, or another process writes to it. This
    /// process no longer writes there.
    #[error("{} holds another log, or another process has written to it: this process no longer writes there", dir.display())]
    TakenOver {
        /// The data directory.
        dir: PathBuf,
    },
    /// A compaction or the writer replaced a file under a reader. A new reader can continue.
    #[error("a compaction or the writer has replaced {}; open the log again", file.display())]
    Replaced {
        /// The file.
        file: PathBuf,
    },
    /// The writer thread ended without an error, which is a bug in this crate.
    #[error("the log's writer thread is gone")]
    WriterGone,
    /// A request with invalid values.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Returns true if the log was refused (locked, other layout, newer format, damaged). A retry
    /// is useless until the cause is removed. Commands end with exit code 3.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Locked { .. }
                | Self::FingerprintMismatch { .. }
                | Self::NewerFormat { .. }
                | Self::Corrupt { .. }
        )
    }

    /// Returns true if the disk is full.
    pub fn is_storage_full(&self) -> bool {
        match self {
            Self::StorageFull { .. } => true,
            Self::Unsaved { source, .. } => source.is_storage_full(),
            _ => false,
        }
    }

    /// Returns the damaged ranges; empty for other errors.
    pub fn damage(&self) -> &[Damage] {
        match self {
            Self::Corrupt { damage, .. } => damage,
            _ => &[],
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        let kind = source.kind();
        let source = Arc::new(source);
        match kind {
            _ if is_full(&source) => Self::StorageFull { path, source },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                if action != "read" =>
            {
                Self::ReadOnly { path, source }
            }
            _ => Self::Io { action, path, source },
        }
    }
}

/// A damaged range.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The file, as a name in the data directory.
    pub file: String,
    /// The offset of the damage in the file.
    pub offset: u64,
    /// The number of unreadable bytes; 0 if the file is missing or too short to say.
    pub len: u64,
    /// The first and last sequence number that cannot be read; `None` if no record is affected.
    pub records: Option<(u64, u64)>,
    /// What is wrong.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.file, self.offset, self.what)?;
        match self.records {
            Some((first, u64::MAX)) => write!(f, " (records {first} and after)"),
            Some((first, last)) => write!(f, " (records {first} to {last})"),
            None => write!(f, " (no record is affected)"),
        }
    }
}

/// A torn tail: the normal trace of a crash in the last segment. Bytes after the last good frame
/// were never acknowledged as durable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TornTail {
    /// The segment file, as a name in the data directory.
    pub file: String,
    /// The end of the good frames.
    pub offset: u64,
    /// The number of bytes from there to the last byte that is not zero.
    pub bytes: u64,
    /// The number of kept records of this segment: all those before `offset`.
    pub records_kept: u64,
}

impl fmt::Display for TornTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "torn tail in {}: {} records kept, {} bytes of an unfinished write left out at byte {}",
            self.file, self.records_kept, self.bytes, self.offset
        )
    }
}

/// The number of records that are lost. It includes records whose sync failed, although some of
/// them may be readable.
///
/// ```
/// use fetchwise_log::Lost;
///
/// assert_eq!(Lost::new(1).to_string(), "1 record");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The number of records.
    pub records: u64,
    /// True if there may be more: records of earlier processes in a deleted directory are not
    /// counted.
    pub at_least: bool,
}

impl Lost {
    /// Creates a loss of `records` records.
    pub fn new(records: u64) -> Self {
        Self { records, at_least: false }
    }

    /// Returns true if no record is lost.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// Adds two losses.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            records: self.records.saturating_add(other.records),
            at_least: self.at_least || other.at_least,
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at_least, plural) = (
            if self.at_least { "at least " } else { "" },
            if self.records == 1 { "" } else { "s" },
        );
        write!(f, "{at_least}{} record{plural}", self.records)
    }
}

/// The reason why a record was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The queue is full and the policy is [`OnFull::Error`](crate::OnFull::Error).
    #[error("the log's queue is full")]
    Full,
    /// The record is larger than a frame can hold.
    #[error("the record is too large: {len} bytes, at most {max}")]
    TooLarge {
        /// Its length.
        len: usize,
        /// The largest length.
        max: usize,
    },
    /// The disk has failed and the queue is full. Appending never blocks in this state.
    #[error("the log is degraded and its queue is full: {0}")]
    Degraded(Arc<str>),
    /// The log is closed.
    #[error("the log is closed")]
    Closed,
}

/// The reason why an acknowledgement failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Writing or syncing failed, and so did the attempt to continue in a new segment. The records
    /// stay in memory, and the log retries.
    #[error("the log is degraded: {reason}")]
    Degraded {
        /// What failed.
        reason: Arc<str>,
        /// True if the file system is full.
        storage_full: bool,
    },
    /// The record was shed under [`OnFull::Shed`](crate::OnFull::Shed).
    #[error("the record was shed because the log's queue was full")]
    Shed,
    /// The writer thread is gone.
    #[error("the log is closed")]
    Closed,
}

/// The error for an unknown name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {kind} {text:?}: expected {known}")]
#[non_exhaustive]
pub struct UnknownName {
    /// The kind of name.
    pub kind: &'static str,
    /// The text.
    pub text: String,
    /// The known names.
    pub known: &'static str,
}

/// Returns whether an error says that a file cannot grow: for lack of space, or by a limit.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

struct DamageList<'a>(&'a [Damage]);

impl fmt::Display for DamageList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, damage) in self.0.iter().enumerate() {
            if i == 4 {
                return write!(f, "; and {} more ranges", self.0.len() - i);
            }
            write!(f, "{}{damage}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
