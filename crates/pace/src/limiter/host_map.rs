//! The hosts, behind many locks: those in use apart from those that are only remembered.
//!
//! Owns: the locks, and the move of a host when it wakes or becomes idle.
//!
//! Invariants: a host is among the active or among the idle ones of its shard, never among both. A
//! thread locks one host at a time.
//!
//! Must not know: the rules.

use std::sync::MutexGuard;

use crate::limiter::flat_map::FlatMap;
use crate::limiter::host::{ActiveHost, HostEntry, HostIdentity, IdleHost};
use crate::limiter::sharded::Sharded;
use crate::limiter::shared_levels::is_recent;
use crate::persistence::persisted_state::PersistedState;

/// The hosts by the hashes of their names.
#[derive(Debug, Default)]
pub(crate) struct HostMap(Sharded<HostShard>);

/// The hosts behind one lock.
#[derive(Debug, Default)]
struct HostShard {
    active: FlatMap<ActiveHost>,
    idle: FlatMap<IdleHost>,
}

/// A locked host.
#[derive(Debug)]
pub(crate) struct HostGuard<'m> {
    shard: MutexGuard<'m, HostShard>,
    place: HostPlace,
}

/// The slot of a host.
#[derive(Clone, Copy, Debug)]
enum HostPlace {
    Active(usize),
    Idle(usize),
}

impl HostMap {
    pub(crate) fn len(&self) -> usize {
        self.0.shards().map(|shard| shard.active.len() + shard.idle.len()).sum()
    }

    /// Locks a known host.
    pub(crate) fn get(&self, key: u64) -> Option<HostGuard<'_>> {
        let shard = self.0.lock(key);
        let place = shard.find(key)?;
        Some(HostGuard { shard, place })
    }

    /// Locks a host, and adds it if it is new: with room for active state if it is about to be
    /// used.
    pub(crate) fn get_or_insert_with(
        &self,
        key: u64,
        will_be_active: bool,
        make: impl FnOnce() -> HostIdentity,
    ) -> HostGuard<'_> {
        let mut shard = self.0.lock(key);
        let place = shard.find(key).unwrap_or_else(|| {
            let host = IdleHost { identity: make(), persisted: PersistedState::default() };
            if will_be_active {
                HostPlace::Active(shard.active.insert(host.into_active()))
            } else {
                HostPlace::Idle(shard.idle.insert(host))
            }
        });
        HostGuard { shard, place }
    }

    /// Calls `visit` with each host.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(HostEntry<'_>)) {
        for mut shard in self.0.shards() {
            let HostShard { active, idle } = &mut *shard;
            active.iter_mut().for_each(|host| visit(host.into()));
            idle.iter_mut().for_each(|host| visit(host.into()));
        }
    }

    /// Drops the active state of idle hosts, and forgets those that are not worth keeping.
    pub(crate) fn drop_idle(&self, now: i64) {
        for mut shard in self.0.shards() {
            let HostShard { active, idle } = &mut *shard;
            idle.retain(|host| is_recent(&host.persisted, now));
            active.retain(|host| {
                let is_idle = host.active.is_vacant() || host.active.is_idle(now);
                if is_idle {
                    let host = std::mem::take(host).into_idle();
                    if is_recent(&host.persisted, now) {
                        idle.insert(host);
                    }
                }
                !is_idle
            });
        }
    }
}

impl HostShard {
    fn find(&self, key: u64) -> Option<HostPlace> {
        match self.active.find(key) {
            Some(at) => Some(HostPlace::Active(at)),
            None => self.idle.find(key).map(HostPlace::Idle),
        }
    }
}

