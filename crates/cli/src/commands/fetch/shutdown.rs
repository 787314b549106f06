//! Ctrl-C: the first one ends a run cleanly, the second one ends it at once, the third one ends the
//! process.
//!
//! Invariants: a stalled reader of the results does not change this.

use std::time::Duration;

use tokio::sync::watch;

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
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
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
            interruptible_writer::give_up_within(if *asked.borrow() > 1 {
                Duration::ZERO
            } else {
                GRACE
            });
            if *asked.borrow() > 2 {
                std::process::exit(1);
            }
        }
    });
    Ok(stop)
}
