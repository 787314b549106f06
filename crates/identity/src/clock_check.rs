//! Whether this machine's clock is right: the median of its offsets against `Date` headers.
//!
//! Invariants: each host has one vote, and fewer than [`MIN_HOSTS`] hosts say nothing. So one server with a wrong clock
//! changes nothing. A clock that somebody sets right is right at once, and no offset counts for longer than
//! [`COUNTS_FOR`]: while nothing is signed there may be no further response.
//!
//! Must not know: the time. Its callers pass it in.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::lifetime::UnixSeconds;

/// Number of hosts from which on their median counts.
const MIN_HOSTS: usize = 5;
/// Largest number of hosts that are kept.
const MAX_HOSTS: usize = 63;
/// Time for which an offset counts.
const COUNTS_FOR: Duration = Duration::from_secs(600);

/// A time, by this machine's clock and by one that nobody sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    /// The time by this machine's clock.
    pub(crate) now: UnixSeconds,
    /// Time since a fixed moment.
    pub(crate) elapsed: Duration,
}

/// The clock of a host at a moment.
#[derive(Debug)]
struct HostClock {
    host: String,
    date: UnixSeconds,
    at: ClockReading,
}

impl HostClock {
    /// Returns by how many seconds this machine's clock is ahead of the host's.
    fn offset(&self, present: ClockReading) -> i64 {
        let then = self.at.now.saturating_sub(self.date);
        let passed = i64::try_from(self.age(present).as_secs()).unwrap_or(i64::MAX);
        let since = present.now.saturating_sub(self.date).saturating_sub(passed);
        // The clock was set since then, or the machine slept, which the other clock may not count.
        if since.saturating_abs() < then.saturating_abs() { since } else { then }
    }

    fn age(&self, present: ClockReading) -> Duration {
        present.elapsed.saturating_sub(self.at.elapsed)
    }
}

/// Clocks of the last hosts.
#[derive(Debug, Default)]
pub(crate) struct ClockCheck {
    clocks: Mutex<VecDeque<HostClock>>,
}

impl ClockCheck {
    /// Notes that a host's clock showed `date` at a moment.
    pub(crate) fn note(&self, host: &str, date: UnixSeconds, at: ClockReading) {
        let mut clocks = self.clocks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = clocks.iter_mut().find(|known| known.host == host) {
            (known.date, known.at) = (date, at);
            return;
        }
        if clocks.len() == MAX_HOSTS {
            clocks.pop_front();
        }
        clocks.push_back(HostClock { host: host.to_owned(), date, at });
    }

    /// Returns the median offset in seconds, above 0 if this machine's clock is ahead; none while too few hosts are known.
    pub(crate) fn median(&self, present: ClockReading) -> Option<i64> {
        let clocks = self.clocks.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = clocks.iter().filter(|clock| clock.age(present) < COUNTS_FOR);
        let mut all: Vec<i64> = recent.map(|clock| clock.offset(present)).collect();
        drop(clocks);
        if all.len() < MIN_HOSTS {
            return None;
        }
        all.sort_unstable();
        Some(all[all.len() / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now: UnixSeconds, elapsed: u64) -> ClockReading {
        ClockReading { now, elapsed: Duration::from_secs(elapsed) }
    }

    /// Returns a check by five hosts that show `date` at a moment.
    fn of_five(date: UnixSeconds, moment: ClockReading) -> ClockCheck {
        let check = ClockCheck::default();
        (0..5).for_each(|n| check.note(&format!("{n}.example"), date, moment));
        check
    }

    #[test]
    fn five_hosts_decide_and_one_does_not() {
        let check = ClockCheck::default();
        let (present, note) = (at(1000, 0), |host: &str, offset: i64| check.note(host, 1000 - offset, at(1000, 0)));
        for _ in 0..100 {
            note("wrong.example", 900);
        }
        assert_eq!(check.median(present), None);
        for (n, offset) in [0, 1, -1, 40].into_iter().enumerate() {
            note(&format!("{n}.example"), offset);
        }
        assert_eq!(check.median(present), Some(1));
        for n in 0..200 {
            note(&format!("late{n}.example"), -31);
        }
        assert_eq!(check.median(present), Some(-31));
    }

    #[test]
    fn a_clock_that_is_set_right_is_right_without_a_further_response() {
        let check = of_five(1000, at(1100, 0));
        assert_eq!(check.median(at(1107, 7)), Some(100));
        assert_eq!(check.median(at(1008, 8)), Some(0));
    }

    #[test]
    fn a_machine_that_sleeps_keeps_its_right_clock() {
        let check = of_five(1000, at(1000, 0));
        assert_eq!(check.median(at(9000, 5)), Some(0));
    }

    #[test]
    fn after_ten_minutes_an_offset_counts_no_longer() {
        let check = of_five(1000, at(1100, 0));
        assert_eq!((check.median(at(1699, 599)), check.median(at(1700, 600))), (Some(100), None));
    }
}
