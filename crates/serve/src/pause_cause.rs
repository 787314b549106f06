//! Why a host or a link is paused: the newest attempt that speaks for it.
//!
//! Owns: which attempt that is, for the dashboard and the commands alike.
//!
//! Must not know: how it is shown.

use std::ops::ControlFlow;
use std::path::Path;

use fetchwise::journal::{self, AttemptQuery, JournalError, Order, OutcomeFilter};
use fetchwise::time::Timestamp;
use fetchwise_present::PauseCause;

/// The oldest attempt that can be the cause of a pause.
const CAUSE_DAYS_MS: i64 = 8 * 86_400_000;

/// What is paused.
#[derive(Clone, Copy, Debug)]
pub enum Paused<'a> {
    /// A host, after blocks.
    Host(&'a str),
    /// A link, after any failure.
    Link(&'a str),
}

/// Returns the cause of a pause, as the log in `dir` has it at `now`. Reads the log.
///
/// # Errors
/// If the log cannot be read.
pub fn pause_cause(
    dir: &Path,
    paused: Paused<'_>,
    now: Timestamp,
) -> Result<Option<PauseCause>, JournalError> {
    let mut query = AttemptQuery::default();
    match paused {
        Paused::Host(host) => {
            (query.domain, query.ended) = (Some(host.to_owned()), Some(OutcomeFilter::Blocked))
        }
        Paused::Link(link) => {
            (query.link, query.ended) = (Some(link.to_owned()), Some(OutcomeFilter::Failed))
        }
    }
    (query.since, query.until) = (Some(now.moved_by(-CAUSE_DAYS_MS)), Some(now));
    let mut found = None;
    journal::attempts(dir, &query, Order::NewestFirst, Some(1), |_, attempt| {
        found = Some(PauseCause::new(&attempt));
        ControlFlow::Break(())
    })?;
    Ok(found)
}
