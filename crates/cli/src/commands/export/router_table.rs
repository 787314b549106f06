//! What was learned, as a router table: for each domain that is known the fetcher that would be taken there.
//!
//! Evidence has no names of domains, only what they come to: names are those of attempts, and, where compaction has dropped these,
//! those of paces, pauses and links, which snapshots keep.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use url::Url;

use crate::setup::log_scan;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Out, note, plain};
use fetchwise::attempt::Attempt;
use fetchwise::config::{LearnedRoute, learned_table};
use fetchwise::decision::Source;
use fetchwise::heuristic::url::parse;
use fetchwise::pace::{Level, Pace};
use fetchwise::score;
use fetchwise::selector::{Selector, SelectContext};
use fetchwise::time::Timestamp;

/// What is asked for.
pub(crate) struct Wish<'p> {
    /// Where it goes; `-` is stdout.
    pub(crate) path: &'p Path,
    pub(crate) is_toml: bool,
    /// Over a file that is there.
    pub(crate) is_forced: bool,
    /// Domains that are not known well enough, too.
    pub(crate) all: bool,
}

#[derive(Serialize)]
struct WrittenJson {
    file: String,
    routes: usize,
    left_out: usize,
}

/// What is known of a domain beside evidence.
#[derive(Default)]
struct Seen {
    /// The front page of its newest attempt; none where there is none any more.
    front: Option<Url>,
    attempts: HashMap<String, u64>,
}

/// Writes the table.
pub(crate) fn run(wish: &Wish<'_>, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let is_stdout = wish.path.as_os_str() == "-";
    if !is_stdout && !wish.is_forced && wish.path.exists() {
        return Err(there(wish.path));
    }
    let quiet = score::Settings {
        // A table has no chance in it.
        explore_rate: 0.0,
        explore_stale_rate: 0.0,
        max_explore_rate: 0.0,
        last_ditch: 0.0,
        impassable_try_rate: 0.0,
        ..settings.config.settings()
    };
    let (selector, _) = settings.learned_with(|builder| builder.settings(quiet).pace(settings.seen_pace()))?;
    let mut domains: BTreeMap<String, Seen> = BTreeMap::new();
    log_scan::attempts(&settings.existing_dir()?, |attempt| see(&mut domains, &attempt))?;
    for domain in named(&selector, settings.clock.now()) {
        domains.entry(domain).or_default();
    }
    let all = domains.len();
    let routes: Vec<LearnedRoute> =
        domains.iter().filter_map(|(domain, seen)| route(wish, settings, &selector, domain, seen)).collect();
    let (text, left_out) = (learned_table(&routes, wish.is_toml), all - routes.len());
    if is_stdout {
        out.as_it_is()?;
        out.raw(text.as_bytes())?;
    } else {
        write(wish, &text)?;
    }
    let file = plain(&wish.path.display().to_string());
    if out.json && !is_stdout {
        out.object(&WrittenJson { file, routes: routes.len(), left_out })?;
    } else {
        let why = match left_out {
            0 => String::new(),
            n => format!("; {n} more are not known well enough (--all writes those that anything is known of, too)"),
        };
        note(format_args!("{} domains{why}", routes.len()));
    }
    Ok(Exit::Done)
}

fn see(domains: &mut BTreeMap<String, Seen>, attempt: &Attempt) {
    let Some(domain) = attempt.heuristic("domain") else { return };
    if !domains.contains_key(domain) {
        domains.insert(domain.to_owned(), Seen::default());
    }
    let Some(seen) = domains.get_mut(domain) else { return };
    seen.front = parse(&attempt.url).ok().and_then(|url| url.join("/").ok());
    match seen.attempts.get_mut(&attempt.fetcher) {
        Some(count) => *count += 1,
        None => drop(seen.attempts.insert(attempt.fetcher.clone(), 1)),
    }
}

/// The domains that something else than attempts names.
fn named(selector: &Selector, now: Timestamp) -> Vec<String> {
    let paces = selector.pace().map(Pace::hosts).unwrap_or_default();
    let paces = paces.into_iter().filter(|(level, _)| *level == Level::Host).map(|(_, name)| name.into());
    let paused = selector.paused_hosts(now).into_iter().map(|host| host.domain);
    let links = selector.links_at_risk().into_iter().filter_map(|link| link.domain);
    paces.chain(paused).chain(links).collect()
}

/// The route of a domain, where enough is known of it.
fn route(wish: &Wish<'_>, settings: &Settings, selector: &Selector, domain: &str, seen: &Seen) -> Option<LearnedRoute> {
    let front = || parse(&format!("https://{domain}/")).ok();
    let url = seen.front.clone().or_else(front)?;
    // A pause says when, not by whom.
    let situation = SelectContext { host_trial: true, ..SelectContext::first_attempt(settings.clock.now()) };
    let take = selector.select(&url, &situation).ok()?.selected()?;
    let fetcher = selector.fetcher_name(take.fetcher).to_owned();
    // Evidence counts those that are compacted away, but only those at pages.
    let explanation = selector.explain(&url, &situation).ok()?;
    let of_domain = explanation.steps.iter().find(|step| step.kind == "domain" && step.fetcher == fetcher);
    let attempts = seen.attempts.get(&fetcher).copied().unwrap_or_default();
    let attempts = attempts.max(of_domain.map_or(0, |step| step.attempts.into()));
    let is_known = take.source == Source::Learned || wish.all && take.source == Source::Inferred;
    is_known.then(|| LearnedRoute { domain: domain.to_owned(), fetcher, confidence: take.confidence, attempts })
}

fn there(path: &Path) -> Failure {
    Failure::usage(format_args!("{} is there already", plain(&path.display().to_string())))
        .advise("export writes what was learned to it: name a new file, or write over it with --force")
}

fn write(wish: &Wish<'_>, text: &str) -> Result<(), Failure> {
    let opened = match wish.is_forced {
        true => File::create(wish.path),
        false => OpenOptions::new().write(true).create_new(true).open(wish.path),
    };
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => there(wish.path),
        _ => Failure::failed(format_args!("cannot write {}: {error}", plain(&wish.path.display().to_string()))),
    })
}
