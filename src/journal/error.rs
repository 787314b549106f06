//! Errors of the journal, grouped by what a caller has to do about them.
//!
//! Owns: the error type of the journal's boundary.
//!
//! Must not know: how errors are detected.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use fetchwise_log::{AppendError, Error as LogError};

use super::schema::SchemaError;
use fetchwise_types::attempt::bounds::Unrecordable;

/// Observation that contradicts a clock which is far ahead of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockWitness {
    /// The file system's clock is far behind.
    FileSystem,
    /// No file of the log has been written for longer than an idle log would explain.
    Idle {
        /// Days without a write.
        days: u64,
    },
}

impl fmt::Display for ClockWitness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileSystem => f.write_str("the file system's clock is far behind this one"),
            Self::Idle { days } => {
                write!(f, "no file of the log was written in the last {days} days")
            }
        }
    }
}

/// Error of a journal that cannot be written or read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The log failed: it is locked, damaged, of a newer format, or the system reported an I/O
    /// error.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The bytes of a record are intact, but this release cannot read what they hold.
    #[error("cannot read record {seq} of the log: {source}")]
    Record {
        /// Sequence number of the record.
        seq: u64,
        /// Schema error.
        source: Arc<SchemaError>,
    },
    /// The bytes of a snapshot are intact, but this release cannot read what they hold.
    #[error("cannot read the snapshot {file}: {what}")]
    Snapshot {
        /// File of the snapshot.
        file: PathBuf,
        /// Problem that was found.
        what: &'static str,
    },
    /// The key by which the directory hashes query strings cannot be read or made.
    #[error("cannot use the key of query strings {}: {source}", file.display())]
    QueryKey {
        /// File of the key.
        file: PathBuf,
        /// Error of the file system.
        source: Arc<std::io::Error>,
    },
    /// The newest record is so old by an unconfirmed clock that the clock is probably wrong. Then
    /// the retention period would be wrong, too.
    #[error("implausible clock: the newest record is {hours} hours old, and {witness}")]
    ClockJump {
        /// Age of the newest record in hours.
        hours: u64,
        /// Observation that contradicts the clock.
        witness: ClockWitness,
    },
    /// The clock is behind the log's own times, so that new evidence would count as older than what
    /// is known.
    #[error(
        "implausible clock: the log was used {hours} hours after the time that the clock shows"
    )]
    ClockBehind {
        /// Difference in hours.
        hours: u64,
    },
    /// The newest record is so much later than the last snapshot that the clock has probably jumped
    /// ahead. All known evidence would count as faded.
    #[error("implausible clock: the newest record was made {days} days after the last snapshot")]
    ClockAhead {
        /// Difference in days.
        days: u64,
    },
    /// The files with evidence that left memory cannot be used.
    #[error("cannot keep evicted evidence: {0}")]
    Evicted(Arc<dyn std::error::Error + Send + Sync>),
    /// An attempt holds nothing that could be recorded.
    #[error("cannot record the attempt: {0}")]
    Unrecordable(#[from] Unrecordable),
    /// An entry is too large to be encoded.
    #[error("cannot record the entry: {0}")]
    Encode(Arc<SchemaError>),
    /// The log did not accept an entry.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl JournalError {
    /// Returns the process that has locked the directory; `None` for other errors, and if its id
    /// cannot be read.
    pub fn holder_pid(&self) -> Option<u32> {
        match self {
            Self::Log(fetchwise_log::Error::Locked { holder, .. }) => {
                holder.rsplit(' ').next()?.parse().ok()
            }
            _ => None,
        }
    }

    /// Returns whether retrying is useless until somebody fixes the cause: locked, damaged, of a
    /// newer format. Commands end with exit code 3.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Log(error) => error.is_refusal(),
            Self::Record { .. } | Self::Snapshot { .. } | Self::QueryKey { .. } => true,
            Self::ClockJump { .. } | Self::ClockBehind { .. } | Self::ClockAhead { .. } => true,
            Self::Unrecordable(_) | Self::Encode(_) | Self::Append(_) | Self::Evicted(_) => false,
        }
    }
}

impl From<JournalError> for crate::error::Error {
    fn from(error: JournalError) -> Self {
        match &error {
            JournalError::Log(fetchwise_log::Error::Locked { .. }) => {
                Self::Locked { pid: error.holder_pid(), source: Box::new(error) }
            }
            _ => Self::Journal(Box::new(error)),
        }
    }
}
