//! Tests of the browser fetcher with a real Chromium. Without one they are skipped, or fail if `FETCHWISE_SYSTEM_TESTS`
//! is set.
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

/// Returns the Chromium to test with. Without one, prints that the test is skipped; panics if `FETCHWISE_SYSTEM_TESTS`
/// is set.
fn chromium() -> Option<PathBuf> {
    let found = BrowserFetcher::find(None);
    if let Err(missing) = &found {
        assert!(std::env::var_os("FETCHWISE_SYSTEM_TESTS").is_none(), "{missing}");
        println!("SKIPPED: no Chromium");
    }
    found.ok()
}
