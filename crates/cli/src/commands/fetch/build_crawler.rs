//! Construction of a crawler from settings: journal, selector, fetchers, store, pipeline.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use super::FetchArgs;
use crate::commands::fetch::build_fetchers::{BuiltFetchers, Children};
use crate::commands::fetch::crawl_options::CrawlOptions;
use crate::commands::live_control::LiveControl;
use crate::parse::input::is_stdin;
use crate::setup::background_maintenance;
use crate::setup::decider::candidate;
use crate::setup::fetcher_availability::FetcherAvailability;
use crate::setup::identity::{Identity, robots_agent};
use crate::setup::reload;
use crate::setup::reload::{PaceOf, ReloadSignals, ReloadedParts, Reloader};
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::{note, shown};
use crate::terminal::warnings::warn_torn_tail;
use fetchwise::cache_use::CacheUse;
use fetchwise::config::{DurabilityName, QueryName};
use fetchwise::detect::Detector;
use fetchwise::fetch::Limits;
use fetchwise::fetch::address_guard::{AddressGuard, parse_network};
use fetchwise::fetch::body::set_spool_dir;
use fetchwise::fetch::browser::BrowserFetcher;
use fetchwise::journal::{Durability, Journal, JournalOptions, OpenCheck};
use fetchwise::pace::{Pace, PaceMode, PaceSettings};
use fetchwise::pipeline::{Pipeline, PipelineBuilder};
use fetchwise::registry::canonical;
use fetchwise::robots::RobotsTxt;
use fetchwise::rollout::{Guard, RolloutError};
use fetchwise::router::Router;
use fetchwise::selector::{Selector, SelectorBuilder, VisitSettings};
use fetchwise::store::Store;
use fetchwise::store::failed_pages::{FailedPageLimits, FailedPages};
use fetchwise::store::files::Files;
use fetchwise::store::validators::ValidatorLog;
use fetchwise::store::warc::{Warc, WarcOptions};
use fetchwise::time::Clock;
use fetchwise_crawl::{PauseControl, RunLog};
use fetchwise_serve::{Handle, Membership};
use tokio::task::JoinHandle;

/// Name of the file of validators in the data directory.
const VALIDATORS: &str = "validators.jsonl";

/// A crawler that is ready to run.
pub(crate) struct Crawler {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) journal: Arc<Journal>,
    /// The selector, for reading.
    pub(crate) selector: Arc<Selector>,
    /// The attempts of this run; empty if another sink was set.
    pub(crate) run_log: RunLog,
    /// The program of the browser, if there is one.
    pub(crate) browser: Option<PathBuf>,
    /// The `User-Agent` of plain requests, if the crawler's identity sets it.
    pub(crate) user_agent: Option<String>,
    children: Children,
    guard: Arc<Guard>,
    /// What reads the settings again.
    pub(crate) reloader: Arc<Reloader>,
    /// The tasks that tick the automatic rollback and wait for SIGHUP.
    watching: [JoinHandle<()>; 2],
}

/// Opens the log, and loads what it knows into a selector.
fn open_evidence(
    settings: &Settings,
    crawl_options: &CrawlOptions,
    router: Router,
) -> Result<(Arc<Journal>, Selector), Failure> {
    let visits = visits(settings, crawl_options);
    let (journal, recovery) = Journal::open(&settings.data_dir()?, journal_options(settings))?;
    warn_torn_tail(recovery.torn.as_ref());
    // The data directory has to have room anyway, and a temporary folder may be missing, full
    // or in memory.
    set_spool_dir(journal.dir());
    let journal = Arc::new(journal);
    let pace = Pace::new(pace(settings, crawl_options)).with_store(Box::new(Arc::clone(&journal)));
    let with = |builder: SelectorBuilder| {
        let builder = builder.visits(visits).router(router).clock(Arc::clone(&settings.clock));
        builder.pace(pace).keep_evicted(&journal)
    };
    let (selector, loaded) = settings.load_crawler_selector(with)?;
    journal.register_fetchers(&selector, &loaded.registered)?;
    Ok((journal, selector))
}

