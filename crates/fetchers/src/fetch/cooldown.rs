//! The cooldown of a source: an archive or a service that says "not now", or fails repeatedly, gets no requests for a
//! while.
//!
//! Invariants: a successful response ends the cooldown, and no cooldown is longer than [`MAX_PAUSE`].
//!
//! Must not know: what the source is, and what was requested.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fetchwise_types::response::{Header, header};

/// Maximum cooldown, whatever a source requests.
const MAX_REST: Duration = Duration::from_secs(3600);
/// Cooldown after a "not now" without a duration.
const UNSAID: Duration = Duration::from_secs(60);
/// Cooldown after the second fault in a row; each further fault doubles it.
const FAULT_BASE: Duration = Duration::from_secs(5);
/// Maximum cooldown after faults.
const MAX_FAULT: Duration = Duration::from_secs(600);

/// State of a source: available, or in cooldown.
#[derive(Debug, Default)]
pub(super) struct Rest(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    faults: u32,
    why: String,
}

impl Rest {
    /// Returns why the source gets no requests now, or `None` if it may get some.
    pub(super) fn why_not(&self) -> Option<String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = state.until?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        Some(format!("paused for another {} s: {}", left.as_secs().max(1), state.why))
    }

    /// Records a response of the source.
    pub(super) fn answered(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }

    /// Records a failure of the source, which requested a pause of `requested`. A single fault without such a request
    /// may be chance.
    pub(super) fn failed(&self, asked: Option<Duration>, why: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.faults = state.faults.saturating_add(1);
        let rest = match (asked, state.faults) {
            (Some(asked), _) => asked.min(MAX_REST),
            (None, 0 | 1) => return,
            (None, faults) => FAULT_BASE.saturating_mul(2_u32.saturating_pow((faults - 2).min(16))).min(MAX_FAULT),
        };
        state.until = Some(Instant::now() + rest);
        why.clone_into(&mut state.why);
    }
}

/// Returns the pause that a source requests by a response with `status`, or `None`.
pub(super) fn asked_rest(status: u16, headers: &[Header]) -> Option<Duration> {
    let said = header(headers, "retry-after").and_then(|value| {
        let value = value.trim();
        let date = || httpdate::parse_http_date(value).ok();
        match value.parse() {
            Ok(seconds) => Some(Duration::from_secs(seconds)),
            Err(_) => date().map(|at| at.duration_since(SystemTime::now()).unwrap_or_default()),
        }
    });
    match status {
        429 => Some(said.unwrap_or(UNSAID)),
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_fault_in_a_row_starts_a_cooldown() {
        let rest = Rest::default();
        rest.failed(None, "it broke");
        assert_eq!(rest.why_not(), None);
        rest.failed(None, "it broke");
        assert!(rest.why_not().unwrap().ends_with("it broke"));
        rest.answered();
        assert_eq!(rest.why_not(), None);
    }

    #[test]
    fn a_requested_pause_starts_at_once_and_is_bounded() {
        let rest = Rest::default();
        rest.failed(asked_rest(429, &[Header::new("Retry-After", "999999999")]), "429");
        let why = rest.why_not().unwrap();
        assert!(why.contains("another 3599 s") || why.contains("another 3600 s"), "{why}");
    }

    #[test]
    fn a_429_always_requests_a_pause_and_a_503_only_with_retry_after() {
        assert_eq!(asked_rest(429, &[]), Some(UNSAID));
        assert_eq!(asked_rest(503, &[]), None);
        assert_eq!(asked_rest(503, &[Header::new("retry-after", " 7 ")]), Some(Duration::from_secs(7)));
        let past = asked_rest(503, &[Header::new("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")]);
        assert_eq!(past, Some(Duration::ZERO));
    }
}
