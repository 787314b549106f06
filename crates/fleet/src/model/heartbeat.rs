//! The heartbeat of a node, in a cell that other nodes read.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The values that a node reports every few seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heartbeat {
    /// The epoch of its log.
    pub epoch: u32,
    /// The last position before this epoch.
    pub base: u64,
    /// The last position that it has published.
    pub position: u64,
    /// The position that its last evidence snapshot covers.
    pub share: u64,
    /// Its version.
    pub version: String,
    /// The scope in which it reads other nodes: `all` or `own`.
    pub scope: String,
    /// The half-life of its evidence in milliseconds.
    pub half_life_ms: u64,
    /// Its egress group.
    pub egress: String,
    /// The time by which its clock is ahead of the broker's, in milliseconds.
    pub clock_ahead_ms: i64,
    /// The id of the process, different for each start.
    pub holder: String,
    /// The data directory, by machine and path. At most one process has it open.
    pub directory: String,
    /// The place where it runs, for people.
    pub place: String,
    /// The work queue whose links it fetches; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub queue: String,
}

impl Heartbeat {
    /// Encodes the heartbeat as a cell's value.
    pub fn encode(&self) -> Bytes {
        // Numbers and texts always serialise.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Decodes a cell's value; none for an invalid heartbeat.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > 64 << 10 {
            return None;
        }
        // A later release may add fields, but these two make a heartbeat. A response of the broker
        // has neither.
        let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        (value.get("epoch")?.is_u64() && value.get("holder")?.is_string())
            .then(|| serde_json::from_value(value).ok())?
    }
}
