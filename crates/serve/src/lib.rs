//! The HTTP server of fetchwise: decisions, attempts, visits and figures for crawlers in any
//! language. Bodies match the `--json` output of the commands.
//!
//! [`Server`] takes a selector, its journal and a detector, and serves requests until it is
//! stopped. It neither decides nor judges: a route reads a request, calls the library as an
//! embedding crawler does, and writes the result.
//!
//! The crate `fetchwise-present` owns the fields of results; the commands use the same.
//! `dashboard_json` has those of the dashboard. `auth` admits requests, `request_origin` reads what
//! they address, `listener` accepts connections, `attempt_sink` knows what is in the log,
//! `time_series` has its figures over time, `fleet_membership` is the interface to a fleet,
//! `signing` that to an identity, `public` is the listener for what an agent publishes,
//! `crawl_progress` is the interface to a crawl. `event_marks` keeps the events that the charts of
//! the dashboard mark. `pause_cause` finds why a host or link is paused. `assets` has the
//! dashboard's files, and `routes` has a file per group of routes. `docs/reference/http-api.md` is
//! the reference.
//!
//! Invariant: no task blocks the runtime. Code that reads the log or a long body runs on a separate
//! thread.

mod assets;
pub mod attempt_filter;
mod attempt_id_set;
mod attempt_sink;
mod auth;
mod connections;
mod count_ring;
mod crawl_progress;
mod dashboard_cache;
mod dashboard_json;
#[cfg(test)]
mod description;
mod event_marks;
mod fleet_membership;
mod follow;
mod followed_log;
mod json_response;
mod listener;
mod metrics;
mod options;
mod pause_cause;
mod problem;
mod public;
mod request_body;
mod request_origin;
mod routes;
mod server;
mod signing;
mod state;
mod time_series;
mod token;
mod unavailable_fetchers;
mod visits;
mod write_timeout;

pub use crawl_progress::{CrawlFigures, CrawlProgress};
pub use fleet_membership::{Membership, MembershipFuture};
pub use metrics::FAMILIES;
pub use metrics::crawl_endpoint::{CRAWL_FAMILIES, Crawl, Exporter};
pub use metrics::fleet::FLEET_FAMILIES;
pub use options::Options;
pub use pause_cause::{Paused, pause_cause};
pub use public::{PublicDocument, PublicSite, Publisher};
pub use server::{Handle, Parts, Server, while_loading};
pub use signing::{RequestSigner, SignatureHeaders, Unsigned};
pub use token::{TokenError, Tokens};