impl Crawler {
    /// Opens the data directory for writing, loads its evidence, and builds all parts. Called
    /// within a runtime.
    pub(crate) fn open(
        settings: &Settings,
        crawl_options: &CrawlOptions,
        store: Option<Arc<dyn Store>>,
    ) -> Result<Self, Failure> {
        let run_log = RunLog::default();
        let counted = run_log.clone();
        Self::open_around(settings, crawl_options, store, |mut selector, journal, _, over_arms| {
            selector.set_sink(Box::new(run_log.counting(over_arms.watched(Arc::clone(journal)))));
            Ok(Arc::new(selector))
        })
        .map(|crawler| Self { run_log: counted, ..crawler })
    }

    /// Does the same as [`Crawler::open`]; `share` must make the selector record to the journal.
    pub(crate) fn open_around(
        settings: &Settings,
        crawl_options: &CrawlOptions,
        store: Option<Arc<dyn Store>>,
        share: impl FnOnce(
            Selector,
            &Arc<Journal>,
            &Arc<Detector>,
            &Arc<Guard>,
        ) -> Result<Arc<Selector>, Failure>,
    ) -> Result<Self, Failure> {
        let hangups = reload::listen(settings).map_err(Failure::failed)?;
        let router = settings.router()?.clone();
        let limits = limits(settings, crawl_options);
        let detector = Arc::new(settings.detector()?);
        let guard = guard(settings, crawl_options)?;
        let identity = Identity::load(settings)?;
        let available = FetcherAvailability::find(settings, &crawl_options.browser)?;
        let (journal, selector) = open_evidence(settings, crawl_options, router)?;
        if let Some(name) = &crawl_options.prefer {
            is_known(&available, &selector, name)?;
        }
        let (over_arms, said) =
            Guard::open(journal.dir(), &selector, settings.config.guard()).map_err(about_guard)?;
        said.iter().for_each(reload::report_event);
        let selector = share(selector, &journal, &detector, &over_arms)?;
        identity.read_vendors_of(&selector);
        let parts = ReloadedParts {
            selector: &selector,
            journal: &journal,
            detectors: &[&detector],
            guard: &over_arms,
            identity: &identity,
        };
        let (reloader, watching) = watch(settings, &parts, crawl_options, hangups);
        let mut builder =
            Pipeline::builder(Arc::clone(&selector)).limits(limits).detector(detector);
        if crawl_options.has_queue {
            builder = builder.wait_at_most(Duration::ZERO);
        }
        let BuiltFetchers { plain, fetchers, missing, children } =
            BuiltFetchers::build(settings, crawl_options, &available, &identity, guard)?;
        let agent = robots_agent(settings);
        builder = builder
            .robots(RobotsTxt::new(plain, agent))
            .consent(settings.config.consent.settings(agent));
        builder = with_cache(builder, settings, crawl_options, &journal)?;
        builder =
            missing.into_iter().fold(builder, |builder, (name, why)| builder.missing(&name, why));
        // A crawler that signs each request does without some fetchers of the config.
        let is_candidate = |name: &str| selector.candidates().any(|(_, spec)| *spec.name == *name);
        let fetchers = fetchers.into_iter().filter(|fetcher| is_candidate(fetcher.name()));
        let builder =
            with_failed_pages(fetchers.fold(builder, PipelineBuilder::fetcher), crawl_options)?;
        let builder = store.into_iter().fold(builder, PipelineBuilder::store);
        let pipeline = Arc::new(builder.build().map_err(Failure::usage)?);
        Ok(Self {
            pipeline,
            journal,
            selector,
            run_log: RunLog::default(),
            browser: available.browser.as_ref().ok().cloned(),
            user_agent: identity.user_agent().map(str::to_owned),
            children,
            guard: over_arms,
            reloader,
            watching,
        })
    }

    /// Returns what a running crawl can be asked for over its control socket.
    pub(crate) fn control(
        &self,
        pauses: PauseControl,
        server: Option<Handle>,
        fleet: Option<Arc<dyn Membership>>,
    ) -> LiveControl {
        LiveControl {
            pauses: Some(pauses),
            server,
            reloader: Some(Arc::clone(&self.reloader)),
            ..LiveControl::new(&self.selector, &self.journal, fleet)
        }
    }

