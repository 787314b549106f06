//! Waiting for a condition in tests.
//!
//! Invariants: a condition that never holds ends the test with its name, after two minutes unless
//! the caller sets another limit. No wait passes or fails because it is fast or slow within the
//! limit.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The time limit of a wait: more than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(10);

/// Waits until `holds` returns true, without blocking the runtime.
///
/// # Panics
/// After two minutes, with `what`.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "{caller}: not within {PATIENCE:?}: {what}");
            tokio::time::sleep(STEP).await;
        }
    }
}

/// Waits on this thread until `holds` returns true.
///
/// # Panics
/// After two minutes, with `what`.
#[track_caller]
pub fn until_blocking(what: &str, mut holds: impl FnMut() -> bool) {
    found(what, || if holds() { Ok(()) } else { Err("it does not hold") });
}

/// Waits on this thread until `look` finds something, and returns it.
///
/// # Panics
/// After two minutes, with `what` and the last error.
#[track_caller]
pub fn found<T, E: Display>(what: &str, look: impl FnMut() -> Result<T, E>) -> T {
    found_within(PATIENCE, what, look)
}

/// Works like [`found`], with another limit.
///
/// # Panics
/// After `limit`, with `what` and the last error.
#[track_caller]
pub fn found_within<T, E: Display>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, E>,
) -> T {
    let begun = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(last) => assert!(begun.elapsed() < limit, "not within {limit:?}: {what}: {last}"),
        }
        std::thread::sleep(STEP);
    }
}
