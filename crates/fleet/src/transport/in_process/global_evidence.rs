//! The global snapshots in the broker: the newest of each node.

use bytes::Bytes;
use fetchwise::time::Timestamp;

use crate::model::node_id::NodeId;
use crate::transport::GlobalDelivery;

/// The stored global snapshots.
#[derive(Debug, Default)]
pub(super) struct GlobalSnapshots {
    pub(super) wiped: u64,
    last: u64,
    /// The sequence number, the time and the bytes, by node.
    of: std::collections::BTreeMap<NodeId, (u64, Timestamp, Bytes)>,
    pub(super) said: u64,
    pub(super) bytes: u64,
}

impl GlobalSnapshots {
    pub(super) fn put(&mut self, node_id: NodeId, at: Timestamp, body: Bytes) {
        self.last += 1;
        (self.said, self.bytes) = (self.said + 1, self.bytes + body.len() as u64);
        self.of.insert(node_id, (self.last, at, body));
    }

    pub(super) fn wipe(&mut self) {
        *self =
            Self { wiped: self.wiped + 1, said: self.said, bytes: self.bytes, ..Self::default() };
    }

    /// Returns the first snapshot after a sequence number.
    pub(super) fn behind(&self, place: u64) -> Option<(u64, GlobalDelivery)> {
        let (node_id, (seq, at, body)) = self
            .of
            .iter()
            .filter(|(_, (seq, ..))| *seq > place)
            .min_by_key(|(_, (seq, ..))| *seq)?;
        Some((*seq, GlobalDelivery::Snapshot { node_id: *node_id, at: *at, body: body.clone() }))
    }
}
