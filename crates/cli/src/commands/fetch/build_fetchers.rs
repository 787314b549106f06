//! Construction of the available fetchers: the built-in ones and those of the config.
//!
//! Invariants: starts no process.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use crate::commands::fetch::crawl_options::CrawlOptions;
use crate::setup::fetcher_availability::{
    FetcherAvailability, NoBrowser, download_program, key_variable,
};
use crate::setup::identity::{Identity, host_headers};
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::note;
use fetchwise::config::{
    ArchiveConfig, DownloadConfig, FetchMethod, FetcherConfig, SearchConfig, SigningMode,
};
use fetchwise::fetch::Fetcher;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::archive::{Archive, ArchiveFetcher, ArchiveOptions};
use fetchwise::fetch::browser::{BrowserFetcher, BrowserOptions, UserAgent};
use fetchwise::fetch::command::{CommandFetcher, CommandOptions};
use fetchwise::fetch::dial::Dialer;
use fetchwise::fetch::flaresolverr::{SolverFetcher, SolverOptions};
use fetchwise::fetch::host_headers::HostHeaders;
use fetchwise::fetch::http::{HttpFetcher, HttpFetcherBuilder};
use fetchwise::fetch::search_api::{SearchFetcher, SearchOptions};
use fetchwise::fetch::signing::RequestSigner;
use fetchwise::fetch::upstream::Upstream;
use fetchwise::fetch::yt_dlp::{DownloadFetcher, DownloadOptions};
use fetchwise::registry::{Class, PROBE_FETCHER, canonical};

/// The plain fetcher whose requests are signed.
const DIRECT_SIGNED: &str = "direct_signed";
/// The browser whose requests are signed.
const BROWSER_SIGNED: &str = "browser_signed";

/// The time in which child processes must end.
const CLOSE_TIME: Duration = Duration::from_secs(3);

/// The fetchers of a crawler.
pub(crate) struct BuiltFetchers {
    /// The plain fetcher, which also requests robots.txt.
    pub(crate) plain: Arc<HttpFetcher>,
    /// All available fetchers.
    pub(crate) fetchers: Vec<Arc<dyn Fetcher>>,
    /// The unavailable ones, each with the reason.
    pub(crate) missing: Vec<(String, String)>,
    /// The fetchers that run child processes.
    pub(crate) children: Children,
}

/// The fetchers that run child processes, for an orderly end.
#[derive(Default)]
pub(crate) struct Children {
    pub(crate) browsers: Vec<Arc<BrowserFetcher>>,
    commands: Vec<Arc<CommandFetcher>>,
}

impl Children {
    /// Ends the child processes. One that does not end in time is killed when its fetcher is
    /// dropped.
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

impl BuiltFetchers {
    /// Builds every available fetcher, and reports the others on stderr.
    pub(crate) fn build(
        settings: &Settings,
        crawl_options: &CrawlOptions,
        available: &FetcherAvailability<'_>,
        identity: &Identity,
        guard: AddressGuard,
    ) -> Result<Self, Failure> {
        let dialer = Dialer::new(guard.clone());
        let parts = FetcherParts { settings, crawl_options, available, identity, guard, dialer };
        let plain = http(settings, crawl_options, parts.guard.clone())?.name(PROBE_FETCHER);
        // robots.txt teaches nothing about fetchers, and every crawl must read it.
        let plain = with_identity(plain, settings, identity)?.require_signature(false);
        let plain = Arc::new(plain.build().map_err(Failure::usage)?);
        let mut made = Self {
            plain,
            fetchers: Vec::new(),
            missing: Vec::new(),
            children: Children::default(),
        };
        made.add_plain(&parts)?;
        made.add_browsers(&parts)?;
        for (name, why) in available.left_out() {
            note(format_args!("warning: fetcher {name} is unavailable: {why}"));
            made.missing.push((name.to_owned(), why.to_owned()));
        }
        let is_there = |fetcher: &&FetcherConfig| {
            available.left_out_reason(canonical(&fetcher.name)).is_none()
        };
        for fetcher in settings.config.fetchers.iter().filter(is_there) {
            made.add(fetcher, &parts)?;
        }
        Ok(made)
    }

