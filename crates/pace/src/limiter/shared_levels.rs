//! The entries of sites and addresses, with the hosts behind them.
//!
//! Owns: the choice of the level that a limit hit is charged to.
//!
//! Must not know: how requests are admitted.

use crate::limiter::active_state::Hot;
use crate::limiter::rate_gate::{Live, Rules};
use crate::persistence::persisted_state::{FORGET_DAYS, Remembered};
use crate::signals::response::Level;

/// Hosts with requests within this time are active together.
const TOGETHER_MS: i64 = 60_000;
/// Sites with blocks within this time were blocked together.
const BLOCKED_MS: i64 = 600_000;
/// A host with this number of blocks in a row, and none of other hosts between them, is to blame itself.
const RUNNING: u8 = 2;

/// The state of one site or address.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) cold: Remembered,
    pub(crate) hot: Option<Box<Hot>>,
}

impl Kept {
    /// Returns its gate, and creates its active state if needed; `rate` is the initial rate if there was no recent
    /// request.
    pub(crate) fn live(
        &mut self,
        rules: Rules,
        max_par: u8,
        rate: impl FnOnce(&Remembered) -> f64,
        now: i64,
    ) -> Live<'_> {
        let Self { cold, hot } = self;
        if hot.as_ref().is_none_or(|hot| hot.is_idle(now)) {
            let rate = rate(cold);
            *hot = Some(Box::new(Hot::new(cold, max_par, rate, now)));
        }
        let hot = hot.get_or_insert_with(|| Box::new(Hot::new(cold, max_par, rules.max_rate, now)));
        let now = now.max(hot.at);
        Live { cold, hot, rules, now }
    }

    /// Returns its gate if it is active.
    pub(crate) fn awake(&mut self, rules: Rules, now: i64) -> Option<Live<'_>> {
        let Self { cold, hot } = self;
        hot.as_deref_mut().map(|hot| {
            let now = now.max(hot.at);
            Live { cold, hot, rules, now }
        })
    }

    /// Returns its persisted state, with the current rate.
    pub(crate) fn remembered(&self) -> Remembered {
        Self::with_rate(self.cold, self.hot.as_deref())
    }

    /// Returns a persisted state with the rate of the active state.
    pub(crate) fn with_rate(mut cold: Remembered, hot: Option<&Hot>) -> Remembered {
        if let Some(hot) = hot
            && hot.rate.is_finite()
        {
            cold.rate = crate::persistence::float16::Small::new(f64::from(hot.rate));
        }
        cold
    }

    /// Drops the active state if it is idle. Returns whether the rest is worth keeping.
    pub(crate) fn cool(&mut self, now: i64) -> bool {
        if self.hot.as_ref().is_some_and(|hot| hot.is_idle(now)) {
            self.cold = self.remembered();
            self.hot = None;
        }
        self.hot.is_some() || is_remembered(&self.cold, now)
    }
}

/// Returns whether the last request is recent enough to keep this state.
pub(crate) fn is_remembered(cold: &Remembered, now: i64) -> bool {
    now.div_euclid(86_400_000) - i64::from(cold.asked) <= FORGET_DAYS
}

/// A host or site that sent a request or was blocked, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    who: u64,
    at: i64,
}

/// What a host finds at its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// No other host: the site has no effect.
    Alone,
    /// This host, which still counts as alone.
    With(u64),
    /// Other hosts.
    Shared,
}

/// A site or an address: several hosts (or sites) may share it.
#[derive(Debug)]
pub(crate) struct SharedEntry {
    pub(crate) name: Box<str>,
    /// Exists once a second host is active.
    pub(crate) kept: Option<Box<Kept>>,
    asked: [Seen; 2],
    blocked: Seen,
    running: u8,
    /// The host that counts as alone here; 0 for none, [`SHARED`] if none may.
    alone: u64,
}

/// More than one host was active here.
const SHARED: u64 = u64::MAX;

impl SharedEntry {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            kept: None,
            asked: [Seen::default(); 2],
            blocked: Seen::default(),
            running: 0,
            alone: 0,
        }
    }

    /// Registers a coming request of `who`: returns whether it is alone, or which host must be told that it no longer
    /// is.
    pub(crate) fn come(&mut self, who: u64, now: i64) -> Company {
        if self.kept.is_some() {
            self.alone = SHARED;
        }
        match self.alone {
            SHARED => Company::Shared,
            other if other == 0 || other == who => {
                self.alone = who;
                // A host that is alone does not come back here for a while, and must not be forgotten meanwhile.
                self.asked[0] = Seen { who, at: now };
                Company::Alone
            }
            other => {
                self.alone = SHARED;
                Company::With(other)
            }
        }
    }

    /// Records that no host here is alone. Returns the one that was.
    pub(crate) fn part(&mut self) -> Option<u64> {
        let other = std::mem::replace(&mut self.alone, SHARED);
        (other != 0 && other != SHARED).then_some(other)
    }

    /// Takes over the last request and block of a host that was alone here.
    pub(crate) fn catch_up(&mut self, who: u64, asked: i64, blocked: Option<i64>) {
        if let Some(seen) = self.asked.iter_mut().find(|seen| seen.who == who) {
            seen.at = seen.at.max(asked);
        }
        if let Some(at) = blocked.filter(|at| *at > self.blocked.at) {
            (self.blocked, self.running) = (Seen { who, at }, 1);
        }
    }

    /// Records a request of `who`.
    pub(crate) fn ask(&mut self, who: u64, now: i64) {
        if self.asked[0].who != who {
            self.asked.swap(0, 1);
            if self.asked[1].who != 0 {
                self.kept.get_or_insert_default();
            }
        }
        self.asked[0] = Seen { who, at: now };
    }

    /// Records that `who` hit a limit. Returns whether all hosts here share the limit.
    pub(crate) fn is_to_blame(&mut self, level: Level, who: u64, now: i64) -> bool {
        let other = self.asked.iter().find(|seen| seen.who != who && seen.who != 0);
        let together = other.is_some_and(|seen| now.saturating_sub(seen.at) <= TOGETHER_MS);
        let before = self.blocked;
        self.running = if before.who == who { self.running.saturating_add(1) } else { 1 };
        self.blocked = Seen { who, at: now };
        // Sites that share only an address are not blamed together by guess: two of them must be blocked.
        let is_common = match level {
            Level::Address => before.who != who && before.who != 0 && now.saturating_sub(before.at) <= BLOCKED_MS,
            _ => self.running < RUNNING,
        };
        together && is_common && self.kept.is_some()
    }

    /// Returns whether any of its state is worth keeping.
    pub(crate) fn cool(&mut self, now: i64) -> bool {
        if let Some(kept) = &mut self.kept
            && !kept.cool(now)
        {
            self.kept = None;
        }
        self.kept.is_some() || now.saturating_sub(self.asked[0].at) <= crate::limiter::active_state::HOT_MS
    }
}

/// Ends a hold that lasts beyond `now`, and returns its previous end.
pub(crate) fn end_hold(cold: &mut Remembered, hot: Option<&mut Hot>, now: i64) -> Option<i64> {
    let trouble = hot.and_then(|hot| hot.trouble.as_deref_mut());
    let until = trouble.as_ref().map_or(i64::from(cold.hold_until) * 1000, |trouble| trouble.hold);
    if until <= now {
        return None;
    }
    if let Some(trouble) = trouble {
        trouble.hold = now;
    }
    cold.hold_until = u32::try_from(now.div_euclid(1000)).unwrap_or(0);
    Some(until)
}
