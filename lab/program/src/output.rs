//! Results on stdout: JSON lines, or text with its styles.

use std::fmt;
use std::io::{self, BufWriter, Write};

use serde::Serialize;

use crate::failure::Failure;

/// The results of a command.
pub(crate) struct Output {
    to: BufWriter<Box<dyn Write>>,
    /// Whether the results are JSON lines.
    pub(crate) json: bool,
}

impl Output {
    /// Returns an output that prints JSON lines, or text.
    pub(crate) fn new(json: bool) -> Self {
        let to: Box<dyn Write> =
            if json { Box::new(io::stdout()) } else { Box::new(anstream::stdout()) };
        Self { to: BufWriter::new(to), json }
    }

    /// Prints one JSON line.
    pub(crate) fn object(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(value).map_err(Failure::failed)?;
        self.line(line)
    }

    /// Prints one line of text.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        writeln!(self.to, "{text}").map_err(|error| Failure::stdout(&error))
    }

    /// Writes bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.to.write_all(bytes).map_err(|error| Failure::stdout(&error))
    }

    /// Writes out everything that is buffered.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.to.flush().map_err(|error| Failure::stdout(&error))
    }
}
