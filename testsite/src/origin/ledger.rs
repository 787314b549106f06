//! The ledger of a host: every request that came in, counted by path, the latest kept with their headers.
//!
//! A request is entered before it is answered, so a client that has an answer finds its request here.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

    /// Whether it was for a page, rather than for something that a browser loads on the side.
    pub fn is_page(&self) -> bool {
        is_page(&self.path)
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
    refused: u64,
    first_page: Option<Instant>,
    by_path: HashMap<String, u64>,
    latest: VecDeque<Seen>,
}

impl Ledger {
    /// Enters a request; gives the number of page requests so far, this one included.
    pub(super) fn enter(&self, seen: Seen) -> u64 {
        let mut entries = self.lock();
        entries.hits += 1;
        if is_page(&seen.path) {
            entries.pages += 1;
            entries.first_page.get_or_insert(seen.at);
        }
        *entries.by_path.entry(seen.path.clone()).or_default() += 1;
        if entries.latest.len() == KEPT {
            entries.latest.pop_front();
        }
        entries.latest.push_back(seen);
        entries.pages
    }

    /// Enters that a request was refused.
    pub(super) fn refuse(&self) {
        self.lock().refused += 1;
    }

    pub(super) fn refused(&self) -> u64 {
        self.lock().refused
    }

    /// The page requests so far in the window that `now` lies in, and how much of it is left. Windows follow each other from the
    /// first page request on.
    pub(super) fn in_window(&self, window: Duration, now: Instant) -> (u64, Duration) {
        let entries = self.lock();
        let since_first = entries.first_page.map_or(Duration::ZERO, |first| now.saturating_duration_since(first));
        let window = window.max(Duration::from_millis(1));
        let into = Duration::from_nanos((since_first.as_nanos() % window.as_nanos()).try_into().unwrap_or(u64::MAX));
        let is_inside = |seen: &&Seen| now.saturating_duration_since(seen.at) <= into;
        let pages = entries.latest.iter().rev().take_while(is_inside).filter(|seen| is_page(&seen.path)).count();
        (pages as u64, window - into)
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
