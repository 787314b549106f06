//! Ctrl-C: the first one ends a run cleanly, the second one ends it at once, the third one ends the process.
//!
//! Invariants: a stalled reader of the results does not change this.

use std::time::Duration;

use tokio::sync::watch;

use crate::terminal::interruptible_writer;

/// The time for open requests after Ctrl-C.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// The number of requests to stop.
pub(crate) type Stop = watch::Receiver<u32>;

/// Starts to listen to Ctrl-C and SIGTERM. Called within a runtime.
pub(crate) fn listen() -> std::io::Result<Stop> {
    let (asked, stop) = watch::channel(0u32);
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::spawn(async move {
        loop {
            #[cfg(unix)]
            tokio::select! {
                ended = tokio::signal::ctrl_c() => if ended.is_err() { return },
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
