//! The border between the times in memory and the dates that outlive the process.
//!
//! Invariants: whatever is behind this border gets dates. A pause is kept with its length, however
//! the clock is set later.
//!
//! Must not know: where the dates are kept.

use std::sync::Arc;

use super::{Released, Sink, SinkError};
use crate::backoff::LinkState;
#[cfg(feature = "journal")]
use fetchwise_pace::{PaceRecord, PaceStore};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::time::{Clock, Timestamp};

/// A sink, or a store of paces, that gets dates.
pub(super) struct Dated<S: ?Sized> {
    clock: Arc<Clock>,
    kept: Box<S>,
}

impl<S: ?Sized> Dated<S> {
    pub(super) fn new(kept: Box<S>, clock: Arc<Clock>) -> Self {
        Self { clock, kept }
    }
}

impl<S: Sink + ?Sized> Sink for Dated<S> {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        // An attempt has a date already.
        self.kept.append(attempt)
    }

    fn link_state(&self, link: &str, url: &str, state: &LinkState, at: Timestamp) {
        let ahead_ms = self.clock.ahead_ms();
        self.kept.link_state(link, url, &state.moved_by(ahead_ms), at.moved_by(ahead_ms));
    }

    fn host_pause(&self, domain: &str, until: Option<Timestamp>, at: Timestamp) {
        let ahead_ms = self.clock.ahead_ms();
        self.kept.host_pause(
            domain,
            until.map(|until| until.moved_by(ahead_ms)),
            at.moved_by(ahead_ms),
        );
    }

    fn released(&self, what: Released<'_>, at: Timestamp) {
        self.kept.released(what, self.clock.date_of(at));
    }
}

#[cfg(feature = "journal")]
impl<S: PaceStore + ?Sized> PaceStore for Dated<S> {
    fn keep(&self, note: &PaceRecord<'_>) {
        let ahead_ms = self.clock.ahead_ms();
        let (state, at) = (note.state.moved_by(ahead_ms), note.at.moved_by(ahead_ms));
        self.kept.keep(&PaceRecord { state, at, ..*note });
    }
}
