//! `fetch`: many URLs at once, with a result for each.
//!
//! A result appears as soon as it is available, so that a hanging server delays no other result;
//! with `--ordered` results appear in the order of the input. A result is printed once its attempts
//! survive the end of the process. Its link is recorded as done once the result is flushed. A
//! killed run therefore loses no printed result, and prints every result at least once when it is
//! resumed.
//!
//! All links are read alongside the crawl. Those of a host that has to wait stay in its own queue
//! and take no slot from others. A link that waits is an offset in the list, so the number of links
//! is bounded by memory only.
//!
//! The crate `fetchwise-crawl` crawls. Here `args` has the arguments, `spec` translates them,
//! `build_crawler` builds what fetches, and `terminal_sink` shows results, events and progress.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::fleet;
use crate::commands::fetch::build_crawler::Crawler;
use crate::commands::fetch::crawl_options::CrawlOptions;
use crate::commands::fetch::dashboard_server::{PendingDashboard, ReadyDashboard};
use crate::commands::fetch::end_report::EndReport;
use crate::commands::fetch::metrics_endpoint::PendingEndpoint;
#[cfg(not(feature = "parquet"))]
use crate::commands::fetch::parquet_absent::ParquetPages;
#[cfg(feature = "parquet")]
use crate::commands::fetch::parquet_pages::ParquetPages;
use crate::commands::fetch::report::{DisplayOptions, ResultDisplay};
use crate::commands::fetch::terminal_sink::TerminalSink;
use crate::parse::input::is_stdin;
use crate::setup::background_maintenance::{self, RunningMaintenance};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, note, shown};
use fetchwise::journal::{Health, Journal};
use fetchwise::selector::Selector;
use fetchwise::store::Store;
use fetchwise::store::warc::{Warc, cdxj};
use fetchwise_crawl::{CostReport, Crawl, CrawlEnd, CrawlSummary, RunLog, Totals};

use args::FailOn;
pub(crate) use args::FetchArgs;

pub(crate) mod args;
pub(crate) mod build_crawler;
pub(crate) mod build_fetchers;
mod crawl_failure;
pub(crate) mod crawl_options;
pub(crate) mod dashboard_server;
mod end_report;
mod fd_limit;
mod hints;
mod metrics_endpoint;
#[cfg(not(feature = "parquet"))]
mod parquet_absent;
#[cfg(feature = "parquet")]
mod parquet_pages;
mod progress;
mod report;
mod result_text;
pub(crate) mod shutdown;
mod spec;
mod start_line;
mod terminal_sink;

/// A run of the command that is about to begin.
struct Run<'a> {
    args: &'a FetchArgs,
    settings: &'a Settings,
    /// The number of links that may be at work.
    concurrency: usize,
    /// Whether stdout gets the page of the first link.
    prints_page: bool,
}

/// Runs the command.
pub(crate) fn run(
    args: &FetchArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    fleet::check(settings, &args.fleet)?;
    check(args, settings, out.json)?;
    let prints_page = args.prints_page(out.json);
    out.make_interruptible(prints_page)?;
    let run = Run { args, settings, concurrency: fd_limit::at_once(args.concurrency), prints_page };
    let crawl = Crawl::open(spec::spec(args, settings, run.concurrency, prints_page))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let data_set = args.parquet.as_deref().map(ParquetPages::open).transpose()?.map(Arc::new);
    let store = match &data_set {
        Some(pages) => Some(Arc::clone(pages) as Arc<dyn Store>),
        None => build_crawler::store(args)?,
    };
    if args.has_list() && store.is_none() && !prints_page && !args.quiet {
        note("page bodies are not kept: use --out DIR, --warc FILE or --parquet FILE to keep them");
    }
    let ended = runtime.block_on(run.crawl(crawl, store, out));
    // A name lookup blocks a thread that cannot be stopped.
    runtime.shutdown_timeout(Duration::from_millis(500));
    if let Some(pages) = data_set {
        pages.finish()?;
    }
    if let (Some(archive), Some(cdx)) = (&args.warc, &args.cdx) {
        index(archive, cdx)?;
    }
    ended
}

