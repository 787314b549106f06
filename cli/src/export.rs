//! `export`: all attempts, as JSON lines, CSV, Parquet or a SQLite database.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::failure::{Exit, Failure};
use super::out::Out;
use super::parquet::ParquetOut;
use super::pass;
use super::settings::Settings;
use super::sqlite::SqliteOut;
use fetchwise::attempt::Attempt;
use fetchwise::attempt::json::{AttemptJson, FIELDS, to_json_line};
use fetchwise::journal::{self, Importances};

/// Write all attempts to stdout, or into a SQLite database
///
/// What `importance --write` has worked out stands beside each heuristic. Parquet has response_headers and heuristics as lists
/// of records, attempted_at as a UTC timestamp.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    fetchwise export > attempts.jsonl\n  \
    fetchwise export --format csv > attempts.csv\n  \
    fetchwise export --format parquet > attempts.parquet\n  \
    fetchwise export --sqlite attempts.db")]
pub(crate) struct ExportArgs {
    /// jsonl, csv (headers and heuristics as JSON text), or parquet
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    pub(crate) format: ExportFormat,
    /// Make this SQLite database: the tables fetcher_attempts and attempt_heuristics
    #[arg(long, value_name = "FILE.db", conflicts_with = "format")]
    pub(crate) sqlite: Option<PathBuf>,
}

/// How attempts are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// One JSON object a line: what import reads
    Jsonl,
    /// Comma-separated values with a head line
    Csv,
    /// Apache Parquet, for SQL tools
    Parquet,
}

/// Runs the command.
pub(crate) fn run(args: &ExportArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let dir = settings.existing_dir()?;
    if let Some(path) = &args.sqlite {
        let mut database = SqliteOut::new(path)?;
        each(&dir, |attempt| database.add(&attempt))?;
        return database.finish().map(|()| Exit::Done);
    }
    if args.format == ExportFormat::Parquet && std::io::stdout().is_terminal() {
        return Err(
            Failure::usage("Parquet is nothing for a terminal").advise("write it to a file: ... > attempts.parquet")
        );
    }
    out.as_it_is()?;
    let mut parquet = match args.format {
        ExportFormat::Parquet => Some(ParquetOut::new()?),
        ExportFormat::Jsonl | ExportFormat::Csv => None,
    };
    if args.format == ExportFormat::Csv {
        csv_line(out, FIELDS)?;
    }
    each(&dir, |attempt| match (&mut parquet, args.format) {
        (Some(parquet), _) => parquet.add(attempt, out),
        (None, ExportFormat::Csv) => csv_row(out, &attempt),
        (None, _) => out.line(to_json_line(&attempt)),
    })?;
    parquet.map_or(Ok(()), |parquet| parquet.finish(out)).map(|()| Exit::Done)
}

/// Hands each attempt to `write`, until it fails, with what was worked out about its heuristics.
fn each(dir: &Path, mut write: impl FnMut(Attempt) -> Result<(), Failure>) -> Result<(), Failure> {
    let importances = journal::importances(dir)?;
    let mut written = Ok(());
    let replayed = pass::attempts(dir, |mut attempt| {
        if written.is_ok() {
            rate(&mut attempt, &importances);
            written = write(attempt);
        }
    });
    // Whoever read stdout may be gone, but a damaged log is worth more than that.
    replayed?;
    written
}

/// Puts beside each heuristic what was worked out about it, unless the attempt came with something of its own.
fn rate(attempt: &mut Attempt, importances: &Importances) {
    if importances.is_empty() {
        return;
    }
    for tag in attempt.heuristics.iter_mut().filter(|tag| tag.importance.is_none()) {
        let key = (tag.heuristic.kind.to_string(), Some(tag.heuristic.value.to_string()));
        tag.importance = importances.get(&key).copied();
    }
}

/// The same fields as in JSON; what has a structure of its own stays JSON.
fn csv_row(out: &mut Out, attempt: &Attempt) -> Result<(), Failure> {
    let value = serde_json::to_value(AttemptJson(attempt)).map_err(Failure::failed)?;
    csv_line(
        out,
        FIELDS.iter().map(|field| match value.get(field) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => defused(text),
            Some(other) => other.to_string(),
        }),
    )
}

/// What a spreadsheet would run as a formula becomes text: it came from servers, and is opened by people.
fn defused(text: &str) -> String {
    match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => format!("'{text}"),
        false => text.to_owned(),
    }
}

fn csv_line(out: &mut Out, cells: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<(), Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(cells).map_err(Failure::failed)?;
    let line = writer.into_inner().map_err(Failure::failed)?;
    out.raw(&line)
}
