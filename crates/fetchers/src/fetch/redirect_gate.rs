//! Admission of redirects: a fetcher that follows redirects asks before each request, because the
//! target may be on another host, with a pace and a pause of that host's.
//!
//! Owns: the interface, and deadlines that leave out the time spent at the gate.
//!
//! Must not know: why a request has to wait.

use std::fmt::Debug;
use std::future::Future;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use url::Url;

/// The shortest sleep before a deadline is checked again.
const MIN_SLEEP: Duration = Duration::from_millis(10);

/// The future that [`RedirectGate::pass`] returns.
pub type PassFuture<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// Decides about the redirects of one request.
pub trait RedirectGate: Debug + Send + Sync {
    /// Completes when the request to `to` may go out. With `false` it may not: the fetcher returns
    /// an error with [`stopped`](super::FetchError::stopped).
    fn pass<'a>(&'a self, to: &'a Url) -> PassFuture<'a>;

    /// Returns the time that the request has spent in [`pass`](Self::pass) so far. It counts
    /// towards no deadline.
    fn waited(&self) -> Duration;
}

/// Runs `future` for at most `deadline`, without the time that it spends at the gate.
pub async fn within<F: Future>(
    deadline: Duration,
    gate: Option<&dyn RedirectGate>,
    future: F,
) -> Option<F::Output> {
    let Some(gate) = gate else { return tokio::time::timeout(deadline, future).await.ok() };
    let (begun, mut future) = (Instant::now(), pin!(future));
    loop {
        let left = (deadline + gate.waited())
            .checked_sub(begun.elapsed())
            .filter(|left| !left.is_zero())?;
        if let Ok(output) = tokio::time::timeout(left.max(MIN_SLEEP), &mut future).await {
            return Some(output);
        }
    }
}
