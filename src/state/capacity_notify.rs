//! Who waits for a request of a host to end, because as many as may be are under way.
//!
//! Hosts share a few events, so that none has to be looked up or kept: some are woken for nothing, and ask again. Invariant: whoever
//! listens before it asks is woken by every end after that.

use event_listener::{Event, EventListener};
use xxhash_rust::xxh3::xxh3_64;

const EVENTS: usize = 64;

/// The events.
#[derive(Debug)]
pub(crate) struct Freed {
    events: [Event; EVENTS],
}

impl Default for Freed {
    fn default() -> Self {
        Self { events: std::array::from_fn(|_| Event::new()) }
    }
}

impl Freed {
    /// A request of `host` has ended.
    pub(crate) fn notify(&self, host: &str) {
        self.of(host).notify(usize::MAX);
    }

    /// Is woken when a request of `host` ends.
    pub(crate) fn listen(&self, host: &str) -> EventListener {
        self.of(host).listen()
    }

    fn of(&self, host: &str) -> &Event {
        &self.events[(xxh3_64(host.as_bytes()) % EVENTS as u64) as usize]
    }
}
