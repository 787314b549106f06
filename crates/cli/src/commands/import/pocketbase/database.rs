//! Tables of a PocketBase database, read with SQLite.
//!
//! Invariants: a missing table or column counts as empty, except the columns that an attempt
//! requires. Attempts come in the order of their times. The file may come from anyone: only
//! ordinary tables are read, once their pages are found sound, and the work is bounded by the
//! length of the file.
//!
//! Must not know: the meaning of rows.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row};

use super::row::{AttemptReader, LinkRow, ReadRow};
use crate::terminal::exit::Failure;
use crate::terminal::output::{plain, shown};

/// The database file in PocketBase's directory.
const FILE: &str = "data.db";
/// Columns of `fetcher_attempts`, in the order of [`AttemptReader`].
const ATTEMPT: [&[&str]; 11] = [
    &["id"],
    &["url"],
    &["fetcher"],
    &["success"],
    &["attempted_at", "created"],
    &["link"],
    &["is_banned"],
    &["error_type"],
    &["http_status"],
    &["response_headers"],
    &["duration_ms"],
];
/// The number of columns that an attempt requires.
const NEEDED: usize = 5;
/// Columns of `attempt_heuristics`.
const HEURISTIC: [&[&str]; 3] = [&["heuristic_type"], &["heuristic_value"], &["importance_score"]];
/// Columns of `links`, in the order of [`LinkRow::read`].
const LINK: [&[&str]; 8] = [
    &["id"],
    &["url", "initial_url"],
    &["paused_until"],
    &["risk_level"],
    &["attempt_count"],
    &["last_attempt_at"],
    &["learning_mode_override"],
    &["learning_mode_enabled"],
];

/// The tables that are read.
const TABLES: [&str; 4] = ["fetcher_attempts", "attempt_heuristics", "links", "fetcher_router"];
/// The maximum length of a value or a row. A line of an import is shorter.
const MAX_VALUE_BYTES: i32 = 16 << 20;
/// The maximum length of a statement in the file, such as the definition of a table.
const MAX_SQL_BYTES: i32 = 1 << 20;
/// The memory of SQLite, for the whole process.
const MAX_HEAP_BYTES: i64 = 256 << 20;
/// The steps of SQLite's machine that any file may take, and those per byte of the file. Reading,
/// sorting and joining takes about a hundred steps for a row, and a row has dozens of bytes.
const STEPS: (u64, u64) = (50_000_000, 100);
/// The steps between two checks of their number.
const CHECK_EVERY: i32 = 10_000;

/// A database that is open for reading.
pub(super) struct Database {
    connection: Connection,
    path: PathBuf,
    name: String,
}

impl Database {
    /// Opens the file at `path`, or `data.db` in the directory there.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let path = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
        if !path.is_file() {
            return Err(Failure::usage(format_args!("database {} not found", shown(&path)))
                .advise("give pb_data/data.db of PocketBase, or its directory"));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            open_within_limits(&path, flags).map_err(|error| unreadable(&path, &error))?;
        let name = path.to_string_lossy().into_owned();
        let database = Self { connection, path, name };
        for table in TABLES {
            database.check(table)?;
        }
        if database.columns("fetcher_attempts")?.is_empty() {
            return Err(Failure::usage(format_args!("{} has no table fetcher_attempts", database.name))
                .advise("check that it is data.db of the crawler, not auxiliary.db, which holds PocketBase's logs"));
        }
        Ok(database)
    }

    /// Checks that a table, if it is there, is an ordinary one whose pages are sound. A view or a
    /// virtual table runs what the file says, and damaged pages can lead in circles.
    fn check(&self, table: &str) -> Result<(), Failure> {
        let fail = |error: rusqlite::Error| self.unreadable(&error);
        let sql = "SELECT type, coalesce(sql, '') FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')";
        let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
        let found = self.connection.query_row(sql, [table], read).optional().map_err(fail)?;
        let Some((kind, definition)) = found else { return Ok(()) };
        let refuse = |what: &str| {
            Err(Failure::usage(format_args!("{}: {table} is {what}", self.name))
                .advise("give PocketBase's own database, whose collections are tables"))
        };
        let is_virtual = definition
            .split_whitespace()
            .nth(1)
            .is_some_and(|word| word.eq_ignore_ascii_case("virtual"));
        match &*kind {
            "table" if is_virtual => return refuse("a virtual table"),
            "table" => {}
            _ => return refuse("a view"),
        }
        if self
            .connection
            .prepare(&format!("SELECT rowid FROM {table}"))
            .is_err_and(|error| is_of_sql(&error))
        {
            return refuse("a table without row numbers");
        }
        let check = format!("SELECT * FROM pragma_quick_check('{table}') LIMIT 1");
        let found: String =
            self.connection.query_row(&check, (), |row| row.get(0)).map_err(fail)?;
        match &*found {
            "ok" => Ok(()),
            damage => Err(Failure::failed(format_args!(
                "cannot read {}: {table} is damaged: {}",
                shown(&self.path),
                plain(damage.lines().next().unwrap_or_default())
            ))),
        }
    }