impl HostGuard<'_> {
    /// Returns the host.
    pub(crate) fn entry(&mut self) -> HostEntry<'_> {
        match self.place {
            HostPlace::Active(at) => self.shard.active.item_mut(at).into(),
            HostPlace::Idle(at) => self.shard.idle.item_mut(at).into(),
        }
    }

    /// Returns the host with room for active state.
    pub(crate) fn active_entry(&mut self) -> HostEntry<'_> {
        if let HostPlace::Idle(at) = self.place {
            let host = self.shard.idle.remove(at);
            self.place = HostPlace::Active(self.shard.active.insert(host.into_active()));
        }
        self.entry()
    }

    /// Restores a persisted state. Nothing changes while requests are in flight.
    pub(crate) fn restore(mut self, persisted: PersistedState) {
        let entry = self.entry();
        if entry.active().is_none_or(|active| active.in_flight == 0) {
            let persisted = persisted.with_declared_gap_of(entry.persisted());
            self.replace_with_idle(persisted);
        }
    }

    /// Forgets everything but its identity.
    pub(crate) fn reset(&mut self) {
        self.replace_with_idle(PersistedState::default());
    }

    /// Forgets the host.
    pub(crate) fn remove(mut self) {
        match self.place {
            HostPlace::Active(at) => drop(self.shard.active.remove(at)),
            HostPlace::Idle(at) => drop(self.shard.idle.remove(at)),
        }
    }

    fn replace_with_idle(&mut self, persisted: PersistedState) {
        match self.place {
            HostPlace::Active(at) => {
                let identity = self.shard.active.remove(at).identity;
                self.place =
                    HostPlace::Idle(self.shard.idle.insert(IdleHost { identity, persisted }));
            }
            HostPlace::Idle(at) => self.shard.idle.item_mut(at).persisted = persisted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::active_state::ACTIVE_MS;

    fn lock(map: &HostMap, key: u64, will_be_active: bool) -> HostGuard<'_> {
        map.get_or_insert_with(key, will_be_active, || HostIdentity::new(key, "a.org"))
    }

    /// Returns the numbers of active and of idle hosts.
    fn counts(map: &HostMap) -> (usize, usize) {
        let all = map.0.shards().map(|shard| (shard.active.len(), shard.idle.len()));
        all.fold((0, 0), |sum, shard| (sum.0 + shard.0, sum.1 + shard.1))
    }

    #[test]
    fn a_host_moves_between_active_and_idle_and_is_never_both() {
        let (map, now) = (HostMap::default(), 1_790_000_000_000);
        let mut persisted = PersistedState::default();
        (persisted.last_request_day, persisted.probe_at) = (20_700, 7);
        (1..=1000).for_each(|key| lock(&map, key << 50 | key, false).restore(persisted));
        assert_eq!(counts(&map), (0, 1000));
        for key in 1..=600 {
            let mut guard = lock(&map, key << 50 | key, true);
            let mut entry = guard.active_entry();
            assert_eq!((entry.active().is_some(), entry.persisted().probe_at), (false, 7));
            entry.wake(16, |_| 2.0, now);
        }
        assert_eq!((counts(&map), map.len()), ((600, 400), 1000));
        // One of them is restored while it has no request in flight, and another one has room but
        // no state.
        lock(&map, 1 << 50 | 1, true).restore(persisted);
        lock(&map, 2000, true);
        assert_eq!(counts(&map), (600, 401));
        map.drop_idle(now);
        assert_eq!(counts(&map), (599, 401), "the one without a state had none to keep");
        map.drop_idle(now + ACTIVE_MS + 1);
        assert_eq!(counts(&map), (0, 1000));
        assert!(map.get(2000).is_none() && map.get(600 << 50 | 600).is_some());
        let mut rates = 0;
        map.for_each(|entry| rates += usize::from(entry.persisted().rate.get() == 2.0));
        assert_eq!(rates, 599, "idle hosts keep their last rate");
        map.drop_idle(now + 100 * 86_400_000);
        assert_eq!(map.len(), 0);
    }

    #[test]
    fn a_forgotten_host_leaves_nothing() {
        let map = HostMap::default();
        drop(lock(&map, 7, true));
        lock(&map, 7, true).reset();
        assert_eq!(counts(&map), (0, 1));
        lock(&map, 7, false).remove();
        drop(lock(&map, 7, true));
        lock(&map, 7, false).remove();
        assert_eq!(counts(&map), (0, 0));
    }
}