    /// Adds the plain fetchers that are wanted: unsigned, signed, or both.
    fn add_plain(&mut self, parts: &FetcherParts<'_>) -> Result<(), Failure> {
        let &FetcherParts { settings, crawl_options, available, identity, .. } = parts;
        let signing = settings.config.signing.unwrap_or(SigningMode::Never);
        let is_wanted = |name: &str| available.is_shipped_and_wanted(name);
        if signing == SigningMode::Never && is_wanted(PROBE_FETCHER) {
            self.fetchers.push(Arc::clone(&self.plain) as Arc<dyn Fetcher>);
        }
        if signing == SigningMode::Learned && is_wanted(PROBE_FETCHER) {
            let unsigned = http(settings, crawl_options, parts.guard.clone())?.name(PROBE_FETCHER);
            let unsigned = with_user_agent(unsigned, settings, identity)?;
            self.fetchers.push(Arc::new(unsigned.build().map_err(Failure::usage)?));
        }
        if signing != SigningMode::Never && (is_wanted(PROBE_FETCHER) || is_wanted(DIRECT_SIGNED)) {
            let signed = http(settings, crawl_options, parts.guard.clone())?.name(DIRECT_SIGNED);
            self.fetchers.push(Arc::new(
                with_identity(signed, settings, identity)?.build().map_err(Failure::usage)?,
            ));
        }
        Ok(())
    }

    /// Adds the built-in browsers that are wanted; without a browser they are missing.
    fn add_browsers(&mut self, parts: &FetcherParts<'_>) -> Result<(), Failure> {
        let &FetcherParts { settings, crawl_options, available, identity, .. } = parts;
        let config = &settings.config;
        let signing = config.signing.unwrap_or(SigningMode::Never);
        let is_wanted = |name: &str| available.is_shipped_and_wanted(name);
        if let Err(NoBrowser::Missing(reason)) = &available.browser {
            note(format_args!("warning: pages that need a browser will fail: {reason}"));
        }
        for options in shipped_browsers(settings, crawl_options, signing, identity)? {
            if !(is_wanted(&options.name)
                || options.name == BROWSER_SIGNED && is_wanted("playwright"))
            {
                continue;
            }
            match &available.browser {
                Ok(program) => {
                    let tabs = config.browser.tabs.unwrap_or(options.tabs);
                    let options = BrowserOptions { tabs, ..options };
                    let browser =
                        BrowserFetcher::new(program.clone(), options, parts.dialer.clone());
                    self.add_browser(browser.map_err(Failure::usage)?);
                }
                Err(none) => self.missing.push((options.name, none.reason().to_owned())),
            }
        }
        Ok(())
    }

    fn add_browser(&mut self, browser: BrowserFetcher) {
        let browser = Arc::new(browser);
        self.children.browsers.push(Arc::clone(&browser));
        self.fetchers.push(browser);
    }

