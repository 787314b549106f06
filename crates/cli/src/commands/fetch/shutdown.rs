//! Ctrl-C: the first one ends a run cleanly, the second one ends it at once, the third one ends the process.
//!
//! Invariants: a stalled reader of the results does not change this.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::terminal::interruptible_writer;

/// The time for open requests after Ctrl-C.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// The number of requests to stop.
pub(crate) type Stop = watch::Receiver<u32>;

/// Listens to Ctrl-C and SIGTERM, from now on. Called within a runtime.
pub(crate) fn listen() -> std::io::Result<Stop> {
    #[cfg(unix)]
    use tokio::signal::unix::{SignalKind, signal};
    let (asked, stop) = watch::channel(0u32);
    #[cfg(unix)]
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::spawn(async move {
        loop {
            #[cfg(unix)]
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            #[cfg(not(unix))]
            if tokio::signal::ctrl_c().await.is_err() {
                return;
            }
            asked.send_modify(|times| *times += 1);
            interruptible_writer::give_up_within(if *asked.borrow() > 1 { Duration::ZERO } else { GRACE });
            if *asked.borrow() > 2 {
                std::process::exit(1);
            }
        }
    });
    Ok(stop)
}

/// The state of a run's shutdown.
pub(super) struct Shutdown {
    stop: Stop,
    is_listening: bool,
    abandon_at: Option<Instant>,
}

/// What the user requests by Ctrl-C or SIGTERM.
pub(super) enum ShutdownRequest {
    /// Finish open requests, within [`GRACE`].
    Finish,
    /// Abandon open requests.
    Abandon,
}

impl Shutdown {
    /// Returns the state before any request.
    pub(super) fn new(stop: Stop) -> Self {
        Self { stop, is_listening: true, abandon_at: None }
    }

    /// Returns whether there may be another request.
    pub(super) fn is_listening(&self) -> bool {
        self.is_listening
    }

    /// Returns whether the run is stopping: what has to wait is left to the next run.
    pub(super) fn is_stopping(&self) -> bool {
        self.abandon_at.is_some()
    }

    /// Returns the end of the time for open requests, once the run is stopping.
    pub(super) fn abandon_at(&self) -> Option<Instant> {
        self.abandon_at
    }

    /// Waits for the next request; none if there can be no more. Cancel safe.
    pub(super) async fn request(&mut self) -> Option<ShutdownRequest> {
        let asked = self.stop.changed().await;
        let times = *self.stop.borrow_and_update();
        self.is_listening = asked.is_ok();
        match times {
            0 => None,
            1 => {
                self.abandon_at = Some(Instant::now() + GRACE);
                Some(ShutdownRequest::Finish)
            }
            _ => Some(ShutdownRequest::Abandon),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_request_leaves_time_and_the_second_one_none() {
        let (asked, stop) = watch::channel(0);
        let mut shutdown = Shutdown::new(stop);
        assert!(!shutdown.is_stopping());
        asked.send_replace(1);
        assert!(matches!(shutdown.request().await, Some(ShutdownRequest::Finish)));
        assert!(shutdown.is_stopping());
        asked.send_replace(2);
        assert!(matches!(shutdown.request().await, Some(ShutdownRequest::Abandon)));
    }
}
