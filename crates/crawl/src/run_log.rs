//! The attempts of this run by host and fetcher, counted on their way to the log.
//!
//! Must not know: how the counts are shown.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use fetchwise::analytics::Row;
use fetchwise::attempt::Attempt;
use fetchwise::backoff::LinkState;
use fetchwise::selector::{Released, Sink, SinkError};
use fetchwise::time::Timestamp;

/// The counts of a run. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RunLog(Arc<Mutex<BTreeMap<Box<str>, Row>>>);

impl RunLog {
    /// Returns a sink that counts and passes everything on.
    pub fn counting<S: Sink>(&self, sink: S) -> RunLogSink<S> {
        RunLogSink { counts: self.clone(), sink }
    }

    /// Returns the counts by fetcher.
    pub fn fetchers(&self) -> Vec<(String, Row)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(name, counts)| (name.to_string(), *counts)).collect()
    }

    fn add(&self, attempt: &Attempt) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !counts.contains_key(&*attempt.fetcher) {
            counts.insert((*attempt.fetcher).into(), Row::default());
        }
        if let Some(of) = counts.get_mut(&*attempt.fetcher) {
            of.observe(attempt);
        }
    }
}

/// A sink that counts attempts.
pub struct RunLogSink<S> {
    counts: RunLog,
    sink: S,
}

impl<S: Sink> Sink for RunLogSink<S> {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        self.counts.add(attempt);
        self.sink.append(attempt)
    }

    fn link_state(&self, link: &str, url: &str, state: &LinkState, at: Timestamp) {
        self.sink.link_state(link, url, state, at);
    }

    fn host_pause(&self, domain: &str, until: Option<Timestamp>, at: Timestamp) {
        self.sink.host_pause(domain, until, at);
    }

    fn released(&self, what: Released<'_>, at: Timestamp) {
        self.sink.released(what, at);
    }
}
