//! The links of a work queue of the in-process broker.
//!
//! Invariants: as at a real broker, a link stays until it is acknowledged, and opening a site delivers all of its links
//! again. As in a cluster, the removal may follow the acknowledgement later.
//!
//! Must not know: which node asks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;

/// A queue.
#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    pub(super) last: u64,
    pub(super) links: BTreeMap<u64, (String, Bytes)>,
    pub(super) ids: HashSet<String>,
    /// The last delivered link of each open site.
    pub(super) open: HashMap<String, u64>,
    /// Links that are acknowledged and not removed yet.
    pub(super) acknowledged: BTreeSet<u64>,
}

impl WorkQueue {
    /// Removes what is acknowledged.
    pub(super) fn remove_acknowledged(&mut self) {
        for seq in std::mem::take(&mut self.acknowledged) {
            self.links.remove(&seq);
        }
    }

    /// Returns whether no link of `site` is acknowledged and not removed.
    pub(super) fn is_settled(&self, site: &str) -> bool {
        let is_of = |seq| self.links.get(seq).is_some_and(|(of, _)| of == site);
        !self.acknowledged.iter().any(is_of)
    }
}
