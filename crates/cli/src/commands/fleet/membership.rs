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
use fetchwise_fleet::pauses::{HostCounts, SharedHosts};
use fetchwise_fleet::sync::forget::notify_forgotten;
use fetchwise_fleet::transport::Transport;
use fetchwise_present::{FleetJson, SharedHostsJson};
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
        let mut status = self.fleet.upgrade()?.status();
        status.counts = status.counts.with_all_bounds();
        let hosts = self.hosts.upgrade().map(|hosts| hosts.counts()).unwrap_or_default();
        Some(FleetJson { status, hosts: hosts_json(hosts) })
    }

    fn forget(&self, domain: String, until: Timestamp) -> MembershipFuture<Result<(), String>> {
        let transport = Arc::clone(&self.transport);
        Box::pin(async move {
            notify_forgotten(&*transport, &domain, until)
                .await
                .map_err(|error| plain(&error.to_string()))
        })
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
