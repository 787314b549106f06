//! The syntax of `demo`, which every build parses.
#![cfg_attr(not(feature = "demo"), allow(dead_code, reason = "read only with the feature demo"))]

use clap::Args;

use crate::setup::fetcher_availability::BrowserArgs;

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
    /// Fetch N pages of each site
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: u16,
    /// Print a table instead of drawing on the terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// Serve the dashboard on this machine until q or Ctrl-C
    #[arg(long)]
    pub(crate) serve: bool,
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
}
