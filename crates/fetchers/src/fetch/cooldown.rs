//! The cooldown of a source: an archive or a service that says "not now", or fails repeatedly, gets
//! no requests for a while.
//!
//! Invariants: a successful response ends the cooldown, and no cooldown is longer than
//! [`MAX_PAUSE`].
//!
//! Must not know: what the source is, and what was requested.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fetchwise_types::response::{Header, header};

/// Maximum cooldown, whatever a source requests.
const MAX_PAUSE: Duration = Duration::from_secs(3600);
/// Cooldown after a "not now" without a duration.
const DEFAULT_PAUSE: Duration = Duration::from_secs(60);
/// Cooldown after the second fault in a row; each further fault doubles it.
const FAULT_BASE: Duration = Duration::from_secs(5);
/// Maximum cooldown after faults.
const MAX_FAULT_PAUSE: Duration = Duration::from_secs(600);

/// State of a source: available, or in cooldown.
#[derive(Debug, Default)]
pub(super) struct Cooldown(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    faults: u32,
    reason: String,
}

impl Cooldown {
    /// Returns why the source gets no requests now, or `None` if it may get some.
    pub(super) fn pause_reason(&self) -> Option<String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left =
            state.until?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        Some(format!("paused for another {} s: {}", left.as_secs().max(1), state.reason))
    }

    /// Records a response of the source.
    pub(super) fn record_response(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }

    /// Records a failure of the source, which requested a pause of `requested`. A single fault
    /// without such a request may be chance.
    pub(super) fn record_failure(&self, requested: Option<Duration>, reason: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.faults = state.faults.saturating_add(1);
        let pause = match (requested, state.faults) {
            (Some(requested), _) => requested.min(MAX_PAUSE),
            (None, 0 | 1) => return,
            (None, faults) => FAULT_BASE
                .saturating_mul(2_u32.saturating_pow((faults - 2).min(16)))
                .min(MAX_FAULT_PAUSE),
        };
        state.until = Some(Instant::now() + pause);
        reason.clone_into(&mut state.reason);
    }
}

/// Returns the pause that a source requests by a response with `status`, or `None`.
pub(super) fn requested_pause(status: u16, headers: &[Header]) -> Option<Duration> {
    let retry_after = header(headers, "retry-after").and_then(|value| {
        let value = value.trim();
        let date = || httpdate::parse_http_date(value).ok();
        match value.parse() {
            Ok(seconds) => Some(Duration::from_secs(seconds)),
            Err(_) => date().map(|at| at.duration_since(SystemTime::now()).unwrap_or_default()),
        }
    });
    match status {
        429 => Some(retry_after.unwrap_or(DEFAULT_PAUSE)),
        _ => retry_after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_fault_in_a_row_starts_a_cooldown() {
        let cooldown = Cooldown::default();
        cooldown.record_failure(None, "it broke");
        assert_eq!(cooldown.pause_reason(), None);
        cooldown.record_failure(None, "it broke");
        assert!(cooldown.pause_reason().unwrap().ends_with("it broke"));
        cooldown.record_response();
        assert_eq!(cooldown.pause_reason(), None);
    }

    #[test]
    fn a_requested_pause_starts_at_once_and_is_bounded() {
        let cooldown = Cooldown::default();
        cooldown.record_failure(
            requested_pause(429, &[Header::new("Retry-After", "999999999")]),
            "429",
        );
        let reason = cooldown.pause_reason().unwrap();
        assert!(reason.contains("another 3599 s") || reason.contains("another 3600 s"), "{reason}");
    }

    #[test]
    fn a_429_always_requests_a_pause_and_a_503_only_with_retry_after() {
        assert_eq!(requested_pause(429, &[]), Some(DEFAULT_PAUSE));
        assert_eq!(requested_pause(503, &[]), None);
        assert_eq!(
            requested_pause(503, &[Header::new("retry-after", " 7 ")]),
            Some(Duration::from_secs(7))
        );
        let past =
            requested_pause(503, &[Header::new("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")]);
        assert_eq!(past, Some(Duration::ZERO));
    }
}
