//! The crawler of the demo, put together from the library: a log, a selector, and the fetchers that
//! stay on this machine.
//!
//! Owns: its assembly and its end. Must not know: the sites, and how the demo shows the crawl.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fetchwise::config::Config;
use fetchwise::detect::{Detector, DetectorOptions};
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::body::set_spool_dir;
use fetchwise::fetch::browser::{BrowserFetcher, BrowserOptions, UserAgent};
use fetchwise::fetch::dial::Dialer;
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::journal::{self, Journal, JournalOptions, OpenCheck};
use fetchwise::pace::Pace;
use fetchwise::pipeline::{Pipeline, PipelineBuilder};
use fetchwise::robots::{DEFAULT_AGENT, RobotsTxt};
use fetchwise::selector::{Selector, VisitSettings};
use fetchwise::time::Timestamp;
use fetchwise_serve::{Options, Parts, Server, Tokens};
use fetchwise_terminal::note;

use super::args::{Browser, NoBrowser};
use super::dashboard::{self, Dashboard};
use super::sites::STEALTH_AGENT;
use crate::failure::Failure;

/// The time in which browsers must end.
const CLOSE_TIME: Duration = Duration::from_secs(3);

/// The names of the browsers that the demo has.
const BROWSERS: [&str; 2] = ["playwright", "playwright_stealth"];

/// How the demo crawls.
pub(super) struct CrawlerOptions<'o> {
    /// The data directory.
    pub(super) dir: &'o Path,
    /// Backoff and pace.
    pub(super) config: &'o Config,
    pub(super) browser: &'o Browser,
    /// Whether the caller waits for paused links itself.
    pub(super) has_queue: bool,
    /// Whether there is a dashboard.
    pub(super) is_served: bool,
}

/// A crawler that is ready to run.
pub(super) struct Crawler {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) dashboard: Option<Dashboard>,
    journal: Arc<Journal>,
    browsers: Vec<Arc<BrowserFetcher>>,
}

impl Crawler {
    /// Opens the data directory, loads its evidence, and builds all parts. Called within a runtime.
    pub(super) async fn open(options: &CrawlerOptions<'_>) -> Result<Self, Failure> {
        let journal_options = JournalOptions::default().check(OpenCheck::Tail);
        let journal = Arc::new(Journal::open(options.dir, journal_options)?.0);
        // The data directory has to have room anyway, and a temporary folder may be in memory.
        set_spool_dir(journal.dir());
        let selector = selector(options, &journal)?;
        let detector = Arc::new(Detector::new());
        let (selector, dashboard) = match options.is_served {
            true => served(selector, &journal, &detector).await?,
            false => (recording(selector, &journal), None),
        };
        let mut builder = Pipeline::builder(Arc::clone(&selector)).detector(detector);
        if options.has_queue {
            builder = builder.wait_at_most(Duration::ZERO);
        }
        let guard = AddressGuard::new(Vec::new(), true);
        let plain = HttpFetcher::builder().guard(guard.clone()).build().map_err(Failure::usage)?;
        let plain = Arc::new(plain);
        builder = builder.robots(RobotsTxt::new(plain.clone(), DEFAULT_AGENT)).fetcher(plain);
        let (builder, browsers) = with_browsers(builder, options.browser, &Dialer::new(guard))?;
        let pipeline = Arc::new(builder.build().map_err(Failure::usage)?);
        Ok(Self { pipeline, dashboard, journal, browsers })
    }

    /// Ends the dashboard and the browsers, then writes the rest of the log.
    pub(super) async fn close(self) -> Result<(), Failure> {
        if let Some(dashboard) = self.dashboard {
            dashboard.close().await;
        }
        if let Some(pace) = self.pipeline.selector().pace() {
            // Records the current paces.
            pace.close(self.pipeline.selector().now());
        }
        drop(self.pipeline);
        let browsers = self.browsers.iter().map(|browser| browser.close());
        // One that does not end in time is killed when its fetcher is dropped.
        let _ = tokio::time::timeout(CLOSE_TIME, futures_util::future::join_all(browsers)).await;
        match Arc::try_unwrap(self.journal) {
            Ok(journal) => Ok(journal.close()?),
            // An abandoned task may hold it for a moment; the last owner closes it on drop.
            Err(journal) => journal.flush().wait().map_err(Failure::failed),
        }
    }
}

/// Returns a selector with the evidence of the data directory.
fn selector(options: &CrawlerOptions<'_>, journal: &Arc<Journal>) -> Result<Selector, Failure> {
    let now = Timestamp::now();
    let pace = Pace::new(options.config.pace()).with_store(Box::new(Arc::clone(journal)));
    let visits = VisitSettings { max_pace_wait: Duration::MAX, ..VisitSettings::default() };
    let builder = options.config.selector_with_built_in().around(now).visits(visits).pace(pace);
    let selector = builder.build().map_err(Failure::usage)?;
    journal::load(journal.dir(), &selector, now)?;
    Ok(selector)
}

/// Returns the selector, which records to the journal.
fn recording(mut selector: Selector, journal: &Arc<Journal>) -> Arc<Selector> {
    selector.set_sink(Box::new(Arc::clone(journal)));
    Arc::new(selector)
}

/// Returns the selector, which records to the journal, and a dashboard that shows both.
async fn served(
    selector: Selector,
    journal: &Arc<Journal>,
    detector: &Arc<Detector>,
) -> Result<(Arc<Selector>, Option<Dashboard>), Failure> {
    let classifier =
        Arc::new(Detector::new().with_options(DetectorOptions::default().counting_all()));
    let server = Server::new(Parts {
        selector,
        journal: Arc::clone(journal),
        detector: Arc::clone(detector),
        classifier,
        unavailable: Vec::new(),
        registered: Vec::new(),
        // A demo crawls its own sites, so anybody on this machine may change its state.
        tokens: Tokens::default(),
        options: Options::default(),
        guard: None,
        followed: None,
    })?;
    let selector = Arc::clone(server.handle().selector());
    Ok((selector, Some(dashboard::begin(server).await?)))
}

/// Adds the two browsers, or says why they are missing.
fn with_browsers(
    mut builder: PipelineBuilder,
    browser: &Browser,
    dialer: &Dialer,
) -> Result<(PipelineBuilder, Vec<Arc<BrowserFetcher>>), Failure> {
    let mut browsers = Vec::new();
    match browser {
        Ok(program) => {
            let stealth = BrowserOptions {
                user_agent: UserAgent::Custom(STEALTH_AGENT.to_owned()),
                ..BrowserOptions::stealth()
            };
            for options in [BrowserOptions::default(), stealth] {
                let browser = BrowserFetcher::new(program.clone(), options, dialer.clone());
                let browser = Arc::new(browser.map_err(Failure::usage)?);
                browsers.push(Arc::clone(&browser));
                builder = builder.fetcher(browser);
            }
        }
        Err(none) => {
            if let NoBrowser::Missing(reason) = none {
                note(format_args!("warning: pages that need a browser will fail: {reason}"));
            }
            for name in BROWSERS {
                builder = builder.missing(name, none.reason());
            }
        }
    }
    Ok((builder, browsers))
}
