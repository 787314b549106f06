//! The metrics of a crawl for Prometheus, for as long as it lasts: `--metrics`.
//!
//! Must not know how a crawl goes: it is told how far it is.

use std::sync::Arc;
use std::time::Duration;

use fetchwise_serve::{Crawl, Exporter, Membership, Options, Tokens};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::commands::fetch::build_crawler::Crawler;
use crate::setup::listen::{Advice, listen, tokens};
use crate::terminal::exit::Failure;
use crate::terminal::output::note;

/// A scrape that is under way at the end may take so long.
const GRACE: Duration = Duration::from_secs(2);
/// When it cannot listen.
const ADVICE: Advice = Advice { example: "--metrics 127.0.0.1:9117", token: "set FETCHWISE_TOKEN" };
/// Scrapers are few.
const MAX_CONNECTIONS: usize = 64;

/// An address that is listened on, where nobody answers yet.
pub(super) struct Listening {
    listener: TcpListener,
    tokens: Tokens,
}

/// Metrics that are there to be scraped.
pub(super) struct Exported {
    crawl: Crawl,
    /// How many links there are, where that is known.
    total: Option<u64>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Listening {
    /// Listens on `address`, if there is one: before anything is fetched, so that a wrong one is said at once.
    pub(super) async fn open(address: Option<&str>) -> Result<Option<Self>, Failure> {
        let Some(address) = address else { return Ok(None) };
        let tokens = tokens(None)?;
        let listener = listen(address, &tokens, &ADVICE).await?;
        Ok(Some(Self { listener, tokens }))
    }

    /// Begins to answer, of the fleet too where the crawl is in one. Called within a runtime.
    pub(super) fn begin(
        self,
        crawler: &Crawler,
        total: Option<u64>,
        fleet: Option<Arc<dyn Membership>>,
    ) -> Result<Exported, Failure> {
        let address = self.listener.local_addr().map_err(Failure::failed)?;
        let mut options = Options::default();
        (options.grace, options.max_connections) = (GRACE, MAX_CONNECTIONS);
        let crawl = Crawl::default();
        let (selector, journal) = (Arc::clone(&crawler.selector), Arc::clone(&crawler.journal));
        let exporter = Exporter::new(selector, journal, &crawl, total.is_some(), fleet, (self.tokens, options));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(exporter.run(self.listener, async {
            let _ = stopped.await;
        }));
        note(format_args!("fetchwise: metrics are at http://{address}/metrics"));
        Ok(Exported { crawl, total, stop, task })
    }
}

impl Exported {
    /// So many links wait, so many are being fetched, of so many hosts; so many of the input are done.
    pub(super) fn count(&self, queued: usize, in_progress: usize, hosts: usize, done: u64) {
        self.crawl.set_queue(queued, in_progress, hosts);
        if let Some(total) = self.total {
            self.crawl.set_left(total.saturating_sub(done));
        }
    }

    /// Lets a scrape that is under way come to its end.
    pub(super) async fn close(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}
