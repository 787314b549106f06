//! An open journal that is shared with a selector, as the selector's sink and as the store of its
//! pace.
//!
//! Must not know: how a package opens and closes its journal.

use std::sync::Arc;

use fetchwise::attempt::Attempt;
use fetchwise::backoff::LinkState;
use fetchwise::journal::Journal;
use fetchwise::pace::{PaceRecord, PaceStore};
use fetchwise::selector::{Released, Sink, SinkError};
use fetchwise::time::Timestamp;

/// A journal that may be closed or unusable.
pub trait SharedJournal: Send + Sync {
    /// The reason why the journal cannot be used.
    type Closed: std::error::Error + Send + Sync + 'static;

    /// Runs `work` with the journal. Fails with the reason when the journal cannot be used.
    fn with<T>(&self, work: impl FnOnce(&Journal) -> T) -> Result<T, Self::Closed>;
}

/// The sink of a selector whose journal is shared.
pub struct JournalSink<S>(pub Arc<S>);

impl<S: SharedJournal> Sink for JournalSink<S> {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        self.0
            .with(|journal| Sink::append(journal, attempt))
            .unwrap_or_else(|closed| Err(SinkError(Arc::new(closed))))
    }

    // The journal counts the records that it rejects; memory has them anyway. The library's own
    // sink does the same.
    fn link_state(&self, link: &str, url: &str, state: &LinkState, at: Timestamp) {
        let _ = self.0.with(|journal| Sink::link_state(journal, link, url, state, at));
    }

    fn host_pause(&self, domain: &str, until: Option<Timestamp>, at: Timestamp) {
        let _ = self.0.with(|journal| Sink::host_pause(journal, domain, until, at));
    }

    fn released(&self, what: Released<'_>, at: Timestamp) {
        let _ = self.0.with(|journal| Sink::released(journal, what, at));
    }
}

impl<S: SharedJournal> PaceStore for JournalSink<S> {
    fn keep(&self, record: &PaceRecord<'_>) {
        let _ = self.0.with(|journal| journal.keep(record));
    }
}