    /// Adds a fetcher of the config that is not a built-in one.
    fn add(&mut self, fetcher: &FetcherConfig, parts: &FetcherParts<'_>) -> Result<(), Failure> {
        let Clients { http, dialer, signer, signs } = parts.clients(fetcher)?;
        let name = canonical(&fetcher.name);
        match fetcher.method() {
            FetchMethod::Command(argv) => self.add_command(fetcher, argv, dialer, signer),
            FetchMethod::Archive(archive) => {
                let options = archives(name, &archive, fetcher.max_in_flight);
                self.fetchers
                    .push(Arc::new(ArchiveFetcher::new(options, http).map_err(Failure::usage)?));
            }
            FetchMethod::Search(search) => {
                let options = search_options(name, &search, fetcher.max_in_flight);
                self.fetchers
                    .push(Arc::new(SearchFetcher::new(options, http).map_err(Failure::usage)?));
            }
            FetchMethod::Download(download) => {
                let options = downloads(name, &download, fetcher.max_in_flight);
                self.fetchers.push(Arc::new(DownloadFetcher::new(options, dialer)));
            }
            FetchMethod::Solver(address) => {
                let base = SolverOptions::new(name, address.0.clone());
                let max_in_flight = fetcher.max_in_flight.unwrap_or(base.max_in_flight);
                let options = SolverOptions { max_in_flight, ..base };
                self.fetchers
                    .push(Arc::new(SolverFetcher::new(options, dialer).map_err(Failure::usage)?));
            }
            FetchMethod::Remote(address) => {
                let base = with_settle_times(parts.settings, BrowserOptions::default());
                let tabs = fetcher.max_in_flight.unwrap_or(base.tabs);
                let options = BrowserOptions { name: name.to_owned(), tabs, ..base };
                let browser =
                    BrowserFetcher::remote(&address.0, options, dialer).map_err(|error| {
                        Failure::usage(format_args!("browser of fetcher {name}: {error}"))
                    })?;
                self.add_browser(browser);
            }
            FetchMethod::Like(PROBE_FETCHER) => {
                self.fetchers.push(Arc::new(http.name(name).build().map_err(Failure::usage)?));
            }
            FetchMethod::Like(like) => {
                let mut shipped = browsers(parts.settings, parts.crawl_options, signs)?.into_iter();
                let Some(shipped) = shipped.find(|options| options.name == like) else {
                    return Ok(());
                };
                let Ok(program) = &parts.available.browser else { return Ok(()) };
                let tabs = fetcher
                    .max_in_flight
                    .or(parts.settings.config.browser.tabs)
                    .unwrap_or(shipped.tabs);
                let host_headers = if fetcher.proxy.is_some() {
                    HostHeaders::default()
                } else {
                    shipped.host_headers
                };
                let options =
                    BrowserOptions { name: name.to_owned(), tabs, host_headers, ..shipped };
                self.add_browser(
                    BrowserFetcher::new(program.clone(), options, dialer)
                        .map_err(Failure::usage)?,
                );
            }
            _ => {}
        }
        Ok(())
    }

    fn add_command(
        &mut self,
        fetcher: &FetcherConfig,
        argv: &[String],
        dialer: Dialer,
        signer: Option<RequestSigner>,
    ) {
        let mut options = CommandOptions::new(canonical(&fetcher.name), argv);
        options.renders = fetcher.spec().renders;
        options.max_in_flight = fetcher.max_in_flight.unwrap_or(options.max_in_flight);
        // Programs with proxy support read these variables.
        let proxy =
            fetcher.proxy.iter().flat_map(|proxy| PROXY_VARIABLES.map(|name| (name, &proxy.0)));
        options.env.extend(proxy.map(|(name, value)| (name.into(), value.into())));
        let command = CommandFetcher::new(options, dialer);
        let command = Arc::new(match signer {
            Some(signer) => command.signer(signer),
            None => command,
        });
        self.children.commands.push(Arc::clone(&command));
        self.fetchers.push(command);
    }
}

/// What fetchers are built from.
struct FetcherParts<'a> {
    settings: &'a Settings,
    crawl_options: &'a CrawlOptions,
    available: &'a FetcherAvailability<'a>,
    identity: &'a Identity,
    guard: AddressGuard,
    /// All fetchers share it.
    dialer: Dialer,
}

/// The clients that a fetcher of the config may use.
struct Clients<'a> {
    http: HttpFetcherBuilder,
    dialer: Dialer,
    /// The signer of a program.
    signer: Option<RequestSigner>,
    /// The identity that its requests are signed with.
    signs: Option<&'a Identity>,
}

