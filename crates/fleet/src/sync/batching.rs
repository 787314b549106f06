//! Batching: ranges of a node's own log as messages.
//!
//! Owns: where one message ends and the next begins.
//!
//! Invariants: every position of the range is covered once, up to the first one that a compaction
//! has dropped.
//!
//! Must not know: who sends the messages.

use std::path::PathBuf;

use bytes::Bytes;
use fetchwise::evidence::Learned;
use fetchwise::journal::replication::{PositionContent, Tombstones, read_positions};
use fetchwise::time::Timestamp;

use crate::error::FleetError;
use crate::model::codec::{Builder, Header};
use crate::peer_store::own_state_file::LogEpoch;

/// The maximum number of positions in a message.
pub(crate) const MAX_POSITIONS: u64 = 4096;
/// The maximum size of a message before compression, in bytes. It fits into one message however
/// badly it compresses.
const RAW_FULL: usize = 900 << 10;

/// A range of a node's own log.
pub(crate) struct LogRange {
    /// The directory of the log.
    pub(crate) dir: PathBuf,
    pub(crate) fork: LogEpoch,
    /// The egress group of the node.
    pub(crate) egress: String,
    /// The first and the last position.
    pub(crate) positions: (u64, u64),
    /// The maximum number of messages.
    pub(crate) most: usize,
    /// The last position that the node has reserved; 0 for an earlier epoch.
    pub(crate) top: u64,
}

/// Built messages.
#[derive(Default)]
pub(crate) struct BuiltMessages {
    pub(crate) messages: Vec<(Header, Bytes)>,
    pub(crate) withheld: Vec<u64>,
    pub(crate) forgotten: Vec<(String, Timestamp)>,
    /// Whether a compaction has dropped the next position.
    pub(crate) gone: bool,
}

/// Builds messages from a range of the log.
pub(crate) fn build_messages(
    range: &LogRange,
    learned: &Learned,
    stones: &mut Tombstones,
    is_withheld: impl Fn(u64, Timestamp) -> bool,
) -> Result<BuiltMessages, FleetError> {
    let LogRange { dir, fork, egress, positions, most, top } = range;
    let mut made = BuiltMessages::default();
    let new = |first| Builder::new(fork.epoch, fork.base, first).behind(egress);
    let mut builder = new(positions.0);
    let mut failed = None;
    let mut is_full = false;
    read_positions(dir, *positions, learned, stones, |seq, place| {
        if is_full || made.gone || failed.is_some() {
            return;
        }
        match place {
            PositionContent::Gone => made.gone = true,
            PositionContent::RemoteAttempt(fact, _) if is_withheld(seq, fact.at) => {
                made.withheld.push(seq);
                builder.skip();
            }
            PositionContent::RemoteAttempt(fact, link) => builder.push(&fact, link),
            PositionContent::Link(link) if is_withheld(seq, link.at) => {
                made.withheld.push(seq);
                builder.skip();
            }
            PositionContent::Link(link) => builder.link(&link),
            PositionContent::ForgottenDomain(domain, at) => {
                made.forgotten.push((domain.to_owned(), at));
                builder.skip();
            }
            PositionContent::Nothing => builder.skip(),
        }
        if !made.gone && (builder.positions() >= MAX_POSITIONS || builder.len() >= RAW_FULL) {
            match std::mem::replace(&mut builder, new(seq + 1)).finish(*top) {
                Ok(message) => made.messages.push(message),
                Err(error) => failed = Some(error),
            }
            is_full = made.messages.len() >= *most;
        }
    })?;
    if !builder.is_empty() && failed.is_none() {
        match builder.finish(*top) {
            Ok(message) => made.messages.push(message),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(made), |error| Err(FleetError::io(dir, error)))
}
