//! The ledger of a host: every request that came in, counted by path, the latest kept with their headers.
//!
//! A request is entered before it is answered, so a client that has an answer finds its request here.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fetchwise::response::{Header, header};

/// Requests a host remembers in full.
const KEPT: usize = 100_000;

/// What a response shows, for the ledger.
#[derive(Clone, Debug)]
pub(super) enum Shown {
    /// The content of this path.
    Content(String),
    /// A wall.
    Wall,
}

/// The script that a watched page asks for when a browser runs scripts; its query is the page's path.
pub(super) const RENDERED: &str = "/assets/rendered.js?";

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

/// What a host has been asked for, and what it showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Requests of every kind.
    pub requests: u64,
    /// Requests for pages.
    pub pages: u64,
    /// Answers with 401, 403 or 429, and walls of any status.
    pub blocked: u64,
    /// Pages that a browser has rendered: those of an application, and of [watched](super::Site::Watched) sites.
    pub renders: u64,
    /// Paths whose content was sent, each counted once.
    pub shown: u64,
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
    blocked: u64,
    renders: u64,
    shown: HashSet<String>,
    first_page: Option<Instant>,
    by_path: HashMap<String, u64>,
    latest: VecDeque<Seen>,
}

impl Ledger {
    /// Enters a request; gives the number of page requests so far, this one included.
    pub(super) fn enter(&self, seen: Seen) -> u64 {
        let mut entries = self.lock();
        entries.hits += 1;
        entries.renders += u64::from(seen.path.starts_with(RENDERED));
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

    pub(super) fn refused(&self) -> u64 {
        self.lock().refused
    }

    /// Enters what was answered: what it shows, whether its status refuses, whether only a browser asks for it.
    pub(super) fn answered(&self, shown: Option<Shown>, is_refused: bool, is_render: bool) {
        let mut entries = self.lock();
        entries.refused += u64::from(is_refused);
        entries.blocked += u64::from(is_refused || matches!(shown, Some(Shown::Wall)));
        if let Some(Shown::Content(path)) = shown {
            entries.shown.insert(path);
            entries.renders += u64::from(is_render);
        }
    }

    pub(super) fn tally(&self) -> Tally {
        let entries = self.lock();
        Tally {
            requests: entries.hits,
            pages: entries.pages,
            blocked: entries.blocked,
            renders: entries.renders,
            shown: entries.shown.len() as u64,
        }
    }

    pub(super) fn has_shown(&self, path: &str) -> bool {
        self.lock().shown.contains(path)
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
pub(super) fn is_page(path: &str) -> bool {
    const ASIDE: [&str; 3] = ["/assets/", "/api/", "/cdn-cgi/"];
    !ASIDE.iter().any(|prefix| path.starts_with(prefix)) && path != "/favicon.ico" && path != "/robots.txt"
}
