//! Of whom it is to be taken what they know of sites that have come to this node, in scope `own`.
//!
//! Owns: when that is. A node that begins takes from all others, once; and from each that was not seen for ten minutes, since a part of its
//! sites is this node's now. Must not know what is taken.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;

use crate::model::node_id::Origin;
use crate::model::options::Timing;

/// What is known of who has which sites.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Those among whom sites were divided at the last look; none before the first.
    pub(super) nodes: Option<BTreeSet<Origin>>,
    /// Those that are still to be taken from.
    pub(super) from: VecDeque<Origin>,
    /// The last look at who is there.
    looked_at: Option<Instant>,
    waits_until: Option<Instant>,
    /// When what is mixed with a forgotten domain is taken anew, at the earliest.
    pub(super) again_at: HashMap<Origin, Instant>,
}

impl Moves {
    /// How many are still to be taken from; none before it is known.
    pub(super) fn left(&self) -> Option<usize> {
        self.nodes.as_ref().map(|_| self.from.len())
    }

    /// It is to be taken from again.
    pub(super) fn again(&mut self, origin: Origin) {
        if !self.from.contains(&origin) {
            self.from.push_back(origin);
        }
    }

    /// Whether who is there can be told: a moment after the start, and after a time in which nobody could be seen, everybody has said so.
    pub(super) fn sees_who_is_there(&mut self, timing: &Timing) -> bool {
        let now = Instant::now();
        let wait = match self.looked_at.replace(now) {
            None => Some(timing.lease),
            Some(at) if now - at > timing.lease * 2 => Some(timing.owner),
            Some(_) => None,
        };
        if let Some(wait) = wait {
            self.waits_until = Some(now + wait);
        }
        self.waits_until.is_none_or(|until| now >= until)
    }
}
