//! Import of attempts from JSON lines or CSV.
//!
//! Invariants: an invalid line is reported and does not keep other lines from being imported.

use std::collections::HashSet;
use std::path::Path;

use indicatif::ProgressBar;
use uuid::Uuid;

use super::ImportArgs;
use super::csv_rows::CsvHead;
use super::data_dir::Directory;
use super::target::{RecordPosition, Summary, Target, bar, len_of};
use crate::parse::input::{Lines, is_stdin, unreadable};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, note, shown};
use fetchwise::attempt::json::MAX_LINE_BYTES;
use fetchwise::journal;
use fetchwise::journal::maintenance;

/// The number of bytes between two updates of the progress bar.
const TELL_EVERY: u64 = 64 << 10;

/// Imports the lines of `file`.
pub(super) fn run(file: &Path, args: &ImportArgs, settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    let mut lines = Lines::open(file, MAX_LINE_BYTES)?;
    refuse_other_formats(&mut lines, file)?;
    let into = Directory::open(args, settings)?;
    let mut known: HashSet<Uuid> = HashSet::new();
    journal::ids(&into.dir, |id| {
        known.insert(id);
    })?;
    let mut progress = Progress::new(file);
    let cutoff = maintenance::cutoff(&into.dir)?;
    let mut target =
        Target { journal: &into.journal, selector: &into.selector, known, cutoff, now: settings.clock.now() };
    let mut summary = Summary::default();
    let mut looks_like_seconds = None;
    let name = if is_stdin(file) { "stdin".into() } else { file.to_string_lossy() };
    let mut head = None;
    while let Some(mut line) = lines.next_line().map_err(|error| unreadable(file, &error))? {
        if head.is_some() {
            line = CsvHead::complete(&mut lines, line).map_err(|error| unreadable(file, &error))?;
        }
        progress.read(line.bytes);
        if line.text.as_ref().is_ok_and(|text| text.trim().is_empty()) {
            continue;
        }
        if summary.lines == 0 && head.is_none() {
            head = line.text.as_ref().ok().and_then(|text| CsvHead::parse(text));
            if head.is_some() {
                continue;
            }
        }
        summary.lines += 1;
        let text = line.text.map_err(|error| error.to_string()).and_then(|text| match &head {
            Some(head) => head.to_json(&text),
            None => Ok(text),
        });
        let taken = match text {
            Ok(text) => target.take(&text, &mut summary)?,
            Err(error) => Err(error),
        };
        match taken {
            Ok(notes) => {
                if notes.looks_like_seconds {
                    looks_like_seconds = looks_like_seconds.or(Some(line.number));
                }
                summary.unknown_fields.extend(notes.unknown_fields);
            }
            Err(error) => summary.fail(&name, RecordPosition::Line(line.number), error, &progress.bar),
        }
    }
    progress.bar.finish_and_clear();
    summary.fleet_notified = into.close(settings)?;
    summary.warn("lines");
    if let Some(line) = looks_like_seconds {
        note(format_args!(
            "warning: line {line}: `attempted_at` is before the year 2000: it is read as milliseconds, but may be in \
             seconds"
        ));
    }
    match out.json {
        true => out.object(&summary)?,
        false => out.line(summary.parts("lines").join(", "))?,
    }
    Ok(if summary.failed > 0 { Exit::Failed } else { Exit::Done })
}

/// Returns a failure for a file of a format that would fail in every line.
fn refuse_other_formats(lines: &mut Lines, file: &Path) -> Result<(), Failure> {
    let start = lines.start().map_err(|error| unreadable(file, &error))?;
    let refuse = |what: &str, instead: &str| {
        Err(Failure::usage(format_args!("{} is {what}: import reads JSON lines and CSV", shown(file))).advise(instead))
    };
    if start.starts_with(b"PAR1") {
        return refuse("a Parquet file", "write it with export --format jsonl, or convert it to JSON lines");
    }
    if start.starts_with(b"SQLite format 3\0") {
        return refuse("a SQLite database", "for a PocketBase database use import --pocketbase FILE");
    }
    if start.starts_with(b"\x1f\x8b") {
        return refuse("compressed", "zcat FILE | fetchwise import -");
    }
    Ok(())
}

/// The progress bar of the input.
struct Progress {
    bar: ProgressBar,
    /// Bytes that the bar does not include yet: updating it takes longer than reading a line.
    untold: u64,
}

impl Progress {
    fn new(file: &Path) -> Self {
        let len = len_of(file).filter(|_| !is_stdin(file));
        Self { bar: bar(len, "{bar:40} {bytes}/{total_bytes} {eta}"), untold: 0 }
    }

    fn read(&mut self, bytes: u64) {
        self.untold += bytes;
        if self.untold >= TELL_EVERY {
            self.bar.inc(std::mem::take(&mut self.untold));
        }
    }
}
