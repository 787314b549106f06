//! `fetch` against servers that limit: what they refuse and what they deliver, counted by the servers themselves.
//!
//! What ends within half a minute runs always. What measures for minutes is ignored unless it is asked for: `make limits` runs it, and
//! prints what it found.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

#[path = "../cli/support.rs"]
#[allow(dead_code, reason = "the other tests of the program use more of it")]
mod support;

mod bans;
mod crawl;
mod hosts;
mod limiters;
mod nginx;
mod server;