    /// Returns the browsers.
    pub(crate) fn browsers(&self) -> &[Arc<BrowserFetcher>] {
        &self.children.browsers
    }

    /// Ends child processes, then writes and syncs the rest of the log.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        for task in self.watching {
            task.abort();
            let _ = task.await;
        }
        // A short run may not have been checked yet.
        self.guard.tick(self.pipeline.selector()).iter().for_each(reload::report_event);
        if let Some(pace) = self.pipeline.selector().pace() {
            // Records the current paces, with which the next run starts.
            pace.close(self.pipeline.selector().now());
        }
        drop((self.pipeline, self.selector));
        self.children.close().await;
        match Arc::try_unwrap(self.journal) {
            Ok(journal) => Ok(journal.close()?),
            // An abandoned task may hold it for a moment; the last owner closes it on drop.
            Err(journal) => journal.flush().wait().map_err(Failure::failed),
        }
    }
}

pub(crate) fn about_guard(error: RolloutError) -> Failure {
    match error {
        RolloutError::Journal(error) => error.into(),
        error => Failure::usage(error),
    }
}

/// Returns the store for delivered pages, if there is one.
pub(super) fn store(args: &FetchArgs) -> Result<Option<Arc<dyn Store>>, Failure> {
    let cannot = |option: &str, path: &Path, error: io::Error| {
        let failure =
            Failure::failed(format_args!("{option}: cannot write to {}: {error}", shown(path)));
        match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                failure.advise("choose another folder: a file has this name")
            }
            _ => failure,
        }
    };
    Ok(match (&args.out, &args.warc) {
        (Some(dir), _) if is_stdin(dir) => None,
        (Some(dir), _) => {
            Some(Arc::new(Files::new(dir).map_err(|error| cannot("--out", dir, error))?))
        }
        (None, Some(path)) => {
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                fs::create_dir_all(parent).map_err(|error| cannot("--warc", parent, error))?;
            }
            let options = WarcOptions::default();
            let options = args.warc_size.map_or(options.clone(), |bytes| options.rotate_at(bytes));
            let archive = Warc::with(path, options)?;
            if let Some(torn) = archive.torn() {
                note(format_args!("fetchwise: {torn}"));
            }
            Some(Arc::new(archive))
        }
        (None, None) => None,
    })
}

/// Returns the builder with the folder of failed pages, if there is one. A body that cannot be kept
/// is said once.
fn with_failed_pages(
    builder: PipelineBuilder,
    crawl_options: &CrawlOptions,
) -> Result<PipelineBuilder, Failure> {
    let Some(dir) = crawl_options.keep_failed.clone() else { return Ok(builder) };
    let pages = FailedPages::open(&dir, FailedPageLimits::default()).map_err(|error| {
        Failure::failed(format_args!(
            "--keep-failed: cannot use the folder {}: {error}",
            shown(&dir)
        ))
    })?;
    let once = Once::new();
    Ok(builder.failed_pages(Arc::new(pages), move |error| {
        once.call_once(|| {
            note(format_args!("fetchwise: failed pages are missing in {}: {error}", shown(&dir)));
        });
    }))
}

/// Returns the builder with the validators of the data directory, if `[cache]` uses them.
fn with_cache(
    builder: PipelineBuilder,
    settings: &Settings,
    crawl_options: &CrawlOptions,
    journal: &Journal,
) -> Result<PipelineBuilder, Failure> {
    let cache_use = settings.config.cache.mode.unwrap_or_default();
    if cache_use == CacheUse::Off || !crawl_options.uses_cache {
        return Ok(builder);
    }
    let path = journal.dir().join(VALIDATORS);
    let log = ValidatorLog::open(&path).map_err(|error| {
        Failure::failed(format_args!("cannot open the validators {}: {error}", path.display()))
    })?;
    Ok(builder.cache(cache_use, Arc::new(log.with_query_hash(journal.query_hash()))))
}

/// Returns the limits of a request, without its time and redirects.
pub(crate) fn limits(settings: &Settings, crawl_options: &CrawlOptions) -> Limits {
    let base = Limits::default();
    Limits {
        max_body: crawl_options.max_body.or(settings.config.http.max_body).unwrap_or(base.max_body),
        ..base
    }
}

