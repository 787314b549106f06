//! Pauses that end before their time, and who is told: a crawl that keeps paused links until the
//! end of their pauses would not ask again earlier.
//!
//! Owns: the listeners.
//!
//! Invariants: a listener is told after the change. It may be told of a pause that has begun again:
//! the next request learns that. No decision and no request gets here.
//!
//! Must not know: who ends a pause, and what waits for it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A pause that has ended, or that ends earlier than it was to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndedPause<'a> {
    /// The pause of a host, by its domain as evidence has it. Links of the host may have lost their
    /// own pauses, too.
    Host(&'a str),
    /// The pause of a link, by its [hash](crate::Selector::link_hash).
    Link(u64),
}

/// Is told of pauses that an operator or another node has ended. Added with
/// [`Selector::add_pause_listener`](crate::Selector::add_pause_listener).
///
/// It may neither block nor call the selector.
pub trait PauseListener: fmt::Debug + Send + Sync {
    /// Takes the news of a pause that has ended.
    fn pause_ended(&self, ended: EndedPause<'_>);
}

/// The listeners of a selector.
#[derive(Debug, Default)]
pub(crate) struct PauseListeners(Mutex<Vec<Weak<dyn PauseListener>>>);

impl PauseListeners {
    /// Adds a listener for as long as somebody else has it.
    pub(crate) fn add(&self, listener: &Arc<dyn PauseListener>) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|other| other.strong_count() > 0);
        listeners.push(Arc::downgrade(listener));
    }

    /// Tells all listeners of a pause.
    pub(crate) fn tell(&self, ended: EndedPause<'_>) {
        let listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let listeners: Vec<_> = listeners.iter().filter_map(Weak::upgrade).collect();
        // Told without the lock.
        listeners.iter().for_each(|listener| listener.pause_ended(ended));
    }
}
