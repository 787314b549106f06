//! The Prometheus endpoint of a crawl: `--metrics`.
//!
//! Must not know: how the crawl works; it receives the counts.

use std::sync::Arc;
use std::time::Duration;

use fetchwise_serve::{Crawl, Exporter, Membership, Options, Tokens};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::commands::fetch::build_crawler::Crawler;
use crate::setup::listen::{ListenHints, listen, tokens};
use crate::terminal::exit::Failure;
use crate::terminal::output::note;

/// The time for an open scrape at the end.
const GRACE: Duration = Duration::from_secs(2);
/// The hints for an address that cannot be used.
const LISTEN_HINTS: ListenHints =
    ListenHints { example: "--metrics 127.0.0.1:9117", token: "set FETCHWISE_TOKEN" };
/// The limit of connections; scrapers are few.
const MAX_CONNECTIONS: usize = 64;

/// A listener that does not respond yet.
pub(super) struct PendingEndpoint {
    listener: TcpListener,
    tokens: Tokens,
}

/// A running metrics endpoint.
pub(super) struct MetricsEndpoint {
    crawl: Crawl,
    /// The number of links, if known.
    total: Option<u64>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl PendingEndpoint {
    /// Listens on `address`, if there is one. Called before the first request, so that an invalid
    /// address is reported at once.
    pub(super) async fn open(address: Option<&str>) -> Result<Option<Self>, Failure> {
        let Some(address) = address else { return Ok(None) };
        let tokens = tokens(None)?;
        let listener = listen(address, &tokens, &LISTEN_HINTS).await?;
        Ok(Some(Self { listener, tokens }))
    }

    /// Starts to respond, including fleet metrics in a fleet. Called within a runtime.
    pub(super) fn begin(
        self,
        crawler: &Crawler,
        total: Option<u64>,
        fleet: Option<Arc<dyn Membership>>,
    ) -> Result<MetricsEndpoint, Failure> {
        let address = self.listener.local_addr().map_err(Failure::failed)?;
        let mut options = Options::default();
        (options.grace, options.max_connections) = (GRACE, MAX_CONNECTIONS);
        let crawl = Crawl::default();
        let (selector, journal) = (Arc::clone(&crawler.selector), Arc::clone(&crawler.journal));
        let progress = (&crawl, total.is_some());
        let exporter = Exporter::new(selector, journal, progress, fleet, (self.tokens, options));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(exporter.run(self.listener, async {
            let _ = stopped.await;
        }));
        note(format_args!("fetchwise: serving metrics at http://{address}/metrics"));
        Ok(MetricsEndpoint { crawl, total, stop, task })
    }
}

impl MetricsEndpoint {
    /// Sets the numbers of waiting links, of links in progress, of their hosts, and of finished
    /// input items.
    pub(super) fn count(&self, queued: usize, in_progress: usize, hosts: usize, done: u64) {
        self.crawl.set_queue(queued, in_progress, hosts);
        if let Some(total) = self.total {
            self.crawl.set_left(total.saturating_sub(done));
        }
    }

    /// Stops after an open scrape has finished.
    pub(super) async fn close(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}
