//! The target of an import: the log, into which the library's import writes each attempt once.
//!
//! Owns: the counts and messages of an import.
//!
//! Must not know: the source of attempts.

use std::collections::BTreeSet;
use std::fmt;
use std::io::IsTerminal;
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::terminal::exit::Failure;
use crate::terminal::output::{note, plain};
use fetchwise::attempt::json::Notes;
use fetchwise::journal::{Import, ImportLineError, Journal};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;

/// The number of invalid records that JSON lists; further ones are only counted.
const MAX_LISTED: u64 = 1000;
/// The number of invalid records that are printed singly.
const MAX_PRINTED: u64 = 10;

/// The result of an import.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    /// Lines, or rows of attempts.
    pub(super) lines: u64,
    pub(super) imported: u64,
    /// Attempts already in the log, or earlier in the input.
    pub(super) duplicates: u64,
    pub(super) failed: u64,
    /// Attempts with a future time, which became the current time.
    pub(super) clamped: u64,
    pub(super) unknown_fields: BTreeSet<String>,
    pub(super) errors: Vec<InvalidRecord>,
    /// Whether the fleet was notified of everything; none without a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fleet_notified: Option<bool>,
}

/// An invalid line or row.
#[derive(Debug, Serialize)]
pub(super) struct InvalidRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<String>,
    error: String,
}

/// A record of the input as a line of JSON, or why it has none.
pub(super) struct Record {
    pub(super) position: RecordPosition,
    pub(super) text: Result<String, String>,
    /// The bytes of the input that it took.
    pub(super) bytes: u64,
}

/// The position of a record in the input.
#[derive(Clone, Debug)]
pub(super) enum RecordPosition {
    /// A line, counted from 1.
    Line(u64),
    /// A row: the name of its table and its id, or its number.
    #[cfg_attr(
        not(any(feature = "parquet", feature = "sqlite")),
        allow(dead_code, reason = "only databases and Parquet have rows")
    )]
    Row(String),
}

impl fmt::Display for RecordPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Row(row) => f.write_str(row),
        }
    }
}

/// The log, and the import into it.
pub(super) struct Target<'t> {
    pub(super) journal: &'t Journal,
    pub(super) import: Import<&'t Selector>,
    pub(super) now: Timestamp,
}

impl Target<'_> {
    /// Imports one attempt from a line of JSON. The inner error is that of the line, the outer one
    /// that of the log.
    pub(super) fn take(
        &mut self,
        line: &str,
        summary: &mut Summary,
    ) -> Result<Result<Notes, String>, Failure> {
        let taken = match self.import.take_line(line, self.journal, self.now) {
            Ok(taken) => taken,
            Err(ImportLineError::Journal(error)) => return Err(error.into()),
            Err(error) => return Ok(Err(error.to_string())),
        };
        if taken.new.is_some() {
            summary.imported += 1;
            summary.clamped += u64::from(taken.notes.clamped);
        } else {
            summary.duplicates += 1;
        }
        Ok(Ok(taken.notes))
    }
}

impl Summary {
    /// Counts and reports an invalid record.
    pub(super) fn fail(
        &mut self,
        source: &str,
        place: RecordPosition,
        error: String,
        bar: &ProgressBar,
    ) {
        self.failed += 1;
        if self.failed > MAX_LISTED {
            return;
        }
        let (line, row) = match place {
            RecordPosition::Line(line) => (Some(line), None),
            RecordPosition::Row(row) => (None, Some(row)),
        };
        let at = line.map(|line| line.to_string()).or_else(|| row.clone()).unwrap_or_default();
        if self.failed <= MAX_PRINTED {
            bar.suspend(|| note(format_args!("{source}:{}: {}", plain(&at), plain(&error))));
        }
        self.errors.push(InvalidRecord { line, row, error });
    }

    /// Prints the warnings of the import.
    pub(super) fn warn(&self, what: &str) {
        if self.failed > MAX_PRINTED {
            note(format_args!(
                "{} more invalid {what}; --json lists up to {MAX_LISTED}",
                self.failed - MAX_PRINTED
            ));
        }
        if !self.unknown_fields.is_empty() {
            let names: Vec<String> = self.unknown_fields.iter().map(|name| plain(name)).collect();
            note(format_args!("warning: ignored unknown fields: {}", names.join(", ")));
        }
        if self.clamped > 0 {
            note(format_args!(
                "warning: attempts with a future time, changed to the current time: {}",
                self.clamped
            ));
        }
    }

    /// Returns the counts as text.
    pub(super) fn parts(&self, what: &str) -> Vec<String> {
        let mut parts = vec![format!("imported {}", counted(self.imported, "attempt"))];
        if self.duplicates > 0 {
            parts.push(format!("{} already known", self.duplicates));
        }
        if self.failed > 0 {
            parts.push(format!("{} of {} {what} invalid", self.failed, self.lines));
        }
        if self.fleet_notified == Some(true) {
            parts.push("the fleet was notified".to_owned());
        }
        parts
    }
}

/// Returns a count with its noun: "1 attempt", "2 attempts".
pub(super) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Returns a progress bar, which shows on a terminal only.
pub(super) fn bar(len: Option<u64>, template: &str) -> ProgressBar {
    let bar = match len.filter(|_| std::io::stderr().is_terminal()) {
        Some(len) => ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr()),
        None => ProgressBar::hidden(),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Returns the size of a file; none for anything else.
pub(super) fn len_of(file: &Path) -> Option<u64> {
    std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file).map(|meta| meta.len())
}
