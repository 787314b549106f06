//! Leaving a source alone: an archive or a service that says "not now", or fails again and again, is not asked for a while.
//!
//! Invariant: a source that answers is asked again at once, and no rest is longer than [`MAX_REST`]. Must not know what the source
//! is, nor what it was asked for.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fetchwise_types::response::{Header, header};

/// The longest rest, whatever a source asks for.
const MAX_REST: Duration = Duration::from_secs(3600);
/// The rest after a "not now" that does not say for how long.
const UNSAID: Duration = Duration::from_secs(60);
/// The rest after the second fault in a row, doubled with each further one.
const FAULT_BASE: Duration = Duration::from_secs(5);
/// The longest rest after faults.
const MAX_FAULT: Duration = Duration::from_secs(600);

/// How a source is: rested, or to be left alone.
#[derive(Debug, Default)]
pub(super) struct Rest(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    faults: u32,
    why: String,
}

impl Rest {
    /// Why the source is not to be asked now; none when it may be.
    pub(super) fn why_not(&self) -> Option<String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = state.until?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        Some(format!("it is left alone for another {} s: {}", left.as_secs().max(1), state.why))
    }

    /// The source answered.
    pub(super) fn answered(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }

    /// The source failed, and asked to be left alone for `asked`. A single fault without such a wish may be chance.
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

/// How long a source that answered with `status` asks to be left alone; none when it does not.
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
    fn one_fault_may_be_chance_and_two_are_not() {
        let rest = Rest::default();
        rest.failed(None, "it broke");
        assert_eq!(rest.why_not(), None);
        rest.failed(None, "it broke");
        assert!(rest.why_not().unwrap().ends_with("it broke"));
        rest.answered();
        assert_eq!(rest.why_not(), None);
    }

    #[test]
    fn a_wish_is_kept_to_at_once_and_not_for_ever() {
        let rest = Rest::default();
        rest.failed(asked_rest(429, &[Header::new("Retry-After", "999999999")]), "429");
        let why = rest.why_not().unwrap();
        assert!(why.contains("another 3599 s") || why.contains("another 3600 s"), "{why}");
    }

    #[test]
    fn a_429_always_asks_for_a_rest_and_a_503_where_it_says_so() {
        assert_eq!(asked_rest(429, &[]), Some(UNSAID));
        assert_eq!(asked_rest(503, &[]), None);
        assert_eq!(asked_rest(503, &[Header::new("retry-after", " 7 ")]), Some(Duration::from_secs(7)));
        let past = asked_rest(503, &[Header::new("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")]);
        assert_eq!(past, Some(Duration::ZERO));
    }
}
