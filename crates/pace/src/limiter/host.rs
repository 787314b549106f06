//! The entry of a host: identity, persisted state and, while in use, active state, in one allocation.
//!
//! A request costs one look-up in a table of pointers, and the entry behind the pointer. A host without active
//! neighbours on its site is *alone*: its site has no effect and is not looked up.
//!
//! Invariants: the entry of an idle host has no room for active state. A host counts as alone for at most fifty
//! minutes; then it asks its site again, which keeps its state for an hour.
//!
//! Must not know: the rules.

use crate::limiter::active_state::ActiveState;
use crate::limiter::rate_gate::{RateGate, Rules};
use crate::limiter::shared_levels::{SharedState, end_hold, is_recent};
use crate::persistence::persisted_state::PersistedState;

/// How long a host counts as alone: less than its site keeps track of hosts.
const ALONE_MS: i64 = crate::limiter::active_state::ACTIVE_MS * 5 / 6;

/// The identity of a host.
#[derive(Debug, Default)]
pub(crate) struct HostIdentity {
    pub(crate) name: Box<str>,
    /// Its site and its last address (0 for none), as hashes of their names.
    pub(crate) site: u64,
    pub(crate) address: u64,
    /// When its site last knew no other host; `i64::MIN` if it knows one.
    alone: i64,
}

/// The allocation of a host.
#[derive(Debug)]
pub(crate) struct HostAllocation<K> {
    identity: HostIdentity,
    state: K,
}

/// The state of a host with a request in the last hour.
#[derive(Debug)]
pub(crate) struct ActiveHost {
    persisted: PersistedState,
    active: ActiveState,
}

/// A host.
#[derive(Debug)]
pub(crate) enum HostEntry {
    Idle(Box<HostAllocation<PersistedState>>),
    Active(Box<HostAllocation<ActiveHost>>),
}

impl HostEntry {
    pub(crate) fn new(name: &str) -> Self {
        let identity = HostIdentity { name: name.into(), site: 0, address: 0, alone: i64::MIN };
        Self::Idle(Box::new(HostAllocation { identity, state: PersistedState::default() }))
    }

    pub(crate) fn identity(&self) -> &HostIdentity {
        match self {
            Self::Idle(host) => &host.identity,
            Self::Active(host) => &host.identity,
        }
    }

    pub(crate) fn identity_mut(&mut self) -> &mut HostIdentity {
        match self {
            Self::Idle(host) => &mut host.identity,
            Self::Active(host) => &mut host.identity,
        }
    }

    pub(crate) fn persisted(&self) -> &PersistedState {
        match self {
            Self::Idle(host) => &host.state,
            Self::Active(host) => &host.state.persisted,
        }
    }

    /// Returns its active state, if it is in use.
    pub(crate) fn active(&self) -> Option<&ActiveState> {
        match self {
            Self::Idle(_) => None,
            Self::Active(host) => Some(&host.state.active),
        }
    }

    /// Returns its persisted state, with the current rate.
    pub(crate) fn persisted_state(&self) -> PersistedState {
        SharedState::with_rate(*self.persisted(), self.active())
    }

    /// Creates the active state if it is missing; `rate` is the initial rate if there was no recent request.
    pub(crate) fn wake(&mut self, max_par: u8, rate: impl FnOnce(&PersistedState) -> f64, now: i64) {
        match self {
            Self::Active(host) if !host.state.active.is_idle(now) => {}
            Self::Active(host) => {
                let ActiveHost { persisted, active } = &mut host.state;
                let rate = rate(persisted);
                if let Some(share) = active.noise() {
                    *persisted = persisted.with_noise(share);
                }
                *active = ActiveState::new(persisted, max_par, rate, now);
            }
            Self::Idle(host) => {
                let mut persisted = host.state;
                let rate = rate(&persisted);
                let active = ActiveState::new(&mut persisted, max_par, rate, now);
                let identity = std::mem::take(&mut host.identity);
                *self = Self::Active(Box::new(HostAllocation { identity, state: ActiveHost { persisted, active } }));
            }
        }
    }

    /// Returns the gate of the host, if it is in use.
    pub(crate) fn active_gate<'g>(&'g mut self, rules: &'g Rules, now: i64) -> Option<RateGate<'g>> {
        match self {
            Self::Idle(_) => None,
            Self::Active(host) => {
                let ActiveHost { persisted, active } = &mut host.state;
                let now = now.max(active.at);
                Some(RateGate { persisted, active, rules, now })
            }
        }
    }

    /// Restores a persisted state. Nothing changes while requests are in flight.
    pub(crate) fn restore(&mut self, persisted: PersistedState) {
        if self.active().is_none_or(|active| active.in_flight == 0) {
            self.replace_with_idle(persisted.with_declared_gap_of(self.persisted()));
        }
    }

    /// Forgets everything but its identity. Returns the number of requests in flight.
    pub(crate) fn forget(&mut self) -> u8 {
        let in_flight = self.active().map_or(0, |active| active.in_flight);
        self.replace_with_idle(PersistedState::default());
        in_flight
    }

    /// Ends a hold that lasts beyond `now`, and returns its previous end.
    pub(crate) fn end_hold(&mut self, now: i64) -> Option<i64> {
        match self {
            Self::Idle(host) => end_hold(&mut host.state, None, now),
            Self::Active(host) => end_hold(&mut host.state.persisted, Some(&mut host.state.active), now),
        }
    }

    /// Drops the active state of an idle host. Returns whether the rest is worth keeping.
    pub(crate) fn drop_idle(&mut self, now: i64) -> bool {
        if self.active().is_some_and(|active| active.is_idle(now)) {
            self.replace_with_idle(self.persisted_state());
        }
        self.active().is_some() || is_recent(self.persisted(), now)
    }

    fn replace_with_idle(&mut self, persisted: PersistedState) {
        let identity = std::mem::take(self.identity_mut());
        *self = Self::Idle(Box::new(HostAllocation { identity, state: persisted }));
    }
}

impl HostIdentity {
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
        let identity = size_of::<HostIdentity>();
        assert_eq!((identity, size_of::<HostEntry>()), (40, 16));
        assert_eq!(
            (size_of::<HostAllocation<PersistedState>>(), size_of::<HostAllocation<ActiveHost>>()),
            (identity + 64, identity + 64 + 96)
        );
    }

    #[test]
    fn a_host_is_alone_for_a_limited_time_or_until_its_site_knows_another() {
        let mut identity = HostIdentity { alone: i64::MIN, ..HostIdentity::default() };
        assert!(!identity.is_alone(0));
        identity.set_alone(Some(1000));
        assert!(
            identity.is_alone(1000) && identity.is_alone(1000 + ALONE_MS - 1) && !identity.is_alone(1000 + ALONE_MS)
        );
        assert!(!identity.is_alone(999), "a clock that goes back says nothing");
        identity.address = 7;
        assert!(!identity.is_alone(2000), "an address is looked up");
        (identity.address, identity.alone) = (0, i64::MIN);
        assert!(!identity.is_alone(2000));
    }
}
