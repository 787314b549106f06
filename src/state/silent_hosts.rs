//! Hosts that answer nothing: no connection, no response, no address.
//!
//! Each failure slows the pace of its host, as it has to if the host is overloaded. A host that
//! nobody has heard of is not: its links would wait for each other, and each would fail.
//!
//! Owns: since when a host has been silent, and how many requests it left unanswered.
//!
//! Invariants: any answer of a host forgets it. Nothing is looked up while no host is silent.
//!
//! Must not know: which hosts have answered before, and what follows for a visit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;

use crate::state::sweep_trigger::SweepTrigger;
use fetchwise_types::time::Timestamp;

/// Requests without an answer, and the time between the first and the last, after which a host is
/// gone. A restart takes less.
const REQUESTS: u32 = 4;
const SILENCE: Duration = Duration::from_secs(20);
/// Time after the last request for which it counts as gone.
const GONE_FOR: Duration = Duration::from_secs(5 * 60);
/// Number of hosts from which on those that may be asked again are dropped.
const HOSTS_BEFORE_SCAN: usize = 1_000;

/// The silent hosts.
#[derive(Debug)]
pub(crate) struct SilentHosts {
    hosts: DashMap<Box<str>, SilentHost>,
    /// Their number. No reader locks a map for it.
    len: AtomicUsize,
    sweep: SweepTrigger,
}

/// The silence of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SilentHost {
    pub(crate) since: Timestamp,
    pub(crate) requests: u32,
    last: Timestamp,
}

impl Default for SilentHosts {
    fn default() -> Self {
        Self {
            hosts: DashMap::default(),
            len: AtomicUsize::new(0),
            sweep: SweepTrigger::new(HOSTS_BEFORE_SCAN),
        }
    }
}

impl SilentHosts {
    /// Records a request of `host` without an answer.
    pub(crate) fn add(&self, host: &str, now: Timestamp) {
        if self.sweep.is_due(self.hosts.len()) {
            self.hosts.retain(|_, silent| {
                let is_kept = now.since(silent.last) < GONE_FOR;
                self.len.fetch_sub(usize::from(!is_kept), Ordering::AcqRel);
                is_kept
            });
            self.sweep.done(self.hosts.len());
        }
        let first = SilentHost { since: now, requests: 0, last: now };
        let mut silent = self.hosts.entry(host.into()).or_insert_with(|| {
            self.len.fetch_add(1, Ordering::AcqRel);
            first
        });
        if now.since(silent.last) >= GONE_FOR {
            *silent = first;
        }
        silent.requests = silent.requests.saturating_add(1);
        silent.last = silent.last.max(now);
    }

    /// Records an answer of `host`.
    pub(crate) fn answered(&self, host: &str) {
        if !self.is_empty() && self.hosts.remove(host).is_some() {
            self.len.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Returns whether no host is silent.
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// Returns the silence of `host`, if it counts as gone.
    pub(crate) fn gone(&self, host: &str, now: Timestamp) -> Option<SilentHost> {
        let silent = *self.hosts.get(host)?;
        let is_long = silent.requests >= REQUESTS && silent.last.since(silent.since) >= SILENCE;
        (is_long && now.since(silent.last) < GONE_FOR).then_some(silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000).saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn a_host_is_gone_after_several_requests_and_some_time_until_it_answers() {
        let hosts = SilentHosts::default();
        assert_eq!(hosts.gone("a.org", after(0)), None);
        // At once, as those that were in flight together.
        (0..9).for_each(|_| hosts.add("a.org", after(0)));
        // Over some time, but not often.
        (0..3).for_each(|n| hosts.add("b.org", after(15 * n)));
        assert_eq!(hosts.gone("a.org", after(30)), None);
        assert_eq!(hosts.gone("b.org", after(30)), None);
        hosts.add("a.org", after(20));
        let silent = hosts.gone("a.org", after(30)).unwrap();
        assert_eq!((silent.since, silent.requests), (after(0), 10));
        hosts.answered("b.org");
        assert!(hosts.gone("a.org", after(319)).is_some());
        // It is asked again later, and once more it takes several requests.
        assert_eq!(hosts.gone("a.org", after(320)), None);
        hosts.add("a.org", after(320));
        assert_eq!(hosts.gone("a.org", after(320)), None);
        (0..4).for_each(|n| hosts.add("a.org", after(320 + 10 * n)));
        assert!(hosts.gone("a.org", after(350)).is_some());
        hosts.answered("a.org");
        assert_eq!(hosts.gone("a.org", after(350)), None);
        assert!(hosts.is_empty());
    }

    #[test]
    fn hosts_that_may_be_asked_again_are_dropped() {
        let hosts = SilentHosts::default();
        for n in 0..100 * HOSTS_BEFORE_SCAN as u64 {
            hosts.add(&format!("h{n}.org"), after(n));
        }
        assert!(hosts.hosts.len() <= 3 * HOSTS_BEFORE_SCAN, "{}", hosts.hosts.len());
        assert_eq!(hosts.len.load(Ordering::Acquire), hosts.hosts.len());
    }
}
