//! Sinks: they receive what a selector learns, so that it outlives the process.

use std::sync::Arc;

use crate::backoff::LinkState;
use fetchwise_types::attempt::Attempt;
use fetchwise_types::time::Timestamp;

/// Receives recorded attempts: a journal, or a crawler's own database. It also receives what visits
/// learn about links and hosts, if it overrides these methods.
pub trait Sink: Send + Sync {
    /// Takes over an attempt. Must not block for long, and must not fail the crawler.
    ///
    /// # Errors
    /// [`SinkError`] says why the attempt will not survive the process; it is in memory anyway.
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError>;

    /// Takes over a link's new state. `url` is the link's address. Called under a lock of that
    /// link; must not block for long.
    fn link_state(&self, _link: &str, _url: &str, _state: &LinkState, _at: Timestamp) {}

    /// Takes over a host's pause, or its end. Called under a lock of that host; must not block for
    /// long.
    fn host_pause(&self, _domain: &str, _until: Option<Timestamp>, _at: Timestamp) {}

    /// Takes over that an operator has ended a pause early. Called under a lock of that host or
    /// link; must not block for long.
    fn released(&self, _what: Released<'_>, _at: Timestamp) {}
}

/// The host or link whose pause an operator has ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released<'r> {
    /// A host, by its domain as evidence has it.
    Host(&'r str),
    /// A link, by the caller's name for it.
    Link(&'r str),
}

/// A sink that is shared.
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
#[error("attempt not stored (it is in memory only): {0}")]
pub struct SinkError(pub Arc<dyn std::error::Error + Send + Sync>);
