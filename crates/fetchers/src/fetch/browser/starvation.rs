//! Whether a browser that this process has started got no processor time, or its page only waits.
//!
//! A page can wait without end and use no processor time, for a request that holds its main thread.
//! That is the page's own doing. A browser without processor time has threads that want to run.
//!
//! Invariants: a page cannot bring about the answer "starved": its own work uses processor time.
//! What the system does not tell counts as not starved.
//!
//! Must not know: the connection to the browser.

use std::collections::BTreeMap;
use std::time::Duration;

/// The share of processor time below which a browser was starved rather than busy.
const STARVED_SHARE: f64 = 0.2;
/// The share of the time for which the main thread of a starved process was ready to run and did
/// not.
const READY_SHARE: f64 = 0.5;

/// The processor times of a browser's processes at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ProcessorTimes {
    /// The time that all processes have used.
    used: Duration,
    /// The time for which each main thread was ready to run and did not, by process.
    ready: BTreeMap<u32, Duration>,
    /// Whether the system has stopped a process, or one waits for its memory.
    is_held: bool,
}

impl ProcessorTimes {
    /// Reads the times of processes: their ids, and the time that each has used.
    pub(super) fn read(processes: impl IntoIterator<Item = (u32, Duration)>) -> Self {
        let mut times = Self::default();
        for (id, used) in processes {
            times.used += used;
            times.ready.extend(ready_time(id).map(|ready| (id, ready)));
            times.is_held |= is_held(id);
        }
        times
    }

    /// Returns whether the browser was starved since `before`, when its page did not respond for
    /// `waited`.
    pub(super) fn is_starved_since(&self, before: &Self, waited: Duration) -> bool {
        let share = |part: Duration| part.as_secs_f64() / waited.as_secs_f64();
        if waited < Duration::from_secs(1)
            || share(self.used.saturating_sub(before.used)) >= STARVED_SHARE
        {
            return false;
        }
        let since = |(id, now): (&u32, &Duration)| {
            now.saturating_sub(before.ready.get(id).copied().unwrap_or(*now))
        };
        self.is_held || self.ready.iter().map(since).any(|ready| share(ready) >= READY_SHARE)
    }
}

/// Returns the time for which the main thread of a process was ready to run and did not.
#[cfg(target_os = "linux")]
fn ready_time(id: u32) -> Option<Duration> {
    let times = std::fs::read_to_string(format!("/proc/{id}/schedstat")).ok()?;
    times.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// Returns whether the main thread of a process is stopped, or in a wait that nothing interrupts,
/// as for memory that was written to disk.
#[cfg(target_os = "linux")]
fn is_held(id: u32) -> bool {
    let Ok(state) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { return false };
    // The name before it can contain anything.
    state.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['T', 't', 'D']))
}

#[cfg(not(target_os = "linux"))]
fn ready_time(_id: u32) -> Option<Duration> {
    None
}

#[cfg(not(target_os = "linux"))]
fn is_held(_id: u32) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(used_ms: u64, ready_ms: &[(u32, u64)], is_held: bool) -> ProcessorTimes {
        let ready = ready_ms.iter().map(|(id, ms)| (*id, Duration::from_millis(*ms))).collect();
        ProcessorTimes { used: Duration::from_millis(used_ms), ready, is_held }
    }

    #[test]
    fn a_browser_that_could_not_run_is_starved_and_one_that_waits_is_not() {
        let (before, waited) = (times(100, &[(1, 1_000), (2, 50)], false), Duration::from_secs(10));
        let is_starved = |now: ProcessorTimes| now.is_starved_since(&before, waited);
        assert!(is_starved(times(400, &[(1, 1_100), (2, 9_000)], false)), "ready all the time");
        assert!(is_starved(times(400, &[(1, 1_000), (2, 50)], true)), "stopped");
        assert!(!is_starved(times(400, &[(1, 1_100), (2, 90)], false)), "it waits for a request");
        assert!(!is_starved(times(9_000, &[(2, 9_000)], false)), "its own scripts keep it busy");
        assert!(!is_starved(times(400, &[], false)), "the system does not tell");
        assert!(
            !is_starved(times(400, &[(3, 60_000)], false)),
            "a process that has begun meanwhile"
        );
        let short = Duration::from_millis(500);
        assert!(!times(100, &[(1, 1_500)], false).is_starved_since(&before, short));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_times_of_a_process_are_read() {
        let own = ProcessorTimes::read([(std::process::id(), Duration::from_secs(3))]);
        assert_eq!((own.used, own.ready.len(), own.is_held), (Duration::from_secs(3), 1, false));
        assert_eq!(ProcessorTimes::read([(u32::MAX, Duration::ZERO)]), ProcessorTimes::default());
    }
}
