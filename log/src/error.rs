//! Everything that can go wrong, told apart by what the caller has to do about it.
//!
//! Owns: the error types of the crate's boundary. Invariant: damage (the bytes are wrong), a refusal (somebody else's
//! lock, format or schema) and a failing disk are never the same variant. Must not know: how any of them is found.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why the log could not be opened, read or closed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process, or another `Log` in this one, has the directory.
    #[error("{} is locked by {holder}", dir.display())]
    Locked {
        /// The data directory.
        dir: PathBuf,
        /// Who holds it, as the lock file says: normally `pid N`.
        holder: String,
    },
    /// The segments were written with a schema fingerprint that this build does not know.
    #[error(
        "{} was written with another record layout (fingerprint {}, this build has {})",
        file.display(), Hex(found), Hex(expected)
    )]
    FingerprintMismatch {
        /// The segment or snapshot.
        file: PathBuf,
        /// What this build writes.
        expected: [u8; 16],
        /// What the file says.
        found: [u8; 16],
    },
    /// A newer release wrote this file in a way that this one cannot read.
    #[error("{} is of a newer format ({found}); this release reads up to {supported}", file.display())]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// Its version or the unknown flags.
        found: String,
        /// What this release knows.
        supported: String,
    },
    /// Bytes that had been written are wrong or gone. Nothing was changed on disk.
    #[error("the log in {} is damaged: {}", dir.display(), DamageList(damage))]
    Corrupt {
        /// The data directory.
        dir: PathBuf,
        /// Each damaged place, in the order of the log; never empty.
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
    /// The file system is full (or over quota).
    #[error("no space left for {}: {source}", path.display())]
    StorageFull {
        /// The file that could not grow.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// Maintenance was told to stop before it was done ([`Brake::stop`](crate::Brake::stop)). What it had done is complete in itself.
    #[error("stopped before it was done")]
    Stopped,
    /// The system reported an error that is neither of the above. The data may well be intact.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The log is closed, and not all that it was given is in it.
    #[error("the log has lost {lost}: {source}")]
    Unsaved {
        /// Every record since the log was opened that is not in it, refused ones included.
        lost: Lost,
        /// The last failure.
        source: Box<Error>,
    },
    /// Somebody deleted the directory, or the segment that was being written, or moved it away. The log goes on in a new
    /// directory or segment by itself.
    #[error("{} was deleted or moved away, and {lost} with it", path.display())]
    Removed {
        /// The data directory or the segment.
        path: PathBuf,
        /// The records that were in it. Those of earlier processes are not counted.
        lost: Lost,
    },
    /// The directory was replaced by one in which another log is, or another process writes to it. Nothing more is written
    /// there by this process.
    #[error("{} holds another log, or another process has written to it: this process writes no more there", dir.display())]
    TakenOver {
        /// The data directory.
        dir: PathBuf,
    },
    /// A file vanished under a reader: a compaction replaced it. Opening a new reader helps.
    #[error("{} was replaced by a compaction meanwhile; open the log again", file.display())]
    Replaced {
        /// The file.
        file: PathBuf,
    },
    /// The writer thread ended without a word, which is a bug in this crate.
    #[error("the log's writer thread is gone")]
    WriterGone,
    /// A request that cannot be met as stated.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// True when the log was refused as it stands (locked, other layout, newer format, damaged): trying again without
    /// doing something about it is useless. Commands end with exit code 3.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Locked { .. } | Self::FingerprintMismatch { .. } | Self::NewerFormat { .. } | Self::Corrupt { .. }
        )
    }

    /// True when the disk is full.
    pub fn is_storage_full(&self) -> bool {
        match self {
            Self::StorageFull { .. } => true,
            Self::Unsaved { source, .. } => source.is_storage_full(),
            _ => false,
        }
    }

    /// The damaged places, when that is what is wrong.
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
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::StorageFull { path, source },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if action != "read" => {
                Self::ReadOnly { path, source }
            }
            _ => Self::Io { action, path, source },
        }
    }
}

/// One damaged place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The file, as a name in the data directory.
    pub file: String,
    /// Where the damage begins in the file.
    pub offset: u64,
    /// How many bytes cannot be read; 0 when the file is missing or too short to say.
    pub len: u64,
    /// The sequence numbers that cannot be read, first and last; `None` when no record is concerned.
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
            None => write!(f, " (no record is concerned)"),
        }
    }
}

/// A torn tail: the normal trace of a crash in the last segment. What follows the last good frame was never
/// acknowledged as durable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TornTail {
    /// The segment file, as a name in the data directory.
    pub file: String,
    /// Where the good frames end.
    pub offset: u64,
    /// Bytes from there to the last byte that is not zero.
    pub bytes: u64,
    /// Records of this segment that were kept, all those before `offset`.
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

/// How many records are not in the log, and will not be. Those whose sync failed count: some of them may be found after all.
///
/// ```
/// use fetchwise_log::Lost;
///
/// assert_eq!(Lost::new(1).to_string(), "1 record");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// So many.
    pub records: u64,
    /// True when there may be more that nobody could count: those that earlier processes had written to a directory that was
    /// deleted.
    pub at_least: bool,
}

impl Lost {
    /// So many records.
    pub fn new(records: u64) -> Self {
        Self { records, at_least: false }
    }

    /// No record.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// Both losses together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { records: self.records.saturating_add(other.records), at_least: self.at_least || other.at_least }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at_least, plural) =
            (if self.at_least { "at least " } else { "" }, if self.records == 1 { "" } else { "s" });
        write!(f, "{at_least}{} record{plural}", self.records)
    }
}

/// Why a record was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The queue is full and the policy is [`OnFull::Error`](crate::OnFull::Error).
    #[error("the log's queue is full")]
    Full,
    /// The record is larger than a frame can hold.
    #[error("a record of {len} bytes is larger than the {max} that a frame holds")]
    TooLarge {
        /// Its length.
        len: usize,
        /// The largest length.
        max: usize,
    },
    /// The disk has failed and memory for waiting records is used up. Appending never blocks in this state.
    #[error("the log is degraded and its queue is full: {0}")]
    Degraded(Arc<str>),
    /// The log is closed.
    #[error("the log is closed")]
    Closed,
}

/// Why an acknowledgement did not come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Writing or syncing failed, and so did the one attempt to go on in a new segment. The records are still in memory
    /// and will be tried again.
    #[error("the log is degraded: {reason}")]
    Degraded {
        /// What failed.
        reason: Arc<str>,
        /// True when the file system is full.
        storage_full: bool,
    },
    /// The record was shed under [`OnFull::Shed`](crate::OnFull::Shed).
    #[error("the record was shed because the log's queue was full")]
    Shed,
    /// The writer thread is gone.
    #[error("the log is closed")]
    Closed,
}

/// A text that names nothing of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} can be {known}, not {text:?}")]
#[non_exhaustive]
pub struct UnknownName {
    /// What it should have named.
    pub kind: &'static str,
    /// The text.
    pub text: String,
    /// What there is.
    pub known: &'static str,
}

struct DamageList<'a>(&'a [Damage]);

impl fmt::Display for DamageList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, damage) in self.0.iter().enumerate() {
            if i == 4 {
                return write!(f, "; and {} more places", self.0.len() - i);
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