impl<'a> FetcherParts<'a> {
    /// Returns the clients of a fetcher of the config.
    fn clients(&self, fetcher: &FetcherConfig) -> Result<Clients<'a>, Failure> {
        let Self { settings, crawl_options, identity, .. } = *self;
        let upstream = upstream(fetcher)?;
        let mut http = http(settings, crawl_options, self.guard.clone())?;
        let mut dialer = self.dialer.clone();
        // Requests of archives and search services, and those that a proxy passes on, are not
        // signed.
        let signing = settings.config.signing.unwrap_or(SigningMode::Never);
        let signs = signing == SigningMode::Always || fetcher.signed == Some(true);
        let signs = (signs && upstream.is_none()).then_some(identity);
        if matches!(fetcher.method(), FetchMethod::Like(PROBE_FETCHER)) {
            http = match signs {
                Some(identity) => with_identity(http, settings, identity)?,
                None if upstream.is_none() => with_user_agent(http, settings, identity)?,
                None => http,
            };
        }
        if let Some(upstream) = upstream {
            (http, dialer) = (http.upstream(upstream.clone()), dialer.through(upstream));
        }
        // Browsers of programs load pages of others, and those that hide what they are do not sign.
        let is_plain = fetcher.spec().class == Class::Plain;
        let signer = signs.and_then(Identity::signer).filter(|_| is_plain);
        Ok(Clients { http, dialer, signer, signs })
    }
}

/// The environment variables that tell a program its proxy.
const PROXY_VARIABLES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

/// Returns the proxy of a fetcher of the config.
fn upstream(fetcher: &FetcherConfig) -> Result<Option<Upstream>, Failure> {
    let Some(proxy) = &fetcher.proxy else { return Ok(None) };
    let user = fetcher.proxy_user_env.as_ref().and_then(|name| env::var(name).ok());
    Upstream::parse(&proxy.0, user.as_deref())
        .map(Some)
        .map_err(|error| Failure::usage(format_args!("proxy of fetcher {}: {error}", fetcher.name)))
}

/// Returns the requests of a search API, and where its records have their parts.
fn search_options(
    name: &str,
    config: &SearchConfig,
    max_in_flight: Option<usize>,
) -> SearchOptions {
    let key = key_variable(name, config).and_then(|variable| env::var(variable).ok());
    let shipped = SearchOptions::new_york_times(key.clone());
    let base = match name == shipped.name {
        true => shipped,
        false => SearchOptions {
            hosts: Vec::new(),
            records: String::new(),
            address: None,
            summary: None,
            body: None,
            date: None,
            ..shipped
        },
    };
    let own = config.clone();
    SearchOptions {
        name: name.to_owned(),
        url: own.url.map_or(base.url, |url| url.0),
        key,
        key_header: own.key_header,
        hosts: own.hosts.unwrap_or(base.hosts),
        records: own.records.unwrap_or(base.records),
        address: own.address.or(base.address),
        title: own.title.unwrap_or(base.title),
        summary: own.summary.or(base.summary),
        body: own.body.or(base.body),
        date: own.date.or(base.date),
        max_in_flight: max_in_flight.unwrap_or(base.max_in_flight),
    }
}

fn downloads(name: &str, config: &DownloadConfig, max_in_flight: Option<usize>) -> DownloadOptions {
    let base = DownloadOptions::default();
    DownloadOptions {
        name: name.to_owned(),
        program: download_program(config),
        format: config.format.clone(),
        subtitles: config.subtitles.clone(),
        max_time: config.max_time.unwrap_or(base.max_time),
        dir: config.dir.clone(),
        arguments: config.arguments.iter().map(Into::into).collect(),
        max_in_flight: max_in_flight.unwrap_or(base.max_in_flight),
        ..base
    }
}

