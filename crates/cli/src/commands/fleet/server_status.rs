//! The view of the fleet for a server and for the metrics of a crawl.
//!
//! Owns: how a node's status becomes a response of the server.
//!
//! Invariants: holds only weak references to the fleet, so it delays no shutdown.
//!
//! Must not know: the routes of the server.

use std::sync::{Arc, Weak};

use fetchwise::time::Timestamp;
use fetchwise_fleet::Fleet;
use fetchwise_fleet::model::status::{Counts, DELAYS_MS, PeerStatus, Status};
use fetchwise_fleet::pauses::{HostCounts, SharedHosts};
use fetchwise_fleet::sync::forget::notify_forgotten;
use fetchwise_fleet::transport::Transport;
use fetchwise_serve::json::{FleetCountsJson, FleetJson, NodeJson, SharedHostsJson};
use fetchwise_serve::{Membership, MembershipFuture};

use crate::terminal::output::plain;

/// A membership that another part of the process owns.
pub(super) struct ServerStatus {
    pub(super) fleet: Weak<Fleet>,
    pub(super) hosts: Weak<SharedHosts>,
    pub(super) transport: Arc<dyn Transport>,
}

impl std::fmt::Debug for ServerStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerStatus").field("fleet", &self.fleet).finish_non_exhaustive()
    }
}

impl Membership for ServerStatus {
    fn status(&self) -> Option<FleetJson> {
        let status = self.fleet.upgrade()?.status();
        let hosts = self.hosts.upgrade().map(|hosts| hosts.counts()).unwrap_or_default();
        Some(json(status, hosts))
    }

    fn forget(&self, domain: String, until: Timestamp) -> MembershipFuture<Result<(), String>> {
        let transport = Arc::clone(&self.transport);
        Box::pin(async move {
            notify_forgotten(&*transport, &domain, until).await.map_err(|error| plain(&error.to_string()))
        })
    }
}

fn json(status: Status, hosts: HostCounts) -> FleetJson {
    FleetJson {
        node: status.node,
        pool: status.pool,
        broker: status.broker,
        converged: status.converged,
        epoch: status.epoch,
        position: status.position,
        published: status.published,
        snapshot_position: status.snapshot_position,
        withheld: status.withheld,
        clock_ahead_s: status.clock_ahead_s,
        stopped: status.stopped,
        excluded: status.excluded,
        syncing: status.syncing,
        links: status.links,
        links_waiting: status.links_waiting,
        peers: status.peers.into_iter().map(node_json).collect(),
        counts: counts_json(&status.counts),
        hosts: hosts_json(hosts),
    }
}

fn node_json(peer: PeerStatus) -> NodeJson {
    NodeJson {
        node: peer.node,
        position: peer.position,
        published: peer.published,
        snapshot_position: peer.snapshot_position,
        missing_records: peer.missing_records,
        lost: peer.lost,
        lag_s: peer.lag_s,
        version: peer.version,
        present: peer.present,
        excluded: peer.excluded,
        set_aside_reason: peer.set_aside_reason,
        rejected: peer.rejected,
        waiting: peer.waiting,
        limited: peer.limited,
        closed: peer.closed,
        egress_group: peer.egress_group,
        clock_ahead_s: peer.clock_ahead_s,
    }
}

fn counts_json(counts: &Counts) -> FleetCountsJson {
    FleetCountsJson {
        published: counts.published,
        bytes: counts.bytes,
        failures: counts.failures,
        received: counts.received,
        duplicate: counts.duplicate,
        withheld: counts.withheld,
        rejected: counts.rejected,
        forgotten: counts.forgotten,
        throttled: counts.throttled,
        retransmit_requests: counts.retransmit_requests,
        stream_resets: counts.stream_resets,
        snapshots_applied: counts.snapshots_applied,
        // All bounds, so that sums over time always have the same ones.
        delays: DELAYS_MS.iter().map(|end| (*end, counts.delays.get(end).copied().unwrap_or(0))).collect(),
        delayed_ms: counts.delayed_ms,
    }
}

fn hosts_json(hosts: HostCounts) -> SharedHostsJson {
    SharedHostsJson {
        received: hosts.received,
        sent: hosts.sent,
        rejected: hosts.rejected,
        trials: hosts.trials,
        lost: hosts.lost,
        own_trials: hosts.own_trials,
    }
}
