//! Progress reports of maintenance.
//!
//! Owns: the phases.
//!
//! Must not know: what happens in them.

use fetchwise_log::Progress;

/// Current phase of maintenance, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Folding records into evidence.
    Folding,
    /// Reading records, to check them or to find what can be dropped.
    Reading,
    /// Deciding what to drop.
    Compacting,
}

/// Callback that receives the phase and its progress.
pub type ProgressFn<'t> = &'t mut dyn FnMut(Phase, Progress);
