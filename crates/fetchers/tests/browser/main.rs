//! The browser fetcher with a real Chromium. On a machine without one every test says that it was skipped.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![cfg(unix)]

mod browser_fetcher;
mod pipeline;
mod remote;
