//! Import of attempts from a file: JSON lines, CSV or Parquet, which its first bytes tell apart.
//!
//! Invariants: an invalid line is reported and does not keep other lines from being imported.

use std::path::Path;

use indicatif::ProgressBar;

use super::ImportArgs;
use super::csv_rows::CsvHead;
use super::data_dir::Directory;
#[cfg(feature = "parquet")]
use super::parquet_rows::ParquetRows;
use super::target::{Record, RecordPosition, Summary, Target, bar, len_of};
use crate::parse::input::{is_stdin, open_lines, unreadable};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, note, shown};
use fetchwise::attempt::json::MAX_LINE_BYTES;
use fetchwise::journal::Import;
use fetchwise_crawl::input::lines::Lines;

/// The number of bytes between two updates of the progress bar.
const TELL_EVERY: u64 = 64 << 10;

/// Imports the lines of `file`.
pub(super) fn run(
    file: &Path,
    args: &ImportArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut records = open(file)?;
    let into = Directory::open(args, settings)?;
    let import = Import::begin(&into.dir, &into.selector)?;
    let mut progress = Progress::new(file);
    let mut target = Target { journal: &into.journal, import, now: settings.clock.now() };
    let mut summary = Summary::default();
    let mut looks_like_seconds = None;
    let name = if is_stdin(file) { "stdin".into() } else { file.to_string_lossy() };
    while let Some(record) = records.next().map_err(|error| unreadable(file, &error))? {
        progress.read(record.bytes);
        summary.lines += 1;
        let text = record.text;
        let taken = match text {
            Ok(text) => target.take(&text, &mut summary)?,
            Err(error) => Err(error),
        };
        match taken {
            Ok(notes) => {
                if notes.looks_like_seconds {
                    looks_like_seconds = looks_like_seconds.or(Some(record.position));
                }
                summary.unknown_fields.extend(notes.unknown_fields);
            }
            Err(error) => summary.fail(&name, record.position, error, &progress.bar),
        }
    }
    progress.bar.finish_and_clear();
    summary.fleet_notified = into.close(settings)?;
    summary.warn("lines");
    if let Some(position) = looks_like_seconds {
        note(format_args!(
            "warning: {position}: `attempted_at` is before the year 2000: it is read as milliseconds, but may be in \
             seconds"
        ));
    }
    match out.json {
        true => out.object(&summary)?,
        false => out.line(summary.parts("lines").join(", "))?,
    }
    Ok(if summary.failed > 0 { Exit::Failed } else { Exit::Done })
}

/// Opens a file of any format that import reads.
fn open(file: &Path) -> Result<Records, Failure> {
    let mut lines = open_lines(file, MAX_LINE_BYTES)?;
    let start = lines.start().map_err(|error| unreadable(file, &error))?;
    if start.starts_with(b"PAR1") {
        #[cfg(feature = "parquet")]
        return ParquetRows::open(file).map(|rows| Records::Parquet(Box::new(rows)));
        #[cfg(not(feature = "parquet"))]
        return Err(Failure::missing_feature("import of Parquet", "parquet"));
    }
    match other_format(start) {
        None => Ok(Records::Text { lines, head: None, is_first: true }),
        Some((what, instead)) => {
            let words = format!(
                "{} is {what}: import reads JSON lines, CSV and Parquet of attempts",
                shown(file)
            );
            Err(Failure::usage(words).advise(instead))
        }
    }
}

/// Returns the name of a format that would fail in every line, and what to do; `start` is the first
/// part of the file.
fn other_format(start: &[u8]) -> Option<(&'static str, &'static str)> {
    const KNOWN: [(&[u8], &str, &str); 7] = [
        (
            b"SQLite format 3\0",
            "a SQLite database",
            "for a PocketBase database use import --pocketbase FILE",
        ),
        (b"\x1f\x8b", "compressed", "zcat FILE | fetchwise import -"),
        (b"\x28\xb5\x2f\xfd", "compressed", "zstdcat FILE | fetchwise import -"),
        (b"BZh", "compressed", "bzcat FILE | fetchwise import -"),
        (b"PK\x03\x04", "a ZIP archive or a spreadsheet", "unpack it, or save it as CSV"),
        (b"\xff\xfe", "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE | fetchwise import -"),
        (b"\xfe\xff", "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE | fetchwise import -"),
    ];
    if let Some((_, what, instead)) = KNOWN.iter().find(|(magic, _, _)| start.starts_with(magic)) {
        return Some((what, instead));
    }
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    if text.starts_with(b"[") {
        return Some(("a JSON array", "jq -c '.[]' FILE | fetchwise import -"));
    }
    let lines = || {
        text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
    };
    let is_csv = lines()
        .next()
        .is_some_and(|line| std::str::from_utf8(line).is_ok_and(|l| CsvHead::parse(l).is_some()));
    // The error of a single line says what is wrong with it.
    let is_known = is_csv || lines().nth(1).is_none() || lines().any(|line| line.starts_with(b"{"));
    let words = "the first line of a CSV file names the columns: url, fetcher, success and attempted_at at least";
    (!is_known).then_some(("neither JSON lines nor a CSV file of attempts", words))
}

/// The records of a file.
enum Records {
    Text {
        lines: Lines,
        head: Option<CsvHead>,
        is_first: bool,
    },
    #[cfg(feature = "parquet")]
    Parquet(Box<ParquetRows>),
}

impl Records {
    /// Returns the next record; none at the end.
    fn next(&mut self) -> std::io::Result<Option<Record>> {
        match self {
            Self::Text { lines, head, is_first } => next_line(lines, head, is_first),
            #[cfg(feature = "parquet")]
            Self::Parquet(rows) => Ok(rows.next()),
        }
    }
}

/// Returns the next line, or row of a CSV file, that is not empty.
fn next_line(
    lines: &mut Lines,
    head: &mut Option<CsvHead>,
    is_first: &mut bool,
) -> std::io::Result<Option<Record>> {
    let mut skipped = 0;
    while let Some(mut line) = lines.next_line()? {
        if head.is_some() {
            line = CsvHead::complete(lines, line)?;
        }
        let is_empty = line.text.as_ref().is_ok_and(|text| text.trim().is_empty());
        let is_head = !is_empty && std::mem::take(is_first) && {
            *head = line.text.as_ref().ok().and_then(|text| CsvHead::parse(text));
            head.is_some()
        };
        if !is_empty && !is_head {
            let text = line.text.map_err(|error| error.to_string()).and_then(|text| match head {
                Some(head) => head.to_json(&text),
                None => Ok(text),
            });
            let (position, bytes) = (RecordPosition::Line(line.number), line.bytes + skipped);
            return Ok(Some(Record { position, text, bytes }));
        }
        skipped += line.bytes;
    }
    Ok(None)
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
