//! Operator actions: other settings, ending a hold early, and forgetting a host.
//!
//! Invariants: ending a hold forgets nothing else: the learned rate stays, and the next request is
//! a trial as usual. Of a forgotten host only the requests in flight stay.
//!
//! A request sees one set of settings from beginning to end, the old one or the new one. The seed,
//! and whether there is a pace at all, never change: the keys of hosts and the counts of requests
//! in flight depend on them.
//!
//! Must not know: who requests it.

use std::sync::Arc;

use super::Pace;
use crate::active_settings::ActiveSettings;
use crate::limiter::shared_levels::end_hold;
use crate::settings::{PaceMode, PaceSettings};
use crate::signals::response::{Cause, Level};
use fetchwise_types::time::Timestamp;

impl Pace {
    /// Returns the settings in effect. It is a copy: it stays unchanged if other ones replace it.
    pub fn settings(&self) -> Arc<PaceSettings> {
        Arc::clone(&self.active.load().settings)
    }

    /// Replaces the settings while requests run, and returns those in effect afterwards. The seed
    /// stays. So does the mode if only one of the old and the new one is [`PaceMode::Off`]: that
    /// takes another pace.
    ///
    /// A configured rate and the limits hold at once, also for hosts that are in use; their next
    /// request does not wait for the gap of an earlier rate. What was learned stays, within the
    /// limits. The initial rate is that of hosts whose first request comes later, and the effect of
    /// a `Crawl-delay` holds for those that are read later.
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
        let active =
            ActiveSettings::new(PaceSettings { mode, seed: self.seed, ..settings }, |name| {
                self.key(name)
            });
        let applied = Arc::clone(&active.settings);
        self.active.store(Arc::new(active));
        self.hosts.for_each(|host| {
            // Those of another thread, if it was later.
            let (active, key) = (self.active.load(), self.key(&host.identity.name));
            self.admission(&active, key, host, now.as_millis()).reconfigure();
        });
        applied
    }

    /// Ends every hold of `host`, including those of its site and its address. Returns the latest
    /// time until which they would have lasted; `None` if there was none. The store gets a record.
    pub fn end_hold(&self, host: &str, now: Timestamp) -> Option<Timestamp> {
        let mut ended = Vec::new();
        {
            let mut guard = self.hosts.get(self.key(host))?;
            let mut entry = guard.entry();
            let (site, address) = (entry.identity.site, entry.identity.address);
            if let Some(until) = entry.end_hold(now.as_millis()) {
                ended.push((
                    until,
                    Level::Host,
                    entry.identity.name.to_string(),
                    entry.persisted_state(),
                ));
            }
            for (level, map, key) in
                [(Level::Site, &self.sites, site), (Level::Address, &self.addresses, address)]
            {
                if let Some(shared) = map.lock(key).get_mut(key)
                    && let Some(state) = shared.state.as_deref_mut()
                    && let Some(until) =
                        end_hold(&mut state.persisted, state.active.as_deref_mut(), now.as_millis())
                {
                    ended.push((until, level, shared.name.to_string(), state.persisted_state()));
                }
            }
        }
        let longest = ended.iter().map(|(until, ..)| *until).max();
        // Without any lock.
        for (_, level, name, state) in ended {
            self.keep(level, &name, state, Cause::Unpaused, now);
        }
        longest.map(Timestamp::from_millis)
    }

    /// Forgets what was learned about a host itself: it starts like an unknown one, and no further
    /// records of it go to the store. Requests in flight still count. The state of its site and its
    /// address stays, because it is shared.
    pub fn forget(&self, host: &str, now: Timestamp) {
        let key = self.key(host);
        let Some(mut guard) = self.hosts.get(key) else { return };
        let in_flight = guard.entry().active().map_or(0, |active| active.in_flight);
        if in_flight == 0 {
            guard.remove();
            return;
        }
        guard.reset();
        let active = self.active.load();
        let mut admission = self.admission(&active, key, guard.active_entry(), now.as_millis());
        admission.wake();
        if let Some(gate) = admission.gate(Level::Host) {
            gate.active.in_flight = in_flight;
        }
    }
}
