//! Rebalancing in scope `own`: from which nodes the evidence of this node's new sites is to be
//! applied.
//!
//! Owns: when that is due. A node that starts applies the evidence of all others once. It applies
//! that of a node that was not seen for ten minutes, because it now owns a part of that node's
//! sites.
//!
//! Must not know: what is applied.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;

use crate::model::node_id::NodeId;
use crate::model::options::Timing;

/// The state of rebalancing.
#[derive(Debug, Default)]
pub(super) struct Rebalance {
    /// The owners of sites at the last check; none before the first.
    pub(super) nodes: Option<BTreeSet<NodeId>>,
    /// The nodes whose evidence is still to be applied.
    pub(super) from: VecDeque<NodeId>,
    /// The time of the last check of heartbeats.
    checked_at: Option<Instant>,
    waits_until: Option<Instant>,
    /// The earliest time at which evidence mixed with a forgotten domain is applied again.
    pub(super) again_at: HashMap<NodeId, Instant>,
}

impl Rebalance {
    /// Returns the number of nodes that are left; none before it is known.
    pub(super) fn remaining(&self) -> Option<usize> {
        self.nodes.as_ref().map(|_| self.from.len())
    }

    /// Queues a node again.
    pub(super) fn queue(&mut self, node_id: NodeId) {
        if !self.from.contains(&node_id) {
            self.from.push_back(node_id);
        }
    }

    /// Returns whether heartbeats are complete. After a start, and after a time without heartbeats,
    /// every node needs a moment to send one.
    pub(super) fn heartbeats_are_complete(&mut self, timing: &Timing) -> bool {
        let now = Instant::now();
        let wait = match self.checked_at.replace(now) {
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
