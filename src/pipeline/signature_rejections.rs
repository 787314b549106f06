//! The hosts that have rejected the crawler's signature, so that each is reported once.
//!
//! Invariants: at most [`MAX_HOSTS`] hosts are kept. Beyond that a host may be reported again.
//!
//! Must not know: what a rejection looks like. The detector and the fetchers do that.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The most hosts that are kept.
const MAX_HOSTS: usize = 10_000;

/// The hosts so far.
#[derive(Debug, Default)]
pub(super) struct SignatureRejections {
    hosts: Mutex<HashSet<Box<str>>>,
}

impl SignatureRejections {
    /// Adds a host. Returns it if it is new.
    pub(super) fn add(&self, host: &str) -> Option<Box<str>> {
        // The set is consistent even if a thread panicked with it.
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.contains(host) {
            return None;
        }
        if hosts.len() >= MAX_HOSTS {
            hosts.clear();
        }
        hosts.insert(host.into());
        Some(host.into())
    }
}
