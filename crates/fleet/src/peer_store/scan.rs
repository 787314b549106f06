//! What others have told, attempt by attempt, for whoever counts.
//!
//! Must not know what is counted.

use std::collections::HashSet;
use std::path::Path;

use fetchwise::evidence::{Fact, Share};
use fetchwise::selector::Selector;

use super::fold::{FOLDER, Learns, fold};
use crate::error::FleetError;
use crate::model::node_id::Origin;
use crate::peer_store::node_state::State;

/// What [`facts`] has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shown {
    /// Attempts of others.
    pub facts: u64,
    /// Nodes of which older attempts are there as evidence only, in a share or a snapshot: these were not shown one by one.
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

/// Shows each attempt that others have told the node in the data directory `data`, with who has, and that counts: once, and not where its domain was
/// forgotten or its node excluded. Attempts without weight do not travel. None where there is no `peers/`. Reads beside whoever has the
/// directory open. What is there as evidence only is taught to `rest`, where one is given.
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
