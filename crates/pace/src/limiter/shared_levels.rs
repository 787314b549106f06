//! The entries of sites and addresses, with the hosts behind them.
//!
//! Owns: the choice of the level that a limit hit is charged to.
//!
//! Must not know: how requests are admitted.

use crate::limiter::active_state::ActiveState;
use crate::limiter::flat_map::{FlatMap, Keyed};
use crate::limiter::rate_gate::{RateGate, Rules};
use crate::limiter::sharded::Sharded;
use crate::persistence::persisted_state::{FORGET_DAYS, PersistedState};
use crate::signals::response::Level;

/// Hosts with requests within this time are active together.
const TOGETHER_MS: i64 = 60_000;
/// Sites with blocks within this time were blocked together.
const BLOCKED_MS: i64 = 600_000;
/// A host with this number of blocks in a row, and none of other hosts between them, is to blame
/// itself.
const MAX_BLOCKS_IN_A_ROW: u8 = 2;

/// The state of one site or address.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    pub(crate) persisted: PersistedState,
    pub(crate) active: Option<Box<ActiveState>>,
}

impl SharedState {
    /// Returns its gate, and creates its active state if needed; `rate` is the initial rate if
    /// there was no recent request.
    pub(crate) fn activate<'g>(
        &'g mut self,
        rules: &'g Rules,
        max_par: u8,
        rate: impl FnOnce(&PersistedState) -> f64,
        now: i64,
    ) -> RateGate<'g> {
        let Self { persisted, active } = self;
        if active.as_ref().is_none_or(|active| active.is_idle(now)) {
            let rate = rate(persisted);
            if let Some(share) = active.as_ref().and_then(|active| active.noise()) {
                *persisted = persisted.with_noise(share);
            }
            *active = Some(Box::new(ActiveState::new(persisted, max_par, rate, now)));
        }
        let active = active.get_or_insert_with(|| {
            Box::new(ActiveState::new(persisted, max_par, rules.max_rate, now))
        });
        let now = now.max(active.at);
        RateGate { persisted, active, rules, now }
    }

    /// Returns its gate if it is active.
    pub(crate) fn active_gate<'g>(
        &'g mut self,
        rules: &'g Rules,
        now: i64,
    ) -> Option<RateGate<'g>> {
        let Self { persisted, active } = self;
        active.as_deref_mut().map(|active| {
            let now = now.max(active.at);
            RateGate { persisted, active, rules, now }
        })
    }

    /// Returns its persisted state, with the current rate.
    pub(crate) fn persisted_state(&self) -> PersistedState {
        Self::with_rate(self.persisted, self.active.as_deref())
    }

    /// Returns a persisted state with the rate of the active state.
    pub(crate) fn with_rate(
        mut persisted: PersistedState,
        active: Option<&ActiveState>,
    ) -> PersistedState {
        if let Some(active) = active
            && active.rate.is_finite()
        {
            persisted.rate = crate::persistence::float16::PositiveF16::new(f64::from(active.rate));
        }
        match active.and_then(ActiveState::noise) {
            Some(share) => persisted.with_noise(share),
            None => persisted,
        }
    }

    /// Drops the active state if it is idle. Returns whether the rest is worth keeping.
    pub(crate) fn drop_idle(&mut self, now: i64) -> bool {
        if self.active.as_ref().is_some_and(|active| active.is_idle(now)) {
            self.persisted = self.persisted_state();
            self.active = None;
        }
        self.active.is_some() || is_recent(&self.persisted, now)
    }
}

/// Returns whether the last request is recent enough to keep this state.
pub(crate) fn is_recent(persisted: &PersistedState, now: i64) -> bool {
    now.div_euclid(86_400_000) - i64::from(persisted.last_request_day) <= FORGET_DAYS
}

/// A host or site that sent a request or was blocked, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Activity {
    key: u64,
    at: i64,
}

/// What a host finds at its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteSharing {
    /// No other host: the site has no effect.
    Alone,
    /// This host, which still counts as alone.
    With(u64),
    /// Other hosts.
    Shared,
}

/// A site or an address: several hosts (or sites) may share it.
#[derive(Debug, Default)]
pub(crate) struct SharedEntry {
    /// The hash of its name.
    key: u64,
    pub(crate) name: Box<str>,
    /// Exists once a second host is active.
    pub(crate) state: Option<Box<SharedState>>,
    last_requests: [Activity; 2],
    blocked: Activity,
    blocks_in_a_row: u8,
    /// The host that counts as alone here; 0 for none, [`SHARED`] if none may.
    alone: u64,
}

