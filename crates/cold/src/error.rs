//! Errors, distinguished by what the caller has to do about them.
//!
//! Owns: the error type of the crate's boundary.
//!
//! Invariants: damage, a refusal and a failing disk are never the same variant; an error names its
//! file.
//!
//! Must not know: how any of them is found.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a store could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another store, of this process or another, has the directory.
    #[error("{} is locked by {holder}", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The holder named in the lock file: normally `pid N`.
        holder: String,
    },
    /// A newer release wrote this file in a format that this release cannot read.
    #[error("{} has a newer format (version {found})", file.display())]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// Its major version.
        found: u16,
    },
    /// Written bytes are wrong or missing.
    #[error("{} is damaged at byte {offset}: {what}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The offset of the damaged part.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A value or a tag is longer than the format allows.
    #[error("the {what} is too long: {len} bytes, at most {max}")]
    TooLong {
        /// `value` or `tag`.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The largest length.
        max: usize,
    },
    /// The system reported an error. The data may be intact.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The failed operation, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A result whose error is [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns a function that makes an error of what the system said.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    pub(crate) fn damaged(file: &Path, offset: u64, what: &'static str) -> Self {
        Self::Damaged { file: file.to_owned(), offset, what }
    }
}
