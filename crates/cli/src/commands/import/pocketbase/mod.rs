//! Attempts, links and routes from the PocketBase database of another crawler.
//!
//! `database` reads the tables, `row` converts the rows.
//!
//! Invariants: the database is never written. Importing it again, also after it has grown, leaves
//! each attempt in the log once.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;

use super::ImportArgs;
use super::data_dir::Directory;
use super::target::{RecordPosition, Summary, Target, bar, counted};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, note, shown};
use database::Database;
use fetchwise::config::load_route_table;
use fetchwise::journal;
use fetchwise::journal::{Entry, Import, Journal, LinkEntry};
use fetchwise::time::Timestamp;
use row::{AttemptRow, LinkRow, ReadRow};

mod database;
mod row;

/// The file of the router table in the data directory.
const ROUTER_FILE: &str = "pocketbase-router.csv";
/// The file of links with their own mode in the data directory.
const LINKS_FILE: &str = "pocketbase-links.jsonl";

/// The result of the import.
#[derive(Debug, Default, Serialize)]
struct ImportCounts {
    #[serde(flatten)]
    attempts: Summary,
    /// Rows that a bootstrap wrote without an attempt. The built-in priors cover them.
    bootstrap: u64,
    /// Rows with contradictory fields, such as a success with an error, that were corrected.
    mended: u64,
    /// Links whose pause or risk was written to the log.
    links: u64,
    /// Routes in the file `router_file`.
    routes: u64,
    router_file: Option<String>,
    /// Links with their own mode, in the file `links_file`.
    overrides: u64,
    links_file: Option<String>,
}

/// Imports the database at `path`, or the one in that directory.
pub(super) fn run(
    path: &Path,
    args: &ImportArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let database = Database::open(path)?;
    let links = database.links()?;
    let into = Directory::open(args, settings)?;
    let (dir, journal) = (&into.dir, &into.journal);
    let mut imported = ImportCounts::default();
    let names = LinkNames { links: &links, with_ids: args.link_ids };
    let seen = links_in_log(dir)?;
    let import = Import::begin(dir, &into.selector)?;
    let mut target = Target { journal, import, now: settings.clock.now() };
    attempts(&database, &names, &mut target, &mut imported)?;
    for link in links.values() {
        imported.links += u64::from(keep_link(journal, link, names.of(link), &seen, target.now)?);
    }
    routes(&database, dir, &mut imported)?;
    overrides(&links, args.link_ids, dir, &mut imported)?;
    imported.attempts.fleet_notified = into.close(settings)?;
    show(&imported, out)?;
    Ok(if imported.attempts.failed > 0 { Exit::Failed } else { Exit::Done })
}

/// The names of links in the log.
struct LinkNames<'l> {
    links: &'l HashMap<String, LinkRow>,
    with_ids: bool,
}

impl LinkNames<'_> {
    fn of<'a>(&self, link: &'a LinkRow) -> &'a str {
        if self.with_ids { &link.id } else { &link.url }
    }

    /// Returns the name of an attempt's link; none, which stands for the URL, if the link's row is
    /// missing.
    fn of_attempt<'a>(&'a self, row: &'a AttemptRow) -> Option<&'a str> {
        let id = row.link.as_deref().filter(|id| !id.is_empty())?;
        if self.with_ids { Some(id) } else { self.links.get(id).map(|link| link.url.as_str()) }
    }
}

/// Returns the time of the last record in the log about each link.
fn links_in_log(dir: &Path) -> Result<HashMap<String, Timestamp>, Failure> {
    let mut seen = HashMap::new();
    journal::replay(dir, |_, entry| {
        if let Entry::Link(link) = entry {
            seen.entry(link.link)
                .and_modify(|at: &mut Timestamp| *at = (*at).max(link.at))
                .or_insert(link.at);
        }
    })?;
    Ok(seen)
}

