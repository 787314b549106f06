//! The links of a work queue of the in-process broker.
//!
//! Invariants: as at a real broker, a link stays until it is acknowledged, and opening a site
//! delivers all of its links again. As in a cluster, the removal may follow the acknowledgement
//! later.
//!
//! Must not know: which node asks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use fetchwise::time::Timestamp;

use crate::transport::QueueStatistics;

/// A queue.
#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    pub(super) last: u64,
    pub(super) links: BTreeMap<u64, (String, Bytes)>,
    /// The times at which they were stored.
    pub(super) times: BTreeMap<u64, Timestamp>,
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
            self.times.remove(&seq);
        }
    }

    /// Returns what an operator sees.
    pub(super) fn statistics(&self) -> QueueStatistics {
        let open = self.open.iter().map(|(site, delivered)| {
            let is_in_progress = |(seq, (of, _)): &(&u64, &(String, Bytes))| {
                of == site && *seq <= delivered && !self.acknowledged.contains(seq)
            };
            (site.clone(), self.links.iter().filter(is_in_progress).count() as u64)
        });
        QueueStatistics {
            links: self.links.len() as u64,
            oldest_at: self.times.first_key_value().map(|(_, at)| *at),
            open_sites: open.collect(),
        }
    }

    /// Removes all links. Returns their number.
    pub(super) fn purge(&mut self) -> u64 {
        let count = self.links.len() as u64;
        self.links.clear();
        self.times.clear();
        self.acknowledged.clear();
        count
    }

    /// Returns whether no link of `site` is acknowledged and not removed.
    pub(super) fn is_settled(&self, site: &str) -> bool {
        let is_of = |seq| self.links.get(seq).is_some_and(|(of, _)| of == site);
        !self.acknowledged.iter().any(is_of)
    }
}
