//! Ending a hold before its time, because an operator says so.
//!
//! Invariant: nothing else is forgotten: the rate stays what was learned, and the request after a hold is one alone, as ever. Must
//! not know who asks.

use super::Pace;
use super::answer::{Cause, Level};
use super::levels::end_hold;
use crate::time::Timestamp;

impl Pace {
    /// Ends every hold that keeps `host` from being asked, its site's and its address's among them. Returns until when the longest of
    /// them would have been; none when there was none. The keeper is told.
    pub fn release(&self, host: &str, now: Timestamp) -> Option<Timestamp> {
        let mut ended = Vec::new();
        {
            let mut entry = self.hosts.get_mut(&self.key(host))?;
            let (site, address) = (entry.who().site, entry.who().address);
            if let Some(until) = entry.end_hold(now.as_millis()) {
                ended.push((until, Level::Host, entry.who().name.to_string(), entry.remembered()));
            }
            for (level, map, key) in [(Level::Site, &self.sites, site), (Level::Address, &self.addresses, address)] {
                if let Some(mut shared) = map.get_mut(&key) {
                    let shared = &mut *shared;
                    if let Some(kept) = shared.kept.as_deref_mut()
                        && let Some(until) = end_hold(&mut kept.cold, kept.hot.as_deref_mut(), now.as_millis())
                    {
                        ended.push((until, level, shared.name.to_string(), kept.remembered()));
                    }
                }
            }
        }
        let longest = ended.iter().map(|(until, ..)| *until).max();
        // With no lock held.
        for (_, level, name, state) in ended {
            self.keep(level, &name, state, Cause::Released, now);
        }
        longest.map(Timestamp::from_millis)
    }
}
