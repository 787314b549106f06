//! Ending a hold before its time, because an operator says so.
//!
//! Invariant: nothing else is forgotten: the rate stays what was learned, and the request after a hold is one alone, as ever. Must
//! not know who asks.

use super::Pace;
use super::answer::{Cause, Level};
use super::levels::Kept;
use crate::time::Timestamp;

impl Pace {
    /// Ends every hold that keeps `host` from being asked, its site's and its address's among them. Returns until when the longest of
    /// them would have been; none when there was none. The keeper is told.
    pub fn release(&self, host: &str, now: Timestamp) -> Option<Timestamp> {
        let mut ended = Vec::new();
        {
            let mut entry = self.hosts.get_mut(&self.key(host))?;
            let (site, address) = (entry.site, entry.address);
            let mut end = |level: Level, name: &str, kept: &mut Kept| {
                if let Some(until) = kept.end_hold(now.as_millis()) {
                    ended.push((until, level, name.to_owned(), kept.remembered()));
                }
            };
            let entry = &mut *entry;
            end(Level::Host, &entry.name, &mut entry.kept);
            for (level, map, key) in [(Level::Site, &self.sites, site), (Level::Address, &self.addresses, address)] {
                if let Some(mut shared) = map.get_mut(&key) {
                    let shared = &mut *shared;
                    if let Some(kept) = shared.kept.as_deref_mut() {
                        end(level, &shared.name, kept);
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

impl Kept {
    /// Ends a hold that lasts beyond `now`, and says until when it would have been.
    fn end_hold(&mut self, now: i64) -> Option<i64> {
        let cold = i64::from(self.cold.hold_until) * 1000;
        let trouble = self.hot.as_deref_mut().and_then(|hot| hot.trouble.as_deref_mut());
        let until = trouble.as_ref().map_or(cold, |trouble| trouble.hold);
        if until <= now {
            return None;
        }
        if let Some(trouble) = trouble {
            trouble.hold = now;
        }
        self.cold.hold_until = u32::try_from(now.div_euclid(1000)).unwrap_or(0);
        Some(until)
    }
}
