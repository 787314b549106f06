//! The ledger of a host: every received request, counted by path, and the latest requests with
//! their headers.
//!
//! Invariants: a request is recorded before its response is sent, so a client that has a response
//! finds its request here.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fetchwise::response::{Header, header};

/// Requests that a host keeps in full.
const MAX_KEPT_REQUESTS: usize = 100_000;

/// The kind of page that a response holds.
#[derive(Clone, Debug)]
pub(super) enum SentPage {
    /// The content of this path.
    Content(String),
    /// A block page.
    Block,
}

/// Path of the script that a page with [render counting](super::Site::CountRenders) loads when a
/// browser runs scripts. Its query is the path of the page.
pub(super) const RENDER_SCRIPT: &str = "/assets/rendered.js?";

/// A request that the origin received.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReceivedRequest {
    /// Host that the request was for.
    pub host: String,
    /// Method: `GET`, `HEAD`, ...
    pub method: String,
    /// Path and query.
    pub path: String,
    /// All headers, in order.
    pub headers: Vec<Header>,
    /// Time of arrival.
    pub at: Instant,
}

impl ReceivedRequest {
    /// Returns the `User-Agent`, if there is one.
    pub fn user_agent(&self) -> Option<&str> {
        header(&self.headers, "user-agent")
    }

    /// Returns whether the request was for a page rather than for a resource that a browser loads
    /// for a page.
    pub fn is_page(&self) -> bool {
        is_page(&self.path)
    }
}

/// Counts of a host's requests and responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Requests of every kind.
    pub requests: u64,
    /// Requests for pages.
    pub pages: u64,
    /// Responses with 401, 403 or 429, and block pages with any status.
    pub blocked: u64,
    /// Pages that a browser has rendered: those of an application, and of sites with [render
    /// counting](super::Site::CountRenders).
    pub renders: u64,
    /// Distinct paths whose content was sent.
    pub sent: u64,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    requests: u64,
    pages: u64,
    refusals: u64,
    blocked: u64,
    renders: u64,
    sent: HashSet<String>,
    first_page: Option<Instant>,
    by_path: HashMap<String, u64>,
    latest: VecDeque<ReceivedRequest>,
}

impl Ledger {
    /// Records a request. Returns the number of page requests so far, including this one.
    pub(super) fn record_request(&self, request: ReceivedRequest) -> u64 {
        let mut entries = self.lock();
        entries.requests += 1;
        entries.renders += u64::from(request.path.starts_with(RENDER_SCRIPT));
        if is_page(&request.path) {
            entries.pages += 1;
            entries.first_page.get_or_insert(request.at);
        }
        *entries.by_path.entry(request.path.clone()).or_default() += 1;
        if entries.latest.len() == MAX_KEPT_REQUESTS {
            entries.latest.pop_front();
        }
        entries.latest.push_back(request);
        entries.pages
    }

    pub(super) fn refusals(&self) -> u64 {
        self.lock().refusals
    }

    /// Records a response: its page, whether its status is a refusal, and whether only a browser
    /// requests it.
    pub(super) fn record_response(
        &self,
        page: Option<SentPage>,
        is_refused: bool,
        is_render: bool,
    ) {
        let mut entries = self.lock();
        entries.refusals += u64::from(is_refused);
        entries.blocked += u64::from(is_refused || matches!(page, Some(SentPage::Block)));
        if let Some(SentPage::Content(path)) = page {
            entries.sent.insert(path);
            entries.renders += u64::from(is_render);
        }
    }

    pub(super) fn tally(&self) -> Tally {
        let entries = self.lock();
        Tally {
            requests: entries.requests,
            pages: entries.pages,
            blocked: entries.blocked,
            renders: entries.renders,
            sent: entries.sent.len() as u64,
        }
    }

    pub(super) fn has_sent(&self, path: &str) -> bool {
        self.lock().sent.contains(path)
    }

    /// Returns the page requests so far in the window that contains `now`, and the time left in it.
    /// Windows follow each other, starting at the first page request.
    pub(super) fn in_window(&self, window: Duration, now: Instant) -> (u64, Duration) {
        let entries = self.lock();
        let since_first =
            entries.first_page.map_or(Duration::ZERO, |first| now.saturating_duration_since(first));
        let window = window.max(Duration::from_millis(1));
        let into = Duration::from_nanos(
            (since_first.as_nanos() % window.as_nanos()).try_into().unwrap_or(u64::MAX),
        );
        let is_inside =
            |request: &&ReceivedRequest| now.saturating_duration_since(request.at) <= into;
        let pages = entries
            .latest
            .iter()
            .rev()
            .take_while(is_inside)
            .filter(|request| is_page(&request.path))
            .count();
        (pages as u64, window - into)
    }

    pub(super) fn hits(&self) -> u64 {
        self.lock().requests
    }

    pub(super) fn hits_at(&self, path: &str) -> u64 {
        self.lock().by_path.get(path).copied().unwrap_or(0)
    }

    pub(super) fn latest(&self) -> Vec<ReceivedRequest> {
        self.lock().latest.iter().cloned().collect()
    }

    /// The counters are right even if a thread panicked while it held the lock, so poisoning is
    /// ignored.
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a path is a page rather than a resource that a browser loads for a page.
pub(super) fn is_page(path: &str) -> bool {
    const RESOURCES: [&str; 3] = ["/assets/", "/api/", "/cdn-cgi/"];
    !RESOURCES.iter().any(|prefix| path.starts_with(prefix))
        && path != "/favicon.ico"
        && path != "/robots.txt"
}
