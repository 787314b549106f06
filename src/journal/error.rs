//! What can go wrong with a journal, told apart by what a caller has to do about it.
//!
//! Owns: the error type of the journal's boundary. Must not know: how any of it is found.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use fetchwise_log::{AppendError, Error as LogError};

use super::schema::SchemaError;
use fetchwise_types::attempt::bounds::Unrecordable;

/// What does not bear out a clock that is far ahead of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockWitness {
    /// The file system's clock is far behind.
    FileSystem,
    /// No file of the log has been written for longer than a log is taken for an idle one.
    Idle {
        /// Which is so long.
        days: u64,
    },
}

impl fmt::Display for ClockWitness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileSystem => f.write_str("the file system's clock is far behind this one"),
            Self::Idle { days } => write!(f, "no file of the log was written in the last {days} days"),
        }
    }
}

/// Why the journal cannot be written or read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The log says no: locked, damaged, of a newer format, or the system failed it.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A record whose bytes are whole does not hold what this release can read.
    #[error("record {seq} of the log: {source}")]
    Record {
        /// Its sequence number.
        seq: u64,
        /// What is wrong with it.
        source: Arc<SchemaError>,
    },
    /// A snapshot whose bytes are whole does not hold what this release can read.
    #[error("the snapshot {file}: {what}")]
    Snapshot {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The newest record is so old, by a clock that nothing else bears out, that the clock is probably wrong, and with it what "too
    /// old" means.
    #[error("the newest record is {hours} hours old, and {witness}: has the clock jumped?")]
    ClockJump {
        /// How old.
        hours: u64,
        /// What does not bear it out.
        witness: ClockWitness,
    },
    /// An attempt says nothing that could be recorded.
    #[error("cannot be recorded: {0}")]
    Unrecordable(#[from] Unrecordable),
    /// An entry cannot be encoded: it is too large.
    #[error("cannot be recorded: {0}")]
    Encode(Arc<SchemaError>),
    /// The log did not take an entry.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl JournalError {
    /// True when trying again without doing something about it is useless: locked, damaged, of a newer format. Commands end
    /// with exit code 3.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Log(error) => error.is_refusal(),
            Self::Record { .. } | Self::Snapshot { .. } | Self::ClockJump { .. } => true,
            Self::Unrecordable(_) | Self::Encode(_) | Self::Append(_) => false,
        }
    }
}

impl From<JournalError> for crate::error::Error {
    fn from(error: JournalError) -> Self {
        Self::Journal(Box::new(error))
    }
}
