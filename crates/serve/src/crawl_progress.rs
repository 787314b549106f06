//! The progress of a crawl that runs alongside the server: the crawl sets it, and the dashboard
//! shows it.
//!
//! Invariant: the figures that a reader gets belong to one moment.
//!
//! Must not know: how a crawl works, and HTTP.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fetchwise::time::Timestamp;

/// How far a crawl is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CrawlFigures {
    /// The number of links, if it is known.
    pub total: Option<u64>,
    /// The number of finished links, with those of an earlier run.
    pub done: u64,
    /// The number of links that are not finished, if it is known; with a work queue those of all
    /// nodes.
    pub left: Option<u64>,
    /// Finished links per second; none if none finished lately.
    pub rate: Option<f64>,
    /// The time for the links that wait for no pause; none if it is unknown or nothing is left.
    pub remaining: Option<Duration>,
    /// The number of links that wait for the end of a pause.
    pub paused_links: u64,
    /// The number of their hosts.
    pub paused_hosts: u64,
    /// The end of the first pause.
    pub next_pause_end: Option<Timestamp>,
    /// The end of the last pause.
    pub last_pause_end: Option<Timestamp>,
}

/// The progress of a crawl; none before its first figures. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CrawlProgress(Arc<Mutex<Option<CrawlFigures>>>);

impl CrawlProgress {
    /// Replaces the figures.
    pub fn set(&self, figures: CrawlFigures) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(figures);
    }

    /// Returns the last figures.
    pub(crate) fn get(&self) -> Option<CrawlFigures> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
