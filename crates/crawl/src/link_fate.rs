//! What becomes of a link whose fetch has ended: a result, another try, or a return to its queue.
//!
//! Invariants: a wait of the pace never ends a link, however short `--wait` is. The result of a
//! queued link that says nothing about it is never written: the link would leave its queue with it.
//!
//! Must not know: where links wait.

use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::pipeline::Report;
use fetchwise::time::Timestamp;

use crate::paused_links::PauseWait;

/// The maximum number of requests for a link that its host refused because the crawl was too fast.
const MAX_TRIES: u8 = 4;

/// What becomes of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkFate {
    /// Its report is its result.
    Ends,
    /// Its host may be asked then. It is the next link of the host.
    GoesBack(Timestamp),
    /// Its host, which refused it, may be asked then. Other links of the host go first.
    Refused(Timestamp),
    /// It is paused until then.
    Pauses(Timestamp),
    /// It stays in its queue, without a result.
    StaysQueued,
}

/// Why a link has not been fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotFetched {
    /// Its host's pace did not admit it yet.
    Paced,
    /// Its host refused it because the crawl was too fast.
    Refused,
    /// It is paused, or its host is.
    Paused,
}

impl NotFetched {
    /// Returns why a link with this report may be tried again; none if the report says how the link
    /// ended.
    pub(crate) fn of(report: &Report) -> Option<Self> {
        match report.error_type? {
            Report::PACED => Some(Self::Paced),
            Report::PAUSED => Some(Self::Paused),
            kind if kind == ErrorKind::RateLimited.name() => Some(Self::Refused),
            _ => None,
        }
    }
}

/// The limits of a run's waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimits {
    /// The limit of a link's wait for its host.
    pub max_wait: Duration,
    /// How long the run waits for paused links.
    pub pauses: PauseWait,
    /// Whether the links come from a work queue.
    pub is_queue: bool,
    /// Whether the run was told to end.
    pub is_stopping: bool,
}

impl LinkFate {
    /// Returns the fate of a link that was not fetched and was refused `refused` times. It may be
    /// tried again at `until`.
    pub(crate) fn of(
        why: NotFetched,
        refused: u8,
        until: Option<Timestamp>,
        limits: &WaitLimits,
        now: Timestamp,
    ) -> Self {
        let Some(until) = until.filter(|_| refused < MAX_TRIES) else { return Self::Ends };
        match why {
            _ if limits.is_stopping && limits.is_queue => Self::StaysQueued,
            // As the links that have not begun: the next run fetches it.
            NotFetched::Paced if limits.is_stopping => Self::GoesBack(until),
            _ if limits.is_stopping => Self::Ends,
            NotFetched::Paced if until.since(now) <= limits.max_wait => Self::GoesBack(until),
            NotFetched::Refused if until.since(now) <= limits.max_wait => Self::Refused(until),
            // It is over by now.
            _ if until <= now => Self::GoesBack(until),
            // A queue is no list that the run could end with, so its links do not wait for the end
            // of other work.
            _ if limits.is_queue && limits.pauses.is_shorter_than(until.since(now)) => Self::Ends,
            _ => Self::Pauses(until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);
    const NO_WAIT: PauseWait = PauseWait::AtMost(Duration::ZERO);

    fn after(seconds: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_secs(seconds))
    }

    fn limits(is_queue: bool, pauses: PauseWait) -> WaitLimits {
        WaitLimits { max_wait: Duration::from_secs(900), pauses, is_queue, is_stopping: false }
    }

    /// A work queue with `--wait 0` acknowledged every link that its host's pace did not admit at
    /// once, because a wait of the pace counted as a pause that the run does not wait for. No
    /// `--wait` may make a difference to such a link.
    #[test]
    fn no_wait_of_the_pace_ends_a_link_however_short_the_wait_for_pauses_is() {
        for is_queue in [false, true] {
            for pauses in [NO_WAIT, PauseWait::AtMost(Duration::from_secs(1)), PauseWait::Forever] {
                let of = |why, refused| {
                    LinkFate::of(why, refused, Some(after(2)), &limits(is_queue, pauses), NOW)
                };
                assert_eq!(of(NotFetched::Paced, 3), LinkFate::GoesBack(after(2)));
                assert_eq!(of(NotFetched::Refused, 3), LinkFate::Refused(after(2)));
                assert_eq!(of(NotFetched::Refused, MAX_TRIES), LinkFate::Ends);
            }
        }
    }

    #[test]
    fn a_pause_is_waited_for_as_long_as_the_run_says() {
        let of = |is_queue, pauses, until| {
            LinkFate::of(NotFetched::Paused, 0, Some(until), &limits(is_queue, pauses), NOW)
        };
        let minute = PauseWait::AtMost(Duration::from_secs(60));
        assert_eq!(of(true, NO_WAIT, after(1)), LinkFate::Ends);
        assert_eq!(of(true, NO_WAIT, NOW), LinkFate::GoesBack(NOW), "it is over");
        assert_eq!(of(true, minute, after(60)), LinkFate::Pauses(after(60)));
        assert_eq!(of(true, minute, after(61)), LinkFate::Ends);
        assert_eq!(of(true, PauseWait::Forever, after(10_000)), LinkFate::Pauses(after(10_000)));
        assert_eq!(
            of(false, minute, after(61)),
            LinkFate::Pauses(after(61)),
            "the end of other work decides"
        );
        let paced =
            LinkFate::of(NotFetched::Paced, 0, Some(after(901)), &limits(false, minute), NOW);
        assert_eq!(paced, LinkFate::Pauses(after(901)), "longer than `pace.max_wait`");
    }

    #[test]
    fn a_link_that_was_not_fetched_stays_in_its_queue_when_the_run_is_told_to_end() {
        for (is_queue, fate) in [(false, LinkFate::Ends), (true, LinkFate::StaysQueued)] {
            let limits = WaitLimits { is_stopping: true, ..limits(is_queue, NO_WAIT) };
            for why in [NotFetched::Paced, NotFetched::Refused, NotFetched::Paused] {
                // It has not begun, so the next run fetches it.
                let is_untouched = why == NotFetched::Paced && !is_queue;
                let fate = if is_untouched { LinkFate::GoesBack(after(2)) } else { fate };
                assert_eq!(LinkFate::of(why, 1, Some(after(2)), &limits, NOW), fate, "{why:?}");
            }
            let given_up =
                LinkFate::of(NotFetched::Refused, MAX_TRIES, Some(after(2)), &limits, NOW);
            assert_eq!(given_up, LinkFate::Ends, "it has its result");
        }
    }
}
