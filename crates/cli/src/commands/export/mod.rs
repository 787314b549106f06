//! `export`: all attempts as JSON lines, CSV, Parquet or a SQLite database, or learned evidence as
//! a router table.

#[cfg(not(all(feature = "parquet", feature = "sqlite")))]
mod absent;
mod flat_columns;
mod output_file;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
pub(crate) mod router_table;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::Value;

#[cfg(not(feature = "parquet"))]
use crate::commands::export::absent::ParquetOut;
#[cfg(not(feature = "sqlite"))]
use crate::commands::export::absent::SqliteOut;
use crate::commands::export::flat_columns::{FlatColumns, Flattener};
use crate::commands::export::output_file::OutputFile;
#[cfg(feature = "parquet")]
use crate::commands::export::parquet::ParquetOut;
#[cfg(feature = "sqlite")]
use crate::commands::export::sqlite::SqliteOut;
use crate::parse::attempt_range::AttemptRange;
use crate::setup::log_scan;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, shown};
use fetchwise::attempt::Attempt;
use fetchwise::attempt::json::{AttemptJson, FIELDS, to_json_line};
use fetchwise::journal::{self, AttemptQuery, Importances};

/// Export all attempts to stdout, or to a file
///
/// Each heuristic has the importance that `importance --write` recorded. Parquet has
/// response_headers and heuristics as lists of records, and attempted_at as a UTC timestamp. CSV,
/// Parquet and SQLite also have the columns domain, site, cost (in plain requests), bytes (as the
/// server announced them) and visit (the id of the first attempt of the same fetch of the link).
///
/// --router FILE writes learned evidence as a router table instead: for each domain with confident
/// evidence, the fetcher that would be used, with its confidence and its attempts there. The global
/// option --router reads it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    fetchwise export -o attempts.parquet\n  \
    fetchwise export -o attempts.csv --since 7d --domain example.org\n  \
    fetchwise export -o attempts.db                       a SQLite database\n  \
    fetchwise export > attempts.jsonl\n  \
    fetchwise export --router learned.csv                 learned evidence as a router table\n  \
    fetchwise export --router - --format toml             the same as TOML, on stdout")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) range: AttemptRange,
    /// Choose jsonl, csv (headers and heuristics as JSON text) or parquet; for a router table csv
    /// or toml
    #[arg(long, value_enum)]
    pub(crate) format: Option<ExportFormat>,
    /// Write this file; its name ends in .jsonl, .csv, .parquet or .db (SQLite) unless --format
    /// says the format
    #[arg(short, long = "out", value_name = "FILE", conflicts_with = "sqlite")]
    pub(crate) out: Option<PathBuf>,
    /// Create this SQLite database with the tables fetcher_attempts and attempt_heuristics
    #[arg(long, value_name = "FILE.db", conflicts_with = "format")]
    pub(crate) sqlite: Option<PathBuf>,
    /// Overwrite an existing file (with -o or --router)
    #[arg(long)]
    pub(crate) force: bool,
    /// Include domains without confident evidence (with --router)
    #[arg(long)]
    pub(crate) all: bool,
}

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// One JSON object per line, as import reads it
    Jsonl,
    /// Comma-separated values with a header line
    Csv,
    /// Apache Parquet, for SQL tools
    Parquet,
    /// A router table in TOML
    Toml,
}

/// Runs the command.
pub(crate) fn run(
    args: &ExportArgs,
    table: Option<&Path>,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let dir = settings.existing_dir()?;
    if let Some(path) = table {
        return router_table::run(&table_export(args, path)?, settings, out);
    }
    let file = args.out.as_deref().filter(|path| path.as_os_str() != "-");
    let target = match (args.format, file) {
        (Some(format), _) => Target::Stream(format),
        (None, Some(path)) => target_of(path)?,
        (None, None) => Target::Stream(ExportFormat::Jsonl),
    };
    if args.all || target == Target::Stream(ExportFormat::Toml) {
        return Err(Failure::usage("--all and TOML need a router table")
            .advise("name the file to write with --router FILE"));
    }
    if args.force && file.is_none() {
        return Err(Failure::usage("--force needs a file to write")
            .advise("name it with -o FILE or --router FILE"));
    }
    let query = args.range.query(&settings.clock)?;
    let (format, database) = match target {
        Target::Stream(format) => (format, args.sqlite.as_deref()),
        Target::Database => (ExportFormat::Jsonl, file),
    };
    if let Some(path) = database {
        if args.force {
            output_file::remove(path)?;
        }
        let mut database = SqliteOut::new(path)?;
        let mut flattener = Flattener::new(settings)?;
        each(&dir, &query, |attempt| database.add(&attempt, &flattener.next(&attempt)))?;
        return database.finish().map(|()| Exit::Done);
    }
    if file.is_none() && format == ExportFormat::Parquet && std::io::stdout().is_terminal() {
        return Err(Failure::usage("refusing to write Parquet to a terminal")
            .advise("name a file: -o attempts.parquet"));
    }
    let Some(path) = file else {
        out.write_unchanged()?;
        return stream(&dir, &query, format, settings, out);
    };
    let part = OutputFile::create(path, args.force, out)?;
    let exit = stream(&dir, &query, format, settings, out)?;
    out.flush()?;
    part.finish().map(|()| exit)
}

