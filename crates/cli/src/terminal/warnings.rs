//! Warnings on stderr about settings and the attempt log.
//!
//! Must not know: the command that prints them.

use fetchwise::journal::{LoadReport, TornTail};

use crate::terminal::output::{note, plain};

/// Warns about harmless problems of the settings.
pub(crate) fn warn_all<W: std::fmt::Display>(warnings: impl IntoIterator<Item = W>) {
    for warning in warnings {
        note(format_args!("warning: {}", plain(&warning.to_string())));
    }
}

/// Reports on stderr that the last writer crashed, and how many records were kept.
pub(crate) fn warn_torn_tail(torn: Option<&TornTail>) {
    if let Some(torn) = torn {
        note(format_args!("fetchwise: {torn}"));
    }
}

/// Reports on stderr that a snapshot is damaged, and that nothing was lost.
pub(crate) fn warn_rejected_snapshots(loaded: &LoadReport) {
    let Some(started) = &loaded.snapshot else { return };
    for damage in &started.rejected {
        note(format_args!(
            "fetchwise: {}; read the records from {} on instead ({} records)",
            plain(&damage.to_string()),
            started.covers_seq + 1,
            loaded.replayed.entries
        ));
    }
}
