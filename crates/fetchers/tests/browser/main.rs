//! Tests of the browser fetcher with a real Chromium. Without one they are skipped, or fail if
//! `FETCHWISE_SYSTEM_TESTS` is set.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![cfg(unix)]

mod browser_fetcher;
mod pipeline;
mod remote;
mod settling;
mod signatures;
#[path = "../common/signed.rs"]
mod signed;

use std::path::PathBuf;

use fetchwise::fetch::browser::BrowserFetcher;
use fetchwise_testsite::requirements::{NO_CHROMIUM, required};

/// Returns the Chromium to test with. Without one, reports the test as skipped.
fn chromium() -> Option<PathBuf> {
    required(BrowserFetcher::find(None), NO_CHROMIUM)
}
