//! `demo`: web sites on loopback, crawled round after round, so that a person sees learning happen.
//!
//! Each round fetches one page of each site, all sites at once. The demo shows only what the pipeline reports and what
//! the sites count. `model` holds the progress and `shared_model` shares it; `interactive` crawls for a terminal,
//! `view` draws, `screen` owns the terminal; `plain` does all of it for a file or a pipe. `dashboard` serves the
//! dashboard for both.

use std::io::IsTerminal;

use clap::Args;
use fetchwise_testsite::demo_sites::DemoSite;
use fetchwise_testsite::origin::Origin;

use crate::setup::fetcher_availability::BrowserArgs;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::Output;

mod baselines;
mod dashboard;
mod interactive;
mod model;
mod plain;
mod screen;
mod shared_model;
mod view;

/// Crawl demo sites on this machine and watch learning happen
///
/// Serves sites of many kinds on loopback (static, a React app, behind a challenge, PDF, flaky, drifting, closed,
/// rate-limited) and crawls them round after round. On a terminal it draws the crawl: probes fade, a rebuilt site is
/// learned again, a host is paused and tried again, a pace is found. Two other crawlers, one that always makes plain
/// requests and one that always uses a browser, get their own copies of the sites, and the end shows the cost of each.
/// Elsewhere, and with --plain, it prints a table. What it learns is discarded at the end unless --data-dir is given.
#[derive(Debug, Args)]
#[command(after_help = "Keys: q quits, p pauses and continues.\n\n\
    Examples:\n  fetchwise demo\n  fetchwise demo --serve\n  fetchwise demo --plain --rounds 12\n  \
    fetchwise demo --json | jq -c '[.round, .place, .fetcher, .source]'")]
pub(crate) struct DemoArgs {
    /// Fetch N pages of each site [default: 24, or 48 on a terminal]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: Option<u16>,
    /// Print a table instead of drawing on the terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// Serve the dashboard on this machine until q or Ctrl-C
    #[arg(long)]
    pub(crate) serve: bool,
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
}

/// The user agent that the demo's bank accepts as a person: real stealth is not part of the demo.
const STEALTH_AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64) stealth";

/// Runs the command.
pub(crate) fn run(args: &DemoArgs, settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    if args.plain || out.json || !can_draw() {
        plain::run(args, settings, out)
    } else {
        interactive::run(args, settings, out)
    }
}

/// Returns whether there is a terminal to draw on, and a keyboard.
fn can_draw() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal() && !is_dumb
}

/// Serves the sites on loopback.
fn serve(places: &[DemoSite]) -> Result<Origin, Failure> {
    Origin::start(places.iter().map(|place| (place.host, place.site.clone())))
        .map_err(|error| Failure::failed(format_args!("cannot serve the demo sites: {error}")))
}
