//! The evidence snapshot of a node's own log, built in the background.
//!
//! Invariants: it leaves out what is never published, and states what it covers.
//!
//! Must not know: when one is due.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use fetchwise::evidence::Learned;
use fetchwise::journal::replication::fold;
use fetchwise::time::Timestamp;

use crate::error::FleetError;
use crate::model::evidence_snapshot::{SnapshotHead, SnapshotNote, pack};
use crate::model::node_id::NodeId;
use crate::model::peer_link_states::StoredLink;
use crate::model::position_set::Intervals;
use crate::peer_store;
use crate::peer_store::own_state_file::NodeState;
use crate::transport::{StreamBounds, Transport, TransportError};

/// Everything needed to build a snapshot.
pub(crate) struct SnapshotJob {
    pub(crate) dir: PathBuf,
    pub(crate) state: NodeState,
    /// Evidence of nothing yet, which is consumed.
    pub(crate) blank: Learned,
    /// The last position of the snapshot.
    pub(crate) upto: u64,
    pub(crate) bounds: StreamBounds,
    /// The latest time at which fading is judged.
    pub(crate) latest: Timestamp,
    pub(crate) forgot: BTreeSet<u64>,
    /// The egress group of link states, and the time by which the node's clock is ahead of the
    /// broker's.
    pub(crate) egress: String,
    pub(crate) ahead: Duration,
}

/// A snapshot that is ready for the store.
pub(crate) struct BuiltSnapshot {
    pub(crate) bytes: Bytes,
    pub(crate) note: String,
    pub(crate) upto: u64,
    pub(crate) forgot: BTreeSet<u64>,
}

/// Returns the note of a node's snapshot in the store; none without a snapshot.
pub(crate) async fn stored_note(
    transport: &dyn Transport,
    node_id: NodeId,
) -> Result<Option<SnapshotNote>, TransportError> {
    let (name, list) = (node_id.to_string(), transport.blobs().list().await?);
    let info = list.into_iter().find(|info| info.name == name);
    Ok(info.and_then(|info| serde_json::from_str(&info.note).ok()))
}

impl SnapshotJob {
    /// Folds the log. Blocks for that time and needs as much memory as the node's own evidence.
    /// Returns none if the log's own snapshot covers positions after `upto` by now: those attempts
    /// would count twice.
    pub(crate) fn run(self) -> Result<Option<BuiltSnapshot>, FleetError> {
        let Self { dir, state, blank, upto, bounds, latest, forgot, egress, ahead } = self;
        let leaves_out = |seq: u64| state.withheld.contains(seq);
        let is_any_out = !state.withheld.runs().is_empty();
        let leaves_out: Option<&dyn Fn(u64) -> bool> =
            if is_any_out { Some(&leaves_out) } else { None };
        let half_life_ms = blank.half_life_ms();
        let folded = fold(&dir, &blank, upto, leaves_out, latest)?;
        if folded.upto > upto {
            return Ok(None);
        }
        // The position of a link state from the log's snapshot is unknown. It was not after this
        // one.
        let links = folded.links.into_iter().filter(|(seq, _)| !state.withheld.contains(*seq));
        let links = links.map(|(seq, entry)| (if seq == 0 { upto } else { seq }, entry));
        let links = StoredLink::of(links, &egress, latest, ahead);
        let fork = state.log_epoch();
        let mut covers = state.own();
        covers.insert(fork.epoch, Intervals::of(fork.base + 1, upto));
        let share = peer_store::with_own_past(&dir, &state, &blank, folded.share, &mut covers)?;
        let (epoch, base) = (fork.epoch, fork.base);
        let (incarnation, seq) = (bounds.incarnation, bounds.last);
        let head = SnapshotHead {
            epoch,
            base,
            covers,
            incarnation,
            seq,
            half_life_ms,
            forgot: forgot.clone(),
            links,
        };
        let bytes = pack(&head, &share).map_err(|error| FleetError::io(&dir, error))?;
        // Two numbers always serialise.
        let note =
            serde_json::to_string(&SnapshotNote { epoch, position: upto }).unwrap_or_default();
        Ok(Some(BuiltSnapshot { bytes, note, upto, forgot }))
    }
}
