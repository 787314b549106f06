//! Ctrl-C: the first time a run comes to a clean end, the second time it ends at once, the third time the process does. A reader
//! of the results that stalls changes nothing about that.

use std::time::Duration;

use tokio::sync::watch;

use crate::terminal::interruptible_writer;

/// What is under way may take so long after Ctrl-C.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// How often somebody asked the run to stop.
pub(crate) type Stop = watch::Receiver<u32>;

/// Starts listening to Ctrl-C and to a request to terminate. Called within a runtime.
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