    /// Returns the name of the database for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of rows of a table.
    pub(super) fn count(&self, table: &str) -> Result<u64, Failure> {
        let count =
            self.connection.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| {
                row.get::<_, i64>(0)
            });
        Ok(count.map_err(|error| self.unreadable(&error))?.unsigned_abs())
    }

    /// Passes each attempt with its heuristics to `f`, the oldest first.
    pub(super) fn attempts(
        &self,
        mut f: impl FnMut(ReadRow) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let columns = self.columns("fetcher_attempts")?;
        if let Some(missing) =
            ATTEMPT[..NEEDED].iter().find(|names| present(&columns, names).is_none())
        {
            return Err(Failure::failed(format_args!(
                "{}: fetcher_attempts has no column {}",
                self.name, missing[0]
            )));
        }
        let chosen: Vec<String> =
            ATTEMPT.iter().map(|names| column("a", &columns, names)).collect();
        let tags = self.columns("attempt_heuristics")?;
        let has_tags = present(&tags, &["attempt"]).is_some()
            && HEURISTIC[..2].iter().all(|n| present(&tags, n).is_some());
        let (chosen_tags, join): (Vec<String>, &str) = match has_tags {
            // Each of several attempts with one id would get all heuristics of that id.
            true if self.has_shared_id()? => {
                return Err(Failure::failed(format_args!(
                    "{}: fetcher_attempts has an id more than once",
                    self.name
                )));
            }
            true => (
                HEURISTIC.iter().map(|names| column("h", &tags, names)).collect(),
                "LEFT JOIN attempt_heuristics h ON h.attempt = a.id",
            ),
            false => (vec!["NULL".to_owned(); HEURISTIC.len()], ""),
        };
        let sql = format!(
            "SELECT a.rowid, {}, {} FROM fetcher_attempts a {join} ORDER BY {}, a.rowid",
            chosen.join(", "),
            chosen_tags.join(", "),
            chosen[4]
        );
        let fail = |error: rusqlite::Error| self.unreadable(&error);
        let mut statement = self.connection.prepare(&sql).map_err(fail)?;
        let mut rows = statement.query(()).map_err(fail)?;
        let mut current: Option<(i64, AttemptReader)> = None;
        while let Some(row) = rows.next().map_err(fail)? {
            let number: i64 = row.get(0).map_err(fail)?;
            if current.as_ref().is_none_or(|(open, _)| *open != number) {
                if let Some((_, done)) = current.take() {
                    f(done.end())?;
                }
                current = Some((
                    number,
                    AttemptReader::begin(
                        number,
                        values::<{ ATTEMPT.len() }>(row, 1).map_err(fail)?,
                    ),
                ));
            }
            if let Some((_, reading)) = &mut current {
                reading.tag(values::<{ HEURISTIC.len() }>(row, 1 + ATTEMPT.len()).map_err(fail)?);
            }
        }
        match current {
            Some((_, done)) => f(done.end()),
            None => Ok(()),
        }
    }

    /// Returns whether several attempts have the same id.
    fn has_shared_id(&self) -> Result<bool, Failure> {
        let sql = "SELECT 1 FROM fetcher_attempts GROUP BY id HAVING count(*) > 1 LIMIT 1";
        let found = self.connection.query_row(sql, (), |_| Ok(())).optional();
        found.map(|found| found.is_some()).map_err(|error| self.unreadable(&error))
    }

    /// Returns the links by id. Leaves out links whose URL cannot be fetched: they can have no
    /// attempts either.
    pub(super) fn links(&self) -> Result<HashMap<String, LinkRow>, Failure> {
        let mut links = HashMap::new();
        self.each("links", &LINK, 2, |values| {
            if let Some(link) = LinkRow::read(values) {
                links.insert(link.id.clone(), link);
            }
        })?;
        Ok(links)
    }

    /// Returns the router table: domains and fetchers, ordered by domain.
    pub(super) fn routes(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut routes = Vec::new();
        self.each(
            "fetcher_router",
            &[&["domain"], &["fetcher"]],
            2,
            |[domain, fetcher]: [Value; 2]| {
                if let (Value::Text(domain), Value::Text(fetcher)) = (domain, fetcher)
                    && !domain.trim().is_empty()
                    && !fetcher.trim().is_empty()
                {
                    routes.push((domain.trim().to_owned(), fetcher.trim().to_owned()));
                }
            },
        )?;
        routes.sort();
        routes.dedup();
        Ok(routes)
    }

    /// Passes each row of a table to `f`; no row if the table or one of the first `needed` columns
    /// is missing.
    fn each<const N: usize>(
        &self,
        table: &str,
        wanted: &[&[&str]; N],
        needed: usize,
        mut f: impl FnMut([Value; N]),
    ) -> Result<(), Failure> {
        let columns = self.columns(table)?;
        if wanted[..needed].iter().any(|names| present(&columns, names).is_none()) {
            return Ok(());
        }
        let chosen: Vec<String> = wanted.iter().map(|names| column("t", &columns, names)).collect();
        let fail = |error: rusqlite::Error| self.unreadable(&error);
        let sql = format!("SELECT {} FROM {table} t", chosen.join(", "));
        let mut statement = self.connection.prepare(&sql).map_err(fail)?;
        let mut rows = statement.query(()).map_err(fail)?;
        while let Some(row) = rows.next().map_err(fail)? {
            f(values(row, 0).map_err(fail)?);
        }
        Ok(())
    }

    /// Returns the columns of a table; none if the table is missing.
    fn columns(&self, table: &str) -> Result<Vec<String>, Failure> {
        let fail = |error: rusqlite::Error| self.unreadable(&error);
        let mut statement =
            self.connection.prepare("SELECT name FROM pragma_table_info(?1)").map_err(fail)?;
        let names = statement.query_map([table], |row| row.get(0)).map_err(fail)?;
        names.collect::<Result<_, _>>().map_err(fail)
    }

    fn unreadable(&self, error: &rusqlite::Error) -> Failure {
        unreadable(&self.path, error)
    }
}

