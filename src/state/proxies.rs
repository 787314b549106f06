//! Proxies, services and other sources between the crawler and all sites, that fail.
//!
//! A proxy that restarts would cost each link that has no other fetcher, and a fast crawl has many.
//!
//! Owns: which fetchers' sources have passed anything, since when they fail, and how long a link
//! waits for one.
//!
//! Invariants: no lock, and one read for a request that passes. A source that never passed anything
//! is likely a mistake in the config, so links wait a short time for it.
//!
//! Must not know: the steps of a visit, and whether a link has another fetcher.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use fetchwise_types::registry::{FetcherId, MAX_CANDIDATES};
use fetchwise_types::time::Timestamp;

/// The waits of a link before its request is made again. They outlast the restart of a proxy or a
/// server, and a short outage of the name servers.
pub(crate) const WAITS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(16)];
/// Time for which links wait for a source that has passed others and passes nothing any more.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// What is known of the source of each candidate.
#[derive(Debug)]
pub(crate) struct Proxies {
    of_fetcher: [Proxy; MAX_CANDIDATES],
    /// Since when a link waits for one that passes nothing any more, in milliseconds; 0 if none
    /// does.
    waited_for: AtomicI64,
}

#[derive(Debug)]
struct Proxy {
    has_passed: AtomicBool,
    /// In milliseconds; 0 if it does not fail.
    failing_since: AtomicI64,
}

/// The failures that one link has met.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProxyFaults {
    count: usize,
    first: Timestamp,
}

impl Default for Proxies {
    fn default() -> Self {
        let proxy =
            || Proxy { has_passed: AtomicBool::new(false), failing_since: AtomicI64::new(0) };
        Self { of_fetcher: std::array::from_fn(|_| proxy()), waited_for: AtomicI64::new(0) }
    }
}

impl Proxies {
    /// Records that a request by `fetcher` reached a site.
    pub(crate) fn passed(&self, fetcher: FetcherId) {
        let Some(proxy) = self.of_fetcher.get(fetcher.index()) else { return };
        if !proxy.has_passed.load(Ordering::Relaxed) {
            proxy.has_passed.store(true, Ordering::Relaxed);
        }
        if proxy.failing_since.load(Ordering::Relaxed) != 0 {
            proxy.failing_since.store(0, Ordering::Relaxed);
            self.waited_for.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether a request by `fetcher` has reached a site.
    pub(crate) fn has_passed(&self, fetcher: FetcherId) -> bool {
        let proxy = self.of_fetcher.get(fetcher.index());
        proxy.is_some_and(|proxy| proxy.has_passed.load(Ordering::Relaxed))
    }

    /// Records that the source of `fetcher` failed for a link. Returns how long the link waits until
    /// its next request; `None` if it has waited long enough.
    pub(crate) fn failed(
        &self,
        fetcher: FetcherId,
        faults: &mut ProxyFaults,
        now: Timestamp,
    ) -> Option<Duration> {
        let proxy = self.of_fetcher.get(fetcher.index())?;
        let since = match proxy.failing_since.compare_exchange(
            0,
            now.as_millis(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => now,
            Err(since) => Timestamp::from_millis(since),
        };
        if faults.count == 0 {
            faults.first = now;
        }
        let passes_nothing = proxy.has_passed.load(Ordering::Relaxed)
            && since <= faults.first
            && now.since(since) < LONGEST;
        let wait = WAITS.get(faults.count).or_else(|| WAITS.last().filter(|_| passes_nothing))?;
        faults.count += 1;
        if passes_nothing {
            self.waited_for.store(since.as_millis(), Ordering::Relaxed);
        }
        Some(*wait)
    }

    /// Returns since when a link waits for a source that has passed others and passes nothing any
    /// more.
    pub(crate) fn waited_for(&self, now: Timestamp) -> Option<Timestamp> {
        let since = Timestamp::from_millis(self.waited_for.load(Ordering::Relaxed));
        (since.as_millis() != 0 && now.since(since) < LONGEST).then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: FetcherId = FetcherId(3);

    fn after(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000).saturating_add(Duration::from_secs(seconds))
    }

    /// Lets a link meet failures from `at` on, and returns how long it waits in all.
    fn waits(proxies: &Proxies, at: u64) -> u64 {
        let (mut faults, mut waited) = (ProxyFaults::default(), 0);
        while let Some(wait) = proxies.failed(PROXY, &mut faults, after(at + waited)) {
            waited += wait.as_secs();
        }
        waited
    }

    #[test]
    fn links_wait_longer_for_a_proxy_that_has_passed_others() {
        let proxies = Proxies::default();
        assert_eq!((waits(&proxies, 0), proxies.waited_for(after(1))), (1 + 4 + 16, None));
        proxies.passed(PROXY);
        let waited = waits(&proxies, 100);
        assert!((900..920).contains(&waited), "{waited}");
        assert_eq!(proxies.waited_for(after(110)), Some(after(100)));
        assert_eq!(proxies.waited_for(after(1000)), None);
        // A link that begins later does not wait as long again.
        assert_eq!(waits(&proxies, 1200), 21);
        proxies.passed(PROXY);
        assert_eq!(proxies.waited_for(after(110)), None);
    }

    #[test]
    fn what_a_proxy_refuses_while_it_passes_others_ends() {
        let proxies = Proxies::default();
        proxies.passed(PROXY);
        let mut faults = ProxyFaults::default();
        let mut count = 0;
        while proxies.failed(PROXY, &mut faults, after(10 * count)).is_some() {
            proxies.passed(PROXY);
            count += 1;
        }
        assert_eq!(count, 3);
        assert_eq!(proxies.waited_for(after(100)), None);
    }
}
