//! `fetch`: many URLs at once, with a result for each.
//!
//! A result appears as soon as it is available, so that a hanging server delays no other result; with `--ordered`
//! results appear in the order of the input. A result is printed once its attempts survive the end of the process. Its
//! link is recorded as done once the result is flushed. A killed run therefore loses no printed result, and prints
//! every result at least once when it is resumed.
//!
//! All links are read alongside the crawl. Those of a host that has to wait stay in its own queue and take no slot from
//! others. A link that waits is an offset in the list, so the number of links is bounded by memory only.
//!
//! `input_feed` reads links, `queue_feed` takes them from a work queue, `link_list` keeps their text, `frontier` orders them by host, `site_places` shares the
//! places among sites, `scheduler` fetches them,
//! `result_order` and `report` print the results, `held_results` keeps those that wait, `resume` records what is done, and `log_watch` and `shutdown` watch the
//! log and Ctrl-C.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use indicatif::HumanCount;
use tokio::task::JoinSet;

use super::fleet;
use crate::commands::fetch::build_crawler::Crawler;
use crate::commands::fetch::crawl_options::CrawlOptions;
use crate::commands::fetch::dashboard_server::PendingDashboard;
use crate::commands::fetch::input_feed::Input;
use crate::commands::fetch::log_watch::LogWatch;
use crate::commands::fetch::metrics_endpoint::PendingEndpoint;
use crate::commands::fetch::report::{DisplayOptions, ResultDisplay};
use crate::commands::fetch::resume::Resume;
use crate::commands::fetch::scheduler::Scheduler;
use crate::commands::fetch::shutdown::Shutdown;
use crate::parse::input::is_stdin;
use crate::setup::background_maintenance;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, note, plain, shown};
use fetchwise::journal::Health;
use fetchwise::pipeline::LinkSlots;
use fetchwise::robots::RobotsUse;
use fetchwise::store::warc::{Warc, cdxj};
use fetchwise::time::Clock;
use fetchwise_crawl::frontier::Frontier;
use fetchwise_crawl::paused_links::{PauseWait, PausedLinks};
use fetchwise_crawl::results::result_order::ResultOrder;

pub(crate) use args::FetchArgs;

pub(crate) mod args;
pub(crate) mod build_crawler;
pub(crate) mod build_fetchers;
pub(crate) mod crawl_options;
pub(crate) mod dashboard_server;
mod end_report;
mod eta;
mod fd_limit;
mod hints;
mod input_feed;
mod log_watch;
mod metrics_endpoint;
mod progress;
#[cfg(feature = "fleet")]
mod queue_feed;
mod report;
pub(crate) mod result_json;
mod result_text;
mod results_file;
pub(crate) mod resume;
mod scheduler;
pub(crate) mod shutdown;

/// The default limit of a link's wait for its host.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(15 * 60);

/// Runs the command.
pub(crate) fn run(args: &FetchArgs, settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    fleet::check(settings, &args.fleet)?;
    check(args, settings, out.json)?;
    let prints_page = args.prints_page(out.json);
    out.make_interruptible(prints_page)?;
    let concurrency = fd_limit::at_once(args.concurrency);
    let input = Input::open(args, settings)?;
    let store = build_crawler::store(args)?;
    if args.has_list() && store.is_none() && !prints_page && !args.quiet {
        note("page bodies are not kept: use --out DIR or --warc FILE to keep them");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::failed)?;
    let ended = runtime.block_on(async {
        let stop = shutdown::listen().map_err(Failure::failed)?;
        let metrics = PendingEndpoint::open(args.metrics.as_deref()).await?;
        let dashboard = PendingDashboard::open(args.serve.as_deref()).await?;
        let crawl_options = CrawlOptions::from(args);
        let (crawler, dashboard) = match dashboard {
            Some(pending) => {
                pending.open_crawler(settings, &crawl_options, store).map(|(crawler, it)| (crawler, Some(it)))?
            }
            None => (Crawler::open(settings, &crawl_options, store)?, None),
        };
        let (mut resume, held) = Resume::open(crawler.journal.dir(), args)
            .map_err(|error| Failure::failed(format_args!("cannot read the state of the last run: {error}")))?;
        let max_wait = settings.config.pace.max_wait.unwrap_or(MAX_WAIT);
        let (total, is_list) = (input.total, args.has_list());
        let fleet =
            fleet::join(settings, &args.fleet, &crawler.journal, &crawler.selector, args.queue.as_deref()).await?;
        let told = fleet.as_ref().map(|fleet| fleet.membership());
        let metrics = metrics.map(|metrics| metrics.begin(&crawler, total, told.clone())).transpose()?;
        let dashboard = dashboard.map(|dashboard| dashboard.begin(told));
        if let Some(dashboard) = &dashboard {
            note(format_args!("fetchwise: serving the dashboard at {}", dashboard.url));
        }
        let upkeep = background_maintenance::start(settings, crawler.journal.dir())?;
        if is_list && !args.quiet {
            note(start_line(args, settings, &crawler, total));
        }
        let earlier = resume.take_earlier();
        let feed = match (&args.queue, &fleet) {
            #[cfg(feature = "fleet")]
            (Some(queue), Some(fleet)) => {
                input.start_queue(crawler.journal.dir(), fleet.read_queue(queue, &crawler.selector, concurrency))
            }
            _ => input.start(crawler.journal.dir(), earlier)?,
        };
        let scheduler = Scheduler {
            pipeline: Arc::clone(&crawler.pipeline),
            concurrency,
            slots: LinkSlots::new(concurrency),
            free_slot: None,
            max_wait,
            feed,
            resume,
            show: ResultDisplay::new(out, total, DisplayOptions { lines: args.lines(), is_list, prints_page }),
            paused: PausedLinks::new(pause_wait(args, settings, max_wait)),
            is_wait_reported: false,
            prints_page,
            fail_on: args.fail_on,
            run_log: crawler.run_log.clone(),
            is_list,
            queue: args.queue.clone(),
            shutdown: Shutdown::new(stop),
            frontier: Frontier::new(args.pace.per_host, concurrency),
            open: JoinSet::new(),
            links: HashMap::new(),
            finished: ResultOrder::new(args.ordered, held),
            log: LogWatch::new(Arc::clone(&crawler.journal), upkeep),
            browsers: crawler.browsers().to_vec(),
            is_browser_reported: false,
            estimator: eta::Estimator::default(),
            metrics,
            crawl: dashboard.as_ref().map(|dashboard| dashboard.crawl.clone()),
        };
        let ended = scheduler.run().await;
        let (health, lost) = (crawler.journal.health(), crawler.journal.lost());
        let dir = crawler.journal.dir().to_owned();
        if let Some(fleet) = fleet {
            fleet.end().await;
        }
        if let Some(dashboard) = dashboard {
            dashboard.close().await;
        }
        let closed = crawler.close().await;
        let exit = ended?;
        closed?;
        settings.snapshot_if_due(&dir);
        match health {
            _ if !lost.is_nothing() => Err(Failure::failed(format_args!("the attempt log lost {lost}"))),
            Health::Degraded { reason, .. } => {
                Err(Failure::failed(format_args!("the attempt log was failing: {reason}")))
            }
            _ => Ok(exit),
        }
    });
    // A name lookup blocks a thread that cannot be stopped.
    runtime.shutdown_timeout(Duration::from_millis(500));
    if let (Some(archive), Some(cdx)) = (&args.warc, &args.cdx) {
        index(archive, cdx)?;
    }
    ended
}

