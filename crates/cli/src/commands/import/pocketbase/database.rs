//! Tables of a PocketBase database, read with SQLite.
//!
//! Invariants: a missing table or column counts as empty, except the columns that an attempt requires. Attempts come in
//! the order of their times.
//!
//! Must not know: the meaning of rows.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OpenFlags, Row};

use super::row::{AttemptReader, LinkRow, ReadRow};
use crate::terminal::exit::Failure;
use crate::terminal::output::shown;

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
        let connection = Connection::open_with_flags(&path, flags).map_err(|error| unreadable(&path, &error))?;
        let name = path.to_string_lossy().into_owned();
        let database = Self { connection, path, name };
        if database.columns("fetcher_attempts")?.is_empty() {
            return Err(Failure::usage(format_args!("{} has no table fetcher_attempts", database.name))
                .advise("check that it is data.db of the crawler, not auxiliary.db, which holds PocketBase's logs"));
        }
        Ok(database)
    }

    /// Returns the name of the database for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of rows of a table.
    pub(super) fn count(&self, table: &str) -> Result<u64, Failure> {
        let count = self.connection.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get::<_, i64>(0));
        Ok(count.map_err(|error| self.unreadable(&error))?.unsigned_abs())
    }

    /// Passes each attempt with its heuristics to `f`, the oldest first.
    pub(super) fn attempts(&self, mut f: impl FnMut(ReadRow) -> Result<(), Failure>) -> Result<(), Failure> {
        let columns = self.columns("fetcher_attempts")?;
        if let Some(missing) = ATTEMPT[..NEEDED].iter().find(|names| present(&columns, names).is_none()) {
            return Err(Failure::failed(format_args!("{}: fetcher_attempts has no column {}", self.name, missing[0])));
        }
        let chosen: Vec<String> = ATTEMPT.iter().map(|names| column("a", &columns, names)).collect();
        let tags = self.columns("attempt_heuristics")?;
        let has_tags =
            present(&tags, &["attempt"]).is_some() && HEURISTIC[..2].iter().all(|n| present(&tags, n).is_some());
        let (chosen_tags, join): (Vec<String>, &str) = match has_tags {
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
                current =
                    Some((number, AttemptReader::begin(number, values::<{ ATTEMPT.len() }>(row, 1).map_err(fail)?)));
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

    /// Returns the links by id. Leaves out links whose URL cannot be fetched: they can have no attempts either.
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
        self.each("fetcher_router", &[&["domain"], &["fetcher"]], 2, |[domain, fetcher]: [Value; 2]| {
            if let (Value::Text(domain), Value::Text(fetcher)) = (domain, fetcher)
                && !domain.trim().is_empty()
                && !fetcher.trim().is_empty()
            {
                routes.push((domain.trim().to_owned(), fetcher.trim().to_owned()));
            }
        })?;
        routes.sort();
        routes.dedup();
        Ok(routes)
    }

    /// Passes each row of a table to `f`; no row if the table or one of the first `needed` columns is missing.
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
        let mut statement = self.connection.prepare("SELECT name FROM pragma_table_info(?1)").map_err(fail)?;
        let names = statement.query_map([table], |row| row.get(0)).map_err(fail)?;
        names.collect::<Result<_, _>>().map_err(fail)
    }

    fn unreadable(&self, error: &rusqlite::Error) -> Failure {
        unreadable(&self.path, error)
    }
}

fn unreadable(path: &Path, error: &rusqlite::Error) -> Failure {
    Failure::failed(format_args!("cannot read {}: {error}", shown(path)))
}

/// Returns the first of `names` that is a column.
fn present<'n>(columns: &[String], names: &[&'n str]) -> Option<&'n str> {
    names.iter().copied().find(|name| columns.iter().any(|column| column.eq_ignore_ascii_case(name)))
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
