//! What an operator sees of a work queue: how much is left, how much the nodes have taken, and
//! which nodes these are.
//!
//! Invariants: reads only. The parts come from the broker one after the other, so on a busy queue
//! they may differ by what happened in between.
//!
//! Must not know: how it is shown.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use fetchwise::time::Timestamp;

use super::site_lease::{LiveNodes, SiteLease};
use crate::model::heartbeat::Heartbeat;
use crate::transport::{Table, Transport, TransportError};

/// A work queue at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueOverview {
    /// The number of links without a result, with those in progress.
    pub left: u64,
    /// The number of links that a node has taken and that have no result yet.
    pub in_progress: u64,
    /// The time at which the oldest link was put into the queue, by the broker's clock.
    pub oldest_at: Option<Timestamp>,
    /// The broker's time, if it reports it.
    pub now: Option<Timestamp>,
    /// The nodes that fetch its links or hold sites of it, by name.
    pub nodes: Vec<QueueNode>,
}

/// A node that fetches links of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueNode {
    /// Its id.
    pub node: String,
    /// The number of sites whose links go to it.
    pub sites: u64,
    /// The number of links that it has taken and that have no result yet.
    pub in_progress: u64,
    /// Whether it has sent a heartbeat within the lease. The sites of a node that has not go to
    /// other nodes.
    pub is_present: bool,
}

/// Returns a queue and its nodes, where a heartbeat counts for `lease`.
///
/// # Errors
/// As the broker reports them; [`TransportError::NoQueue`] if there is no such queue.
pub async fn inspect(
    transport: &dyn Transport,
    queue: &str,
    lease: Duration,
) -> Result<QueueOverview, TransportError> {
    let queues = transport
        .work_queues()
        .ok_or_else(|| TransportError::Refused("no work queues".to_owned()))?;
    let found = queues.statistics(queue).await?;
    let now = transport.now().await?;
    let mut beats = Vec::new();
    for (node, cell) in transport.cells().list(Table::Nodes).await? {
        beats.extend(Heartbeat::decode(&cell.value).map(|beat| (node, beat, cell.at)));
    }
    // Without the broker's time every known node counts: the broker forgets them after a while.
    let newest = beats.iter().map(|(.., at)| *at).max().unwrap_or_default();
    let nodes = LiveNodes::new(beats, now.unwrap_or(newest));
    let leases: HashMap<String, SiteLease> = match found.open_sites.is_empty() {
        true => HashMap::new(),
        false => {
            let cells = transport.cells().list(Table::Sites).await?;
            cells.into_iter().map(|(site, cell)| (site, SiteLease::decode(&cell.value))).collect()
        }
    };
    let mut by_node: BTreeMap<String, QueueNode> = BTreeMap::new();
    for node in nodes.workers(queue, lease) {
        by_node.entry(node.to_string()).or_default().is_present = true;
    }
    for (site, in_progress) in &found.open_sites {
        let Some(lease) = leases.get(site).filter(|lease| !lease.node.is_empty()) else { continue };
        let node = by_node.entry(lease.node.clone()).or_default();
        (node.sites, node.in_progress) = (node.sites + 1, node.in_progress + in_progress);
    }
    Ok(QueueOverview {
        left: found.links,
        in_progress: found.open_sites.iter().map(|(_, count)| count).sum(),
        oldest_at: found.oldest_at,
        now,
        nodes: by_node.into_iter().map(|(name, node)| QueueNode { node: name, ..node }).collect(),
    })
}
