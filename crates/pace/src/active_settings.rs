//! The settings in effect, and their exchange while requests run.
//!
//! Invariants: a request sees one set of settings from beginning to end, the old one or the new one. The seed, and whether
//! there is a pace at all, never change: the keys of hosts and the counts of requests in flight depend on them.
//!
//! Must not know: who changes the settings.

use std::sync::Arc;

use super::{Pace, key_of};
use crate::limiter::admission::LevelRules;
use crate::settings::{PaceMode, PaceSettings};
use fetchwise_types::time::Timestamp;

/// Settings with the rules that follow from them.
#[derive(Debug)]
pub(crate) struct ActiveSettings {
    pub(crate) settings: Arc<PaceSettings>,
    pub(crate) rules: LevelRules,
}

impl ActiveSettings {
    pub(crate) fn new(settings: PaceSettings) -> Self {
        let settings = settings.clamped();
        Self { rules: LevelRules::new(&settings, |name| key_of(name, settings.seed)), settings: Arc::new(settings) }
    }
}

impl Pace {
    /// Returns the settings in effect. It is a copy: it stays unchanged if other ones replace it.
    pub fn settings(&self) -> Arc<PaceSettings> {
        Arc::clone(&self.active.load().settings)
    }

    /// Replaces the settings while requests run, and returns those in effect afterwards. The seed stays. So does the mode
    /// if only one of the old and the new one is [`PaceMode::Off`]: that takes another pace.
    ///
    /// A configured rate and the limits hold at once, also for hosts that are in use; their next request does not wait
    /// for the gap of an earlier rate. What was learned stays, within the limits. The initial rate is that of hosts whose
    /// first request comes later, and the effect of a `Crawl-delay` holds for those that are read later.
    ///
    /// Cost: linear in the hosts.
    ///
    /// ```
    /// use fetchwise_pace::time::Timestamp;
    /// use fetchwise_pace::{Pace, PaceMode, PaceSettings};
    ///
    /// let pace = Pace::default();
    /// let now = Timestamp::from_millis(0);
    /// pace.set_settings(PaceSettings { max_rate: 5.0, ..PaceSettings::default() }, now);
    /// assert_eq!(pace.settings().max_rate, 5.0);
    /// let off = PaceSettings { mode: PaceMode::Off, ..PaceSettings::default() };
    /// assert_eq!(pace.set_settings(off, now).mode, PaceMode::Learn);
    /// ```
    pub fn set_settings(&self, settings: PaceSettings, now: Timestamp) -> Arc<PaceSettings> {
        let is_switched = self.is_off != (settings.mode == PaceMode::Off);
        let mode = if is_switched { self.settings().mode } else { settings.mode };
        let active = ActiveSettings::new(PaceSettings { mode, seed: self.seed, ..settings });
        let applied = Arc::clone(&active.settings);
        self.active.store(Arc::new(active));
        self.hosts.for_each(|host| {
            // Those of another thread, if it was later.
            let (active, key) = (self.active.load(), self.key(&host.identity.name));
            self.admission(&active, key, host, now.as_millis()).reconfigure();
        });
        applied
    }
}
