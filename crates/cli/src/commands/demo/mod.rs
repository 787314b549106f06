//! `demo`: a town of web sites on loopback, crawled for real, round after round, so that one sees learning happen.
//!
//! One page of each site a round, all sites at once. What is shown is what the pipeline reports and what the sites have counted;
//! nothing is acted out. `story` is what happened so far and `show` who shares it, `watched` makes it happen for somebody who watches,
//! `view` draws it, `screen` has the terminal; `plain` does all of it for a file or a pipe. `served` is the dashboard over either.

use std::io::IsTerminal;

use clap::Args;
use fetchwise_testsite::demo_sites::DemoSite;
use fetchwise_testsite::origin::Origin;

use crate::setup::fetcher_availability::BrowserArgs;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::Out;

mod baselines;
mod dashboard;
mod interactive;
mod model;
mod plain;
mod screen;
mod shared_model;
mod view;

/// Crawl a small town of web sites on this machine and watch learning happen
///
/// Sites of every temper (static, a React app, behind a challenge, PDF, flaky, drifting, closed, rate-limited) are served on
/// loopback and crawled for real, round after round. On a terminal the town is drawn as it is crawled: probes fade, a site is
/// rebuilt and learned anew, a host is paused and tried again, a pace is found; beside it a crawler that always asks directly and
/// one that always uses a browser visit a town of their own, and at the end one sees what each of them cost. Provenance, and with
/// --plain, it is a table. What is learned is thrown away at the end, unless --data-dir says where to keep it.
#[derive(Debug, Args)]
#[command(after_help = "Keys: q ends it, p stops and goes on.\n\n\
    Examples:\n  fetchwise demo\n  fetchwise demo --serve\n  fetchwise demo --plain --rounds 12\n  fetchwise demo --json | jq -c '[.round, .place, .fetcher, .source]'")]
pub(crate) struct DemoArgs {
    /// Pages of each site [default: 24; 48 for the picture]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: Option<u16>,
    /// Print a table instead of the picture
    #[arg(long)]
    pub(crate) plain: bool,
    /// Serve the dashboard over it on this machine, until q or Ctrl-C
    #[arg(long)]
    pub(crate) serve: bool,
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
}

/// The town's bank takes a browser for a person when it says this word: what makes a browser stealthy is no part of the demo.
const STEALTH_AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64) stealth";

/// Runs the command.
pub(crate) fn run(args: &DemoArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    if args.plain || out.json || !can_draw() {
        plain::run(args, settings, out)
    } else {
        crate::commands::demo::interactive::run(args, settings, out)
    }
}

/// Whether there is a terminal that can be drawn on, and somebody at its keys.
fn can_draw() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal() && !is_dumb
}

/// Serves the places on loopback.
fn serve(places: &[DemoSite]) -> Result<Origin, Failure> {
    Origin::start(places.iter().map(|place| (place.host, place.site.clone())))
        .map_err(|error| Failure::failed(format_args!("cannot serve the town on loopback: {error}")))
}
