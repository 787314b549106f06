//! `import`: learning from attempts that were made elsewhere.
//!
//! Invariant: a line that cannot be used is named and keeps no other line from being imported; importing the same lines
//! again changes nothing.

use std::collections::{BTreeSet, HashSet};
use std::io::IsTerminal;
use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use uuid::Uuid;

use super::failure::{Exit, Failure};
use super::input::{Lines, is_stdin, unreadable};
use super::out::{Out, note, plain};
use super::settings::{Settings, say_torn};
use fetchwise::attempt::json::{LINE_MAX_BYTES, from_json_line};
use fetchwise::journal::{self, Journal, JournalOptions, OpenCheck, maintain};
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;

/// Learn from attempts in a JSON lines file
///
/// Needs `url`, `fetcher`, `success` and `attempted_at` (RFC 3339, or milliseconds since 1970) on each line; everything else may
/// be left out. A line that cannot be used is named and the rest imported. Importing twice changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "Example line:\n  \
    {\"url\": \"https://example.org/\", \"fetcher\": \"playwright\", \"success\": true, \"attempted_at\": \"2026-01-31T12:00:00Z\"}\n\n\
    Examples:\n  fetchwise import attempts.jsonl\n  zcat old.jsonl.gz | fetchwise import -")]
pub(crate) struct ImportArgs {
    /// The attempts; - reads stdin
    #[arg(value_name = "FILE.jsonl")]
    pub(crate) file: PathBuf,
}

/// The bar moves on by so many bytes at a time.
const TELL_EVERY: u64 = 64 << 10;
/// Bad lines are named up to this many, then counted.
const NAMED_MAX: u64 = 1000;

/// What became of the lines.
#[derive(Debug, Default, Serialize)]
struct Summary {
    lines: u64,
    imported: u64,
    /// Already in the log, or earlier in the file.
    duplicates: u64,
    failed: u64,
    /// Times that lay in the future and were moved to now.
    clamped: u64,
    unknown_fields: BTreeSet<String>,
    errors: Vec<LineErrorJson>,
}

#[derive(Debug, Serialize)]
struct LineErrorJson {
    line: u64,
    error: String,
}

/// Runs the command.
pub(crate) fn run(args: &ImportArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let mut lines = Lines::open(&args.file, LINE_MAX_BYTES)?;
    let dir = settings.data_dir()?;
    // The pass over all ids below reads everything, so the open need not.
    let options = JournalOptions::default().check(OpenCheck::Tail);
    let (journal, recovery) = Journal::open(&dir, options)?;
    say_torn(recovery.torn.as_ref());
    let mut known: HashSet<Uuid> = HashSet::new();
    journal::ids(&dir, |id| {
        known.insert(id);
    })?;
    let mut progress = Progress::new(&args.file);
    let mut target = Target { journal: &journal, known, cutoff: maintain::cutoff(&dir)?, now: settings.clock.now() };
    let mut summary = Summary::default();
    let mut looks_like_seconds = None;
    while let Some(line) = lines.next_line().map_err(|error| unreadable(&args.file, &error))? {
        progress.read(line.bytes);
        if line.text.as_ref().is_ok_and(|text| text.trim().is_empty()) {
            continue;
        }
        summary.lines += 1;
        match target.take(line.text.map_err(|error| error.to_string()), &mut summary)? {
            Ok(true) => looks_like_seconds = looks_like_seconds.or(Some(line.number)),
            Ok(false) => {}
            Err(error) => summary.fail(&args.file, line.number, error, &progress),
        }
    }
    progress.bar.finish_and_clear();
    journal.close()?;
    settings.snapshot_if_due(&dir);
    warn(&summary, looks_like_seconds);
    show(&summary, out)?;
    Ok(if summary.failed > 0 { Exit::Failed } else { Exit::Done })
}

/// Where lines go.
struct Target<'j> {
    journal: &'j Journal,
    known: HashSet<Uuid>,
    /// Attempts before this may have been compacted away, and their ids with them.
    cutoff: Option<Timestamp>,
    now: Timestamp,
}

impl Target<'_> {
    /// Takes one line. Says whether its time looked like seconds; the inner error is the line's, the outer one the log's.
    fn take(&mut self, text: Result<String, String>, summary: &mut Summary) -> Result<Result<bool, String>, Failure> {
        let read = text.and_then(|text| from_json_line(&text, self.now).map_err(|error| error.to_string()));
        let (attempt, notes) = match read {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        summary.unknown_fields.extend(notes.unknown_fields);
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
        self.journal.append_attempt(&attempt)?;
        summary.imported += 1;
        summary.clamped += u64::from(notes.clamped);
        Ok(Ok(notes.looks_like_seconds))
    }
}

impl Summary {
    fn fail(&mut self, file: &Path, line: u64, error: String, progress: &Progress) {
        self.failed += 1;
        if self.failed <= NAMED_MAX {
            let name = if is_stdin(file) { "stdin".into() } else { file.to_string_lossy() };
            progress.bar.suspend(|| note(format_args!("{name}:{line}: {}", plain(&error))));
            self.errors.push(LineErrorJson { line, error });
        }
    }
}

fn warn(summary: &Summary, looks_like_seconds: Option<u64>) {
    if summary.failed > NAMED_MAX {
        note(format_args!("{} more lines cannot be used", summary.failed - NAMED_MAX));
    }
    if !summary.unknown_fields.is_empty() {
        let names: Vec<String> = summary.unknown_fields.iter().map(|name| plain(name)).collect();
        note(format_args!("warning: fields that mean nothing here were left out: {}", names.join(", ")));
    }
    if summary.clamped > 0 {
        note(format_args!("warning: attempts that lay in the future and were moved to now: {}", summary.clamped));
    }
    if let Some(line) = looks_like_seconds {
        note(format_args!(
            "warning: line {line}: `attempted_at` is before the year 2000; it is read as milliseconds, was it meant as seconds?"
        ));
    }
}

fn show(summary: &Summary, out: &mut Out) -> Result<(), Failure> {
    if out.json {
        return out.object(summary);
    }
    let mut parts = vec![format!("imported {}", attempts(summary.imported))];
    if summary.duplicates > 0 {
        parts.push(format!("{} were there already", summary.duplicates));
    }
    if summary.failed > 0 {
        parts.push(format!("{} of {} lines cannot be used", summary.failed, summary.lines));
    }
    out.line(parts.join(", "))
}

fn attempts(count: u64) -> String {
    if count == 1 { "1 attempt".to_owned() } else { format!("{count} attempts") }
}

/// A bar on a terminal, nothing elsewhere.
struct Progress {
    bar: ProgressBar,
    /// Bytes that the bar does not know of yet: telling it takes longer than reading a line.
    untold: u64,
}

impl Progress {
    fn new(file: &Path) -> Self {
        let is_file = !is_stdin(file) && std::io::stderr().is_terminal();
        let len = std::fs::metadata(file).ok().filter(|meta| is_file && meta.is_file()).map(|meta| meta.len());
        let bar = match len {
            Some(len) => ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr()),
            None => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta}") {
            bar.set_style(style);
        }
        Self { bar, untold: 0 }
    }

    fn read(&mut self, bytes: u64) {
        self.untold += bytes;
        if self.untold >= TELL_EVERY {
            self.bar.inc(std::mem::take(&mut self.untold));
        }
    }
}
