//! `peers/` of a directory that no node has open.
//!
//! Invariant: what is written is a record like any other, so that whoever folds `peers/` next, a node that joins included, knows of it.
//! Must not know what the node's own log says.

use std::path::Path;

use fetchwise::time::Timestamp;

use super::fold::{FOLDER, fold};
use super::store::{append, open};
use crate::error::FleetError;
use crate::peer_store::apply::FactsOf;
use crate::peer_store::node_state::State;
use crate::peer_store::record::Event;

/// What [`forget`] has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forgotten {
    /// Attempts of others that counted until then, as far as they were there one by one.
    pub attempts: u64,
    /// Nodes whose share or image had evidence of the domain.
    pub folded: usize,
}

/// Forgets a domain in what others have told the node in the data directory `data`, up to a time: nothing of it that is not later counts any
/// more, nor will when it comes. None where there is no `peers/`. What is there of it goes from the disk when a node has taken two
/// snapshots of `peers/` after that. Cost: a pass over `peers/`.
///
/// # Errors
/// When `peers/` is open or cannot be read or written.
pub fn forget(data: &Path, domain: &str, until: Timestamp) -> Result<Option<Forgotten>, FleetError> {
    let (dir, state) = (data.join(FOLDER), State::load(data)?);
    let Some(state) = state.filter(|_| dir.is_dir()) else { return Ok(None) };
    let (log, _) = open(&dir)?;
    let mut of = FactsOf { domain: domain.to_owned(), until, found: Vec::new(), mixed: Vec::new() };
    let (book, _) = fold(&dir, &(state.origin, state.own()), None, u64::MAX, &mut of)?;
    of.mixed.sort_unstable();
    of.mixed.dedup();
    let found = Forgotten { attempts: of.found.len() as u64, folded: of.mixed.len() };
    if book.forgotten.get(domain).is_none_or(|known| *known < until) {
        append(&log, &Event::Forget { domain: domain.to_owned(), until }, until)?;
        log.flush().wait().map_err(|error| FleetError::Record(error.to_string()))?;
    }
    Ok(Some(found))
}