/// Opens a crawler and its dashboard, if there is to be one.
fn open_crawler(
    dashboard: Option<PendingDashboard>,
    settings: &Settings,
    crawl_options: &CrawlOptions,
    store: Option<Arc<dyn Store>>,
) -> Result<(Crawler, Option<ReadyDashboard>), Failure> {
    match dashboard {
        Some(pending) => pending
            .open_crawler(settings, crawl_options, store)
            .map(|(crawler, dashboard)| (crawler, Some(dashboard))),
        None => Crawler::open(settings, crawl_options, store).map(|crawler| (crawler, None)),
    }
}

/// Fails if the log has not kept all that was recorded. The pages are there nevertheless.
fn check_log(journal: &Journal) -> Result<(), Failure> {
    let lost = journal.lost();
    match journal.log_health() {
        _ if !lost.is_nothing() => {
            Err(Failure::failed(format_args!("the attempt log lost {lost}")))
        }
        Health::Degraded { reason, .. } => {
            Err(Failure::failed(format_args!("the attempt log was failing: {reason}")))
        }
        _ => Ok(()),
    }
}

impl Run<'_> {
    /// Opens a crawler and what goes with it, crawls, and closes all of it.
    async fn crawl(
        &self,
        crawl: Crawl,
        store: Option<Arc<dyn Store>>,
        out: &mut Output,
    ) -> Result<Exit, Failure> {
        let Self { args, settings, .. } = *self;
        let stop = shutdown::listen().map_err(Failure::failed)?;
        let metrics = PendingEndpoint::open(args.metrics.as_deref()).await?;
        let dashboard = PendingDashboard::open(args.serve.as_deref()).await?;
        let crawl_options = CrawlOptions::from(args);
        let (crawler, dashboard) = open_crawler(dashboard, settings, &crawl_options, store)?;
        let (total, pauses) = (crawl.total(), crawl.pause_control());
        let fleet = fleet::join(
            settings,
            &args.fleet,
            &crawler.journal,
            &crawler.selector,
            args.queue.as_deref(),
        )
        .await?;
        let told = fleet.as_ref().map(|fleet| fleet.membership());
        let metrics =
            metrics.map(|metrics| metrics.begin(&crawler, total, told.clone())).transpose()?;
        let dashboard = dashboard.map(|dashboard| dashboard.begin(told.clone()));
        let server = dashboard.as_ref().map(|dashboard| dashboard.handle.clone());
        let control = crawler.control(pauses, server, told).listen("fetch");
        if let Some(dashboard) = &dashboard {
            note(format_args!("fetchwise: serving the dashboard at {}", dashboard.url));
        }
        let crawl = match (&args.queue, &fleet) {
            #[cfg(feature = "fleet")]
            (Some(queue), Some(fleet)) => {
                crawl.of_queue(fleet.read_queue(queue, &crawler.selector, self.concurrency))
            }
            _ => crawl,
        };
        let mut sink = TerminalSink {
            show: ResultDisplay::new(out, self.display()),
            start_line: (args.has_list() && !args.quiet)
                .then(|| start_line::text(args, settings, &crawler, total)),
            browsers: crawler.browsers().to_vec(),
            is_browser_reported: false,
            maintenance: background_maintenance::start(settings, crawler.journal.dir())?,
            metrics,
            crawl: dashboard.as_ref().map(|dashboard| dashboard.crawl.clone()),
        };
        let (pipeline, journal) = (Arc::clone(&crawler.pipeline), Arc::clone(&crawler.journal));
        let ended = crawl.stop_on(stop).run(pipeline, journal, &mut sink).await;
        let show = close_sink(sink).await;
        if let Some(control) = control {
            control.close().await;
        }
        let ended = ended
            .and_then(|summary| self.report(summary, show, (&crawler.run_log, &crawler.selector)));
        let log = check_log(&crawler.journal);
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
        log.map(|()| exit)
    }

    fn display(&self) -> DisplayOptions {
        let (lines, is_list) = (self.args.lines(), self.args.has_list());
        DisplayOptions { lines, is_list, prints_page: self.prints_page }
    }

    /// Prints the report of the end, and returns the exit code.
    fn report(
        &self,
        CrawlSummary { end, totals }: CrawlSummary,
        show: ResultDisplay<'_>,
        (run_log, selector): (&RunLog, &Selector),
    ) -> Result<Exit, Failure> {
        let now = selector.now();
        let cost = CostReport::new(run_log, &totals, selector, now);
        let (is_list, is_complete) = (self.args.has_list(), matches!(end, CrawlEnd::Complete));
        show.finish(
            &EndReport { now, is_list, queue: self.args.queue.clone(), is_complete, cost },
            &totals,
        );
        match end {
            CrawlEnd::Complete => Ok(exit(&totals, self.args.fail_on)),
            CrawlEnd::Stopped => Err(Failure::failed("interrupted")
                .advise("run the same command again to continue where it stopped")),
            CrawlEnd::Broken(error) => Err(Failure::from(error)),
        }
    }
}

