//! A host: identity, persisted state and, while in use, active state, side by side.
//!
//! A host without active neighbours on its site is *alone*: its site has no effect and is not
//! looked up.
//!
//! Invariants: an idle host has no room for active state. A host counts as alone for at most fifty
//! minutes; then it asks its site again, which keeps its state for an hour.
//!
//! Must not know: the rules.

use crate::limiter::active_state::ActiveState;
use crate::limiter::flat_map::Keyed;
use crate::limiter::rate_gate::{RateGate, Rules};
use crate::limiter::shared_levels::{SharedState, end_hold};
use crate::persistence::persisted_state::PersistedState;

/// How long a host counts as alone: less than its site keeps track of hosts.
const ALONE_MS: i64 = crate::limiter::active_state::ACTIVE_MS * 5 / 6;

/// The identity of a host.
#[derive(Debug, Default)]
pub(crate) struct HostIdentity {
    /// The hash of its name.
    pub(crate) key: u64,
    pub(crate) name: Box<str>,
    /// Its site and its last address (0 for none), as hashes of their names.
    pub(crate) site: u64,
    pub(crate) address: u64,
    /// When its site last knew no other host; `i64::MIN` if it knows one.
    alone: i64,
}

/// A host without a request in the last hour.
#[derive(Debug, Default)]
pub(crate) struct IdleHost {
    pub(crate) identity: HostIdentity,
    pub(crate) persisted: PersistedState,
}

/// A host with a request in the last hour.
#[derive(Debug, Default)]
pub(crate) struct ActiveHost {
    pub(crate) identity: HostIdentity,
    pub(crate) persisted: PersistedState,
    pub(crate) active: ActiveState,
}

impl Keyed for IdleHost {
    fn key(&self) -> u64 {
        self.identity.key
    }
}

impl Keyed for ActiveHost {
    fn key(&self) -> u64 {
        self.identity.key
    }
}

impl IdleHost {
    /// Returns the host with room for active state, which [`HostEntry::wake`] creates.
    pub(crate) fn into_active(self) -> ActiveHost {
        let Self { identity, persisted } = self;
        ActiveHost { identity, persisted, active: ActiveState::default() }
    }
}

impl ActiveHost {
    /// Returns the host with what is kept of it while it is idle.
    pub(crate) fn into_idle(self) -> IdleHost {
        let active = Some(&self.active).filter(|active| !active.is_vacant());
        let persisted = SharedState::with_rate(self.persisted, active);
        IdleHost { identity: self.identity, persisted }
    }
}

/// A host under its lock.
#[derive(Debug)]
pub(crate) struct HostEntry<'h> {
    pub(crate) identity: &'h mut HostIdentity,
    persisted: &'h mut PersistedState,
    active: Option<&'h mut ActiveState>,
}

impl<'h> From<&'h mut IdleHost> for HostEntry<'h> {
    fn from(host: &'h mut IdleHost) -> Self {
        Self { identity: &mut host.identity, persisted: &mut host.persisted, active: None }
    }
}

impl<'h> From<&'h mut ActiveHost> for HostEntry<'h> {
    fn from(host: &'h mut ActiveHost) -> Self {
        Self {
            identity: &mut host.identity,
            persisted: &mut host.persisted,
            active: Some(&mut host.active),
        }
    }
}

impl HostEntry<'_> {
    pub(crate) fn persisted(&self) -> &PersistedState {
        self.persisted
    }

    /// Returns its active state, if it is in use.
    pub(crate) fn active(&self) -> Option<&ActiveState> {
        self.active.as_deref().filter(|active| !active.is_vacant())
    }

    /// Returns its persisted state, with the current rate.
    pub(crate) fn persisted_state(&self) -> PersistedState {
        SharedState::with_rate(*self.persisted, self.active())
    }

    /// Creates the active state if it is missing and there is room for it; `rate` is the initial
    /// rate if there was no recent request.
    pub(crate) fn wake(
        &mut self,
        max_par: u8,
        rate: impl FnOnce(&PersistedState) -> f64,
        now: i64,
    ) {
        let Some(active) = self.active.as_deref_mut() else { return };
        if !active.is_vacant() && !active.is_idle(now) {
            return;
        }
        let rate = rate(self.persisted);
        if let Some(share) = active.noise() {
            *self.persisted = self.persisted.with_noise(share);
        }
        *active = ActiveState::new(self.persisted, max_par, rate, now);
    }

    /// Returns the gate of the host, if it is in use.
    pub(crate) fn active_gate<'g>(
        &'g mut self,
        rules: &'g Rules,
        now: i64,
    ) -> Option<RateGate<'g>> {
        let active = self.active.as_deref_mut().filter(|active| !active.is_vacant())?;
        let now = now.max(active.at);
        Some(RateGate { persisted: self.persisted, active, rules, now })
    }

    /// Ends a hold that lasts beyond `now`, and returns its previous end.
    pub(crate) fn end_hold(&mut self, now: i64) -> Option<i64> {
        end_hold(
            self.persisted,
            self.active.as_deref_mut().filter(|active| !active.is_vacant()),
            now,
        )
    }
}

impl HostIdentity {
    pub(crate) fn new(key: u64, name: &str) -> Self {
        Self { key, name: name.into(), site: 0, address: 0, alone: i64::MIN }
    }

    /// Returns whether no other host of its site, and no address, matters.
    pub(crate) fn is_alone(&self, now: i64) -> bool {
        self.address == 0
            && self.alone != i64::MIN
            && (0..ALONE_MS).contains(&now.saturating_sub(self.alone))
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
    fn a_host_lies_in_one_piece() {
        let identity = size_of::<HostIdentity>();
        assert_eq!(identity, 48);
        assert_eq!(
            (size_of::<IdleHost>(), size_of::<ActiveHost>()),
            (identity + 64, identity + 64 + 96)
        );
    }

    #[test]
    fn a_host_wakes_only_where_it_has_room_and_only_once() {
        let mut idle = IdleHost { identity: HostIdentity::new(7, "a.org"), ..IdleHost::default() };
        let mut entry = HostEntry::from(&mut idle);
        entry.wake(16, |_| 3.0, 1000);
        assert!(entry.active().is_none() && entry.end_hold(0).is_none());
        let mut active = idle.into_active();
        let mut entry = HostEntry::from(&mut active);
        assert!(entry.active().is_none(), "room is no state");
        entry.wake(16, |_| 3.0, 1000);
        entry.wake(16, |_| 5.0, 2000);
        assert_eq!(entry.active().map(|active| active.rate), Some(3.0));
        entry.wake(16, |_| 5.0, 1000 + ALONE_MS * 2);
        assert_eq!(
            entry.active().map(|active| active.rate),
            Some(5.0),
            "an hour later it begins again"
        );
        let idle = active.into_idle();
        assert_eq!((&*idle.identity.name, idle.persisted.rate.get()), ("a.org", 5.0));
    }

    #[test]
    fn a_host_is_alone_for_a_limited_time_or_until_its_site_knows_another() {
        let mut identity = HostIdentity::new(7, "a.org");
        assert!(!identity.is_alone(0));
        identity.set_alone(Some(1000));
        assert!(
            identity.is_alone(1000)
                && identity.is_alone(1000 + ALONE_MS - 1)
                && !identity.is_alone(1000 + ALONE_MS)
        );
        assert!(!identity.is_alone(999), "a clock that goes back says nothing");
        identity.address = 7;
        assert!(!identity.is_alone(2000), "an address is looked up");
        (identity.address, identity.alone) = (0, i64::MIN);
        assert!(!identity.is_alone(2000));
    }
}
