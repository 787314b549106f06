//! The metrics endpoint of a crawl for Prometheus, without the rest of the server:
//! `fetch --metrics`.
//!
//! Owns: the gauges of a crawl's queue, which the crawler sets.
//!
//! Must not know: how a crawl works.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::auth::Auth;
use crate::fleet_membership::Membership;
use crate::listener::Front;
use crate::metrics;
use crate::metrics::RequestMetrics;
use crate::metrics::fleet::FleetMetrics;
use crate::options::Options;
use crate::problem::Problem;
use crate::token::Tokens;
use fetchwise::journal::Journal;
use fetchwise::metrics::{Family, Kind};
use fetchwise::selector::Selector;

/// The metrics of a crawl, besides those of the library.
pub const CRAWL_FAMILIES: &[Family] = &[QUEUED, IN_PROGRESS, HOSTS, LEFT];

const QUEUED: Family = Family::new(
    "fetchwise_crawl_queue_links",
    Kind::Gauge,
    &[],
    "Links that were read and wait for a free slot or for their host",
);
const IN_PROGRESS: Family =
    Family::new("fetchwise_crawl_links_in_progress", Kind::Gauge, &[], "Links being fetched");
const HOSTS: Family = Family::new(
    "fetchwise_crawl_hosts",
    Kind::Gauge,
    &[],
    "Hosts of the links that wait or are being fetched",
);
const LEFT: Family = Family::new(
    "fetchwise_crawl_links_left",
    Kind::Gauge,
    &[],
    "Links of the input that are not done; absent where their number is unknown",
);

/// The progress of a crawl. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Crawl {
    queued: Gauge,
    in_progress: Gauge,
    hosts: Gauge,
    left: Gauge,
}

impl Crawl {
    /// Sets the numbers of waiting links, of links being fetched, and of their hosts. Costs three
    /// writes to atomics.
    pub fn set_queue(&self, queued: usize, in_progress: usize, hosts: usize) {
        for (gauge, value) in
            [(&self.queued, queued), (&self.in_progress, in_progress), (&self.hosts, hosts)]
        {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    /// Sets the number of input links that are not done.
    pub fn set_left(&self, left: u64) {
        self.left.set(i64::try_from(left).unwrap_or(i64::MAX));
    }

    fn register(&self, registry: &mut Registry, knows_left: bool) {
        for (family, gauge) in
            [(QUEUED, &self.queued), (IN_PROGRESS, &self.in_progress), (HOSTS, &self.hosts)]
        {
            registry.register(family.name, family.help, gauge.clone());
        }
        if knows_left {
            registry.register(LEFT.name, LEFT.help, self.left.clone());
        }
    }
}

/// A server for `GET /metrics` and `/healthz` during a crawl.
#[derive(Debug)]
pub struct Exporter {
    front: Front,
}

impl Exporter {
    /// Creates an exporter for the counts of `selector`, the writes of `journal` and the progress
    /// of `crawl`. `knows_left` says whether the number of remaining links is known; `fleet` is the
    /// fleet of the crawl. Only the options for connections, rates and hosts apply.
    pub fn new(
        selector: Arc<Selector>,
        journal: Arc<Journal>,
        (crawl, knows_left): (&Crawl, bool),
        fleet: Option<Arc<dyn Membership>>,
        (tokens, options): (Tokens, Options),
    ) -> Self {
        let mut registry = Registry::default();
        crawl.register(&mut registry, knows_left);
        if let Some(fleet) = fleet {
            FleetMetrics::register(fleet, &mut registry);
        }
        let counted = Arc::new(RequestMetrics::new(selector, journal, registry));
        let router = Router::new()
            .merge(metrics::routes(Arc::clone(&counted)))
            .route("/healthz", get(async || "ok\n"))
            .fallback(nothing_else)
            .layer(axum::middleware::from_fn_with_state(counted, metrics::count));
        let auth = Arc::new(Auth::new(tokens, &options));
        Self { front: Front { auth, options: Arc::new(options), router } }
    }

    /// Serves `listener` until `stop` completes.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        // Prometheus repeats a scrape that was cut.
        let _ = self.front.run(listener, stop, || {}).await;
    }
}

async fn nothing_else() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "no_such_route",
        "no such route: a crawl has /metrics and /healthz, and `fetchwise serve` has more",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_lists_every_metric_of_a_crawl_and_no_other() {
        let page = include_str!("../../../../docs/reference/metrics.md");
        let written: Vec<&str> =
            page.lines().filter(|line| line.starts_with("| `fetchwise_crawl_")).collect();
        let row =
            |family: &Family| format!("| `{}` | gauge |  | {} |", family.full_name(), family.help);
        assert_eq!(written, CRAWL_FAMILIES.iter().map(row).collect::<Vec<_>>());
    }
}
