//! General images of others: which are believed and taken.
//!
//! Invariant: memory for them is bounded, and of a node no more is taken than of one whose facts are read. Must not know how an image becomes
//! evidence.

use bytes::Bytes;
use fetchwise::time::Timestamp;

use super::reader::Consumer;
use crate::error::FleetError;
use crate::model::global_evidence::unpack;
use crate::model::node_id::Origin;
use crate::model::options::Scope;
use crate::transport::General;

/// An image counts for as many facts as its bytes would be of.
const FACT_BYTES: usize = 20;

impl Consumer {
    /// Whether this node reads general images in the place of facts.
    pub(crate) fn is_own(&self) -> bool {
        self.options.scope == Scope::Own
    }

    /// Takes what has come. Says whether what others have said is gone from the broker.
    pub(crate) async fn general(&mut self, came: General) -> Result<bool, FleetError> {
        match came {
            General::Image { origin, at, body } => self.take_general(origin, at, body).await?,
            General::Read => self.is_starting = false,
            General::Wiped => {
                self.counts.rewinds += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn take_general(&mut self, origin: Origin, at: Timestamp, body: Bytes) -> Result<(), FleetError> {
        let book = &self.peers()?.book;
        let held = book.generals.get(&origin);
        if origin == self.own || !book.is_heard(origin) || held.is_some_and(|held| held.body == body) {
            return Ok(());
        }
        if self.short_of(origin, at).is_some() {
            self.counts.late += 1;
            return self.refuse_general(origin, "it comes more often, or brings more new keys, than it may");
        }
        let others: usize = book_bytes(self.peers()?, origin);
        if others + body.len() > self.options.limits.general_bytes {
            return self.refuse_general(origin, "there are too many of them already");
        }
        self.charge(origin, body.len() / FACT_BYTES, 0);
        let (head, share) = match unpack(&body, self.selector.half_life_ms(), at) {
            Ok(read) => read,
            Err(what) => return self.refuse_general(origin, what),
        };
        let held = self.peers()?.book.generals.get(&origin);
        if held.is_some_and(|held| (held.epoch, held.position) > (head.epoch, head.position())) {
            // It was said before the one that is held, and comes late.
            self.counts.duplicate += 1;
            return Ok(());
        }
        let keys = self.selector.keys() as u64 + self.selector.evicted_keys();
        self.with_peers(move |peers| peers.general(origin, at, &body, &head, &share)).await?;
        let brought = (self.selector.keys() as u64 + self.selector.evicted_keys()).saturating_sub(keys);
        self.charge(origin, 0, brought);
        self.counts.generals += 1;
        self.seen.entry(origin).or_default().rejected = None;
        Ok(())
    }

    fn refuse_general(&mut self, origin: Origin, what: &str) -> Result<(), FleetError> {
        self.counts.rejected += 1;
        self.seen.entry(origin).or_default().rejected = Some(format!("its general image: {what}"));
        Ok(())
    }
}

/// What images of others than `origin` take.
fn book_bytes(peers: &crate::peer_store::Peers, origin: Origin) -> usize {
    peers.book.generals.iter().filter(|(of, _)| **of != origin).map(|(_, held)| held.body.len()).sum()
}
