//! The hosts that want HTTP/1.1 although they offer HTTP/2.
//!
//! Invariants: bounded, in number and in time: a host that is upgraded gets HTTP/2 again.
//!
//! Must not know: how a host says so.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use url::{Origin, Url};

/// Maximum number of hosts; the oldest is forgotten first.
const MAX_HOSTS: usize = 512;
/// Time for which a host is remembered.
const REMEMBERED_FOR: Duration = Duration::from_secs(60 * 60);

/// Hosts that want HTTP/1.1, each with the time at which it said so.
#[derive(Debug, Default)]
pub(super) struct Http1Hosts(Mutex<VecDeque<(Origin, Instant)>>);

impl Http1Hosts {
    /// Records that the host of `url` wants HTTP/1.1.
    pub(super) fn add(&self, url: &Url, now: Instant) {
        let mut hosts = self.locked();
        let origin = url.origin();
        hosts.retain(|(known, _)| *known != origin);
        if hosts.len() >= MAX_HOSTS {
            hosts.pop_front();
        }
        hosts.push_back((origin, now));
    }

    /// Returns whether the host of `url` wants HTTP/1.1.
    pub(super) fn contains(&self, url: &Url, now: Instant) -> bool {
        let mut hosts = self.locked();
        while hosts
            .front()
            .is_some_and(|(_, at)| now.saturating_duration_since(*at) >= REMEMBERED_FOR)
        {
            hosts.pop_front();
        }
        if hosts.is_empty() {
            return false;
        }
        let origin = url.origin();
        hosts.iter().any(|(known, _)| *known == origin)
    }

    fn locked(&self) -> MutexGuard<'_, VecDeque<(Origin, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_host_is_remembered_for_a_while_and_old_ones_make_room() {
        let (hosts, start) = (Http1Hosts::default(), Instant::now());
        let url = |n: usize| Url::parse(&format!("https://h{n}.example/x")).unwrap();
        hosts.add(&url(0), start);
        let same = Url::parse("https://h0.example:443/y").unwrap();
        assert!(hosts.contains(&same, start) && !hosts.contains(&url(1), start));
        assert!(
            !hosts.contains(&Url::parse("https://h0.example:8443/").unwrap(), start),
            "another port"
        );
        assert!(!hosts.contains(&url(0), start + REMEMBERED_FOR));
        for n in 0..2 * MAX_HOSTS {
            hosts.add(&url(n), start);
        }
        assert_eq!(hosts.locked().len(), MAX_HOSTS);
        assert!(hosts.contains(&url(2 * MAX_HOSTS - 1), start) && !hosts.contains(&url(0), start));
    }
}
