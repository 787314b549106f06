//! The entry of a host: identity, persisted state and, while in use, active state, in one allocation.
//!
//! A request costs one look-up in a table of pointers, and the entry behind the pointer. A host without active
//! neighbours on its site is *alone*: its site has no effect and is not looked up.
//!
//! Invariants: the entry of an idle host has no room for active state. A host counts as alone for at most fifty
//! minutes; then it asks its site again, which keeps its state for an hour.
//!
//! Must not know: the rules.

use crate::limiter::active_state::Hot;
use crate::limiter::rate_gate::{Live, Rules};
use crate::limiter::shared_levels::{Kept, end_hold, is_remembered};
use crate::persistence::persisted_state::Remembered;

/// How long a host counts as alone: less than its site keeps track of hosts.
const ALONE_MS: i64 = crate::limiter::active_state::HOT_MS * 5 / 6;

/// The identity of a host.
#[derive(Debug, Default)]
pub(crate) struct Who {
    pub(crate) name: Box<str>,
    /// Its site and its last address (0 for none), as hashes of their names.
    pub(crate) site: u64,
    pub(crate) address: u64,
    /// When its site last knew no other host; `i64::MIN` if it knows one.
    alone: i64,
}

/// The allocation of a host.
#[derive(Debug)]
pub(crate) struct Host<K> {
    who: Who,
    kept: K,
}

/// The state of a host with a request in the last hour.
#[derive(Debug)]
pub(crate) struct Warm {
    cold: Remembered,
    hot: Hot,
}

/// A host.
#[derive(Debug)]
pub(crate) enum HostEntry {
    Cold(Box<Host<Remembered>>),
    Warm(Box<Host<Warm>>),
}

impl HostEntry {
    pub(crate) fn new(name: &str) -> Self {
        let who = Who { name: name.into(), site: 0, address: 0, alone: i64::MIN };
        Self::Cold(Box::new(Host { who, kept: Remembered::default() }))
    }

    pub(crate) fn who(&self) -> &Who {
        match self {
            Self::Cold(host) => &host.who,
            Self::Warm(host) => &host.who,
        }
    }

    pub(crate) fn who_mut(&mut self) -> &mut Who {
        match self {
            Self::Cold(host) => &mut host.who,
            Self::Warm(host) => &mut host.who,
        }
    }

    pub(crate) fn cold(&self) -> &Remembered {
        match self {
            Self::Cold(host) => &host.kept,
            Self::Warm(host) => &host.kept.cold,
        }
    }

    /// Returns its active state, if it is in use.
    pub(crate) fn hot(&self) -> Option<&Hot> {
        match self {
            Self::Cold(_) => None,
            Self::Warm(host) => Some(&host.kept.hot),
        }
    }

    /// Returns its persisted state, with the current rate.
    pub(crate) fn remembered(&self) -> Remembered {
        Kept::with_rate(*self.cold(), self.hot())
    }

    /// Creates the active state if it is missing; `rate` is the initial rate if there was no recent request.
    pub(crate) fn wake(&mut self, max_par: u8, rate: impl FnOnce(&Remembered) -> f64, now: i64) {
        match self {
            Self::Warm(host) if !host.kept.hot.is_idle(now) => {}
            Self::Warm(host) => {
                let Warm { cold, hot } = &mut host.kept;
                *hot = Hot::new(cold, max_par, rate(cold), now);
            }
            Self::Cold(host) => {
                let cold = host.kept;
                let hot = Hot::new(&cold, max_par, rate(&cold), now);
                let who = std::mem::take(&mut host.who);
                *self = Self::Warm(Box::new(Host { who, kept: Warm { cold, hot } }));
            }
        }
    }

    /// Returns the gate of the host, if it is in use.
    pub(crate) fn awake(&mut self, rules: Rules, now: i64) -> Option<Live<'_>> {
        match self {
            Self::Cold(_) => None,
            Self::Warm(host) => {
                let Warm { cold, hot } = &mut host.kept;
                let now = now.max(hot.at);
                Some(Live { cold, hot, rules, now })
            }
        }
    }

    /// Restores a persisted state. Nothing changes while requests are in flight.
    pub(crate) fn restore(&mut self, cold: Remembered) {
        if self.hot().is_none_or(|hot| hot.in_flight == 0) {
            self.cool_to(cold.with_wish_of(self.cold()));
        }
    }

    /// Forgets everything but its identity. Returns the number of requests in flight.
    pub(crate) fn forget(&mut self) -> u8 {
        let in_flight = self.hot().map_or(0, |hot| hot.in_flight);
        self.cool_to(Remembered::default());
        in_flight
    }

    /// Ends a hold that lasts beyond `now`, and returns its previous end.
    pub(crate) fn end_hold(&mut self, now: i64) -> Option<i64> {
        match self {
            Self::Cold(host) => end_hold(&mut host.kept, None, now),
            Self::Warm(host) => end_hold(&mut host.kept.cold, Some(&mut host.kept.hot), now),
        }
    }

    /// Drops the active state of an idle host. Returns whether the rest is worth keeping.
    pub(crate) fn cool(&mut self, now: i64) -> bool {
        if self.hot().is_some_and(|hot| hot.is_idle(now)) {
            self.cool_to(self.remembered());
        }
        self.hot().is_some() || is_remembered(self.cold(), now)
    }

    fn cool_to(&mut self, cold: Remembered) {
        let who = std::mem::take(self.who_mut());
        *self = Self::Cold(Box::new(Host { who, kept: cold }));
    }
}

impl Who {
    /// Returns whether no other host of its site, and no address, matters.
    pub(crate) fn is_alone(&self, now: i64) -> bool {
        self.address == 0 && self.alone != i64::MIN && (0..ALONE_MS).contains(&now.saturating_sub(self.alone))
    }

    /// Records whether its site knows no other host at this time.
    pub(crate) fn set_alone(&mut self, at: Option<i64>) {
        self.alone = at.unwrap_or(i64::MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_allocation_and_a_pointer() {
        let who = size_of::<Who>();
        assert_eq!((who, size_of::<HostEntry>()), (40, 16));
        assert_eq!((size_of::<Host<Remembered>>(), size_of::<Host<Warm>>()), (who + 64, who + 64 + 96));
    }

    #[test]
    fn a_host_is_alone_for_a_limited_time_or_until_its_site_knows_another() {
        let mut who = Who { alone: i64::MIN, ..Who::default() };
        assert!(!who.is_alone(0));
        who.set_alone(Some(1000));
        assert!(who.is_alone(1000) && who.is_alone(1000 + ALONE_MS - 1) && !who.is_alone(1000 + ALONE_MS));
        assert!(!who.is_alone(999), "a clock that goes back says nothing");
        who.address = 7;
        assert!(!who.is_alone(2000), "an address is looked up");
        (who.address, who.alone) = (0, i64::MIN);
        assert!(!who.is_alone(2000));
    }
}
