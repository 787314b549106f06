//! A scan of all remote attempts, one by one, for callers that count them.
//!
//! Must not know: what is counted.

use std::collections::HashSet;
use std::path::Path;

use fetchwise::evidence::{EvidenceSnapshot, Learned, RemoteAttempt};

use super::fold::{FOLDER, FoldVisitor, fold};
use crate::error::FleetError;
use crate::model::node_id::NodeId;
use crate::peer_store::own_state_file::NodeState;

/// The result of [`scan_attempts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanReport {
    /// The number of remote attempts.
    pub facts: u64,
    /// The number of nodes with older attempts in folded form only, in a snapshot. Those were not
    /// visited one by one.
    pub folded: usize,
}

struct ScanVisitor<'s, F> {
    show: F,
    rest: Option<&'s Learned>,
    facts: u64,
    folded: HashSet<NodeId>,
}

impl<F: FnMut(NodeId, &RemoteAttempt<'_>)> FoldVisitor for ScanVisitor<'_, F> {
    fn visit_snapshot(&mut self, of: &[NodeId], share: &EvidenceSnapshot) {
        if share.keys() > 0 {
            self.folded.extend(of);
            if let Some(rest) = self.rest {
                rest.add_snapshot(share);
            }
        }
    }

    fn visit_attempt(&mut self, node_id: NodeId, fact: &RemoteAttempt<'_>) {
        self.facts += 1;
        (self.show)(node_id, fact);
    }
}

/// Visits each remote attempt that the node in the data directory `data` has received and that
/// counts, with its node. An attempt counts once, not in a forgotten domain and not from an
/// excluded node. Attempts without weight do not travel. Returns none if there is no `peers/`. The
/// directory may be open in another process. Evidence in folded form is taught to `rest`, if one is
/// given.
///
/// # Errors
/// When `peers/` cannot be read.
pub fn scan_attempts(
    data: &Path,
    rest: Option<&Learned>,
    show: impl FnMut(NodeId, &RemoteAttempt<'_>),
) -> Result<Option<ScanReport>, FleetError> {
    let (dir, state) = (data.join(FOLDER), NodeState::load(data)?);
    let Some(state) = state.filter(|_| dir.is_dir()) else { return Ok(None) };
    let mut showing = ScanVisitor { show, rest, facts: 0, folded: HashSet::new() };
    fold(&dir, &(state.node_id, state.own()), None, u64::MAX, &mut showing)?;
    Ok(Some(ScanReport { facts: showing.facts, folded: showing.folded.len() }))
}
