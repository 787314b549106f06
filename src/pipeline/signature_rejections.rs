//! The hosts that have rejected the crawler's signature, so that each is reported once.
//!
//! Invariants: at most [`MAX_HOSTS`] hosts are kept. Beyond that the one that rejected last the
//! longest ago may be reported again.
//!
//! Must not know: what a rejection looks like. The detector and the fetchers do that.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;

/// The most hosts that are kept.
const MAX_HOSTS: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// The hosts so far.
#[derive(Debug)]
pub(super) struct SignatureRejections {
    hosts: Mutex<LruCache<Box<str>, ()>>,
}

impl Default for SignatureRejections {
    fn default() -> Self {
        Self { hosts: Mutex::new(LruCache::sparse(MAX_HOSTS)) }
    }
}

impl SignatureRejections {
    /// Adds a host. Returns it if it is new.
    pub(super) fn add(&self, host: &str) -> Option<Box<str>> {
        // The set is consistent even if a thread panicked with it.
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.promote(host) {
            return None;
        }
        hosts.put(host.into(), ());
        Some(host.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_reported_again_after_ten_thousand_others() {
        let hosts = SignatureRejections::default();
        for n in 0..MAX_HOSTS.get() {
            assert!(hosts.add(&n.to_string()).is_some());
        }
        assert_eq!(hosts.add("0"), None);
        assert!(hosts.add("new").is_some());
        assert_eq!(
            (hosts.add("0"), hosts.add("1").is_some(), hosts.add("new")),
            (None, true, None)
        );
    }
}
