//! Whether this machine's clock is right: the median of its offsets against `Date` headers.
//!
//! Invariants: each party has one vote, however many hosts it has, and fewer than [`MIN_PARTIES`]
//! say nothing. A party is a name that somebody has registered, or a network of addresses. So one
//! owner of servers with wrong clocks changes nothing. A clock that was found right, and that
//! nobody has set since, is right whatever servers say. A clock that somebody sets right is right
//! at once, and no offset counts for longer than [`COUNTS_FOR`]: while nothing is signed there may
//! be no further response.
//!
//! Must not know: the time. Its callers pass it in.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fetchwise_public_suffix::{network_of, registered_domain};

use crate::lifetime::UnixSeconds;

/// Number of parties from which on their median counts.
const MIN_PARTIES: usize = 5;
/// Largest number of parties that are kept.
const MAX_PARTIES: usize = 63;
/// Time for which an offset counts.
const COUNTS_FOR: Duration = Duration::from_secs(600);
/// Largest offset in seconds of a clock that counts as right.
const RIGHT_WITHIN: i64 = 5;
/// Time for which a clock that was found right is right. A clock that no time service corrects
/// drifts by seconds a day.
const RIGHT_FOR: Duration = Duration::from_secs(86_400);

/// A time, by this machine's clock and by one that nobody sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    /// The time by this machine's clock.
    pub(crate) now: UnixSeconds,
    /// Time since a fixed moment.
    pub(crate) elapsed: Duration,
}

impl ClockReading {
    /// Returns the time between an earlier reading and this one, by the clock that nobody sets.
    fn passed_since(self, earlier: Self) -> Duration {
        self.elapsed.saturating_sub(earlier.elapsed)
    }

    /// Returns whether somebody has set this machine's clock between an earlier reading and this
    /// one.
    fn was_set_since(self, earlier: Self) -> bool {
        let passed = i64::try_from(self.passed_since(earlier).as_secs()).unwrap_or(i64::MAX);
        self.now.saturating_sub(earlier.now).saturating_sub(passed).saturating_abs() > RIGHT_WITHIN
    }
}

/// The date that a server showed.
#[derive(Clone, Copy, Debug)]
pub struct ServerDate {
    /// Its `Date`.
    pub date: UnixSeconds,
    /// The address of the server, if it is known.
    pub peer: Option<IpAddr>,
}

/// The clock of a party at a moment.
#[derive(Debug)]
struct PartyClock {
    party: String,
    network: Option<String>,
    date: UnixSeconds,
    at: ClockReading,
}

impl PartyClock {
    /// Returns by how many seconds this machine's clock is ahead of the host's.
    fn offset(&self, present: ClockReading) -> i64 {
        let then = self.at.now.saturating_sub(self.date);
        let passed = i64::try_from(self.age(present).as_secs()).unwrap_or(i64::MAX);
        let since = present.now.saturating_sub(self.date).saturating_sub(passed);
        // The clock was set since then, or the machine slept, which the other clock may not count.
        if since.saturating_abs() < then.saturating_abs() { since } else { then }
    }

    fn age(&self, present: ClockReading) -> Duration {
        present.passed_since(self.at)
    }
}

/// Clocks of the last parties.
#[derive(Debug, Default)]
pub(crate) struct ClockCheck {
    clocks: Mutex<VecDeque<PartyClock>>,
    /// The last moment at which this machine's clock was found right.
    right_at: Mutex<Option<ClockReading>>,
}

impl ClockCheck {
    /// Notes the date that the server of a host showed at a moment.
    pub(crate) fn note(&self, host: &str, seen: ServerDate, at: ClockReading) {
        let party = party_of(host);
        let (network, date) = (seen.peer.map(network_of), seen.date);
        let mut clocks = lock(&self.clocks);
        if let Some(known) = clocks.iter_mut().find(|known| known.party == party) {
            (known.network, known.date, known.at) = (network, date, at);
            return;
        }
        if clocks.len() == MAX_PARTIES {
            clocks.pop_front();
        }
        clocks.push_back(PartyClock { party, network, date, at });
    }

    /// Returns by how many seconds this machine's clock is ahead; none while too few parties are
    /// known.
    pub(crate) fn offset(&self, present: ClockReading) -> Option<i64> {
        let median = self.median(present)?;
        let mut right_at = lock(&self.right_at);
        if median.saturating_abs() <= RIGHT_WITHIN {
            *right_at = Some(present);
            return Some(median);
        }
        let is_right = right_at
            .is_some_and(|at| present.passed_since(at) < RIGHT_FOR && !present.was_set_since(at));
        Some(if is_right { 0 } else { median })
    }

