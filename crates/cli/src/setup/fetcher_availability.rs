//! The availability of fetchers here: those that `fetch` can use, and why it cannot use the others.
//!
//! Owns: this answer for all commands, so that `select` and `explain` consider the same fetchers as
//! `fetch`.
//!
//! Invariants: starts no process and sends no request.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use clap::Args;

use super::settings::Settings;
use crate::terminal::exit::Failure;
use fetchwise::config::{DownloadConfig, FetchMethod, FetcherConfig, SearchConfig};
use fetchwise::fetch::browser::BrowserFetcher;
use fetchwise::registry::{BUILT_IN, PROBE_FETCHER, canonical};

/// The choice of the browser, for every command that fetches or explains decisions.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct BrowserArgs {
    /// Use this browser [default: $FETCHWISE_CHROMIUM, or the first one on the PATH]
    #[arg(long, value_name = "PATH", conflicts_with = "no_browser")]
    pub(crate) chromium: Option<PathBuf>,
    /// Use no browser
    #[arg(long)]
    pub(crate) no_browser: bool,
}

/// The names of the browser fetchers.
const BROWSERS: [&str; 3] = ["playwright", "playwright_stealth", "browser_signed"];

/// The reason for a fetcher that the config lists and another program provides.
const THIRD_PARTY: &str =
    "the config does not say how it gets pages, and fetchwise does not provide it";
/// The reason for a fetcher that fetchwise provides on request only.
const NOT_CONFIGURED: &str = "a config must list it as a [[fetcher]]";
/// The reason for an unknown fetcher.
const UNKNOWN: &str = "fetchwise does not provide it, and no config gives it a command";

/// The fetchers that are available here.
#[derive(Debug)]
pub(crate) struct FetcherAvailability<'s> {
    configured: &'s [FetcherConfig],
    /// The reasons of the config's fetchers that are unavailable.
    lacking: BTreeMap<&'s str, String>,
    /// The path of the browser, or why there is none.
    pub(crate) browser: Result<PathBuf, NoBrowser>,
}

/// Why there is no browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoBrowser {
    /// The command line or the config turns it off, or no fetcher needs it.
    Unwanted,
    /// No browser was found; the text says how to install one.
    Missing(String),
}

impl NoBrowser {
    /// Returns the reason as text.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Unwanted => "the browser is turned off",
            Self::Missing(reason) => reason,
        }
    }
}

impl<'s> FetcherAvailability<'s> {
    /// Finds out which fetchers are available.
    ///
    /// # Errors
    /// Fails if the command line or the settings name a browser that does not exist.
    pub(crate) fn find(settings: &'s Settings, wanted: &BrowserArgs) -> Result<Self, Failure> {
        let config = &settings.config;
        let lacks = |fetcher: &'s FetcherConfig| Some((canonical(&fetcher.name), lack(fetcher)?));
        let lacking = config.fetchers.iter().filter_map(lacks).collect();
        let found =
            Self { configured: &config.fetchers, lacking, browser: Err(NoBrowser::Unwanted) };
        let is_off =
            wanted.no_browser || wanted.chromium.is_none() && config.browser.enabled == Some(false);
        let mut likenesses = config.fetchers.iter().map(FetcherConfig::method);
        let is_wanted = BROWSERS.iter().any(|name| found.is_shipped_and_wanted(name))
            || likenesses.any(
                |method| matches!(method, FetchMethod::Like(like) if BROWSERS.contains(&like)),
            );
        if is_off || !is_wanted {
            return Ok(found);
        }
        let browser =
            match BrowserFetcher::find(wanted.chromium.as_deref().or(settings.browser_path())) {
                Ok(program) => Ok(program),
                Err(missing) if missing.named.is_some() => return Err(Failure::usage(missing)),
                Err(missing) => Err(NoBrowser::Missing(missing.to_string())),
            };
        Ok(Self { browser, ..found })
    }

    /// Returns whether to use the fetcher that fetchwise provides under this name: the config lists
    /// it, or lists no fetcher.
    pub(crate) fn is_shipped_and_wanted(&self, name: &str) -> bool {
        let mut configured =
            self.configured.iter().filter(|fetcher| canonical(&fetcher.name) == name);
        self.configured.is_empty()
            || configured.any(|fetcher| {
                matches!(fetcher.method(), FetchMethod::Direct | FetchMethod::Browser)
            })
    }

