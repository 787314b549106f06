//! The crawl that the arguments and the settings stand for.
//!
//! Must not know: how it is done, and how it is shown.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::FetchArgs;
use crate::commands::fetch::shutdown;
use crate::parse::input::is_stdin;
use crate::setup::settings::Settings;
use fetchwise::pipeline::Link;
use fetchwise::robots::RobotsUse;
use fetchwise::time::Clock;
use fetchwise_crawl::{Bodies, CrawlSpec, LinkSource, Output, PauseWait};

/// Share of a gap for which a link waits at least: gaps vary by a tenth.
const MORE_THAN_A_GAP: f64 = 1.5;

/// Returns the crawl. At most `concurrency` links are at work.
pub(super) fn spec(
    args: &FetchArgs,
    settings: &Settings,
    concurrency: usize,
    prints_page: bool,
) -> CrawlSpec {
    let max_wait = settings.config.pace.max_wait.unwrap_or(fetchwise_crawl::MAX_WAIT);
    // No link ends because of the gap that its user has asked for.
    let max_wait = max_wait.max(args.pace.gap().unwrap_or_default().mul_f64(MORE_THAN_A_GAP));
    let robots = args.robots.or(settings.config.robots.mode);
    let named = Link {
        prefer: args.prefer.clone(),
        heuristics: args.tag.clone(),
        robots: robots.unwrap_or(RobotsUse::Ignore),
        ..Link::default()
    };
    CrawlSpec {
        sources: sources(args),
        // A person who names a URL wants that page; a list is a crawl.
        listed: Link { robots: robots.unwrap_or(RobotsUse::Obey), ..named.clone() },
        named,
        concurrency,
        per_host: args.pace.per_host,
        max_wait,
        pause_wait: pause_wait(args, settings, max_wait),
        grace: shutdown::GRACE,
        ordered: args.ordered,
        bodies: if prints_page { Bodies::First } else { Bodies::None },
        output: output(args),
        only: args.only.clone(),
        restart: args.restart,
    }
}

fn sources(args: &FetchArgs) -> Vec<LinkSource> {
    let of_url = |url: &String| match url.as_str() {
        "-" => LinkSource::Stdin,
        url => LinkSource::Url(url.to_owned()),
    };
    let of_file = |path: &Path| match is_stdin(path) {
        true => LinkSource::Stdin,
        false => LinkSource::File(path.to_owned()),
    };
    let retried = args.retry.iter().cloned().map(LinkSource::Results);
    args.urls.iter().map(of_url).chain(retried).chain(args.input.as_deref().map(of_file)).collect()
}

fn output(args: &FetchArgs) -> Option<Output> {
    match (&args.out, &args.warc) {
        (Some(out), _) if is_stdin(out) => Some(Output::Named("stdout".to_owned())),
        (Some(folder), _) => Some(Output::Folder(folder.clone())),
        (None, Some(archive)) => Some(Output::Archive(archive.clone())),
        (None, None) => args.parquet.as_deref().map(|file| Output::Archive(in_real_folder(file))),
    }
}

/// Returns the path of a file that may not exist yet, in its folder without links: the run is the
/// same once it exists.
fn in_real_folder(file: &Path) -> PathBuf {
    let folder =
        file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), file.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => file.to_owned(),
    }
}

/// Returns how long the run waits for paused links once all others are done.
fn pause_wait(args: &FetchArgs, settings: &Settings, max_wait: Duration) -> PauseWait {
    match (args.wait, &*settings.clock) {
        // With a fixed clock no pause ends.
        (_, Clock::Fixed(_)) => PauseWait::AtMost(Duration::ZERO),
        (Some(wait), Clock::System) => wait,
        // A person who names a URL wants an answer now; a list is a crawl.
        (None, Clock::System) if args.has_list() => PauseWait::AtMost(max_wait),
        (None, Clock::System) => PauseWait::AtMost(Duration::ZERO),
    }
}