/// Returns the builder of the plain HTTP client.
fn http(
    settings: &Settings,
    crawl_options: &CrawlOptions,
    guard: AddressGuard,
) -> Result<HttpFetcherBuilder, Failure> {
    let config = &settings.config.http;
    let mut http = HttpFetcher::builder().guard(guard).keep_exchange(crawl_options.keep_exchange);
    if let Some(agent) = &config.user_agent {
        http = http.user_agent(agent);
    }
    match crawl_options.ca_file.as_ref().or(config.ca_file.as_ref()) {
        Some(file) => http.ca_file(file).map_err(Failure::usage),
        None => Ok(http),
    }
}

/// Returns the builder of a client whose requests are signed, if requests are.
fn with_identity(
    http: HttpFetcherBuilder,
    settings: &Settings,
    identity: &Identity,
) -> Result<HttpFetcherBuilder, Failure> {
    let http = match identity.signer() {
        Some(signer) => http.signer(signer),
        None => http,
    };
    with_user_agent(http, settings, identity)
}

/// Returns the builder of a client of the sites themselves: it names the crawler, if its requests
/// are signed or could be, and has the headers that hosts have issued for the crawler.
fn with_user_agent(
    http: HttpFetcherBuilder,
    settings: &Settings,
    identity: &Identity,
) -> Result<HttpFetcherBuilder, Failure> {
    let http = http.host_headers(host_headers(settings)?);
    Ok(match identity.user_agent().filter(|_| settings.config.http.user_agent.is_none()) {
        Some(agent) => http.user_agent(agent),
        None => http,
    })
}

/// Returns the options of the browsers that the mode of signing permits.
fn shipped_browsers(
    settings: &Settings,
    crawl_options: &CrawlOptions,
    signing: SigningMode,
    identity: &Identity,
) -> Result<Vec<BrowserOptions>, Failure> {
    let [unsigned, stealth] = browsers(settings, crawl_options, None)?;
    let [signed, _] = browsers(settings, crawl_options, Some(identity))?;
    let signed = BrowserOptions { name: BROWSER_SIGNED.to_owned(), ..signed };
    Ok(match signing {
        SigningMode::Never => vec![unsigned, stealth],
        SigningMode::Learned => vec![signed, unsigned, stealth],
        SigningMode::Always => vec![signed],
    })
}

/// Returns the options of the built-in browsers. The one that does not declare itself signs
/// nothing, and has no headers that were issued for the crawler.
fn browsers(
    settings: &Settings,
    crawl_options: &CrawlOptions,
    identity: Option<&Identity>,
) -> Result<[BrowserOptions; 2], Failure> {
    let mut stealth = BrowserOptions::stealth();
    if let Some(agent) = &crawl_options.stealth_agent {
        stealth.user_agent = UserAgent::Custom(agent.clone());
    }
    let (signing, host_headers) = (identity.and_then(Identity::browser), host_headers(settings)?);
    let mut declared = BrowserOptions { signing, host_headers, ..BrowserOptions::default() };
    if let Some(agent) = identity.and_then(Identity::browser_user_agent) {
        declared.user_agent = UserAgent::Versioned(agent.to_owned());
    }
    Ok([declared, stealth].map(|options| with_settle_times(settings, options)))
}

/// Returns the options with the config's times for a page to settle.
fn with_settle_times(settings: &Settings, options: BrowserOptions) -> BrowserOptions {
    let tuning = &settings.config.tuning;
    BrowserOptions {
        quiet: tuning.browser_quiet.unwrap_or(options.quiet),
        max_settle: tuning.browser_max_settle.unwrap_or(options.max_settle),
        ..options
    }
}

fn archives(name: &str, config: &ArchiveConfig, max_in_flight: Option<usize>) -> ArchiveOptions {
    let base = ArchiveOptions::default();
    let archives: Vec<Archive> = config
        .from
        .iter()
        .filter_map(|from| match (&from.wayback, &from.timegate) {
            (Some(base), _) => Some(Archive::Wayback {
                base: base.clone(),
                availability: from.availability.clone(),
            }),
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
