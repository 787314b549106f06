//! Where imported attempts go: the log, each once.
//!
//! Owns what is counted and said of an import. Invariant: an attempt whose id is known is not written again. Must not know where
//! attempts come from.

use std::collections::{BTreeSet, HashSet};
use std::io::IsTerminal;
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use uuid::Uuid;

use crate::terminal::exit::Failure;
use crate::terminal::output::{note, plain};
use fetchwise::attempt::Attempt;
use fetchwise::attempt::json::{Notes, from_json_line};
use fetchwise::journal::Journal;
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;

/// Records that cannot be used are named up to this many, then counted.
const MAX_NAMED: u64 = 1000;

/// What became of what was read.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    /// Lines, or rows of attempts.
    pub(super) lines: u64,
    pub(super) imported: u64,
    /// Already in the log, or earlier in the input.
    pub(super) duplicates: u64,
    pub(super) failed: u64,
    /// Times that lay in the future and were moved to now.
    pub(super) clamped: u64,
    pub(super) unknown_fields: BTreeSet<String>,
    pub(super) errors: Vec<Unusable>,
    /// Whether the fleet has heard of all of it; none where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fleet_told: Option<bool>,
}

/// A line or a row that cannot be used.
#[derive(Debug, Serialize)]
pub(super) struct Unusable {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<String>,
    error: String,
}

/// Which line or row it is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// Of a file, counted from 1.
    Line(u64),
    /// Of a table: its name and the row's id.
    Row(String),
}

/// The log, and what is in it already.
pub(super) struct Target<'j> {
    pub(super) journal: &'j Journal,
    pub(super) known: HashSet<Uuid>,
    /// Attempts before this may have been compacted away, and their ids with them.
    pub(super) cutoff: Option<Timestamp>,
    pub(super) now: Timestamp,
}

impl Target<'_> {
    /// Takes one attempt as a line of JSON. The inner error is the line's, the outer one the log's.
    pub(super) fn take(&mut self, line: &str, summary: &mut Summary) -> Result<Result<Notes, String>, Failure> {
        let (attempt, notes) = match from_json_line(line, self.now) {
            Ok(read) => read,
            Err(error) => return Ok(Err(error.to_string())),
        };
        Ok(self.keep(&attempt, summary)?.map(|is_new| {
            summary.clamped += u64::from(is_new && notes.clamped);
            notes
        }))
    }

    /// Writes an attempt unless it is known. Says whether it was new.
    fn keep(&mut self, attempt: &Attempt, summary: &mut Summary) -> Result<Result<bool, String>, Failure> {
        if self.known.contains(&attempt.id) {
            summary.duplicates += 1;
            return Ok(Ok(false));
        }
        if let Some(cutoff) = self.cutoff.filter(|cutoff| attempt.attempted_at < *cutoff) {
            return Ok(Err(format!(
                "made before {}, up to where attempts were compacted: a snapshot may have it already",
                rfc3339::format(cutoff)
            )));
        }
        self.known.insert(attempt.id);
        self.journal.append_attempt(attempt)?;
        summary.imported += 1;
        Ok(Ok(true))
    }
}

impl Summary {
    /// Counts and names what cannot be used.
    pub(super) fn fail(&mut self, source: &str, place: Place, error: String, bar: &ProgressBar) {
        self.failed += 1;
        if self.failed > MAX_NAMED {
            return;
        }
        let (line, row) = match place {
            Place::Line(line) => (Some(line), None),
            Place::Row(row) => (None, Some(row)),
        };
        let at = line.map(|line| line.to_string()).or_else(|| row.clone()).unwrap_or_default();
        bar.suspend(|| note(format_args!("{source}:{}: {}", plain(&at), plain(&error))));
        self.errors.push(Unusable { line, row, error });
    }

    /// What people should look at.
    pub(super) fn warn(&self, what: &str) {
        if self.failed > MAX_NAMED {
            note(format_args!("{} more {what} cannot be used", self.failed - MAX_NAMED));
        }
        if !self.unknown_fields.is_empty() {
            let names: Vec<String> = self.unknown_fields.iter().map(|name| plain(name)).collect();
            note(format_args!("warning: fields that mean nothing here were left out: {}", names.join(", ")));
        }
        if self.clamped > 0 {
            note(format_args!("warning: attempts that lay in the future and were moved to now: {}", self.clamped));
        }
    }

    /// The numbers as a person reads them.
    pub(super) fn parts(&self, what: &str) -> Vec<String> {
        let mut parts = vec![format!("imported {}", counted(self.imported, "attempt"))];
        if self.duplicates > 0 {
            parts.push(format!("{} were there already", self.duplicates));
        }
        if self.failed > 0 {
            parts.push(format!("{} of {} {what} cannot be used", self.failed, self.lines));
        }
        if self.fleet_told == Some(true) {
            parts.push("the fleet was told".to_owned());
        }
        parts
    }
}

/// "1 attempt", "2 attempts".
pub(super) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// A bar on a terminal, nothing elsewhere.
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

/// How large a file is; none when it is no file.
pub(super) fn len_of(file: &Path) -> Option<u64> {
    std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file).map(|meta| meta.len())
}
