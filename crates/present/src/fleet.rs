//! The JSON of a fleet as the server's node sees it, with the fields of `fleet status --json`.

use serde::Serialize;

use fetchwise::fleet_status::FleetStatus;

/// The server's node, its peers, and the pauses that they share.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Fleet"))]
pub struct FleetJson {
    /// The node and its peers.
    #[serde(flatten)]
    pub status: FleetStatus,
    /// Counts of pauses shared by the nodes of an egress group.
    pub hosts: SharedHostsJson,
}

/// The counts of shared pauses since the node joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "FleetHosts"))]
pub struct SharedHostsJson {
    /// Pauses received from peers.
    pub received: u64,
    /// Pauses sent to peers.
    pub sent: u64,
    /// Pauses of peers that it rejected because there were too many.
    pub rejected: u64,
    /// Trials that it won.
    pub trials: u64,
    /// Trials that a peer won.
    pub lost: u64,
    /// Trials that it made without coordination because the broker did not respond.
    pub own_trials: u64,
}
