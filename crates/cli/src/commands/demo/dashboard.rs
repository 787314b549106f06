//! The dashboard of the demo: that of a crawl, at a port that need not be free.
//!
//! Must not know: what is crawled, and how the demo shows it.

use std::net::{Ipv4Addr, SocketAddr};

use fetchwise_serve::Tokens;
use tokio::net::TcpListener;

use crate::commands::fetch::build_crawler::Crawler;
use crate::commands::fetch::crawl_options::CrawlOptions;
use crate::commands::fetch::dashboard_server::{DashboardServer, PendingDashboard};
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;

/// The default port.
const PORT: u16 = 7117;

/// Opens a crawler, and its dashboard if `is_wanted`. Called within a runtime.
pub(super) async fn open(
    is_wanted: bool,
    settings: &Settings,
    crawl_options: &CrawlOptions,
) -> Result<(Crawler, Option<DashboardServer>), Failure> {
    if !is_wanted {
        return Ok((Crawler::open(settings, crawl_options, None)?, None));
    }
    // A demo crawls its own sites, so anybody on this machine may change its state.
    let pending = PendingDashboard { listener: listen().await?, tokens: Tokens::default(), is_read_only: false };
    let (crawler, ready) = pending.open_crawler(settings, crawl_options, None)?;
    Ok((crawler, Some(ready.begin(None))))
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
