//! The dashboard of the demo, at a port that need not be free.
//!
//! Must not know: what is crawled, and how the demo shows it.

use std::net::{Ipv4Addr, SocketAddr};

use fetchwise_serve::{CrawlProgress, Server};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::failure::Failure;

/// The default port.
const PORT: u16 = 7117;

/// A server that runs alongside the demo.
pub(super) struct Dashboard {
    /// Its address.
    pub(super) url: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<usize>>,
}

/// Starts to respond. Called within a runtime.
pub(super) async fn begin(server: Server) -> Result<Dashboard, Failure> {
    let listener = listen().await?;
    let url = format!("http://{}/", listener.local_addr().map_err(Failure::failed)?);
    let (stop, stopped) = oneshot::channel();
    let server = server.of_crawl(CrawlProgress::default());
    let task = tokio::spawn(server.run(listener, async {
        let _ = stopped.await;
    }));
    Ok(Dashboard { url, stop, task })
}

impl Dashboard {
    /// Stops after open requests have finished.
    pub(super) async fn close(self) {
        let _ = self.stop.send(());
        // The crawler's own end reports what could not be written.
        let _ = self.task.await;
    }
}

async fn listen() -> Result<TcpListener, Failure> {
    let at = |port| TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    match at(PORT).await {
        Ok(listener) => Ok(listener),
        Err(_) => at(0).await.map_err(|error| {
            Failure::failed(format_args!("cannot listen for the dashboard: {error}"))
        }),
    }
}
