//! Rolling learning out without fear: what both arms came to by the log, what is remembered of the stage that is under way, and a
//! guard that takes learning out of service when it does harm.
//!
//! `report` is what `fetchwise rollout`, an API and a dashboard show; `kept` is the file `rollout.json` in the data directory; `guard`
//! watches a selector that records. [`arms`](crate::ab_test) owns the figures. Must not know who shows them.

mod auto_rollback;
mod report;
mod state_file;
#[cfg(test)]
mod tests;

pub use crate::rollout::auto_rollback::{Event, Guard, CountingSink};
pub use crate::rollout::state_file::{FILE, Fallen, Kept, KeptError, Stage};
pub use report::{Rollout, RolloutSummary, ShadowWorth, Worth, costs_of, read, window_of};

use crate::journal::JournalError;

/// Why a rollout cannot be watched or shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// What was kept of it cannot be read or written.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}