/// Opens a database of somebody else for reading.
fn open_within_limits(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_with_flags(path, flags)?;
    let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let mut left =
        STEPS.0.saturating_add(bytes.saturating_mul(STEPS.1)) / CHECK_EVERY.unsigned_abs() as u64;
    let is_over = move || {
        left = left.saturating_sub(1);
        left == 0
    };
    connection.progress_handler(CHECK_EVERY, Some(is_over))?;
    for (limit, most) in [
        (Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_SQL_BYTES),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, most)?;
    }
    for (setting, value) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
    ] {
        connection.set_db_config(setting, value)?;
    }
    connection.pragma_update(None, "hard_heap_limit", MAX_HEAP_BYTES)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "ignore_check_constraints", true)?;
    Ok(connection)
}

/// Returns whether an error is one of a statement, not of the file.
fn is_of_sql(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::Unknown) | None)
}

fn unreadable(path: &Path, error: &rusqlite::Error) -> Failure {
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => Failure::failed(format_args!(
            "cannot read {}: it takes more steps than a database of its length needs",
            shown(path)
        )),
        _ => Failure::failed(format_args!("cannot read {}: {error}", shown(path))),
    }
}

/// Returns the first of `names` that is a column.
fn present<'n>(columns: &[String], names: &[&'n str]) -> Option<&'n str> {
    names
        .iter()
        .copied()
        .find(|name| columns.iter().any(|column| column.eq_ignore_ascii_case(name)))
}

fn column(table: &str, columns: &[String], names: &[&str]) -> String {
    present(columns, names).map_or_else(|| "NULL".to_owned(), |name| format!("{table}.{name}"))
}

/// Returns the values of `N` columns from `first` on. Invalid UTF-8 is replaced.
fn values<const N: usize>(row: &Row<'_>, first: usize) -> rusqlite::Result<[Value; N]> {
    let mut values = [const { Value::Null }; N];
    for (at, value) in values.iter_mut().enumerate() {
        *value = match row.get_ref(first + at)? {
            ValueRef::Text(bytes) => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::Integer(number),
            ValueRef::Real(number) => Value::Real(number),
            ValueRef::Blob(bytes) => Value::Blob(bytes.to_owned()),
        };
    }
    Ok(values)
}