    /// Returns the median offset in seconds by the parties' dates.
    fn median(&self, present: ClockReading) -> Option<i64> {
        let clocks = lock(&self.clocks);
        let (mut networks, mut all): (Vec<&str>, Vec<i64>) = (Vec::new(), Vec::new());
        for clock in clocks.iter().filter(|clock| clock.age(present) < COUNTS_FOR) {
            // The first party of a network speaks for it.
            match clock.network.as_deref() {
                Some(network) if networks.contains(&network) => continue,
                network => networks.extend(network),
            }
            all.push(clock.offset(present));
        }
        if all.len() < MIN_PARTIES {
            return None;
        }
        all.sort_unstable();
        Some(all[all.len() / 2])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every state is valid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns what one party has: all names below one that somebody has registered, or a network.
fn party_of(host: &str) -> String {
    match host.trim_matches(['[', ']']).parse() {
        Ok(address) => network_of(address),
        Err(_) => registered_domain(host).unwrap_or(host).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now: UnixSeconds, elapsed: u64) -> ClockReading {
        ClockReading { now, elapsed: Duration::from_secs(elapsed) }
    }

    fn seen(date: UnixSeconds) -> ServerDate {
        ServerDate { date, peer: None }
    }

    /// Returns a check by five parties that show `date` at a moment.
    fn of_five(date: UnixSeconds, moment: ClockReading) -> ClockCheck {
        let check = ClockCheck::default();
        (0..5).for_each(|n| check.note(&format!("{n}.example"), seen(date), moment));
        check
    }

    #[test]
    fn five_parties_decide_and_one_does_not() {
        let check = ClockCheck::default();
        let (present, note) = (at(1000, 0), |host: &str, offset: i64| {
            check.note(host, seen(1000 - offset), at(1000, 0))
        });
        for _ in 0..100 {
            note("wrong.example", 900);
        }
        assert_eq!(check.offset(present), None);
        for (n, offset) in [10, 11, 9, 40].into_iter().enumerate() {
            note(&format!("{n}.example"), offset);
        }
        assert_eq!(check.offset(present), Some(11));
        for n in 0..200 {
            note(&format!("late{n}.example"), -31);
        }
        assert_eq!(check.offset(present), Some(-31));
    }

    #[test]
    fn the_hosts_of_one_party_have_one_vote() {
        let check = ClockCheck::default();
        let (present, wrong) = (at(10_000, 0), seen(2_800));
        for n in 0..6 {
            check.note(&format!("h{n}.wrong.example"), wrong, present);
            check.note(&format!("someone{n}.github.io"), wrong, present);
            check.note(&format!("192.0.2.{n}"), wrong, present);
            check.note(&format!("[2001:db8:0:{n}::1]"), wrong, present);
        }
        assert_eq!(
            check.offset(present),
            None,
            "a domain, a service that gives out names, and two networks"
        );
        check.note("other.example", wrong, present);
        assert_eq!(check.offset(present), Some(7_200));
    }

    #[test]
    fn names_at_one_network_have_one_vote() {
        let check = ClockCheck::default();
        let present = at(10_000, 0);
        for n in 0..6 {
            let peer = Some(IpAddr::from([192, 0, 2, n]));
            check.note(&format!("{n}.example"), ServerDate { date: 2_800, peer }, present);
        }
        assert_eq!(check.offset(present), None);
        for n in 0..4 {
            let peer = Some(IpAddr::from([198, 51, n, 1]));
            check.note(&format!("honest{n}.example"), ServerDate { date: 10_000, peer }, present);
        }
        assert_eq!(check.offset(present), Some(0));
    }

    #[test]
    fn no_servers_outvote_a_clock_that_was_right_and_that_nobody_has_set() {
        let check = of_five(1000, at(1000, 0));
        assert_eq!(check.offset(at(1000, 0)), Some(0));
        (0..40).for_each(|n| check.note(&format!("late{n}.example"), seen(8_200), at(1060, 60)));
        assert_eq!(check.offset(at(1060, 60)), Some(0), "the dates are wrong");
        (0..40).for_each(|n| check.note(&format!("late{n}.example"), seen(1070), at(8_270, 70)));
        assert_eq!(check.offset(at(8_270, 70)), Some(7_200), "somebody has set the clock");
        (0..40).for_each(|n| {
            check.note(&format!("late{n}.example"), seen(87_500), at(87_460, 86_460))
        });
        assert_eq!(check.offset(at(87_460, 86_460)), Some(-40), "after a day it may have drifted");
    }

    #[test]
    fn a_clock_that_is_set_right_is_right_without_a_further_response() {
        let check = of_five(1000, at(1100, 0));
        assert_eq!(check.offset(at(1107, 7)), Some(100));
        assert_eq!(check.offset(at(1008, 8)), Some(0));
    }

    #[test]
    fn a_machine_that_sleeps_keeps_its_right_clock() {
        let check = of_five(1000, at(1000, 0));
        assert_eq!(check.offset(at(9000, 5)), Some(0));
    }

    #[test]
    fn after_ten_minutes_an_offset_counts_no_longer() {
        let check = of_five(1000, at(1100, 0));
        assert_eq!((check.offset(at(1699, 599)), check.offset(at(1700, 600))), (Some(100), None));
    }
}
