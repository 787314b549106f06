//! Which fetchers are to be had here: what `fetch` can use, and why it cannot use the others.
//!
//! Owns the one answer for all commands, so that `select` and `explain` consider what `fetch` would. Starts nothing.

use std::path::PathBuf;

use clap::Args;

use super::failure::Failure;
use super::settings::Settings;
use fetchwise::config::FetcherConfig;
use fetchwise::fetch::browser::BrowserFetcher;
use fetchwise::registry::{PROBE_FETCHER, canonical};

/// Which browser there is, for every command that fetches or says how it would.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct BrowserArgs {
    /// The browser [default: $FETCHWISE_CHROMIUM, or the first one on the PATH]
    #[arg(long, value_name = "PATH", conflicts_with = "no_browser")]
    pub(crate) chromium: Option<PathBuf>,
    /// Do without a browser
    #[arg(long)]
    pub(crate) no_browser: bool,
}

/// The names of the fetchers that are browsers.
const BROWSERS: [&str; 2] = ["playwright", "playwright_stealth"];

/// The fetchers that are to be had.
#[derive(Debug)]
pub(crate) struct Available<'s> {
    configured: &'s [FetcherConfig],
    /// The browser's program, or why there is none.
    pub(crate) browser: Result<PathBuf, NoBrowser>,
}

/// Why there is no browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoBrowser {
    /// Nobody wants one.
    Unwanted,
    /// None is found; the text says how to install one.
    Missing(String),
}

impl NoBrowser {
    /// The reason in words.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Unwanted => "there is to be no browser",
            Self::Missing(reason) => reason,
        }
    }
}

impl<'s> Available<'s> {
    /// Looks what there is.
    ///
    /// # Errors
    /// When a browser is named that is not there.
    pub(crate) fn find(settings: &'s Settings, wanted: &BrowserArgs) -> Result<Self, Failure> {
        let config = &settings.config;
        let found = Self { configured: &config.fetchers, browser: Err(NoBrowser::Unwanted) };
        let is_off = wanted.no_browser || wanted.chromium.is_none() && config.browser.enabled == Some(false);
        if is_off || !BROWSERS.iter().any(|name| found.is_shipped_and_wanted(name)) {
            return Ok(found);
        }
        let browser = match BrowserFetcher::find(wanted.chromium.as_deref().or(config.browser.path.as_deref())) {
            Ok(program) => Ok(program),
            Err(missing) if missing.named.is_some() => return Err(Failure::usage(missing)),
            Err(missing) => Err(NoBrowser::Missing(missing.to_string())),
        };
        Ok(Self { browser, ..found })
    }

    /// Whether the fetcher that fetchwise itself brings under this name is to be used: the config names it, or names none.
    pub(crate) fn is_shipped_and_wanted(&self, name: &str) -> bool {
        let mut configured = self.configured.iter().filter(|fetcher| canonical(&fetcher.name) == name);
        self.configured.is_empty() || configured.any(|fetcher| fetcher.command.is_none())
    }

    /// The fetchers of the config that somebody else brings: without a command, and not shipped.
    pub(crate) fn elsewhere(&self) -> impl Iterator<Item = &'s str> {
        let all = self.configured.iter().filter(|fetcher| fetcher.command.is_none());
        all.map(|fetcher| canonical(&fetcher.name)).filter(|name| *name != PROBE_FETCHER && !BROWSERS.contains(name))
    }

    /// Why the candidate called `name` is not to be had; none when it is. What the config names without a command, and
    /// fetchwise does not bring, counts as there: whoever wrote the config has it.
    pub(crate) fn why_not(&self, name: &str) -> Option<&str> {
        match name {
            PROBE_FETCHER => None,
            browser if BROWSERS.contains(&browser) && self.is_shipped_and_wanted(browser) => {
                self.browser.as_ref().err().map(NoBrowser::reason)
            }
            _ if self.configured.is_empty() => Some("fetchwise does not bring it, and no config gives it a command"),
            _ => None,
        }
    }
}
