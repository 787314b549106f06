//! What programs around fetchwise print: tables on stdout and messages on stderr, safe for a
//! terminal and with its styles.
//!
//! Owns: how text from outside is made harmless, and how the programs look. Must not know:
//! commands, exit codes and fetchwise.

pub mod interruptible_writer;
mod plain;
mod stderr_message;
mod style;
mod table;

pub use plain::{is_plain, plain, plain_lines, shown};
pub use stderr_message::{note, note_labelled, note_styled};
pub use style::{CHOSEN, DIM, ERROR, HEADING, styled};
pub use table::Table;
