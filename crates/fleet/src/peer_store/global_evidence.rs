//! The global snapshots of peers in `peers/`: each replaces the previous one of its node.
//!
//! Invariants: the record comes first, then the evidence, then the peer states, as in the rest of the store.
//!
//! Must not know: when a snapshot is accepted.

use bytes::Bytes;
use fetchwise::evidence::Share;
use fetchwise::time::Timestamp;

use super::store::Peers;
use crate::error::FleetError;
use crate::failpoints;
use crate::model::evidence_snapshot::{Head, unpack};
use crate::model::node_id::Origin;
use crate::model::peer_state::Held;
use crate::peer_store::record::Event;

impl Peers {
    /// Replaces the global snapshot of a node.
    pub(crate) fn general(
        &mut self,
        origin: Origin,
        at: Timestamp,
        body: &Bytes,
        head: &Head,
        share: &Share,
    ) -> Result<(), FleetError> {
        let before = match self.book.generals.get(&origin) {
            Some(held) => Some(unpack(&held.body).map_err(|what| FleetError::Record(what.to_owned()))?.1),
            None => None,
        };
        self.append(&Event::General { origin, at, body }, at)?;
        failpoints::reached(failpoints::APPENDED);
        // Added before the old one is retracted, so that the evidence is never lower than it should be.
        self.selector.take_share(share);
        if let Some(before) = before {
            self.selector.give_share_back(&before);
        }
        self.book.general(origin, Held::new(head, at, body.clone()));
        failpoints::reached(failpoints::LEARNED);
        Ok(())
    }
}