/// Returns the line that says what a run does: links, robots.txt, data directory, browser.
fn start_line(args: &FetchArgs, settings: &Settings, crawler: &Crawler, total: Option<u64>) -> String {
    let urls = match (&args.queue, total) {
        (Some(queue), _) => format!("links of the queue {queue}"),
        (None, Some(total)) => format!("{} lines", HumanCount(total)),
        (None, None) => "URLs".to_owned(),
    };
    let robots = match args.robots.or(settings.config.robots.mode).unwrap_or(RobotsUse::Obey) {
        RobotsUse::Obey => "robots.txt obeyed",
        RobotsUse::Delay => "robots.txt: Crawl-delay only",
        RobotsUse::Ignore => "robots.txt ignored",
    };
    let browser =
        crawler.browser.as_ref().map_or_else(|| "no browser".to_owned(), |path| format!("browser {}", path.display()));
    plain(&format!("{urls}, {robots}, data in {}, {browser}", crawler.journal.dir().display()))
}

/// Checks what the syntax of the arguments cannot express.
fn check(args: &FetchArgs, settings: &Settings, json: bool) -> Result<(), Failure> {
    if args.queue.is_some() && args.fleet.brokers.is_empty() && settings.config.fleet.url.is_empty() {
        return Err(Failure::usage("--queue needs a fleet")
            .advise("name its brokers with --fleet nats://127.0.0.1:4222, or with fleet.url in the config"));
    }
    if args.urls.is_empty() && args.input.is_none() && args.retry.is_none() && args.queue.is_none() {
        return Err(
            Failure::usage("missing URL").advise("name a URL, a list with --input FILE, or - to read URLs from stdin")
        );
    }
    if json && args.out.as_deref().is_some_and(is_stdin) {
        return Err(Failure::usage("--json and --out - both write to stdout").advise("use --out DIR with --json"));
    }
    Ok(())
}

/// Returns how long the run waits for paused links once all others are done.
fn pause_wait(args: &FetchArgs, settings: &Settings, max_wait: Duration) -> PauseWait {
    match (args.wait, &*settings.clock) {
        // With a fixed clock no pause ends.
        (_, Clock::Fixed(_)) => PauseWait::AtMost(Duration::ZERO),
        (Some(wait), Clock::System) => wait,
        // A person who names a URL wants an answer now; a list is a crawl.
        (None, Clock::System) if args.has_list() => PauseWait::AtMost(max_wait),
        (None, Clock::System) => PauseWait::AtMost(Duration::ZERO),
    }
}

/// Updates the index of an archive, including what an interrupted run wrote.
fn index(archive: &Path, cdx: &Path) -> Result<(), Failure> {
    cdxj::update(&Warc::files(archive), cdx).map(drop).map_err(|error| {
        Failure::failed(format_args!("cannot update the index {}: {error}", shown(cdx)))
            .advise("run again with --cdx to update it; the archive is complete")
    })
}
