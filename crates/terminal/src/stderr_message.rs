//! Messages on stderr.
//!
//! Invariants: a reader of stderr that stalls blocks the program only until it is interrupted. A
//! message that cannot be printed is no failure.

use std::fmt;
use std::io::{self, Write};

use crate::interruptible_writer::InterruptibleWriter;
use crate::plain::plain_lines;
use crate::style::{ERROR, styled};

/// Prints a message on stderr. Its text may come from outside. A failure to print is ignored, since
/// nothing else could report it.
pub fn note(text: impl fmt::Display) {
    print_error(&plain_lines(&text.to_string()));
}

/// Prints a message as [`note`] does, after a label in the style of a failure.
pub fn note_labelled(label: &str, text: impl fmt::Display) {
    print_error(&format!("{}: {}", styled(ERROR, label), plain_lines(&text.to_string())));
}

/// Prints a message with styles. The caller has passed all text from outside through
/// [`plain`](fn@crate::plain).
pub fn note_styled(text: impl fmt::Display) {
    print_error(&text.to_string());
}

fn print_error(line: &str) {
    let line = format!("{line}\n");
    let line = match anstream::AutoStream::choice(&io::stderr()) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(&line).to_string(),
        _ => line,
    };
    let _ = InterruptibleWriter(io::stderr()).write_all(line.as_bytes());
}
