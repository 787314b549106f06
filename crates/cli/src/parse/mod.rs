//! The global options, and the parsing of values and input lines.
//!
//! Must not know: the work of a command.

pub(crate) mod attempt_range;
pub(crate) mod global;
pub(crate) mod input;
pub(crate) mod time_arg;
