//! fetchwise over HTTP: decisions, attempts, visits and figures for crawlers in any language, with bodies as the commands' `--json`.
//!
//! [`Server`] takes a selector, its journal and a detector, and answers until it is asked to stop. It decides nothing and judges
//! nothing itself: a route reads a request, asks the library as any embedding crawler does, and writes down what that says.
//!
//! [`shape`] owns the fields of all answers; the commands use the same. `gate` lets requests in, `front` looks after connections,
//! `kept` knows what is in the log, `series` its figures over time, `fleet` what the other nodes of a fleet are, `assets` has the
//! dashboard's files, `routes` has a file for each group of routes. `docs/reference/http-api.md` is the reference.
//!
//! Nothing here may hold up the runtime: what reads the log or a long body goes to a thread of its own.

mod assets;
mod attempt_id_set;
mod attempt_store;
mod auth;
mod connections;
mod dashboard_cache;
mod fleet_membership;
pub mod json;
mod json_response;
mod listener;
mod metrics;
mod options;
mod problem;
mod request_body;
mod routes;
mod server;
mod state;
mod time_series;
mod token;
mod unavailable_fetchers;
mod visits;
mod write_timeout;

pub use crate::fleet_membership::{Answer, Membership};
pub use crate::metrics::exporter::{CRAWL_FAMILIES, Crawl, Exporter};
pub use crate::metrics::fleet::FLEET_FAMILIES;
pub use metrics::FAMILIES;
pub use options::Options;
pub use server::{Handle, Parts, Server};
pub use token::{TokenError, Tokens};
