//! Requests to stop: the first one ends a run cleanly, the second one at once.
//!
//! Invariants: a stalled reader of the results does not change this.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The state of a run's end.
pub(crate) struct StopWatch {
    /// The number of requests to stop.
    asked: watch::Receiver<u32>,
    /// Whether there may be another request.
    is_listening: bool,
    grace: Duration,
    abandon_at: Option<Instant>,
}

/// What a caller requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopRequest {
    /// Finish open requests, within the time for that.
    Finish,
    /// Abandon open requests.
    Abandon,
}

impl StopWatch {
    /// Returns the state before any request. `asked` is the number of requests to stop; after the
    /// first one, open requests have the time `grace`.
    pub(crate) fn new(asked: Option<watch::Receiver<u32>>, grace: Duration) -> Self {
        let is_listening = asked.is_some();
        // Without a listener nobody waits for the channel, whose sender is gone.
        let asked = asked.unwrap_or_else(|| watch::channel(0).1);
        Self { asked, is_listening, grace, abandon_at: None }
    }

    /// Returns whether there may be another request.
    pub(crate) fn is_listening(&self) -> bool {
        self.is_listening
    }

    /// Returns whether the run is stopping: what has to wait is left to the next run.
    pub(crate) fn is_stopping(&self) -> bool {
        self.abandon_at.is_some()
    }

    /// Returns the end of the time for open requests, once the run is stopping.
    pub(crate) fn abandon_at(&self) -> Option<Instant> {
        self.abandon_at
    }

    /// Waits for the next request; none if there can be no more. Cancel safe.
    pub(crate) async fn request(&mut self) -> Option<StopRequest> {
        let changed = self.asked.changed().await;
        let times = *self.asked.borrow_and_update();
        self.is_listening = changed.is_ok();
        match times {
            0 => None,
            1 => {
                self.abandon_at = Some(Instant::now() + self.grace);
                Some(StopRequest::Finish)
            }
            _ => Some(StopRequest::Abandon),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_request_leaves_time_and_the_second_one_none() {
        let (asked, stop) = watch::channel(0);
        let mut watch = StopWatch::new(Some(stop), Duration::from_secs(5));
        assert!(!watch.is_stopping());
        asked.send_replace(1);
        assert!(matches!(watch.request().await, Some(StopRequest::Finish)));
        assert!(watch.is_stopping());
        asked.send_replace(2);
        assert!(matches!(watch.request().await, Some(StopRequest::Abandon)));
    }
}
