//! Attempts as a SQLite database: a table of attempts, and one of their heuristics.
//!
//! Owns: the schema.
//!
//! Invariants: the database appears under its name only when it is complete.
//!
//! Must not know: which attempts exist.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{CachedStatement, Connection, params};
use tempfile::TempPath;

use crate::commands::export::flat_columns::FlatColumns;
use crate::setup::part_file::part_file;
use crate::terminal::exit::Failure;
use crate::terminal::output::shown;
use fetchwise::attempt::json::AttemptJson;
use fetchwise::attempt::{Attempt, ErrorType, Hint};
use fetchwise::rfc3339;

/// The tables; the indexes are created after all rows.
const TABLES: &str = "
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE fetcher_attempts (
    id TEXT PRIMARY KEY NOT NULL,
    link TEXT NOT NULL,
    url TEXT NOT NULL,
    fetcher TEXT NOT NULL,
    success BOOLEAN NOT NULL,
    is_banned BOOLEAN NOT NULL,
    error_type TEXT,
    http_status INTEGER,
    response_headers TEXT NOT NULL,
    duration_ms INTEGER NOT NULL,
    attempted_at TEXT NOT NULL,
    source TEXT,
    propensity REAL,
    hint TEXT,
    weight REAL NOT NULL,
    try_no INTEGER NOT NULL,
    shadow_fetcher TEXT,
    rule TEXT,
    confidence REAL,
    arm TEXT,
    domain TEXT,
    site TEXT,
    cost REAL NOT NULL,
    bytes INTEGER,
    visit TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE attempt_heuristics (
    attempt TEXT NOT NULL REFERENCES fetcher_attempts (id),
    heuristic_type TEXT NOT NULL,
    heuristic_value TEXT NOT NULL,
    importance_score REAL
);
BEGIN;";

const INDEXES: &str = "
COMMIT;
CREATE INDEX idx_attempts_time ON fetcher_attempts (attempted_at);
CREATE INDEX idx_attempts_domain ON fetcher_attempts (domain);
CREATE INDEX idx_heur_type_value ON attempt_heuristics (heuristic_type, heuristic_value);
CREATE INDEX idx_heur_attempt ON attempt_heuristics (attempt);";

const ATTEMPT: &str = "INSERT INTO fetcher_attempts VALUES
    (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
     ?23, ?24, ?25)";
const HEURISTIC: &str = "INSERT INTO attempt_heuristics VALUES (?1, ?2, ?3, ?4)";

/// A database that is being written.
pub(crate) struct SqliteOut {
    connection: Connection,
    part: TempPath,
    path: PathBuf,
}

impl SqliteOut {
    /// Creates the database that will appear at `path`.
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        if path.exists() {
            return Err(Failure::usage(format_args!("{} already exists", shown(path)))
                .advise("choose another file: export does not add to a database"));
        }
        let folder =
            path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let part = part_file(folder).map_err(|error| cannot_write(path, &error))?.into_temp_path();
        let connection = Connection::open(&part).map_err(|error| failed(path, &error))?;
        connection.execute_batch(TABLES).map_err(|error| failed(path, &error))?;
        Ok(Self { connection, part, path: path.to_owned() })
    }

    /// Adds an attempt.
    pub(crate) fn add(&mut self, attempt: &Attempt, flat: &FlatColumns) -> Result<(), Failure> {
        self.insert(attempt, flat).map_err(|error| failed(&self.path, &error))
    }

    fn insert(&self, a: &Attempt, flat: &FlatColumns) -> rusqlite::Result<()> {
        let (id, headers) = (a.id.to_string(), headers(a));
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.statement(ATTEMPT)?.execute(params![
            id,
            a.link,
            a.url,
            a.fetcher,
            a.success,
            a.is_banned,
            a.error_type.as_ref().map(ErrorType::name),
            a.http_status,
            headers,
            whole(a.duration_ms),
            rfc3339::format(a.attempted_at),
            a.source,
            a.propensity,
            a.hint.map(Hint::name),
            a.weight,
            a.try_no,
            a.shadow_fetcher,
            a.rule,
            a.confidence,
            a.arm.map(fetchwise::attempt::Arm::name),
            flat.domain,
            flat.site,
            flat.cost,
            flat.bytes.map(whole),
            flat.visit.to_string(),
        ])?;
        let mut heuristic = self.statement(HEURISTIC)?;
        for tag in &a.heuristics {
            heuristic.execute(params![
                id,
                tag.heuristic.kind,
                tag.heuristic.value,
                tag.importance
            ])?;
        }
        Ok(())
    }

    fn statement(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection.prepare_cached(sql)
    }

    /// Creates the indexes and moves the database to its path.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let Self { connection, part, path } = self;
        connection.execute_batch(INDEXES).map_err(|error| failed(&path, &error))?;
        connection.close().map_err(|(_, error)| failed(&path, &error))?;
        part.persist_noclobber(&path).map_err(|error| cannot_write(&path, &error.error))
    }
}

/// Returns the headers as a JSON object, as in the other formats.
fn headers(attempt: &Attempt) -> String {
    let json = serde_json::to_value(AttemptJson(attempt)).unwrap_or_default();
    json.get("response_headers").map_or_else(|| "{}".to_owned(), ToString::to_string)
}

fn failed(path: &Path, error: &rusqlite::Error) -> Failure {
    Failure::failed(format_args!("cannot write {}: {error}", shown(path)))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format_args!("cannot write {}: {error}", shown(path)))
}
