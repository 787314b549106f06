//! The syntax of the command line and the parsing of its values.
//!
//! Must not know: the work of a command.

pub(crate) mod args;
pub(crate) mod global;
pub(crate) mod input;
pub(crate) mod time_arg;
