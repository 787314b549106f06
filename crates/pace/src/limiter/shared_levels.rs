//! The entries of sites and addresses, with the hosts that they were asked through.
//!
//! Owns which of several levels an event is charged to. Must not know how requests are admitted.

use crate::limiter::active_state::Hot;
use crate::limiter::rate_gate::{Live, Rules};
use crate::persistence::persisted_state::{FORGET_DAYS, Remembered};
use crate::signals::response::Level;

/// Other hosts asked within this are asked at the same time.
const TOGETHER_MS: i64 = 60_000;
/// Another site was blocked at the same time when that was within this.
const BLOCKED_MS: i64 = 600_000;
/// A host that is blocked so often running, and no other between, is to blame itself.
const RUNNING: u8 = 2;

/// What there is of one site or address.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) cold: Remembered,
    pub(crate) hot: Option<Box<Hot>>,
}

impl Kept {
    /// With what is kept while it is asked; `rate` is where it starts if it was not asked lately.
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

    /// The same without waking it.
    pub(crate) fn awake(&mut self, rules: Rules, now: i64) -> Option<Live<'_>> {
        let Self { cold, hot } = self;
        hot.as_deref_mut().map(|hot| {
            let now = now.max(hot.at);
            Live { cold, hot, rules, now }
        })
    }

    /// What is remembered, with the rate of now.
    pub(crate) fn remembered(&self) -> Remembered {
        Self::with_rate(self.cold, self.hot.as_deref())
    }

    /// What is remembered, with the rate of whom is asked.
    pub(crate) fn with_rate(mut cold: Remembered, hot: Option<&Hot>) -> Remembered {
        if let Some(hot) = hot
            && hot.rate.is_finite()
        {
            cold.rate = crate::persistence::float16::Small::new(f64::from(hot.rate));
        }
        cold
    }

    /// Keeps only what is remembered of whom is not asked any more. Returns whether that is anything.
    pub(crate) fn cool(&mut self, now: i64) -> bool {
        if self.hot.as_ref().is_some_and(|hot| hot.is_idle(now)) {
            self.cold = self.remembered();
            self.hot = None;
        }
        self.hot.is_some() || is_remembered(&self.cold, now)
    }
}

/// Whether whom this was remembered of has been asked lately enough for it.
pub(crate) fn is_remembered(cold: &Remembered, now: i64) -> bool {
    now.div_euclid(86_400_000) - i64::from(cold.asked) <= FORGET_DAYS
}

/// Who was asked or blocked, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    who: u64,
    at: i64,
}

/// Whom a host finds at its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// Nobody: the site has nothing to say.
    Alone,
    /// This host, which still believes that it is alone.
    With(u64),
    /// Others.
    Shared,
}

/// A site, or an address: what several hosts (or sites) may have in common.
#[derive(Debug)]
pub(crate) struct SharedEntry {
    pub(crate) name: Box<str>,
    /// There from the moment on that a second one is asked through it.
    pub(crate) kept: Option<Box<Kept>>,
    asked: [Seen; 2],
    blocked: Seen,
    running: u8,
    /// The host that believes it is alone here; 0 for none, [`SHARED`] when none may believe that.
    alone: u64,
}

/// More than one host was seen here.
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

    /// `who` is about to be asked here: whether it is alone, or whom it has to tell that it is not.
    pub(crate) fn come(&mut self, who: u64, now: i64) -> Company {
        if self.kept.is_some() {
            self.alone = SHARED;
        }
        match self.alone {
            SHARED => Company::Shared,
            other if other == 0 || other == who => {
                self.alone = who;
                // Whoever is alone is not looked at here again for a while, and must not be forgotten meanwhile.
                self.asked[0] = Seen { who, at: now };
                Company::Alone
            }
            other => {
                self.alone = SHARED;
                Company::With(other)
            }
        }
    }

    /// Nobody is alone here any more. Returns who was.
    pub(crate) fn part(&mut self) -> Option<u64> {
        let other = std::mem::replace(&mut self.alone, SHARED);
        (other != 0 && other != SHARED).then_some(other)
    }

    /// Takes up when a host that was alone here was asked and blocked last.
    pub(crate) fn catch_up(&mut self, who: u64, asked: i64, blocked: Option<i64>) {
        if let Some(seen) = self.asked.iter_mut().find(|seen| seen.who == who) {
            seen.at = seen.at.max(asked);
        }
        if let Some(at) = blocked.filter(|at| *at > self.blocked.at) {
            (self.blocked, self.running) = (Seen { who, at }, 1);
        }
    }

    /// `who` is asked through it.
    pub(crate) fn ask(&mut self, who: u64, now: i64) {
        if self.asked[0].who != who {
            self.asked.swap(0, 1);
            if self.asked[1].who != 0 {
                self.kept.get_or_insert_default();
            }
        }
        self.asked[0] = Seen { who, at: now };
    }

    /// `who` met a limit: whether it is the limit of all that are asked here.
    pub(crate) fn is_to_blame(&mut self, level: Level, who: u64, now: i64) -> bool {
        let other = self.asked.iter().find(|seen| seen.who != who && seen.who != 0);
        let together = other.is_some_and(|seen| now.saturating_sub(seen.at) <= TOGETHER_MS);
        let before = self.blocked;
        self.running = if before.who == who { self.running.saturating_add(1) } else { 1 };
        self.blocked = Seen { who, at: now };
        // Sites that have nothing but an address in common are not joined by guess: two of them have to be blocked.
        let is_common = match level {
            Level::Address => before.who != who && before.who != 0 && now.saturating_sub(before.at) <= BLOCKED_MS,
            _ => self.running < RUNNING,
        };
        together && is_common && self.kept.is_some()
    }

    /// Whether anything of it is worth keeping.
    pub(crate) fn cool(&mut self, now: i64) -> bool {
        if let Some(kept) = &mut self.kept
            && !kept.cool(now)
        {
            self.kept = None;
        }
        self.kept.is_some() || now.saturating_sub(self.asked[0].at) <= crate::limiter::active_state::HOT_MS
    }
}

/// Ends a hold that lasts beyond `now`, and says until when it would have been.
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