/// Ends what goes with a crawl: only the closing task may use the journal when it closes.
async fn close_sink(sink: TerminalSink<'_>) -> ResultDisplay<'_> {
    let TerminalSink { show, maintenance, metrics, .. } = sink;
    maintenance.into_iter().for_each(RunningMaintenance::stop);
    if let Some(metrics) = metrics {
        metrics.close().await;
    }
    show
}

/// Returns the exit code of a complete run.
fn exit(totals: &Totals, fail_on: FailOn) -> Exit {
    // This machine or the input is at fault, so the run itself has failed.
    if totals.unclassified > 0 {
        return Exit::Failed;
    }
    let is_failure = match fail_on {
        FailOn::None => false,
        FailOn::Any => totals.not_delivered() > 0,
        FailOn::All => {
            totals.not_delivered() > 0 && totals.delivered + totals.missing + totals.skipped == 0
        }
    };
    if is_failure { Exit::NotDelivered } else { Exit::Done }
}

/// Checks what the syntax of the arguments cannot express.
fn check(args: &FetchArgs, settings: &Settings, json: bool) -> Result<(), Failure> {
    if args.queue.is_some() && args.fleet.brokers.is_empty() && settings.config.fleet.url.is_empty()
    {
        return Err(Failure::usage("--queue needs a fleet").advise(
            "name its brokers with --fleet nats://127.0.0.1:4222, or with fleet.url in the config",
        ));
    }
    if args.urls.is_empty() && args.input.is_none() && args.retry.is_none() && args.queue.is_none()
    {
        return Err(Failure::usage("missing URL")
            .advise("name a URL, a list with --input FILE, or - to read URLs from stdin"));
    }
    if json && args.out.as_deref().is_some_and(is_stdin) {
        return Err(Failure::usage("--json and --out - both write to stdout")
            .advise("use --out DIR with --json"));
    }
    Ok(())
}

/// Updates the index of an archive, including what an interrupted run wrote.
fn index(archive: &Path, cdx: &Path) -> Result<(), Failure> {
    cdxj::update(&Warc::files(archive), cdx).map(drop).map_err(|error| {
        Failure::failed(format_args!("cannot update the index {}: {error}", shown(cdx)))
            .advise("run again with --cdx to update it; the archive is complete")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_says_whether_the_urls_were_delivered() {
        let of = |delivered, missing, failed, unclassified| Totals {
            delivered,
            missing,
            failed,
            unclassified,
            ..Totals::default()
        };
        let codes = |sum: &Totals| {
            [FailOn::Any, FailOn::All, FailOn::None].map(|fail_on| exit(sum, fail_on) as u8)
        };
        assert_eq!(codes(&of(3, 2, 0, 0)), [0, 0, 0]);
        assert_eq!(codes(&of(3, 0, 1, 0)), [4, 0, 0]);
        assert_eq!(codes(&of(0, 1, 1, 0)), [4, 0, 0]);
        assert_eq!(codes(&of(0, 0, 1, 0)), [4, 4, 0]);
        assert_eq!(codes(&of(3, 0, 1, 1)), [1, 1, 1]);
        assert_eq!(codes(&Totals { paused: 1, ..Totals::default() }), [4, 4, 0]);
    }
}
