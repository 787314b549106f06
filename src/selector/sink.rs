//! Where what a selector learns goes beside memory, so that it outlives the process.

use std::sync::Arc;

use crate::backoff::LinkState;
use fetchwise_types::attempt::Attempt;
use fetchwise_types::time::Timestamp;

/// Where recorded attempts go, beside memory: a journal, or a crawler's own database. What visits learn of links and hosts goes
/// there, too, unless the methods for it are left as they are.
pub trait Sink: Send + Sync {
    /// Takes an attempt over. Must not block for long, and must not fail the crawler.
    ///
    /// # Errors
    /// Says why the attempt will not survive the process; memory has it all the same.
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError>;

    /// Takes over a link's new state. `url` is the link's address. Called under a lock of that link's: must not block for long.
    fn link_state(&self, _link: &str, _url: &str, _state: &LinkState, _at: Timestamp) {}

    /// Takes over a host's pause, or its end. Called under a lock of that host's: must not block for long.
    fn host_pause(&self, _domain: &str, _until: Option<Timestamp>, _at: Timestamp) {}

    /// Takes over that somebody has ended a pause before its time. Called under a lock of that host's or link's: must not block for
    /// long.
    fn released(&self, _what: Released<'_>, _at: Timestamp) {}
}

/// Whose pause was ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released<'r> {
    /// A host's: its domain, as evidence knows it.
    Host(&'r str),
    /// A link's: the caller's name for it.
    Link(&'r str),
}

/// A sink that somebody else holds on to as well.
impl<S: Sink + ?Sized> Sink for Arc<S> {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        S::append(self, attempt)
    }

    fn link_state(&self, link: &str, url: &str, state: &LinkState, at: Timestamp) {
        S::link_state(self, link, url, state, at);
    }

    fn host_pause(&self, domain: &str, until: Option<Timestamp>, at: Timestamp) {
        S::host_pause(self, domain, until, at);
    }

    fn released(&self, what: Released<'_>, at: Timestamp) {
        S::released(self, what, at);
    }
}

/// An attempt that is in memory but will not survive the process.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the attempt is in memory only: {0}")]
pub struct SinkError(pub Arc<dyn std::error::Error + Send + Sync>);
