//! The program as its users meet it: exit codes, fields, messages, and the server's contract.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod acceptance;
mod analytics;
mod attempt_queries;
mod classify;
mod config;
#[cfg(unix)]
mod control;
mod crawl_metrics;
mod fetch;
mod full_disk;
#[cfg(unix)]
mod hostile;
#[cfg(unix)]
mod identity;
#[path = "../common/identity_costs.rs"]
mod identity_costs;
#[cfg(unix)]
mod lab;
mod log_export;
mod maintenance;
mod migrating;
#[cfg(feature = "otlp")]
mod otlp;
mod pocketbase;
mod priors;
mod rollout;
mod select_and_explain;
mod serve;
#[path = "../common/small_disk.rs"]
mod small_disk;
#[path = "../common/support.rs"]
mod support;
mod testbed;
mod third_party_fetchers;
