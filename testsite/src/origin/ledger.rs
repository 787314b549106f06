//! The ledger of a host: every request that came in, counted by path, the latest kept with their headers.
//!
//! A request is entered before it is answered, so a client that has an answer finds its request here.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use fetchwise::response::{Header, header};

/// Requests a host remembers in full.
const KEPT: usize = 100_000;

/// A request that the origin received.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Seen {
    /// The host it was for.
    pub host: String,
    /// `GET`, `HEAD`, ...
    pub method: String,
    /// Path and query.
    pub path: String,
    /// All its headers, in order.
    pub headers: Vec<Header>,
    /// When it arrived.
    pub at: Instant,
}

impl Seen {
    /// Its `User-Agent`, if it had one.
    pub fn user_agent(&self) -> Option<&str> {
        header(&self.headers, "user-agent")
    }
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    hits: u64,
    pages: u64,
    by_path: HashMap<String, u64>,
    latest: VecDeque<Seen>,
}

impl Ledger {
    /// Enters a request; gives the number of page requests so far, this one included.
    pub(super) fn enter(&self, seen: Seen) -> u64 {
        let mut entries = self.lock();
        entries.hits += 1;
        entries.pages += u64::from(is_page(&seen.path));
        *entries.by_path.entry(seen.path.clone()).or_default() += 1;
        if entries.latest.len() == KEPT {
            entries.latest.pop_front();
        }
        entries.latest.push_back(seen);
        entries.pages
    }

    pub(super) fn hits(&self) -> u64 {
        self.lock().hits
    }

    pub(super) fn hits_at(&self, path: &str) -> u64 {
        self.lock().by_path.get(path).copied().unwrap_or(0)
    }

    pub(super) fn latest(&self) -> Vec<Seen> {
        self.lock().latest.iter().cloned().collect()
    }

    /// Counters stay right whatever a panicking holder left undone, so a poisoned lock is no reason to stop.
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a path is a page rather than something a browser loads on the side.
fn is_page(path: &str) -> bool {
    const ASIDE: [&str; 3] = ["/assets/", "/api/", "/cdn-cgi/"];
    !ASIDE.iter().any(|prefix| path.starts_with(prefix)) && path != "/favicon.ico" && path != "/robots.txt"
}
