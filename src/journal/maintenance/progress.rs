//! What maintenance says while it works.
//!
//! Owns: the phases. Must not know: what is done in them.

use fetchwise_log::Progress;

/// What maintenance is doing, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Learning from records.
    Folding,
    /// Reading records to check them, or to see what can go.
    Reading,
    /// Deciding what goes.
    Compacting,
}

/// Is told what is being done, and how far it is.
pub type ProgressFn<'t> = &'t mut dyn FnMut(Phase, Progress);
