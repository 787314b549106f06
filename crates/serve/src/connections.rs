//! The open connections: their number, and which has been idle for longest.
//!
//! Invariant: a connection with an active request is not closed to make room.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// The set of open connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    /// A logical clock: counts events.
    turn: AtomicU64,
    next: AtomicU64,
}

/// One open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u64,
    /// The logical time of its last event.
    last: AtomicU64,
    /// Whether a request is active.
    is_busy: AtomicBool,
    close: Notify,
}

impl Connections {
    /// Adds a connection. If `most` are open, asks the one that has been idle for longest to close.
    pub(crate) fn add(self: &Arc<Self>, most: usize) -> Arc<Connection> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            number,
            last: AtomicU64::new(self.now()),
            is_busy: AtomicBool::new(false),
            close: Notify::new(),
        });
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= most {
            let idle = open.values().filter(|other| !other.is_busy.load(Ordering::Acquire));
            if let Some(oldest) = idle.min_by_key(|other| other.last.load(Ordering::Relaxed)).map(|of| of.number)
                && let Some(oldest) = open.remove(&oldest)
            {
                oldest.close.notify_one();
            }
        }
        open.insert(number, Arc::clone(&connection));
        connection
    }

    /// Removes a closed connection.
    pub(crate) fn remove(&self, connection: &Connection) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&connection.number);
    }

    /// Returns the number of open connections.
    pub(crate) fn len(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Records that a request begins or ends on a connection.
    pub(crate) fn busy(&self, connection: &Connection, is_busy: bool) {
        connection.last.store(self.now(), Ordering::Relaxed);
        connection.is_busy.store(is_busy, Ordering::Release);
    }

    fn now(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }
}

impl Connection {
    /// Completes when the connection has to close.
    pub(crate) async fn is_to_close(&self) {
        self.close.notified().await;
    }

    /// Completes when no request was active on it for `span`.
    pub(crate) async fn is_idle_for(&self, span: Duration) {
        loop {
            let before = self.last.load(Ordering::Relaxed);
            tokio::time::sleep(span).await;
            if !self.is_busy.load(Ordering::Acquire) && self.last.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_connection_idle_for_longest_makes_room() {
        let all = Arc::new(Connections::default());
        let [first, second, third] = [(); 3].map(|()| all.add(3));
        all.busy(&first, true);
        all.busy(&second, true);
        all.busy(&second, false);
        let fourth = all.add(3);
        third.is_to_close().await;
        assert_eq!(all.len(), 3);
        [first, second, fourth].iter().for_each(|left| all.remove(left));
        assert_eq!(all.len(), 0);
    }
}
