//! Wakes visits that wait until one of a host's parallel requests ends.
//!
//! Hosts share a few events, so none has to be looked up or stored. Some visits wake for nothing,
//! and check again.
//!
//! Invariants: a visit that listens before it checks is woken by every end after that.

use event_listener::{Event, EventListener};
use xxhash_rust::xxh3::xxh3_64;

const EVENTS: usize = 64;

/// The shared events.
#[derive(Debug)]
pub(crate) struct CapacityNotify {
    events: [Event; EVENTS],
}

impl Default for CapacityNotify {
    fn default() -> Self {
        Self { events: std::array::from_fn(|_| Event::new()) }
    }
}

impl CapacityNotify {
    /// Wakes the visits that wait for `host`: one of its requests has ended.
    pub(crate) fn notify(&self, host: &str) {
        self.of(host).notify(usize::MAX);
    }

    /// Returns a listener for the next end of a request of `host`.
    pub(crate) fn listen(&self, host: &str) -> EventListener {
        self.of(host).listen()
    }

    fn of(&self, host: &str) -> &Event {
        &self.events[(xxh3_64(host.as_bytes()) % EVENTS as u64) as usize]
    }
}
