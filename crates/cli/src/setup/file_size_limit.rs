//! The limit of file sizes (`ulimit -f`).
//!
//! Invariant: a write beyond the limit is an error like any other. Without a handler, the signal
//! that comes with it ends the process without a word, and with it a crawl that could have reported
//! its results.
//!
//! Must not know: which files are written.

/// Makes a write beyond the limit an error. Programs that are started from here keep their own
/// behaviour.
pub(crate) fn report() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        // Without a runtime the signal keeps its effect.
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else {
            return;
        };
        let _entered = runtime.enter();
        // The handler stays when its listener is dropped.
        let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
    }
}
