//! The lease of a site: the cell that names the node whose crawl its links go to.
//!
//! Owns: when a lease is over.
//!
//! Must not know: how the cell is stored.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use fetchwise::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::heartbeat::Heartbeat;
use crate::model::node_id::NodeId;

/// The maximum size of a lease's cell, in bytes.
const MAX_BYTES: usize = 60 << 10;
/// The part of a lease by which the clocks of two brokers may differ.
const CLOCK_TOLERANCE: u32 = 6;

/// The content of the cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SiteLease {
    /// The node that holds the site; empty if none does.
    pub(super) node: String,
    /// Its process, as in its heartbeat.
    pub(super) holder: String,
    /// For each queue, the last position up to which a link's result may have been written without
    /// an acknowledgement.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) uncertain: BTreeMap<String, u64>,
    /// The paces of the site and its hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) paces: Vec<HandedPace>,
}

/// The pace of a host or a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandedPace {
    /// Whether it is the pace of the whole site.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_site: bool,
    pub(super) name: String,
    /// The 64 bytes of the state as hexadecimal digits.
    pub(super) state: String,
}

impl SiteLease {
    /// Encodes the lease. Paces that do not fit are left out.
    pub(super) fn encode(&self) -> Bytes {
        let mut lease = self.clone();
        loop {
            // Numbers and texts always serialise.
            let bytes = serde_json::to_vec(&lease).unwrap_or_default();
            if bytes.len() <= MAX_BYTES || lease.paces.is_empty() {
                return bytes.into();
            }
            lease.paces.truncate(lease.paces.len() / 2);
        }
    }

    /// Returns whether the process `holder` of a node holds the site.
    pub(super) fn is_of(&self, node_id: NodeId, holder: &str) -> bool {
        self.holder == holder && self.node == node_id.to_string()
    }

    /// Decodes a cell; an invalid one is held by nobody.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        if bytes.len() > MAX_BYTES + 1024 {
            Self::default()
        } else {
            serde_json::from_slice(bytes).unwrap_or_default()
        }
    }
}

/// The nodes of a pool and their last heartbeats, by the broker's clock.
#[derive(Debug, Default)]
pub(super) struct LiveNodes {
    beats: HashMap<String, (Heartbeat, Timestamp)>,
    now: Timestamp,
}

impl LiveNodes {
    /// Returns the nodes whose heartbeats these are, at `now`.
    pub(super) fn new(
        beats: impl IntoIterator<Item = (String, Heartbeat, Timestamp)>,
        now: Timestamp,
    ) -> Self {
        Self { beats: beats.into_iter().map(|(node, beat, at)| (node, (beat, at))).collect(), now }
    }

    /// Returns whether the process that holds a lease may still work on it, where a heartbeat
    /// counts for `lease`.
    pub(super) fn is_held(&self, site: &SiteLease, lease: Duration) -> bool {
        let Some((beat, at)) = self.beats.get(&site.node) else { return false };
        beat.holder == site.holder && self.now.since(*at) <= lease + lease / CLOCK_TOLERANCE
    }

    /// Returns the live nodes that fetch the links of a queue.
    pub(super) fn workers(&self, queue: &str, lease: Duration) -> Vec<NodeId> {
        let live = self
            .beats
            .iter()
            .filter(|(_, (beat, at))| beat.queue == queue && self.now.since(*at) <= lease);
        live.filter_map(|(node, _)| node.parse().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);
    const LEASE: Duration = Duration::from_secs(30);

    fn nodes(node: NodeId, holder: &str, age_s: u64) -> LiveNodes {
        let beat =
            Heartbeat { holder: holder.to_owned(), queue: "q".to_owned(), ..Heartbeat::default() };
        LiveNodes::new(
            [(node.to_string(), beat, NOW)],
            NOW.saturating_add(Duration::from_secs(age_s)),
        )
    }

    #[test]
    fn a_lease_lasts_as_long_as_the_heartbeats_of_its_process() {
        let node = NodeId::random();
        let lease =
            SiteLease { node: node.to_string(), holder: "p".to_owned(), ..SiteLease::default() };
        assert!(nodes(node, "p", 35).is_held(&lease, LEASE), "the clocks of brokers differ");
        assert!(!nodes(node, "p", 36).is_held(&lease, LEASE));
        assert!(!nodes(node, "another start", 0).is_held(&lease, LEASE));
        assert!(
            !nodes(NodeId::random(), "p", 0).is_held(&lease, LEASE),
            "a node without a heartbeat"
        );
        assert!(!nodes(node, "", 0).is_held(&SiteLease::default(), LEASE), "a free site");
        assert_eq!(nodes(node, "p", 30).workers("q", LEASE), [node]);
        assert!(nodes(node, "p", 31).workers("q", LEASE).is_empty());
        assert!(nodes(node, "p", 0).workers("r", LEASE).is_empty());
    }

    #[test]
    fn a_cell_has_room_for_a_site_with_many_hosts() {
        let pace = |n: usize| HandedPace {
            is_site: n == 0,
            name: format!("h{n}.example.org"),
            state: "0".repeat(128),
        };
        let uncertain = BTreeMap::from([("q".to_owned(), 7)]);
        let lease =
            SiteLease { uncertain, paces: (0..10_000).map(pace).collect(), ..SiteLease::default() };
        let bytes = lease.encode();
        assert!(bytes.len() <= MAX_BYTES);
        let read = SiteLease::decode(&bytes);
        assert!(
            read.paces.len() > 100 && read.paces[0].is_site && read.uncertain == lease.uncertain
        );
        assert_eq!(
            SiteLease::decode(br#"{"stream":"KV_FW_p_sites","seq":9}"#),
            SiteLease::default()
        );
        assert_eq!(SiteLease::decode(b"no json"), SiteLease::default());
    }
}
