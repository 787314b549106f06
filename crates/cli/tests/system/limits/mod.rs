//! `fetch` against servers with limits: the servers count what they refuse and deliver.
//!
//! Tests that end within half a minute always run. Measurements of minutes are ignored by default:
//! `make limits` runs them and prints the results.
mod bans;
mod crawl;
mod hosts;
mod limiters;
mod nginx;
mod server;
