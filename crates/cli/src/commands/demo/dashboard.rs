//! The dashboard of the demo: the server of `serve` in the same process, with the same selector and log.
//!
//! Must not know: what is crawled, and how the demo shows it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use fetchwise_serve::{Options, Parts, Server, Tokens};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::commands::fetch::build_crawler::Crawler;
use crate::commands::fetch::crawl_options::CrawlOptions;
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;

/// The default port.
const PORT: u16 = 7117;

/// A server that runs alongside a crawl.
pub(super) struct DashboardServer {
    /// The address of the dashboard.
    pub(super) url: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<usize>>,
}

impl DashboardServer {
    /// Stops after open requests have finished.
    pub(super) async fn close(self) {
        let _ = self.stop.send(());
        // The crawler's own end reports what could not be written.
        let _ = self.task.await;
    }
}

/// Opens a crawler, and its dashboard if `is_wanted`. Called within a runtime.
pub(super) async fn open(
    is_wanted: bool,
    settings: &Settings,
    crawl_options: &CrawlOptions,
) -> Result<(Crawler, Option<DashboardServer>), Failure> {
    if !is_wanted {
        return Ok((Crawler::open(settings, crawl_options, None)?, None));
    }
    let listener = listen().await?;
    let address = listener.local_addr().map_err(Failure::failed)?;
    let classifier = Arc::new(settings.detector()?.with_options(settings.detector_options().counting_all()));
    let mut server = None;
    let crawler = Crawler::open_around(settings, crawl_options, None, |selector, journal, detector, guard| {
        let made = Server::new(Parts {
            selector,
            journal: Arc::clone(journal),
            detector: Arc::clone(detector),
            classifier,
            unavailable: Vec::new(),
            tokens: Tokens::default(),
            options: Options::default(),
            guard: Some(Arc::clone(guard)),
        })?;
        let selector = Arc::clone(made.handle().selector());
        server = Some(made);
        Ok(selector)
    })?;
    let served = server.map(|server| {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(listener, async {
            let _ = stopped.await;
        }));
        DashboardServer { url: format!("http://{address}/"), stop, task }
    });
    Ok((crawler, served))
}

async fn listen() -> Result<TcpListener, Failure> {
    let at = |port| TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    match at(PORT).await {
        Ok(listener) => Ok(listener),
        Err(_) => {
            at(0).await.map_err(|error| Failure::failed(format_args!("cannot listen for the dashboard: {error}")))
        }
    }
}