/// Writes the attempts one after the other, in any format but that of a database.
fn stream(
    dir: &Path,
    query: &AttemptQuery,
    format: ExportFormat,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut parquet = match format {
        ExportFormat::Parquet => Some(ParquetOut::new()?),
        ExportFormat::Jsonl | ExportFormat::Csv | ExportFormat::Toml => None,
    };
    if format == ExportFormat::Csv {
        csv_line(out, FIELDS.iter().chain(&flat_columns::NAMES))?;
    }
    let mut flattener = Flattener::new(settings)?;
    each(dir, query, |attempt| match (&mut parquet, format) {
        (Some(parquet), _) => {
            let flat = flattener.next(&attempt);
            parquet.add(attempt, flat, out)
        }
        (None, ExportFormat::Csv) => csv_row(out, &attempt, &flattener.next(&attempt)),
        (None, _) => out.line(to_json_line(&attempt)),
    })?;
    parquet.map_or(Ok(()), |parquet| parquet.finish(out)).map(|()| Exit::Done)
}

/// The form of an export: one row after the other, or a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Stream(ExportFormat),
    Database,
}

/// Returns the form that a file's name asks for.
fn target_of(path: &Path) -> Result<Target, Failure> {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    Ok(match extension.as_str() {
        "jsonl" | "ndjson" => Target::Stream(ExportFormat::Jsonl),
        "csv" => Target::Stream(ExportFormat::Csv),
        "parquet" => Target::Stream(ExportFormat::Parquet),
        "toml" => Target::Stream(ExportFormat::Toml),
        "db" | "sqlite" | "sqlite3" => Target::Database,
        _ => {
            return Err(Failure::usage(format_args!("cannot tell the format of {} from its name", shown(path)))
                .advise("add --format jsonl, csv or parquet, or end the name in .jsonl, .csv, .parquet or .db"));
        }
    })
}

/// Returns the options for a router table.
fn table_export<'p>(
    args: &ExportArgs,
    path: &'p Path,
) -> Result<router_table::TableExport<'p>, Failure> {
    let is_toml = match args.format {
        Some(ExportFormat::Toml) => true,
        Some(ExportFormat::Csv) => false,
        None => path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")),
        Some(_) => {
            return Err(Failure::usage("invalid format: a router table is CSV or TOML")
                .advise("use --format csv or toml"));
        }
    };
    if args.sqlite.is_some() || args.out.is_some() {
        return Err(Failure::usage("--router excludes --sqlite and -o"));
    }
    Ok(router_table::TableExport { path, is_toml, is_forced: args.force, all: args.all })
}

/// Passes each attempt that matches to `write` until that fails. Adds the recorded importance of
/// its heuristics.
fn each(
    dir: &Path,
    query: &AttemptQuery,
    mut write: impl FnMut(Attempt) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let importances = journal::importances(dir)?;
    let mut written = Ok(());
    let replayed = log_scan::matching(dir, query, |mut attempt| {
        if written.is_ok() {
            rate(&mut attempt, &importances);
            written = write(attempt);
        }
    });
    // A damaged log matters more than a reader that closed stdout.
    replayed?;
    written
}

/// Adds the recorded importance to each heuristic that has none.
fn rate(attempt: &mut Attempt, importances: &Importances) {
    if importances.is_empty() {
        return;
    }
    for tag in attempt.heuristics.iter_mut().filter(|tag| tag.importance.is_none()) {
        let key = (tag.heuristic.kind.to_string(), Some(tag.heuristic.value.to_string()));
        tag.importance = importances.get(&key).copied();
    }
}

/// Writes the fields of JSON and the flat columns as a CSV row; structured values stay JSON.
fn csv_row(out: &mut Output, attempt: &Attempt, flat: &FlatColumns) -> Result<(), Failure> {
    let value = serde_json::to_value(AttemptJson(attempt)).map_err(Failure::failed)?;
    let fields = FIELDS.iter().map(|field| match value.get(field) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => defused(text),
        Some(other) => other.to_string(),
    });
    let text = |text: &Option<String>| defused(text.as_deref().unwrap_or_default());
    let bytes = flat.bytes.map_or_else(String::new, |bytes| bytes.to_string());
    let flat = [
        text(&flat.domain),
        text(&flat.site),
        flat.cost.to_string(),
        bytes,
        flat.visit.to_string(),
    ];
    csv_line(out, fields.chain(flat))
}

/// Returns a text that a spreadsheet does not run as a formula: it came from servers, and people
/// open it.
fn defused(text: &str) -> String {
    match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => format!("'{text}"),
        false => text.to_owned(),
    }
}

fn csv_line(
    out: &mut Output,
    cells: impl IntoIterator<Item = impl AsRef<[u8]>>,
) -> Result<(), Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(cells).map_err(Failure::failed)?;
    let line = writer.into_inner().map_err(Failure::failed)?;
    out.raw(&line)
}
