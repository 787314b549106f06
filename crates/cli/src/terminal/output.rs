//! Results on stdout and messages on stderr: JSON lines, aligned tables and text.
//!
//! Invariants: no text from outside reaches a terminal with its control characters. Colours appear
//! only on a terminal, and not if `NO_COLOR` is set.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use fetchwise_terminal::interruptible_writer::InterruptibleWriter;
pub(crate) use fetchwise_terminal::{
    CHOSEN, DIM, ERROR, HEADING, Table, is_plain, note, note_labelled, note_styled, plain, shown,
    styled,
};
use indicatif::HumanCount;
use serde::Serialize;

use crate::terminal::exit::Failure;

/// The results of a command, on stdout.
pub(crate) struct Output {
    to: BufWriter<Box<dyn Write>>,
    /// Whether the results are JSON lines.
    pub(crate) json: bool,
    /// The file that is written instead of stdout.
    file: Option<PathBuf>,
}

impl Output {
    /// Returns an output that prints JSON lines, or text.
    pub(crate) fn new(json: bool) -> Self {
        let to: Box<dyn Write> =
            if json { Box::new(io::stdout()) } else { Box::new(anstream::stdout()) };
        Self { to: BufWriter::with_capacity(64 << 10, to), json, file: None }
    }

    /// Makes all further writes interruptible: a stalled reader blocks them only until the user
    /// interrupts the run. With `unchanged` escape sequences are not removed, for bytes of a page.
    pub(crate) fn make_interruptible(&mut self, unchanged: bool) -> Result<(), Failure> {
        self.flush()?;
        let stdout: Box<dyn Write> = Box::new(InterruptibleWriter(io::stdout()));
        let to: Box<dyn Write> = match anstream::AutoStream::choice(&io::stdout()) {
            // It writes what is between two escape sequences by itself, which is a call of the
            // system for each word.
            anstream::ColorChoice::Never if !self.json && !unchanged => {
                let buffered: Box<dyn Write> = Box::new(BufWriter::new(stdout));
                Box::new(anstream::StripStream::new(buffered))
            }
            _ => stdout,
        };
        self.to = BufWriter::with_capacity(64 << 10, to);
        Ok(())
    }

    /// Writes all further bytes unchanged: escape sequences are not removed.
    pub(crate) fn write_unchanged(&mut self) -> Result<(), Failure> {
        self.flush()?;
        self.to = BufWriter::with_capacity(64 << 10, Box::new(io::stdout()));
        Ok(())
    }

    /// Writes all further bytes unchanged to a file, which failures call `name`.
    pub(crate) fn write_to_file(&mut self, file: File, name: &Path) -> Result<(), Failure> {
        self.flush()?;
        self.to = BufWriter::with_capacity(64 << 10, Box::new(file));
        self.file = Some(name.to_owned());
        Ok(())
    }

    fn failure(&self, error: &io::Error) -> Failure {
        match &self.file {
            Some(file) => Failure::failed(format_args!("cannot write {}: {error}", shown(file))),
            None => Failure::stdout(error),
        }
    }

    /// Prints one JSON line.
    pub(crate) fn object(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(value).map_err(Failure::failed)?;
        self.line(line)
    }

    /// Prints one line of text.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        writeln!(self.to, "{text}").map_err(|error| self.failure(&error))
    }

    /// Writes bytes; unchanged after [`Output::write_unchanged`].
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.to.write_all(bytes).map_err(|error| self.failure(&error))
    }

    /// Writes out everything that is buffered.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.to.flush().map_err(|error| self.failure(&error))
    }
}

/// Returns a count with its noun: `1 host`, `2,705 hosts`.
pub(crate) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", HumanCount(count as u64), if count == 1 { one } else { many })
}

/// Returns a share as a percentage; `-` if there is none.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}
