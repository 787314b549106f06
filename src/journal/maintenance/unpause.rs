//! End of a pause by an operator while no crawler runs.
//!
//! Owns: opening and closing the journal around the change.
//!
//! Invariants: the change takes the same path as in a live crawler, so that the same is recorded.
//!
//! Must not know: what the end of a pause changes.

use std::path::Path;
use std::sync::Arc;

use fetchwise_log::OpenCheck;

use crate::journal::entry::ReleaseTarget;
use crate::journal::error::JournalError;
use crate::journal::load::load;
use crate::journal::write::{Journal, JournalOptions};
use crate::selector::Selector;
use fetchwise_types::time::Timestamp;

/// Ends the pause of a host or a link in the journal in `dir`, for every crawler that begins later.
/// `selector` is a new one with the settings to use; if it has a pace, the hold of the host's pace
/// ends as well. Returns the time at which the pause would have ended. Returns `None`, and writes
/// nothing, if there was no pause.
///
/// # Errors
/// Locked by a crawler (which can [do it itself](Selector::unpause_host)), damaged, or an I/O
/// error.
pub fn unpause(
    dir: &Path,
    mut selector: Selector,
    target: &ReleaseTarget,
    now: Timestamp,
) -> Result<Option<Timestamp>, JournalError> {
    let (journal, _) = Journal::open(dir, JournalOptions::default().check(OpenCheck::Tail))?;
    let journal = Arc::new(journal);
    load(dir, &selector, now)?;
    selector.keep_paces(Box::new(Arc::clone(&journal)));
    selector.set_sink(Box::new(Arc::clone(&journal)));
    let until = match target {
        ReleaseTarget::Host(domain) => selector.unpause_host(domain, now),
        ReleaseTarget::Link(link) => selector.unpause_link(link, now),
    };
    drop(selector);
    // The selector held the only other reference.
    Arc::into_inner(journal).map_or(Ok(()), Journal::close)?;
    Ok(until)
}
