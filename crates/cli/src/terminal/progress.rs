//! Progress bars for long work: only on a terminal, and only after a second.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use fetchwise::journal::Progress;

/// Work that takes less than this shows no bar.
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// A progress bar that counts bytes.
pub(crate) struct ByteBar {
    bar: ProgressBar,
    what: &'static str,
    begun: Instant,
}

impl ByteBar {
    /// Returns a bar for work that starts now.
    pub(crate) fn new() -> Self {
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
            false => ProgressBar::hidden(),
        };
        if let Ok(style) =
            ProgressStyle::with_template("{msg} {bar:40} {bytes}/{total_bytes} {eta}")
        {
            bar.set_style(style);
        }
        Self { bar, what: "", begun: Instant::now() }
    }

    /// Shows the progress of the work `what`.
    pub(crate) fn show(&mut self, what: &'static str, progress: Progress) {
        if self.begun.elapsed() < SHOW_AFTER || !std::io::stderr().is_terminal() {
            return;
        }
        if self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        if self.what != what {
            self.what = what;
            self.bar.reset();
            self.bar.set_message(what);
        }
        self.bar.set_length(progress.total);
        self.bar.set_position(progress.done);
    }
}

impl Drop for ByteBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
