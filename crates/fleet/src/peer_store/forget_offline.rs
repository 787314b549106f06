//! `peers/` of a data directory that no node has open.
//!
//! Invariants: changes are written as ordinary records, so every later fold of `peers/` sees them,
//! also that of a node that joins.
//!
//! Must not know: the content of the node's own log.

use std::path::Path;

use fetchwise::time::Timestamp;

use super::fold::{FOLDER, fold};
use super::store::{append, open};
use crate::error::FleetError;
use crate::peer_store::fold_visitors::DomainAttempts;
use crate::peer_store::own_state_file::NodeState;
use crate::peer_store::record::PeerEvent;

/// The result of [`forget`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForgottenEvidence {
    /// The remote attempts that counted until then, as far as they were stored one by one.
    pub attempts: u64,
    /// The number of nodes with evidence of the domain in a folded snapshot.
    pub folded: usize,
}

/// Forgets a domain in what the node in the data directory `data` has received from peers, up to a
/// time. Attempts that are not later no longer count, also when they arrive afterwards. Returns
/// none if there is no `peers/`. The data leaves the disk once a node has taken two more snapshots
/// of `peers/`. Cost: a pass over `peers/`.
///
/// # Errors
/// When `peers/` is open or cannot be read or written.
pub fn forget(
    data: &Path,
    domain: &str,
    until: Timestamp,
) -> Result<Option<ForgottenEvidence>, FleetError> {
    let (dir, state) = (data.join(FOLDER), NodeState::load(data)?);
    let Some(state) = state.filter(|_| dir.is_dir()) else { return Ok(None) };
    let (log, _) = open(&dir)?;
    let mut of =
        DomainAttempts { domain: domain.to_owned(), until, found: Vec::new(), mixed: Vec::new() };
    let (states, _) = fold(&dir, &(state.node_id, state.own()), None, u64::MAX, &mut of)?;
    of.mixed.sort_unstable();
    of.mixed.dedup();
    let found = ForgottenEvidence { attempts: of.found.len() as u64, folded: of.mixed.len() };
    if states.forgotten.get(domain).is_none_or(|known| *known < until) {
        append(&log, &PeerEvent::Forget { domain: domain.to_owned(), until }, until)?;
        log.flush().wait().map_err(|error| FleetError::Record(error.to_string()))?;
    }
    Ok(Some(found))
}
