//! Waiting for a condition in tests.
//!
//! Invariants: a condition that never holds ends the test with its name, after a minute.

use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(10);

/// Waits until `holds` returns true, without blocking the runtime.
///
/// # Panics
/// After a minute, with `what`.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "{caller}: not within a minute: {what}");
            tokio::time::sleep(STEP).await;
        }
    }
}

/// Waits on this thread until `holds` returns true.
///
/// # Panics
/// After a minute, with `what`.
#[track_caller]
pub fn until_blocking(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within a minute: {what}");
        std::thread::sleep(STEP);
    }
}
