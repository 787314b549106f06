//! A scan of all attempts in the log, with a spinner.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::exit::Failure;
use crate::terminal::warnings::warn_torn_tail;
use fetchwise::attempt::Attempt;
use fetchwise::journal::{self, Entry, ReplayReport};

/// The number of entries between two updates of the spinner.
const STEP: u64 = 4096;

/// Calls `f` with every attempt of the log in `dir`, oldest first. Shows a counter on stderr if that is a terminal.
pub(crate) fn attempts(dir: &Path, mut f: impl FnMut(Attempt)) -> Result<ReplayReport, Failure> {
    let bar = spinner();
    let mut seen = 0u64;
    let replayed = journal::replay(dir, |_, entry| {
        seen += 1;
        if seen.is_multiple_of(STEP) {
            bar.set_position(seen);
        }
        if let Entry::Attempt(attempt) = entry {
            f(attempt);
        }
    });
    bar.finish_and_clear();
    let replayed = replayed?;
    warn_torn_tail(replayed.torn_tail.as_ref());
    Ok(replayed)
}

fn spinner() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} entries, {per_sec}, {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
