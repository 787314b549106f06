//! The dashboard of a running crawl: the server of `serve` in the same process, with the same
//! selector and log.
//!
//! Must not know: what is crawled, and how the crawl shows it.

use std::sync::Arc;
use std::time::Duration;

use fetchwise::store::Store;
use fetchwise_serve::{CrawlProgress, Handle, Membership, Options, Parts, Server, Tokens};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::commands::fetch::build_crawler::Crawler;
use crate::commands::fetch::crawl_options::CrawlOptions;
use crate::setup::listen::{ListenHints, listen, tokens};
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use fetchwise_crawl::RunLog;

/// The time for open requests at the end.
const GRACE: Duration = Duration::from_secs(2);
/// The hints for an address that cannot be used.
const LISTEN_HINTS: ListenHints =
    ListenHints { example: "--serve 127.0.0.1:7117", token: "set FETCHWISE_TOKEN" };

/// A listener that does not respond yet.
pub(crate) struct PendingDashboard {
    pub(crate) listener: TcpListener,
    pub(crate) tokens: Tokens,
    /// Whether clients may only look.
    pub(crate) is_read_only: bool,
}

impl PendingDashboard {
    /// Listens on `address`, if there is one. Called before the first request, so that an invalid
    /// address is reported at once.
    pub(super) async fn open(address: Option<&str>) -> Result<Option<Self>, Failure> {
        let Some(address) = address else { return Ok(None) };
        let tokens = tokens(None)?;
        let listener = listen(address, &tokens, &LISTEN_HINTS).await?;
        Ok(Some(Self { listener, tokens, is_read_only: true }))
    }

    /// Opens a crawler that the dashboard shows. Called within a runtime.
    pub(crate) fn open_crawler(
        self,
        settings: &Settings,
        crawl_options: &CrawlOptions,
        store: Option<Arc<dyn Store>>,
    ) -> Result<(Crawler, ReadyDashboard), Failure> {
        let address = self.listener.local_addr().map_err(Failure::failed)?;
        let classifier =
            Arc::new(settings.detector()?.with_options(settings.detector_options().counting_all()));
        let mut options = Options::default();
        (options.grace, options.read_only) = (GRACE, self.is_read_only);
        let (run_log, mut server) = (RunLog::default(), None);
        let counted = run_log.clone();
        let mut crawler = Crawler::open_around(
            settings,
            crawl_options,
            store,
            |selector, journal, detector, guard| {
                let parts = Parts {
                    selector,
                    registered: Vec::new(),
                    journal: Arc::clone(journal),
                    detector: Arc::clone(detector),
                    classifier,
                    unavailable: Vec::new(),
                    tokens: self.tokens,
                    options,
                    guard: Some(Arc::clone(guard)),
                    followed: None,
                };
                let made = Server::observed(parts, |sink| Box::new(run_log.counting(sink)))?;
                let selector = Arc::clone(made.handle().selector());
                server = Some(made);
                Ok(selector)
            },
        )?;
        let server = server.ok_or_else(|| Failure::failed("the dashboard was not built"))?;
        let url = format!("http://{address}/");
        crawler.run_log = counted;
        Ok((crawler, ReadyDashboard { url, listener: self.listener, server }))
    }
}

/// A dashboard whose crawler is open.
pub(crate) struct ReadyDashboard {
    url: String,
    listener: TcpListener,
    server: Server,
}

impl ReadyDashboard {
    /// Starts to respond, with the fleet of the crawl. Called within a runtime.
    pub(crate) fn begin(self, fleet: Option<Arc<dyn Membership>>) -> DashboardServer {
        let server = match fleet {
            Some(fleet) => self.server.in_fleet(fleet),
            None => self.server,
        };
        let crawl = CrawlProgress::default();
        let server = server.of_crawl(crawl.clone());
        let handle = server.handle();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(self.listener, async {
            let _ = stopped.await;
        }));
        DashboardServer { url: self.url, crawl, handle, stop, task }
    }
}

/// A server that runs alongside a crawl.
pub(crate) struct DashboardServer {
    /// The address of the dashboard.
    pub(crate) url: String,
    /// The progress that the dashboard shows.
    pub(crate) crawl: CrawlProgress,
    /// The server, for what changes while it runs.
    pub(crate) handle: Handle,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<usize>>,
}

impl DashboardServer {
    /// Stops after open requests have finished.
    pub(crate) async fn close(self) {
        let _ = self.stop.send(());
        // The crawler's own end reports what could not be written.
        let _ = self.task.await;
    }
}
