//! Ending a pause before its time where no crawler runs.
//!
//! Owns: opening and closing the journal around it. Invariant: the change goes the way that a live one goes, so that what is recorded
//! is what a crawler would have recorded. Must not know what a release means.

use std::path::Path;
use std::sync::Arc;

use fetchwise_log::OpenCheck;

use crate::journal::entry::ReleaseTarget;
use crate::journal::error::JournalError;
use crate::journal::load::load;
use crate::journal::write::{Journal, JournalOptions};
use crate::selector::Selector;
use fetchwise_types::time::Timestamp;

/// Ends the pause of a host or a link in the journal in `dir`, for every crawler that begins after this. `selector` is a new one with the
/// settings to be used; with a pace in it, what the host's pace holds ends as well. Returns until when the pause would have been; none,
/// and nothing is written, when there was none.
///
/// # Errors
/// Locked by a crawler (which can [do it itself](Selector::release_host)), damaged, or what the system says.
pub fn release(
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
        ReleaseTarget::Host(domain) => selector.release_host(domain, now),
        ReleaseTarget::Link(link) => selector.release_link(link, now),
    };
    drop(selector);
    // The selector was the only other one that had it.
    Arc::into_inner(journal).map_or(Ok(()), Journal::close)?;
    Ok(until)
}
