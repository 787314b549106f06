//! The links of a work queue of the in-process broker.
//!
//! Invariants: as at a real broker, a link stays until it is acknowledged, and opening a site delivers all of its links
//! again.
//!
//! Must not know: which node asks.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;

/// A queue.
#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    pub(super) last: u64,
    pub(super) links: BTreeMap<u64, (String, Bytes)>,
    pub(super) ids: HashSet<String>,
    /// The last delivered link of each open site.
    pub(super) open: HashMap<String, u64>,
}
