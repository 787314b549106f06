//! The progress of a pass over the log.
//!
//! Owns: one pair of numbers.
//!
//! Must not know: the work.

/// The progress of a pass over the log, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes done.
    pub done: u64,
    /// Total bytes.
    pub total: u64,
}

impl Progress {
    /// Creates a progress of `done` of `total` bytes, for callers that report on their own pass.
    pub fn new(done: u64, total: u64) -> Self {
        Self { done, total }
    }
}
