//! A scan of all attempts in the log, with a spinner.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::exit::Failure;
use crate::terminal::output::note;
use crate::terminal::warnings::warn_torn_tail;
use fetchwise::attempt::Attempt;
use fetchwise::journal::{self, AttemptQuery, Entry, Order, QueryStats, ReplayReport};
use fetchwise::rfc3339;

/// The number of entries between two updates of the spinner.
const STEP: u64 = 4096;

/// Calls `f` with every attempt of the log in `dir`, oldest first. Shows a counter on stderr if
/// that is a terminal.
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

/// Works like [`attempts`], with the attempts that match the query only. It skips parts of the log
/// without a match, and notes on stderr if a part of the requested time was compacted away.
pub(crate) fn matching(
    dir: &Path,
    query: &AttemptQuery,
    mut f: impl FnMut(Attempt),
) -> Result<(), Failure> {
    if *query == AttemptQuery::default() {
        return attempts(dir, f).map(|_| ());
    }
    let bar = spinner();
    let mut seen = 0u64;
    let found = journal::attempts(dir, query, Order::OldestFirst, None, |_, attempt| {
        seen += 1;
        if seen.is_multiple_of(STEP) {
            bar.set_position(seen);
        }
        f(attempt);
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    let found = found?;
    warn_torn_tail(found.torn_tail.as_ref());
    note_compacted(&found, query);
    Ok(())
}

/// Notes that attempts of the requested time were compacted away.
pub(crate) fn note_compacted(found: &QueryStats, query: &AttemptQuery) {
    if let Some(cutoff) = found.compacted_before.filter(|cutoff| query.reaches_before(*cutoff)) {
        note(format_args!(
            "attempts before {} are missing here: they were compacted away and remain as evidence only",
            rfc3339::format(cutoff)
        ));
    }
}

fn spinner() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) =
        ProgressStyle::with_template("{spinner} {human_pos} entries, {per_sec}, {elapsed}")
    {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
