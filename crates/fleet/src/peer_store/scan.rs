//! A scan of all remote attempts, one by one, for callers that count them.
//!
//! Must not know: what is counted.

use std::collections::HashSet;
use std::path::Path;

use fetchwise::evidence::{Fact, Share};
use fetchwise::selector::Selector;

use super::fold::{FOLDER, Learns, fold};
use crate::error::FleetError;
use crate::model::node_id::Origin;
use crate::peer_store::node_state::State;

/// The result of [`scan_attempts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shown {
    /// The number of remote attempts.
    pub facts: u64,
    /// The number of nodes with older attempts in folded form only, in a snapshot. Those were not visited one by one.
    pub folded: usize,
}

struct Showing<'s, F> {
    show: F,
    rest: Option<&'s Selector>,
    facts: u64,
    folded: HashSet<Origin>,
}

impl<F: FnMut(Origin, &Fact<'_>)> Learns for Showing<'_, F> {
    fn share(&mut self, of: &[Origin], share: &Share) {
        if share.keys() > 0 {
            self.folded.extend(of);
            if let Some(rest) = self.rest {
                rest.take_share(share);
            }
        }
    }

    fn fact(&mut self, origin: Origin, fact: &Fact<'_>) {
        self.facts += 1;
        (self.show)(origin, fact);
    }
}

/// Visits each remote attempt that the node in the data directory `data` has received and that counts, with its node.
/// An attempt counts once, not in a forgotten domain and not from an excluded node. Attempts without weight do not
/// travel. Returns none if there is no `peers/`. The directory may be open in another process. Evidence in folded form
/// is taught to `rest`, if one is given.
///
/// # Errors
/// When `peers/` cannot be read.
pub fn facts(
    data: &Path,
    rest: Option<&Selector>,
    show: impl FnMut(Origin, &Fact<'_>),
) -> Result<Option<Shown>, FleetError> {
    let (dir, state) = (data.join(FOLDER), State::load(data)?);
    let Some(state) = state.filter(|_| dir.is_dir()) else { return Ok(None) };
    let mut showing = Showing { show, rest, facts: 0, folded: HashSet::new() };
    fold(&dir, &(state.origin, state.own()), None, u64::MAX, &mut showing)?;
    Ok(Some(Shown { facts: showing.facts, folded: showing.folded.len() }))
}