    /// Returns the fetchers of the config that `fetch` leaves out, with the reason. A missing
    /// browser is not among them.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = (&'s str, &str)> {
        let names = self.configured.iter().map(|fetcher| canonical(&fetcher.name));
        names
            .filter(|name| !BROWSERS.contains(name))
            .filter_map(|name| Some((name, self.left_out_reason(name)?)))
    }

    /// Returns why `fetch` leaves out the candidate `name`; none if it uses it.
    pub(crate) fn left_out_reason(&self, name: &str) -> Option<&str> {
        let mut configured =
            self.configured.iter().filter(|fetcher| canonical(&fetcher.name) == name);
        let is_elsewhere = configured.any(|fetcher| fetcher.method() == FetchMethod::External);
        self.unavailable_reason(name).or_else(|| is_elsewhere.then_some(THIRD_PARTY))
    }

    /// Returns why the candidate `name` is unavailable; none if it is available. A fetcher that the
    /// config lists without a way to get pages, and that fetchwise does not provide, counts as
    /// available: the author of the config has it.
    pub(crate) fn unavailable_reason(&self, name: &str) -> Option<&str> {
        match name {
            // They need what their unsigned twins need.
            "browser_signed" => self.browser.as_ref().err().map(NoBrowser::reason),
            "direct_signed" => None,
            PROBE_FETCHER => self.lacking.get(name).map(String::as_str),
            browser if BROWSERS.contains(&browser) && self.is_shipped_and_wanted(browser) => {
                self.browser.as_ref().err().map(NoBrowser::reason)
            }
            _ if !self.configured.is_empty() => {
                let is_browser = |fetcher: &FetcherConfig| {
                    canonical(&fetcher.name) == name
                        && matches!(fetcher.method(), FetchMethod::Like(like) if BROWSERS.contains(&like))
                };
                let browser =
                    self.browser.as_ref().err().filter(|_| self.configured.iter().any(is_browser));
                self.lacking
                    .get(name)
                    .map(String::as_str)
                    .or_else(|| browser.map(NoBrowser::reason))
            }
            _ if BUILT_IN.iter().any(|(built_in, _)| *built_in == name) => Some(NOT_CONFIGURED),
            _ => Some(UNKNOWN),
        }
    }
}

/// Returns what a fetcher of the config lacks here; none if it lacks nothing that can be checked
/// offline.
fn lack(fetcher: &FetcherConfig) -> Option<String> {
    let of_proxy =
        || no_variable(fetcher.proxy_user_env.as_deref()?, "the user and password of its proxy");
    let own = match fetcher.method() {
        FetchMethod::Command(argv) => no_program(argv.first()?),
        FetchMethod::Download(download) => {
            no_program(&download_program(&download).to_string_lossy())
        }
        FetchMethod::Search(search) => {
            key_variable(&fetcher.name, &search).and_then(|name| no_variable(name, "its key"))
        }
        _ => None,
    };
    own.or_else(of_proxy)
}

/// Returns the program that downloads media.
pub(crate) fn download_program(download: &DownloadConfig) -> PathBuf {
    download.program.clone().unwrap_or_else(|| "yt-dlp".into())
}

/// Returns the environment variable that holds the key of a search API.
pub(crate) fn key_variable<'c>(name: &str, search: &'c SearchConfig) -> Option<&'c str> {
    search
        .key_env
        .as_deref()
        .or((canonical(name) == "nytime_searcher").then_some("NYTIMES_API_KEY"))
}

fn no_variable(name: &str, what: &str) -> Option<String> {
    let is_set = env::var(name).is_ok_and(|value| !value.is_empty());
    (!is_set).then(|| format!("the environment variable {name} for {what} is not set"))
}

/// Returns why `program` cannot be run: neither its path nor, for a bare name, the PATH has it.
fn no_program(program: &str) -> Option<String> {
    let is_there = match Path::new(program).components().count() {
        1 => env::split_paths(&env::var_os("PATH")?).any(|dir| dir.join(program).is_file()),
        _ => Path::new(program).is_file(),
    };
    (!is_there)
        .then(|| format!("program {program} not found, neither at that path nor on the PATH"))
}
