//! A site that this node holds: its links that are given out, and what is known of its queue.
//!
//! Must not know: the broker, and how links are fetched.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::site_lease::HandedPace;

/// The time after which an empty site is asked for links again while some of its links are given
/// out.
const EMPTY_CHECK: Duration = Duration::from_secs(1);

/// The maximum number of hosts of a site whose paces are handed over: more do not fit into the cell
/// of its lease.
const MAX_HOSTS: usize = 400;

/// A site that this node holds.
#[derive(Debug)]
pub(super) struct HeldSite {
    /// The number of this holding, which its links carry: what is reported of an earlier one does
    /// not concern this one.
    pub(super) holding: u64,
    /// The revision of its cell.
    pub(super) revision: u64,
    /// The position up to which results may have been written before.
    pub(super) uncertain: u64,
    /// The links that are given out and not acknowledged.
    pub(super) given: HashSet<u64>,
    /// The last position that is acknowledged, 0 if none is, and since when this node waits for the
    /// removal.
    pub(super) acknowledged: u64,
    pub(super) settling: Option<Instant>,
    /// The hosts of its links whose paces the next node gets: the first ones.
    pub(super) hosts: BTreeSet<Box<str>>,
    /// Whether the crawl was told to give its links back.
    pub(super) is_withdrawn: bool,
    /// The time before which its hosts are not asked: the gap to the last request of another node.
    pub(super) not_before: Instant,
    /// The time of the last pull without links.
    pub(super) empty_at: Option<Instant>,
    /// The paces in the cell, and when they were written.
    pub(super) paces: Vec<HandedPace>,
    pub(super) written: Instant,
}

impl HeldSite {
    /// Returns whether to ask for further links, where `max` may be given out.
    pub(super) fn wants_links(&self, max: usize, now: Instant) -> bool {
        let is_checked = self.empty_at.is_some_and(|at| now < at + EMPTY_CHECK);
        !self.is_withdrawn && !is_checked && now >= self.not_before && self.given.len() <= max / 2
    }

    /// Records that a link of the holding `holding` is acknowledged.
    pub(super) fn acknowledge(&mut self, holding: u64, seq: u64) {
        if holding == self.holding {
            self.acknowledged = self.acknowledged.max(seq);
            self.settling = None;
        }
        self.take_back(holding, seq);
    }

    /// Removes a link of the holding `holding` from those that are given out.
    pub(super) fn take_back(&mut self, holding: u64, seq: u64) {
        if holding == self.holding {
            self.given.remove(&seq);
        }
    }

    /// Takes note of a host of the site's links.
    pub(super) fn add_host(&mut self, host: Box<str>) {
        if self.hosts.len() < MAX_HOSTS {
            self.hosts.insert(host);
        }
    }

    /// Returns whether nothing keeps this node from giving the site back.
    pub(super) fn is_done(&self) -> bool {
        self.given.is_empty() && (self.is_withdrawn || self.empty_at.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_whose_paces_no_cell_has_room_for_take_no_memory() {
        let now = Instant::now();
        let mut held = HeldSite {
            holding: 1,
            revision: 1,
            uncertain: 0,
            given: HashSet::new(),
            acknowledged: 0,
            settling: None,
            hosts: BTreeSet::new(),
            is_withdrawn: false,
            not_before: now,
            empty_at: None,
            paces: Vec::new(),
            written: now,
        };
        (0..10 * MAX_HOSTS).for_each(|n| held.add_host(format!("user{n}.e.org").into()));
        assert_eq!(held.hosts.len(), MAX_HOSTS);
        assert!(held.hosts.contains("user0.e.org"));
    }
}
