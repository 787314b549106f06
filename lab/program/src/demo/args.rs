//! The syntax of `demo`.

use std::path::PathBuf;

use clap::Args;
use fetchwise::fetch::browser::BrowserFetcher;

use crate::failure::Failure;

/// Crawl demo sites on this machine and watch learning happen
///
/// Serves sites of many kinds on loopback (static, a React app, behind a challenge, PDF, flaky,
/// drifting, closed, rate-limited) and crawls them round after round. On a terminal it draws the
/// crawl: probes fade, a rebuilt site is learned again, a host is paused and tried again, a pace is
/// found. Two other crawlers, one that always makes plain requests and one that always uses a
/// browser, get their own copies of the sites, and the end shows the cost of each. Elsewhere, and
/// with --plain, it prints a table. What it learns is discarded at the end unless --data-dir is
/// given.
#[derive(Debug, Args)]
#[command(after_help = "Keys: q quits, p pauses and continues.\n\n\
    Examples:\n  fetchwise-lab demo\n  fetchwise-lab demo --serve\n  fetchwise-lab demo --plain --rounds 12\n  \
    fetchwise-lab demo --json | jq -c '[.round, .place, .fetcher, .source]'")]
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
    /// Keep what is learned in this data directory [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Use this browser [default: $FETCHWISE_CHROMIUM, or the first one on the PATH]
    #[arg(long, value_name = "PATH", conflicts_with = "no_browser")]
    pub(crate) chromium: Option<PathBuf>,
    /// Use no browser
    #[arg(long)]
    pub(crate) no_browser: bool,
}

/// The browser, or why there is none.
pub(super) type Browser = Result<PathBuf, NoBrowser>;

/// Why there is no browser.
#[derive(Clone, Debug)]
pub(super) enum NoBrowser {
    /// The command line turns it off.
    Unwanted,
    /// No browser was found; the text says how to install one.
    Missing(String),
}

impl NoBrowser {
    /// Returns the reason as text.
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Unwanted => "the browser is turned off",
            Self::Missing(reason) => reason,
        }
    }
}

impl DemoArgs {
    /// Finds the browser. One that is named must exist.
    pub(super) fn browser(&self) -> Result<Browser, Failure> {
        if self.no_browser {
            return Ok(Err(NoBrowser::Unwanted));
        }
        match BrowserFetcher::find(self.chromium.as_deref()) {
            Ok(program) => Ok(Ok(program)),
            Err(missing) if missing.named.is_some() => Err(Failure::usage(missing)),
            Err(missing) => Ok(Err(NoBrowser::Missing(missing.to_string()))),
        }
    }
}
