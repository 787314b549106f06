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
    let Status { origin, pool, broker, quiet, epoch, position, published, share, withheld, clock_ahead_s, .. } = status;
    let Status { stopped, excluded, starting, links, links_waiting, peers, counts, .. } = status;
    FleetJson {
        origin,
        pool,
        broker,
        quiet,
        epoch,
        position,
        published,
        share,
        withheld,
        clock_ahead_s,
        stopped,
        excluded,
        starting,
        links,
        links_waiting,
        peers: peers.into_iter().map(node).collect(),
        counts: counted(&counts),
        hosts: shared(hosts),
    }
}

fn node(peer: PeerStatus) -> NodeJson {
    NodeJson {
        origin: peer.origin,
        position: peer.position,
        published: peer.published,
        share: peer.snapshot_position,
        holes: peer.missing_records,
        lost: peer.lost,
        lag_s: peer.lag_s,
        version: peer.version,
        present: peer.present,
        excluded: peer.excluded,
        aside: peer.aside,
        rejected: peer.rejected,
        waiting: peer.waiting,
        limited: peer.limited,
        closed: peer.closed,
        egress: peer.egress,
        clock_ahead_s: peer.clock_ahead_s,
    }
}

fn counted(counts: &Counts) -> FleetCountsJson {
    FleetCountsJson {
        published: counts.published,
        bytes: counts.bytes,
        failures: counts.failures,
        received: counts.received,
        duplicate: counts.duplicate,
        withheld: counts.withheld,
        rejected: counts.rejected,
        forgotten: counts.forgotten,
        late: counts.throttled,
        wants: counts.retransmit_requests,
        rewinds: counts.stream_resets,
        shares: counts.snapshots_applied,
        // All bounds, so that sums over time always have the same ones.
        delays: DELAYS_MS.iter().map(|end| (*end, counts.delays.get(end).copied().unwrap_or(0))).collect(),
        delayed_ms: counts.delayed_ms,
    }
}

fn shared(hosts: HostCounts) -> SharedHostsJson {
    SharedHostsJson {
        taken: hosts.received,
        told: hosts.sent,
        rejected: hosts.rejected,
        trials: hosts.trials,
        lost: hosts.lost,
        own_trials: hosts.own_trials,
    }
}