/// Sites or addresses, by the hashes of their names.
pub(crate) type SharedMap = Sharded<FlatMap<SharedEntry>>;

/// More than one host was active here.
const SHARED: u64 = u64::MAX;

impl Keyed for SharedEntry {
    fn key(&self) -> u64 {
        self.key
    }
}

impl SharedEntry {
    pub(crate) fn new(key: u64, name: &str) -> Self {
        Self { key, name: name.into(), ..Self::default() }
    }

    /// Registers a coming request of `key`: returns whether it is alone, or which host must be told
    /// that it no longer is.
    pub(crate) fn register(&mut self, key: u64, now: i64) -> SiteSharing {
        if self.state.is_some() {
            self.alone = SHARED;
        }
        match self.alone {
            SHARED => SiteSharing::Shared,
            other if other == 0 || other == key => {
                self.alone = key;
                // A host that is alone does not come back here for a while, and must not be
                // forgotten meanwhile.
                self.last_requests[0] = Activity { key, at: now };
                SiteSharing::Alone
            }
            other => {
                self.alone = SHARED;
                SiteSharing::With(other)
            }
        }
    }

    /// Records that no host here is alone. Returns the one that was.
    pub(crate) fn mark_shared(&mut self) -> Option<u64> {
        let other = std::mem::replace(&mut self.alone, SHARED);
        (other != 0 && other != SHARED).then_some(other)
    }

    /// Takes over the last request and block of a host that was alone here.
    pub(crate) fn merge_activity(&mut self, key: u64, last_requests: i64, blocked: Option<i64>) {
        if let Some(activity) = self.last_requests.iter_mut().find(|activity| activity.key == key) {
            activity.at = activity.at.max(last_requests);
        }
        if let Some(at) = blocked.filter(|at| *at > self.blocked.at) {
            (self.blocked, self.blocks_in_a_row) = (Activity { key, at }, 1);
        }
    }

    /// Records a request of `key`.
    pub(crate) fn record_request(&mut self, key: u64, now: i64) {
        if self.last_requests[0].key != key {
            self.last_requests.swap(0, 1);
            if self.last_requests[1].key != 0 {
                self.state.get_or_insert_default();
            }
        }
        self.last_requests[0] = Activity { key, at: now };
    }

    /// Records that `key` hit a limit. Returns whether all hosts here share the limit.
    pub(crate) fn record_limit_hit(&mut self, level: Level, key: u64, now: i64) -> bool {
        let other =
            self.last_requests.iter().find(|activity| activity.key != key && activity.key != 0);
        let together = other.is_some_and(|activity| now.saturating_sub(activity.at) <= TOGETHER_MS);
        let previous = self.blocked;
        self.blocks_in_a_row =
            if previous.key == key { self.blocks_in_a_row.saturating_add(1) } else { 1 };
        self.blocked = Activity { key, at: now };
        // Sites that share only an address are not blamed together by guess: two of them must be
        // blocked.
        let is_common = match level {
            Level::Address => {
                previous.key != key
                    && previous.key != 0
                    && now.saturating_sub(previous.at) <= BLOCKED_MS
            }
            _ => self.blocks_in_a_row < MAX_BLOCKS_IN_A_ROW,
        };
        together && is_common && self.state.is_some()
    }

    /// Returns whether any of its state is worth keeping.
    pub(crate) fn drop_idle(&mut self, now: i64) -> bool {
        if let Some(state) = &mut self.state
            && !state.drop_idle(now)
        {
            self.state = None;
        }
        self.state.is_some()
            || now.saturating_sub(self.last_requests[0].at)
                <= crate::limiter::active_state::ACTIVE_MS
    }
}

/// Ends a hold that lasts beyond `now`, and returns its previous end.
pub(crate) fn end_hold(
    persisted: &mut PersistedState,
    active: Option<&mut ActiveState>,
    now: i64,
) -> Option<i64> {
    let trouble = active.and_then(|active| active.trouble.as_deref_mut());
    let until =
        trouble.as_ref().map_or(i64::from(persisted.hold_until) * 1000, |trouble| trouble.hold);
    if until <= now {
        return None;
    }
    if let Some(trouble) = trouble {
        trouble.hold = now;
    }
    persisted.hold_until = u32::try_from(now.div_euclid(1000)).unwrap_or(0);
    Some(until)
}