fn attempts(
    database: &Database,
    names: &LinkNames<'_>,
    target: &mut Target<'_>,
    imported: &mut ImportCounts,
) -> Result<(), Failure> {
    let bar = bar(
        Some(database.count("fetcher_attempts")?),
        "{bar:40} {human_pos}/{human_len} attempts {eta}",
    );
    database.attempts(|read| {
        bar.inc(1);
        imported.attempts.lines += 1;
        let fail = |imported: &mut ImportCounts, row: &str, error: String| {
            imported.attempts.fail(
                database.name(),
                RecordPosition::Row(format!("fetcher_attempts {row}")),
                error,
                &bar,
            );
        };
        match read {
            ReadRow::Bootstrap => imported.bootstrap += 1,
            ReadRow::Invalid { row, error } => fail(imported, &row, error),
            ReadRow::Attempt(row) => {
                let (line, is_mended) = row.to_json_line(names.of_attempt(&row));
                match target.take(&line, &mut imported.attempts)? {
                    Ok(_) => imported.mended += u64::from(is_mended),
                    Err(error) => fail(imported, &row.id, error),
                }
            }
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// Writes the state of a link that is paused or at risk, unless the log has a later one. Returns
/// whether it did.
fn keep_link(
    journal: &Journal,
    link: &LinkRow,
    name: &str,
    seen: &HashMap<String, Timestamp>,
    now: Timestamp,
) -> Result<bool, Failure> {
    let at = link.state.last_attempt_at.unwrap_or(now).min(now);
    let is_at_risk = link.state.risk_level > 0 || link.state.paused_until.is_some();
    // A row without a time has an unknown age: the state in the log takes precedence.
    let is_known =
        seen.get(name).is_some_and(|known| link.state.last_attempt_at.is_none() || *known >= at);
    if !is_at_risk || is_known {
        return Ok(false);
    }
    journal.append_link(&LinkEntry {
        link: name.to_owned(),
        domain: link.domain.clone(),
        state: link.state,
        at,
    })?;
    Ok(true)
}

fn routes(database: &Database, dir: &Path, imported: &mut ImportCounts) -> Result<(), Failure> {
    let routes = database.routes()?;
    if routes.is_empty() {
        return Ok(());
    }
    let path = dir.join(ROUTER_FILE);
    let mut file = csv::Writer::from_path(&path).map_err(|error| cannot_write(&path, error))?;
    let written = std::iter::once(["domain", "fetcher"])
        .chain(routes.iter().map(|(domain, fetcher)| [domain.as_str(), fetcher.as_str()]))
        .try_for_each(|record| file.write_record(record))
        .and_then(|()| Ok(file.flush()?));
    written.map_err(|error| cannot_write(&path, error))?;
    // A table that names a domain twice is written anyway: a person has to choose one of the two
    // routes.
    if let Err(error) = load_route_table(&path) {
        note(format_args!("warning: the imported router table is invalid: {error}"));
    }
    imported.routes = routes.len() as u64;
    imported.router_file = Some(path.to_string_lossy().into_owned());
    Ok(())
}

/// Writes the links with their own mode in the format of `fetch --input`.
fn overrides(
    links: &HashMap<String, LinkRow>,
    with_link_ids: bool,
    dir: &Path,
    imported: &mut ImportCounts,
) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line<'a> {
        url: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        learning: bool,
    }
    let mut chosen: Vec<(&LinkRow, bool)> =
        links.values().filter_map(|link| link.learning.map(|learning| (link, learning))).collect();
    if chosen.is_empty() {
        return Ok(());
    }
    chosen.sort_by(|a, b| (&a.0.url, &a.0.id).cmp(&(&b.0.url, &b.0.id)));
    let path = dir.join(LINKS_FILE);
    let mut text = String::new();
    for (link, learning) in &chosen {
        let line = Line {
            url: &link.url,
            id: with_link_ids.then_some(link.id.as_str()),
            learning: *learning,
        };
        text.push_str(&serde_json::to_string(&line).map_err(Failure::failed)?);
        text.push('\n');
    }
    std::fs::write(&path, text).map_err(|error| cannot_write(&path, error))?;
    imported.overrides = chosen.len() as u64;
    imported.links_file = Some(path.to_string_lossy().into_owned());
    Ok(())
}

fn cannot_write(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::failed(format_args!("cannot write {}: {error}", shown(path)))
}

fn show(imported: &ImportCounts, out: &mut Output) -> Result<(), Failure> {
    imported.attempts.warn("rows");
    if out.json {
        return out.object(imported);
    }
    let mut parts = imported.attempts.parts("rows");
    if imported.bootstrap > 0 {
        parts.push(format!(
            "{} left out (the built-in priors cover them)",
            counted(imported.bootstrap, "bootstrap row")
        ));
    }
    if imported.mended > 0 {
        parts.push(format!("{} with contradictory fields corrected", imported.mended));
    }
    if imported.links > 0 {
        parts.push(format!("{} paused or at risk", counted(imported.links, "link")));
    }
    out.line(parts.join(", "))?;
    if let Some(file) = &imported.router_file {
        out.line(format_args!("{} in {file} (for --router)", counted(imported.routes, "route")))?;
    }
    if let Some(file) = &imported.links_file {
        let count = counted(imported.overrides, "link");
        out.line(format_args!("{count} with their own mode in {file} (for fetch --input)"))?;
    }
    Ok(())
}
