//! The delay that this machine adds to a request: how late its runtime handles what is due, and how
//! long it was asleep.
//!
//! Owns: whether a failed request is this machine's fault, because the process did not run
//! meanwhile.
//!
//! Invariants: a delay is measured while the request is under way, in its own task, so it is that
//! of the same queue of tasks and of the same processors. What counts for a latency is an average,
//! so one late moment does not stand for a long request. No response of a server can make this
//! process late.
//!
//! Must not know: what a request is.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use fetchwise_fetchers::fetch::local_faults::time_asleep;
use fetchwise_fetchers::fetch::{FetchError, Response};
use fetchwise_types::attempt::error_kind::ErrorKind;

/// The time until the first measurement. Responses that are quicker do not count as slow anyway.
const FIRST: Duration = Duration::from_millis(16);
/// The factor between two measurements: a long request needs few of them.
const FACTOR: u32 = 2;
/// The longest time between two measurements.
const LONGEST: Duration = Duration::from_secs(1);
/// The resolution of the runtime's timers: an idle machine is that late.
const RESOLUTION: Duration = Duration::from_millis(2);
/// A request that lost this part of its deadline, as one over the value, failed because of this
/// machine.
const LOST_PART: u32 = 4;

/// The delay of one request.
#[derive(Debug, Default)]
pub(super) struct LocalDelay {
    /// The sum of all delays, and their number.
    late: Duration,
    count: u32,
    /// How long the machine had been asleep when the request began.
    asleep_before: Duration,
}

impl LocalDelay {
    /// Runs `future`, and measures how late this machine handles what is due meanwhile.
    pub(super) async fn measure<F: Future>(&mut self, future: F) -> F::Output {
        self.asleep_before = time_asleep();
        let mut future = pin!(future);
        let (mut step, mut due) = (FIRST, Instant::now() + FIRST);
        let mut timer = pin!(sleep_until(due));
        poll_fn(|context| {
            // The timer first: if both are due, the response was as late as the timer.
            while timer.as_mut().poll(context).is_ready() {
                self.late += due.elapsed().saturating_sub(RESOLUTION);
                self.count = self.count.saturating_add(1);
                step = (step * FACTOR).min(LONGEST);
                due = Instant::now() + step;
                timer.as_mut().reset(due);
            }
            future.as_mut().poll(context)
        })
        .await
    }

    /// Returns the average.
    pub(super) fn average(&self) -> Duration {
        self.late / self.count.max(1)
    }

    /// Returns the result of the request. It is a local fault if the request lost much of its
    /// `deadline` while this process did not run: the system had stopped it, or a laptop was
    /// closed.
    pub(super) fn attribute(
        &self,
        result: Result<Response, FetchError>,
        deadline: Duration,
    ) -> Result<Response, FetchError> {
        let lost = self.late + time_asleep().saturating_sub(self.asleep_before);
        if lost < deadline / LOST_PART {
            return result;
        }
        let message = |what: &str| {
            format!("this process did not run for {:.1} s meanwhile: {what}", lost.as_secs_f64())
        };
        match result {
            Ok(response) if response.truncated => {
                Err(FetchError::local(message("the body was cut"), response.duration))
            }
            Err(error) if may_be_of_this_machine(&error) => Err(FetchError {
                local: true,
                kind: ErrorKind::LocalFault,
                message: message(&error.message),
                ..error
            }),
            result => result,
        }
    }
}

/// Returns whether a request can have failed like this because this process did not run.
fn may_be_of_this_machine(error: &FetchError) -> bool {
    let is_of_connection =
        matches!(error.kind, ErrorKind::Timeout | ErrorKind::NetworkError | ErrorKind::Truncated);
    is_of_connection && !error.local && !error.unavailable && !error.stopped && !error.refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_is_busy_delays_its_requests() {
        let request = async {
            for _ in 0..4 {
                // As a task that keeps the processor: nothing else of this thread is handled
                // meanwhile.
                std::thread::sleep(4 * FIRST);
                tokio::task::yield_now().await;
            }
        };
        let begun = Instant::now();
        let mut delay = LocalDelay::default();
        delay.measure(request).await;
        assert!(delay.average() > Duration::ZERO && delay.average() < begun.elapsed(), "{delay:?}");
    }

    #[tokio::test]
    async fn a_quick_response_is_not_measured() {
        let mut delay = LocalDelay::default();
        assert_eq!((delay.measure(async { 7 }).await, delay.average()), (7, Duration::ZERO));
    }

    /// Returns the error after a request in which the process was stopped for `stopped`.
    async fn after_stop(stopped: Duration, error: FetchError) -> FetchError {
        let mut delay = LocalDelay::default();
        let request = async {
            tokio::time::advance(stopped).await;
            Err(error)
        };
        let result = delay.measure(request).await;
        delay.attribute(result, Duration::from_secs(8)).unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_of_a_process_that_was_stopped_is_a_local_fault() {
        let of = |kind| FetchError::new(kind, "no response", Duration::from_secs(8));
        for kind in [ErrorKind::Timeout, ErrorKind::NetworkError, ErrorKind::Truncated] {
            let error = after_stop(Duration::from_secs(12), of(kind)).await;
            assert!(error.local && error.kind == ErrorKind::LocalFault, "{error:?}");
            let error = after_stop(Duration::from_secs(1), of(kind)).await;
            assert!(!error.local && error.kind == kind, "the site had seven seconds: {error:?}");
        }
        let refused = FetchError { refused: true, ..of(ErrorKind::NetworkError) };
        assert!(!after_stop(Duration::from_secs(12), refused).await.local, "the host has said so");
        assert!(!after_stop(Duration::from_secs(12), of(ErrorKind::DnsError)).await.local);
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_hangs_is_to_blame_for_its_timeout() {
        let mut delay = LocalDelay::default();
        let hanging = async {
            tokio::time::sleep(Duration::from_secs(8)).await;
            Err(FetchError::new(ErrorKind::Timeout, "no response", Duration::from_secs(8)))
        };
        let result = delay.measure(hanging).await;
        assert!(!delay.attribute(result, Duration::from_secs(8)).unwrap_err().local);
    }
}
