//! How far a pass over the log is.
//!
//! Owns: one pair of numbers. Must not know: what is being done.

/// How far something that reads the log is, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes done.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

impl Progress {
    /// So many bytes of so many, for a caller who reports on a pass of its own.
    pub fn new(done: u64, total: u64) -> Self {
        Self { done, total }
    }
}
