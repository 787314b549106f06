//! Staged rollout of learning: the results of both arms by the log, the state of the current stage,
//! and the automatic rollback of learning when it does harm.
//!
//! `report` is the content of `fetchwise rollout`, of the API and of the dashboard. `state_file` is
//! the file `rollout.json` in the data directory. `auto_rollback` watches a selector that records.
//! [`ab_test`](crate::ab_test) owns the figures.
//!
//! Must not know: how results are displayed.

mod auto_rollback;
mod report;
mod state_file;
#[cfg(test)]
mod tests;

pub use auto_rollback::{CountingSink, Event, Guard};
pub use report::{Rollout, RolloutSummary, ShadowWorth, Worth, costs_of, read, window_of};
pub use state_file::{FILE, FallbackRecord, RolloutState, RolloutStateError, Stage};

use crate::journal::JournalError;

/// The error of a rollout that cannot be watched or reported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// The state file cannot be read or written.
    #[error(transparent)]
    State(#[from] RolloutStateError),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}
