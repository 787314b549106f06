//! What a node says of itself, in a cell that others read.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// What a node says of itself every few seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Presence {
    /// The history that its log goes on in.
    pub epoch: u32,
    /// The position that it begins behind.
    pub base: u64,
    /// The last position that it has published.
    pub position: u64,
    /// What its last share covers.
    pub share: u64,
    /// Its version.
    pub version: String,
    /// What it reads of others: `all` or `own`.
    pub scope: String,
    /// The half-life of its evidence, in milliseconds.
    pub half_life_ms: u64,
    /// A name for the addresses that its requests come from.
    pub egress: String,
    /// By how much its clock is ahead of the broker's, in milliseconds.
    pub clock_ahead_ms: i64,
    /// The process that says so: another one for each start.
    pub holder: String,
    /// The data directory that it has, by machine and path: one process at most has it.
    pub directory: String,
    /// Where it runs, for people.
    pub place: String,
}

impl Presence {
    /// As a cell's value.
    pub fn encode(&self) -> Bytes {
        // Numbers and texts always serialise.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Reads a cell's value; none for what is no presence.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > 64 << 10 { None } else { serde_json::from_slice(bytes).ok() }
    }
}
