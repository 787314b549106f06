//! Wakes visits that wait for an event of their host: the end of one of its parallel requests, or of
//! a hold.
//!
//! Hosts share a few events, so none has to be looked up or stored. Some visits wake for nothing,
//! and check again.
//!
//! Invariants: a visit that listens before it checks is woken by every event after that.

use event_listener::{Event, EventListener};
use xxhash_rust::xxh3::xxh3_64;

const EVENTS: usize = 64;

/// Events of one kind, which hosts share.
#[derive(Debug)]
pub(crate) struct HostEvents {
    events: [Event; EVENTS],
}

impl Default for HostEvents {
    fn default() -> Self {
        Self { events: std::array::from_fn(|_| Event::new()) }
    }
}

impl HostEvents {
    /// Wakes the visits that wait for `host`.
    pub(crate) fn notify(&self, host: &str) {
        self.of(host).notify(usize::MAX);
    }

    /// Wakes the visits of all hosts.
    pub(crate) fn notify_all(&self) {
        self.events.iter().for_each(|event| _ = event.notify(usize::MAX));
    }

    /// Returns a listener for the next event of `host`.
    pub(crate) fn listen(&self, host: &str) -> EventListener {
        self.of(host).listen()
    }

    fn of(&self, host: &str) -> &Event {
        &self.events[(xxh3_64(host.as_bytes()) % EVENTS as u64) as usize]
    }
}
