//! What the program does with the results, events and counts of a crawl: it prints them, and passes
//! them on to the metrics endpoint and the dashboard.
//!
//! Must not know: how links are fetched.

use std::io::Read;
use std::sync::Arc;

use crate::commands::fetch::metrics_endpoint::MetricsEndpoint;
use crate::commands::fetch::progress::pauses;
use crate::commands::fetch::report::ResultDisplay;
use crate::setup::background_maintenance::RunningMaintenance;
use crate::terminal::exit::Failure;
use crate::terminal::output::{note, plain, shown};
use fetchwise::fetch::browser::BrowserFetcher;
use fetchwise_crawl::{CrawlEvent, CrawlResult, CrawlSink, CrawlStatus, QueueSizes};
use fetchwise_serve::CrawlProgress;

/// The program as the sink of a crawl.
pub(super) struct TerminalSink<'o> {
    pub(super) show: ResultDisplay<'o>,
    /// What the run says when it begins; none if it is quiet.
    pub(super) start_line: Option<String>,
    pub(super) browsers: Vec<Arc<BrowserFetcher>>,
    /// Whether the failing browser was reported.
    pub(super) is_browser_reported: bool,
    pub(super) maintenance: Option<RunningMaintenance>,
    /// The endpoint that receives the counts.
    pub(super) metrics: Option<MetricsEndpoint>,
    /// The progress that the dashboard shows.
    pub(super) crawl: Option<CrawlProgress>,
}

impl TerminalSink<'_> {
    /// Reports once why the browser does not start.
    fn report_browser_failure(&mut self) {
        if self.is_browser_reported {
            return;
        }
        if let Some(why) = self.browsers.iter().find_map(|browser| browser.why_not_started()) {
            self.is_browser_reported = true;
            let why = plain(&why);
            self.show.note(&format!(
                "fetchwise: warning: the browser does not start, continuing without it: {why}"
            ));
        }
    }
}

impl CrawlSink for TerminalSink<'_> {
    type Error = Failure;

    fn result(&mut self, result: CrawlResult<'_>) -> Result<(), Failure> {
        match result {
            CrawlResult::Invalid { position, error } => self.show.bad_line(position, error),
            CrawlResult::Fetched { position, link, report, at } => {
                if let Some(response) = &report.response {
                    let mut body = Vec::new();
                    response.body.reader().read_to_end(&mut body).map_err(Failure::failed)?;
                    self.show.page(&body)?;
                }
                self.show.report(position, link.id.as_deref(), report, at)
            }
        }
    }

    fn event(&mut self, event: CrawlEvent<'_>) {
        match event {
            CrawlEvent::Started => self.start_line.take().into_iter().for_each(note),
            CrawlEvent::ResultsIgnored { file, reason } => self.show.note(&format!(
                "fetchwise: warning: ignoring the unprinted results in {}: {reason}; their links are fetched again",
                shown(file)
            )),
            CrawlEvent::LogDegraded { reason, is_storage_full } => {
                let advice = if is_storage_full { ": free space on its file system" } else { "" };
                self.show.note(&format!(
                    "fetchwise: warning: the attempt log is degraded ({reason}); fetching continues, and attempts wait \
                     in memory{advice}"
                ));
            }
            CrawlEvent::LogRecovered => self.show.note("fetchwise: the attempt log has recovered"),
            CrawlEvent::EvidenceDegraded { reason } => self.show.note(&format!(
                "fetchwise: warning: {reason}; fetching continues"
            )),
            CrawlEvent::EvidenceRecovered => {
                self.show.note("fetchwise: evidence on disk can be written and read again");
            }
            CrawlEvent::CrawlDelayCut(cut) => self.show.crawl_delay_cut(cut),
            CrawlEvent::SignatureRejected(host) => self.show.signature_rejected(host),
            // It names times, because the line stays as it is; the progress has the rest of the
            // wait.
            CrawlEvent::Waiting { paused, at } => {
                self.show.note(&format!("waiting for {} (`--wait 0` ends at once)", pauses(&paused, at)));
            }
            CrawlEvent::Stopping => {
                self.show.note("stopping: waiting for open requests (Ctrl-C again to abandon them)");
            }
            _ => {}
        }
    }

    fn queues(&mut self, sizes: QueueSizes) {
        if let Some(metrics) = &self.metrics {
            metrics.count(sizes.waiting, sizes.in_progress, sizes.hosts, sizes.done);
        }
    }

    fn tick(&mut self) {
        for words in self.maintenance.iter().flat_map(RunningMaintenance::messages) {
            self.show.note(&plain(&words));
        }
        self.report_browser_failure();
    }

    fn wants_status(&self) -> bool {
        self.show.shows_progress() || self.crawl.is_some()
    }

    fn status(&mut self, status: CrawlStatus<'_>) {
        self.show.update(&status);
        if let Some(crawl) = &self.crawl {
            crawl.set(self.show.figures());
        }
    }
}