/// Returns the settings of visits.
pub(crate) fn visits(settings: &Settings, crawl_options: &CrawlOptions) -> VisitSettings {
    let (http, base) = (&settings.config.http, VisitSettings::default());
    let deadline = crawl_options.timeout.or(http.timeout).unwrap_or(base.deadline);
    VisitSettings {
        deadline,
        probe_deadline: settings
            .config
            .tuning
            .probe_timeout
            .unwrap_or(base.probe_deadline)
            .min(deadline),
        max_redirects: http.max_redirects.unwrap_or(base.max_redirects),
        escalate_after_block: settings
            .config
            .backoff
            .escalate_after_block
            .unwrap_or(base.escalate_after_block),
        // The pipeline of `fetch` has a separate limit, and a client of `serve` decides for itself.
        max_pace_wait: Duration::MAX,
        ..base
    }
}

/// Starts the tasks that tick the automatic rollback and wait for SIGHUP. Called within a runtime.
fn watch(
    settings: &Settings,
    parts: &ReloadedParts<'_>,
    crawl_options: &CrawlOptions,
    hangups: ReloadSignals,
) -> (Arc<Reloader>, [JoinHandle<()>; 2]) {
    let reloader = Reloader::new(settings, parts, reloaded_pace(crawl_options));
    let hangups = reload::on_hangup(hangups, Arc::clone(&reloader));
    let rollback = reload::watch_rollback(parts.guard, parts.selector);
    (reloader, [rollback, hangups])
}

/// Returns how the pace of hosts follows from settings that are read again.
pub(crate) fn reloaded_pace(crawl_options: &CrawlOptions) -> Box<PaceOf> {
    let crawl_options = crawl_options.clone();
    Box::new(move |settings| pace(settings, &crawl_options))
}

/// Returns the pace of hosts. With a fixed clock the pace is off, because no time passes between
/// requests.
pub(crate) fn pace(settings: &Settings, crawl_options: &CrawlOptions) -> PaceSettings {
    let pace = crawl_options.pace.over(settings.config.pace());
    match *settings.clock {
        Clock::System => pace,
        Clock::Fixed(_) => PaceSettings { mode: PaceMode::Off, ..pace },
    }
}

pub(crate) fn guard(
    settings: &Settings,
    crawl_options: &CrawlOptions,
) -> Result<AddressGuard, Failure> {
    let network = &settings.config.network;
    let mut guard = AddressGuard::new(
        crawl_options.allow_network.clone(),
        crawl_options.allow_private_network || network.allow_private,
    );
    for text in &network.allow {
        guard.allow_network(
            parse_network(text)
                .map_err(|error| Failure::usage(format_args!("network.allow: {error}")))?,
        );
    }
    Ok(guard)
}

pub(crate) fn journal_options(settings: &Settings) -> JournalOptions {
    let log = &settings.config.log;
    let durability = match log.durability {
        Some(DurabilityName::Memory) => Durability::Memory,
        Some(DurabilityName::Os) => Durability::Os,
        Some(DurabilityName::Sync) => Durability::Sync,
        Some(DurabilityName::Interval) | None => {
            log.interval.map(Durability::Interval).unwrap_or_default()
        }
    };
    // The replay right after the open reads everything.
    let options =
        hashing(JournalOptions::default(), settings).durability(durability).check(OpenCheck::Tail);
    options.segment_bytes(background_maintenance::segment_bytes(settings))
}

/// Returns options that store query strings as the config says; without a word of it, as the data
/// directory did before.
pub(crate) fn hashing(options: JournalOptions, settings: &Settings) -> JournalOptions {
    match settings.config.log.query {
        Some(query) => options.hash_queries(query == QueryName::Hash),
        None => options,
    }
}

/// Checks that there is a fetcher called `name`. It is only the first one to try, so an unavailable
/// one is a warning, and others are tried.
fn is_known(
    available: &FetcherAvailability<'_>,
    selector: &Selector,
    name: &str,
) -> Result<(), Failure> {
    let name = canonical(name);
    candidate(selector, name)?;
    if let Some(reason) = available.left_out_reason(name) {
        note(format_args!("warning: --prefer {name} is unavailable, trying others: {reason}"));
    }
    Ok(())
}
