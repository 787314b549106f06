//! `fetch`: many URLs at once, with a result for each.
//!
//! A result appears as soon as it is available, so that a hanging server delays no other result; with `--ordered`
//! results appear in the order of the input. A result is printed once its attempts survive the end of the process. Its
//! link is recorded as done once the result is flushed. A killed run therefore loses no printed result, and prints
//! every result at least once when it is resumed.
//!
//! Links are read ahead. Those of a host that has to wait stay in its own queue and take no slot from others.
//!
//! `input_feed` reads links, `queue` orders them by host, `scheduler` fetches them, `result_order` and `report` print the
//! results, `resume` records what is done, and `log_watch` and `shutdown` watch the log and Ctrl-C.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::fleet;
use crate::commands::fetch::build_crawler::Crawler;
use crate::commands::fetch::crawl_options::CrawlOptions;
use crate::commands::fetch::input_feed::InputFeed;
use crate::commands::fetch::log_watch::LogWatch;
use crate::commands::fetch::metrics_endpoint::PendingEndpoint;
use crate::commands::fetch::queue::HostQueue;
use crate::commands::fetch::report::ResultDisplay;
use crate::commands::fetch::result_order::ResultOrder;
use crate::commands::fetch::resume::Resume;
use crate::commands::fetch::scheduler::Scheduler;
use crate::commands::fetch::shutdown::Shutdown;
use crate::setup::background_maintenance;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, shown};
use fetchwise::journal::Health;
use fetchwise::store::warc::{Warc, cdxj};

pub(crate) use args::FetchArgs;

pub(crate) mod args;
pub(crate) mod build_crawler;
pub(crate) mod build_fetchers;
pub(crate) mod crawl_options;
mod eta;
mod fd_limit;
pub(crate) mod input_feed;
mod log_watch;
mod metrics_endpoint;
mod queue;
pub(crate) mod report;
mod result_order;
mod resume;
mod scheduler;
pub(crate) mod shutdown;

/// The default limit of a link's wait for its host.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(15 * 60);

/// Runs the command.
pub(crate) fn run(args: &FetchArgs, settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    fleet::check(settings, &args.fleet)?;
    out.make_interruptible()?;
    let concurrency = fd_limit::at_once(args.concurrency);
    let feed = InputFeed::start(args, settings)?;
    let store = build_crawler::store(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::failed)?;
    let ended = runtime.block_on(async {
        let stop = shutdown::listen().map_err(Failure::failed)?;
        let metrics = PendingEndpoint::open(args.metrics.as_deref()).await?;
        let crawler = Crawler::open(settings, &CrawlOptions::from(args), store)?;
        let resume = Resume::open(crawler.journal.dir(), args, args.restart)
            .map_err(|error| Failure::failed(format_args!("cannot read the state of the last run: {error}")))?;
        let total = feed.total;
        let fleet = fleet::join(settings, &args.fleet, &crawler.journal, &crawler.selector).await?;
        let told = fleet.as_ref().map(|fleet| fleet.membership());
        let metrics = metrics.map(|metrics| metrics.begin(&crawler, total, told)).transpose()?;
        let upkeep = background_maintenance::start(settings, crawler.journal.dir())?;
        let scheduler = Scheduler {
            pipeline: Arc::clone(&crawler.pipeline),
            concurrency,
            per_host: args.pace.per_host,
            max_wait: settings.config.pace.max_wait.unwrap_or(MAX_WAIT),
            feed,
            resume,
            show: ResultDisplay::new(out, total),
            shutdown: Shutdown::new(stop),
            queue: HostQueue::default(),
            open: JoinSet::new(),
            links: HashMap::new(),
            finished: ResultOrder::new(args.ordered),
            read: 0,
            log: LogWatch::new(Arc::clone(&crawler.journal), upkeep),
            browsers: crawler.browsers().to_vec(),
            is_browser_reported: false,
            metrics,
        };
        let ended = scheduler.run().await;
        let (health, lost) = (crawler.journal.health(), crawler.journal.lost());
        let dir = crawler.journal.dir().to_owned();
        if let Some(fleet) = fleet {
            fleet.end().await;
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

/// Updates the index of an archive, including what an interrupted run wrote.
fn index(archive: &Path, cdx: &Path) -> Result<(), Failure> {
    cdxj::update(&Warc::files(archive), cdx).map(drop).map_err(|error| {
        Failure::failed(format_args!("cannot update the index {}: {error}", shown(cdx)))
            .advise("run again with --cdx to update it; the archive is complete")
    })
}
