//! The delay that this machine adds to a request: how late its runtime handles what is due.
//!
//! Invariants: a delay is measured while the request is under way, in its own task, so it is that of the same queue of
//! tasks and of the same processors. It is an average, so one late moment does not stand for a long request.
//!
//! Must not know: what a request is, and how the delay is used.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The time until the first measurement. Responses that are quicker do not count as slow anyway.
const FIRST: Duration = Duration::from_millis(16);
/// The factor between two measurements: a long request needs few of them.
const FACTOR: u32 = 2;
/// The longest time between two measurements.
const LONGEST: Duration = Duration::from_secs(1);
/// The resolution of the runtime's timers: an idle machine is that late.
const RESOLUTION: Duration = Duration::from_millis(2);

/// Runs `future`, and returns how late this machine handled what was due meanwhile, on average.
pub(super) async fn measured<F: Future>(future: F) -> (F::Output, Duration) {
    let mut future = pin!(future);
    let (mut step, mut due) = (FIRST, Instant::now() + FIRST);
    let mut timer = pin!(sleep_until(due));
    let (mut late, mut count) = (Duration::ZERO, 0_u32);
    let output = poll_fn(|context| {
        // The timer first: if both are due, the response was as late as the timer.
        while timer.as_mut().poll(context).is_ready() {
            late += due.elapsed().saturating_sub(RESOLUTION);
            count = count.saturating_add(1);
            step = (step * FACTOR).min(LONGEST);
            due = Instant::now() + step;
            timer.as_mut().reset(due);
        }
        future.as_mut().poll(context)
    })
    .await;
    (output, late / count.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_is_busy_delays_its_requests() {
        let request = async {
            for _ in 0..4 {
                // As a task that keeps the processor: nothing else of this thread is handled meanwhile.
                std::thread::sleep(4 * FIRST);
                tokio::task::yield_now().await;
            }
        };
        let begun = Instant::now();
        let ((), local) = measured(request).await;
        assert!(local > Duration::ZERO && local < begun.elapsed(), "{local:?}");
    }

    #[tokio::test]
    async fn a_quick_response_is_not_measured() {
        assert_eq!(measured(async { 7 }).await, (7, Duration::ZERO));
    }
}
