//! General images of others in `peers/`: each takes the place of its origin's one before.
//!
//! Invariant: as for everything else here, first the record, then the evidence, then the book. Must not know when an image is believed.

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
    /// Puts an image in the place of the origin's one before.
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
        // In this order, so that nobody sees less than there is.
        self.selector.take_share(share);
        if let Some(before) = before {
            self.selector.give_share_back(&before);
        }
        self.book.general(origin, Held::new(head, at, body.clone()));
        failpoints::reached(failpoints::LEARNED);
        Ok(())
    }
}
