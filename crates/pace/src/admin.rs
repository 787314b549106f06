//! Operator actions: ending a hold early, and forgetting a host.
//!
//! Invariants: ending a hold forgets nothing else: the learned rate stays, and the next request is a trial as usual. Of a
//! forgotten host only the requests in flight stay.
//!
//! Must not know: who requests it.

use super::Pace;
use crate::limiter::shared_levels::end_hold;
use crate::signals::response::{Cause, Level};
use fetchwise_types::time::Timestamp;

impl Pace {
    /// Ends every hold of `host`, including those of its site and its address. Returns the latest time until which they
    /// would have lasted; `None` if there was none. The store gets a record.
    pub fn end_hold(&self, host: &str, now: Timestamp) -> Option<Timestamp> {
        let mut ended = Vec::new();
        {
            let mut guard = self.hosts.get(self.key(host))?;
            let mut entry = guard.entry();
            let (site, address) = (entry.identity.site, entry.identity.address);
            if let Some(until) = entry.end_hold(now.as_millis()) {
                ended.push((until, Level::Host, entry.identity.name.to_string(), entry.persisted_state()));
            }
            for (level, map, key) in [(Level::Site, &self.sites, site), (Level::Address, &self.addresses, address)] {
                if let Some(shared) = map.lock(key).get_mut(key)
                    && let Some(state) = shared.state.as_deref_mut()
                    && let Some(until) = end_hold(&mut state.persisted, state.active.as_deref_mut(), now.as_millis())
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

    /// Forgets what was learned about a host itself: it starts like an unknown one, and no further records of it go to
    /// the store. Requests in flight still count. The state of its site and its address stays, because it is shared.
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
