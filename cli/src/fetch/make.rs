//! Making the fetchers that are to be had: the shipped ones, and those of the config. Starts none of them.

use std::sync::Arc;
use std::time::Duration;

use super::assemble::Wishes;
use crate::available::{Available, NoBrowser};
use crate::failure::Failure;
use crate::out::note;
use crate::settings::Settings;
use fetchwise::config::{ArchiveConfig, FetcherConfig, Means};
use fetchwise::fetch::Fetcher;
use fetchwise::fetch::archive::{Archive, ArchiveFetcher, ArchiveOptions};
use fetchwise::fetch::browser::{BrowserFetcher, BrowserOptions, UserAgent};
use fetchwise::fetch::command::{CommandFetcher, CommandOptions};
use fetchwise::fetch::dial::Dialer;
use fetchwise::fetch::guard::AddressGuard;
use fetchwise::fetch::http::{HttpFetcher, HttpFetcherBuilder};
use fetchwise::registry::{PROBE_FETCHER, canonical};

/// Other programs get so long to end.
const CLOSE_TIME: Duration = Duration::from_secs(3);

/// The fetchers of a crawler.
pub(crate) struct Made {
    /// The plain one, which also asks for what is no page.
    pub(crate) plain: Arc<HttpFetcher>,
    /// All that are to be had.
    pub(crate) fetchers: Vec<Arc<dyn Fetcher>>,
    /// Those that are not, and why.
    pub(crate) missing: Vec<(String, String)>,
    /// Those of them that run other programs.
    pub(crate) children: Children,
}

/// Fetchers that run other programs, which are ended in good order.
#[derive(Default)]
pub(crate) struct Children {
    pub(crate) browsers: Vec<Arc<BrowserFetcher>>,
    commands: Vec<Arc<CommandFetcher>>,
}

impl Children {
    /// Ends them. A program that does not end in time is killed when its fetcher is dropped.
    pub(crate) async fn close(&self) {
        let _ = tokio::time::timeout(CLOSE_TIME, async {
            for browser in &self.browsers {
                browser.close().await;
            }
            for command in &self.commands {
                command.close().await;
            }
        })
        .await;
    }
}

impl Made {
    /// Makes every fetcher that is to be had, and says on stderr which are not.
    pub(crate) fn of(
        settings: &Settings,
        wishes: &Wishes,
        available: &Available<'_>,
        guard: AddressGuard,
    ) -> Result<Self, Failure> {
        let config = &settings.config;
        let dialer = Dialer::new(guard.clone());
        let plain =
            Arc::new(http(settings, wishes, guard.clone())?.name(PROBE_FETCHER).build().map_err(Failure::usage)?);
        let mut made = Self {
            plain: Arc::clone(&plain),
            fetchers: Vec::new(),
            missing: Vec::new(),
            children: Children::default(),
        };
        if available.is_shipped_and_wanted(PROBE_FETCHER) {
            made.fetchers.push(plain);
        }
        if let Err(NoBrowser::Missing(reason)) = &available.browser {
            note(format_args!("warning: pages that need a browser will fail: {reason}"));
        }
        for options in browsers(wishes).into_iter().filter(|options| available.is_shipped_and_wanted(&options.name)) {
            match &available.browser {
                Ok(program) => {
                    let tabs = config.browser.tabs.unwrap_or(options.tabs);
                    let options = BrowserOptions { tabs, ..options };
                    let browser = BrowserFetcher::new(program.clone(), options, dialer.clone());
                    let browser = Arc::new(browser.map_err(Failure::usage)?);
                    made.children.browsers.push(Arc::clone(&browser));
                    made.fetchers.push(browser);
                }
                Err(none) => made.missing.push((options.name, none.reason().to_owned())),
            }
        }
        for (name, why) in available.left_out() {
            note(format_args!("warning: the fetcher {name} is left out: {why}"));
            made.missing.push((name.to_owned(), why.to_owned()));
        }
        for fetcher in
            config.fetchers.iter().filter(|fetcher| available.why_left_out(canonical(&fetcher.name)).is_none())
        {
            made.add(fetcher, || http(settings, wishes, guard.clone()), &dialer)?;
        }
        Ok(made)
    }

    /// Adds a fetcher of the config that is no shipped one.
    fn add(
        &mut self,
        fetcher: &FetcherConfig,
        http: impl Fn() -> Result<HttpFetcherBuilder, Failure>,
        dialer: &Dialer,
    ) -> Result<(), Failure> {
        let name = canonical(&fetcher.name);
        match fetcher.means() {
            Means::Command(argv) => {
                let mut options = CommandOptions::new(name, argv);
                options.renders = fetcher.spec().renders;
                options.max_in_flight = fetcher.max_in_flight.unwrap_or(options.max_in_flight);
                let command = Arc::new(CommandFetcher::new(options, dialer.clone()));
                self.children.commands.push(Arc::clone(&command));
                self.fetchers.push(command);
            }
            Means::Archive(archive) => {
                let options = archives(name, &archive, fetcher.max_in_flight);
                self.fetchers.push(Arc::new(ArchiveFetcher::new(options, http()?).map_err(Failure::usage)?));
            }
            _ => {}
        }
        Ok(())
    }
}

/// How plain requests are made.
fn http(settings: &Settings, wishes: &Wishes, guard: AddressGuard) -> Result<HttpFetcherBuilder, Failure> {
    let config = &settings.config.http;
    let mut http = HttpFetcher::builder().guard(guard).keep_exchange(wishes.keep_exchange);
    if let Some(agent) = &config.user_agent {
        http = http.user_agent(agent);
    }
    match wishes.ca_file.as_ref().or(config.ca_file.as_ref()) {
        Some(file) => http.ca_file(file).map_err(Failure::usage),
        None => Ok(http),
    }
}

/// The browsers that are shipped.
fn browsers(wishes: &Wishes) -> [BrowserOptions; 2] {
    let mut stealth = BrowserOptions::stealth();
    if let Some(agent) = &wishes.stealth_agent {
        stealth.user_agent = UserAgent::Custom(agent.clone());
    }
    [BrowserOptions::default(), stealth]
}

fn archives(name: &str, config: &ArchiveConfig, max_in_flight: Option<usize>) -> ArchiveOptions {
    let base = ArchiveOptions::default();
    let archives: Vec<Archive> = config
        .from
        .iter()
        .filter_map(|from| match (&from.wayback, &from.timegate) {
            (Some(base), _) => Some(Archive::Wayback { base: base.clone(), availability: from.availability.clone() }),
            (None, gate) => gate.clone().map(Archive::TimeGate),
        })
        .collect();
    ArchiveOptions {
        name: name.to_owned(),
        archives: if archives.is_empty() { base.archives } else { archives },
        wanted: config.wanted,
        max_in_flight: max_in_flight.unwrap_or(base.max_in_flight),
    }
}
