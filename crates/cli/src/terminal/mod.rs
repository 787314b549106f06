//! Terminal output: text and JSON lines, progress bars, messages and exit codes.
//!
//! Must not know: what a command computes.

pub(crate) mod exit;
pub(crate) mod live_region;
pub(crate) mod output;
pub(crate) mod pace_text;
pub(crate) mod progress;
pub(crate) mod warnings;

pub(crate) use fetchwise_terminal::interruptible_writer;
