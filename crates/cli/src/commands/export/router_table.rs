//! A router table from learned evidence: for each known domain, the fetcher that would be used.
//!
//! Evidence contains only hashes of domains. Their names come from attempts and, for compacted
//! attempts, from the paces, pauses and links that snapshots keep.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use url::Url;

use crate::setup::log_scan;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, note, shown};
use fetchwise::attempt::Attempt;
use fetchwise::config::{LearnedRoute, learned_table};
use fetchwise::decision::Source;
use fetchwise::heuristic::url::parse;
use fetchwise::pace::{Level, Pace};
use fetchwise::score;
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::Timestamp;

/// The options of the export.
pub(crate) struct TableExport<'p> {
    /// The file to write; `-` is stdout.
    pub(crate) path: &'p Path,
    pub(crate) is_toml: bool,
    /// Whether to overwrite an existing file.
    pub(crate) is_forced: bool,
    /// Whether to include domains without confident evidence.
    pub(crate) all: bool,
}

#[derive(Serialize)]
struct WrittenJson {
    file: String,
    routes: usize,
    left_out: usize,
}

/// What is known about a domain besides evidence.
#[derive(Default)]
struct DomainSummary {
    /// The front page, from its newest attempt; none without attempts.
    front: Option<Url>,
    attempts: HashMap<String, u64>,
}

/// Writes the router table.
pub(crate) fn run(
    table_export: &TableExport<'_>,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let is_stdout = table_export.path.as_os_str() == "-";
    if !is_stdout && !table_export.is_forced && table_export.path.exists() {
        return Err(file_exists(table_export.path));
    }
    let quiet = score::Settings {
        // A router table must not depend on chance.
        explore_rate: 0.0,
        explore_stale_rate: 0.0,
        max_explore_rate: 0.0,
        last_ditch: 0.0,
        impassable_try_rate: 0.0,
        ..settings.config.settings()
    };
    let dir = settings.data_dir()?;
    let (selector, _) = settings.load_selector_with(|builder| {
        builder.settings(quiet).pace(settings.inspection_pace()).keep_evicted_in(dir)
    })?;
    let mut domains: BTreeMap<String, DomainSummary> = BTreeMap::new();
    log_scan::attempts(&settings.existing_dir()?, |attempt| observe(&mut domains, &attempt))?;
    for domain in named_domains(&selector, settings.clock.now()) {
        domains.entry(domain).or_default();
    }
    let all = domains.len();
    let routes: Vec<LearnedRoute> = domains
        .iter()
        .filter_map(|(domain, seen)| route(table_export, settings, &selector, domain, seen))
        .collect();
    let (text, left_out) = (learned_table(&routes, table_export.is_toml), all - routes.len());
    if is_stdout {
        out.write_unchanged()?;
        out.raw(text.as_bytes())?;
    } else {
        write(table_export, &text)?;
    }
    let file = shown(table_export.path);
    if out.json && !is_stdout {
        out.object(&WrittenJson { file, routes: routes.len(), left_out })?;
    } else {
        let why = match left_out {
            0 => String::new(),
            n => format!(
                "; {n} more lack confident evidence (--all includes those with any evidence)"
            ),
        };
        note(format_args!("{} domains{why}", routes.len()));
    }
    Ok(Exit::Done)
}

fn observe(domains: &mut BTreeMap<String, DomainSummary>, attempt: &Attempt) {
    let Some(domain) = attempt.heuristic("domain") else { return };
    if !domains.contains_key(domain) {
        domains.insert(domain.to_owned(), DomainSummary::default());
    }
    let Some(seen) = domains.get_mut(domain) else { return };
    seen.front = parse(&attempt.url).ok().and_then(|url| url.join("/").ok());
    match seen.attempts.get_mut(&attempt.fetcher) {
        Some(count) => *count += 1,
        None => drop(seen.attempts.insert(attempt.fetcher.clone(), 1)),
    }
}

/// Returns the domains that something other than an attempt names.
fn named_domains(selector: &Selector, now: Timestamp) -> Vec<String> {
    let paces = selector.pace().map(Pace::hosts).unwrap_or_default();
    let paces =
        paces.into_iter().filter(|(level, _)| *level == Level::Host).map(|(_, name)| name.into());
    let paused = selector.paused_hosts(now).into_iter().map(|host| host.domain);
    let links = selector.links_at_risk().into_iter().filter_map(|link| link.domain);
    paces.chain(paused).chain(links).collect()
}

/// Returns the route of a domain if there is enough evidence.
fn route(
    table_export: &TableExport<'_>,
    settings: &Settings,
    selector: &Selector,
    domain: &str,
    seen: &DomainSummary,
) -> Option<LearnedRoute> {
    let front = || parse(&format!("https://{domain}/")).ok();
    let url = seen.front.clone().or_else(front)?;
    // A pause affects the time of a request, not the fetcher.
    let situation =
        SelectContext { host_trial: true, ..SelectContext::first_attempt(settings.clock.now()) };
    selector.bring_back(&url, &[]);
    let take = selector.select(&url, &situation).ok()?.selected()?;
    let fetcher = selector.fetcher_name(take.fetcher).to_owned();
    // Evidence includes compacted attempts, but only those at pages.
    let explanation = selector.explain(&url, &situation).ok()?;
    let of_domain =
        explanation.steps.iter().find(|step| step.kind == "domain" && step.fetcher == fetcher);
    let attempts = seen.attempts.get(&fetcher).copied().unwrap_or_default();
    let attempts = attempts.max(of_domain.map_or(0, |step| step.attempts.into()));
    let is_known =
        take.source == Source::Learned || table_export.all && take.source == Source::Inferred;
    is_known.then(|| LearnedRoute {
        domain: domain.to_owned(),
        fetcher,
        confidence: take.confidence,
        attempts,
    })
}

fn file_exists(path: &Path) -> Failure {
    Failure::usage(format_args!("{} already exists", shown(path))).advise(
        "export writes the router table to it: choose a new file, or overwrite it with --force",
    )
}

fn write(table_export: &TableExport<'_>, text: &str) -> Result<(), Failure> {
    let opened = match table_export.is_forced {
        true => File::create(table_export.path),
        false => OpenOptions::new().write(true).create_new(true).open(table_export.path),
    };
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => file_exists(table_export.path),
        _ => Failure::failed(format_args!("cannot write {}: {error}", shown(table_export.path))),
    })
}
