//! Ctrl-C and SIGTERM: the first one ends a run cleanly, the third one ends the process.

use std::time::Duration;

use fetchwise_terminal::interruptible_writer;
use tokio::sync::watch;

/// The time for messages that nobody reads, after the first request.
const GRACE: Duration = Duration::from_secs(5);

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
            interruptible_writer::give_up_within(GRACE);
            if *asked.borrow() > 2 {
                std::process::exit(1);
            }
        }
    });
    Ok(stop)
}
