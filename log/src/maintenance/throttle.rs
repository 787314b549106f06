//! How maintenance goes beside a writer without being in its way: it rests, and stops when it is told to.
//!
//! Owns: when to rest, and for how long. Must not know: what is being done.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Work goes on for so long between two rests.
const SLICE: Duration = Duration::from_millis(10);
/// No rest is longer, so that whoever says stop is heard soon.
const MAX_REST: Duration = Duration::from_millis(200);

/// Shared by whoever works and whoever watches. One thread works with it at a time.
///
/// ```
/// let brake = fetchwise_log::Brake::new(100);
/// brake.breathe();
/// brake.stop();
/// assert!(brake.is_stopped());
/// ```
#[derive(Debug)]
pub struct Brake {
    is_stopped: AtomicBool,
    rest_percent: AtomicU32,
    since: Mutex<Instant>,
}

impl Brake {
    /// One that rests for so many hundredths of the time that it works: 100 takes half of a core, 0 never rests.
    pub fn new(rest_percent: u32) -> Self {
        let rest_percent = AtomicU32::new(rest_percent);
        Self { is_stopped: AtomicBool::new(false), rest_percent, since: Mutex::new(Instant::now()) }
    }

    /// Rests more, or less, from now on.
    pub fn set_rest(&self, percent: u32) {
        // Relaxed, here and below: nothing else hangs on it.
        self.rest_percent.store(percent, Ordering::Relaxed);
    }

    /// Whoever works stops soon.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether somebody said so.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Called by whoever works, every few hundred records: rests when it has worked for long enough. Returns whether to go on.
    pub fn breathe(&self) -> bool {
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

/// Makes the calling thread, and those that it starts, give way to others, where the system has priorities of threads (Linux).
pub fn give_way() {
    #[cfg(target_os = "linux")]
    {
        /// Of the 19 steps down that there are.
        const STEPS: i32 = 10;
        // On Linux this is about the thread. Without the right to it nothing is lost.
        let _ = rustix::process::nice(STEPS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_heard() {
        let brake = Brake::new(0);
        assert!(brake.breathe());
        brake.stop();
        assert!(!brake.breathe() && brake.is_stopped());
    }
}
