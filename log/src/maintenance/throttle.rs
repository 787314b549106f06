//! A throttle: maintenance rests regularly, so that it does not slow a writer down, and stops on
//! request.
//!
//! Owns: when to rest, and for how long.
//!
//! Must not know: the throttled work.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time of work between two rests.
const SLICE: Duration = Duration::from_millis(10);
/// The longest rest, so that a stop takes effect soon.
const MAX_REST: Duration = Duration::from_millis(200);

/// A throttle, shared by a working thread and its controller. One thread at a time works with it.
///
/// ```
/// let throttle = fetchwise_log::Throttle::new(100);
/// throttle.checkpoint();
/// throttle.stop();
/// assert!(throttle.is_stopped());
/// ```
#[derive(Debug)]
pub struct Throttle {
    is_stopped: AtomicBool,
    rest_percent: AtomicU32,
    since: Mutex<Instant>,
}

impl Throttle {
    /// Creates a throttle that rests for `rest_percent` of the time that it works: 100 takes half
    /// of a core, 0 never rests.
    pub fn new(rest_percent: u32) -> Self {
        let rest_percent = AtomicU32::new(rest_percent);
        Self { is_stopped: AtomicBool::new(false), rest_percent, since: Mutex::new(Instant::now()) }
    }

    /// Changes the share of rest.
    pub fn set_rest_percent(&self, percent: u32) {
        // Relaxed, here and below: no other data depends on it.
        self.rest_percent.store(percent, Ordering::Relaxed);
    }

    /// Makes the working thread stop soon.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Returns whether a stop was requested.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Rests if a rest is due; returns whether to continue. The working thread calls it every few
    /// hundred records.
    pub fn checkpoint(&self) -> bool {
        if self.is_stopped() {
            return false;
        }
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let worked = since.elapsed();
        if worked >= SLICE {
            let rest = worked.saturating_mul(self.rest_percent.load(Ordering::Relaxed)) / 100;
            std::thread::sleep(rest.min(MAX_REST));
            *since = Instant::now();
        }
        !self.is_stopped()
    }
}

/// Lowers the priority of the calling thread and of the threads that it starts, if the system has
/// thread priorities (Linux).
pub fn lower_thread_priority() {
    #[cfg(target_os = "linux")]
    {
        /// The number of steps, of 19.
        const STEPS: i32 = 10;
        // On Linux this concerns the thread. A failure does no harm.
        let _ = rustix::process::nice(STEPS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_the_work() {
        let throttle = Throttle::new(0);
        assert!(throttle.checkpoint());
        throttle.stop();
        assert!(!throttle.checkpoint() && throttle.is_stopped());
    }
}
