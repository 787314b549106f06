//! The open connections: their number, and which of them can make room.
//!
//! Invariants: a connection counts until its socket is closed, so there are never more than the
//! bound. A connection whose request makes progress is not closed to make room.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The time without a byte from or to its client after which a request no longer protects its
/// connection.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// No request is active, and the last response is sent.
const IDLE: u8 = 0;
/// A request is active.
const BUSY: u8 = 1;
/// The response is complete but not sent yet.
const RESPONDING: u8 = 2;

/// The set of open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    /// A logical clock: counts events.
    turn: AtomicU64,
    next: AtomicU64,
    begun: Instant,
    removed: Notify,
}

/// One open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u64,
    /// The logical time of its last event.
    last: AtomicU64,
    state: AtomicU8,
    /// The time since which the server waits for bytes from or to the client, in milliseconds; zero
    /// if it does not.
    waits_since: AtomicU64,
    begun: Instant,
    is_closing: AtomicBool,
    close: Notify,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            turn: AtomicU64::new(0),
            next: AtomicU64::new(0),
            begun: Instant::now(),
            removed: Notify::new(),
        }
    }
}

impl Connections {
    /// Adds a connection. If `most` are open, asks one that is idle or stalled to close and waits
    /// up to `within` for its end. None if there is no room then.
    pub(crate) async fn add(&self, most: usize, within: Duration) -> Option<Arc<Connection>> {
        let mut time = pin!(tokio::time::sleep(within));
        loop {
            let mut removed = pin!(self.removed.notified());
            // A connection that ends from here on wakes this call.
            removed.as_mut().enable();
            if let Some(connection) = self.add_now(most) {
                return Some(connection);
            }
            if !self.close_one() {
                return None;
            }
            tokio::select! {
                () = removed => {}
                () = &mut time => return None,
            }
        }
    }

    fn add_now(&self, most: usize) -> Option<Arc<Connection>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= most {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            number,
            last: AtomicU64::new(self.now()),
            state: AtomicU8::new(IDLE),
            waits_since: AtomicU64::new(0),
            begun: self.begun,
            is_closing: AtomicBool::new(false),
            close: Notify::new(),
        });
        open.insert(number, Arc::clone(&connection));
        Some(connection)
    }

    /// Asks the connection that has been idle for longest to close; without one, any that is
    /// stalled. Returns whether a connection is about to close.
    fn close_one(&self) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.values().any(|other| other.is_closing.load(Ordering::Acquire)) {
            return true;
        }
        let idle = open.values().filter(|other| other.is_idle());
        let stalled = || open.values().find(|other| other.is_stalled());
        let Some(one) =
            idle.min_by_key(|other| other.last.load(Ordering::Relaxed)).or_else(stalled)
        else {
            return false;
        };
        one.is_closing.store(true, Ordering::Release);
        one.close.notify_one();
        true
    }

    /// Records that a connection does not close after all, because it is no longer idle.
    pub(crate) fn stays(&self, connection: &Connection) {
        connection.is_closing.store(false, Ordering::Release);
        self.removed.notify_one();
    }

    /// Removes a closed connection.
    pub(crate) fn remove(&self, connection: &Connection) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&connection.number);
        self.removed.notify_one();
    }

    /// Returns the number of open connections.
    pub(crate) fn len(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Records that a request begins on a connection, or that its response is complete.
    pub(crate) fn busy(&self, connection: &Connection, is_busy: bool) {
        connection.last.store(self.now(), Ordering::Relaxed);
        connection.state.store(if is_busy { BUSY } else { RESPONDING }, Ordering::Release);
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

    /// Records that everything written so far is sent.
    pub(crate) fn flushed(&self) {
        // Only the task of the connection changes the state, so nothing comes between.
        if self.state.load(Ordering::Relaxed) == RESPONDING {
            self.state.store(IDLE, Ordering::Release);
        }
    }

    /// Records whether the server waits for the client to send or to read.
    pub(crate) fn waits(&self, waits: bool) {
        let since = self.waits_since.load(Ordering::Relaxed);
        match waits {
            true if since == 0 => {
                self.waits_since.store(self.elapsed_ms().max(1), Ordering::Release)
            }
            false if since != 0 => self.waits_since.store(0, Ordering::Release),
            _ => {}
        }
    }

    /// Returns whether nothing is lost if the connection closes now.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.load(Ordering::Acquire) == IDLE
    }

    /// Returns whether its client has not continued its request for a while.
    pub(crate) fn is_stalled(&self) -> bool {
        match self.waits_since.load(Ordering::Acquire) {
            0 => false,
            since => self.elapsed_ms().saturating_sub(since) >= STALLED_AFTER.as_millis() as u64,
        }
    }

    /// Completes when no request was active on it for `span`.
    pub(crate) async fn is_idle_for(&self, span: Duration) {
        loop {
            let before = self.last.load(Ordering::Relaxed);
            tokio::time::sleep(span).await;
            if self.state.load(Ordering::Acquire) != BUSY
                && self.last.load(Ordering::Relaxed) == before
            {
                return;
            }
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_AT_ALL: Duration = Duration::ZERO;

    async fn three() -> (Arc<Connections>, [Arc<Connection>; 3]) {
        let all = Arc::new(Connections::default());
        let mut added = Vec::new();
        for _ in 0..3 {
            added.push(all.add(3, NOT_AT_ALL).await.unwrap());
        }
        (all, added.try_into().unwrap())
    }

    #[tokio::test]
    async fn the_connection_idle_for_longest_makes_room() {
        let (all, [first, second, third]) = three().await;
        all.busy(&first, true);
        all.busy(&second, true);
        all.busy(&second, false);
        second.flushed();
        let closing = async {
            third.is_to_close().await;
            assert_eq!(all.len(), 3, "it counts until it is closed");
            all.remove(&third);
        };
        let (fourth, ()) = tokio::join!(all.add(3, Duration::from_secs(60)), closing);
        assert_eq!(all.len(), 3);
        [first, second, fourth.unwrap()].iter().for_each(|left| all.remove(left));
        assert_eq!(all.len(), 0);
    }

    #[tokio::test]
    async fn a_connection_with_a_new_request_stays_and_another_makes_room() {
        // A request that never ended kept its place in the queue, and each new connection waited a
        // second for it.
        let (all, [first, second, third]) = three().await;
        let closing = async {
            first.is_to_close().await;
            all.busy(&first, true);
            all.stays(&first);
            second.is_to_close().await;
            all.remove(&second);
        };
        let (fourth, ()) = tokio::join!(all.add(3, Duration::from_secs(60)), closing);
        assert!(fourth.is_some() && all.len() == 3);
        [first, third].iter().for_each(|left| all.remove(left));
    }

    #[tokio::test]
    async fn without_an_idle_connection_there_is_no_room() {
        let (all, open) = three().await;
        open.iter().for_each(|one| all.busy(one, true));
        // A response that is not sent yet still needs its connection.
        all.busy(&open[0], false);
        assert!(all.add(3, Duration::from_secs(60)).await.is_none());
        open[0].flushed();
        assert!(all.add(3, NOT_AT_ALL).await.is_none(), "it was asked to close but did not");
        assert_eq!(all.len(), 3);
    }
}
