//! The global snapshots of peers: which are accepted and applied.
//!
//! Invariants: their memory is bounded. No more is accepted from a node than from one whose attempts are read.
//!
//! Must not know: how a snapshot becomes evidence.

use bytes::Bytes;
use fetchwise::time::Timestamp;

use super::reader::Consumer;
use crate::error::FleetError;
use crate::model::global_evidence::unpack;
use crate::model::node_id::Origin;
use crate::model::options::Scope;
use crate::transport::General;

/// The bytes of a snapshot that count as one attempt for the limits.
const FACT_BYTES: usize = 20;

impl Consumer {
    /// Returns whether this node reads global snapshots instead of attempts.
    pub(crate) fn is_own(&self) -> bool {
        self.options.scope == Scope::Own
    }

    /// Applies a delivery. Returns whether the broker has lost the global snapshots.
    pub(crate) async fn general(&mut self, came: General) -> Result<bool, FleetError> {
        match came {
            General::Image { origin, at, body } => self.take_general(origin, at, body).await?,
            General::Read => self.is_starting = false,
            General::Wiped => {
                self.counts.stream_resets += 1;
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
            self.counts.throttled += 1;
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
            // It was published before the held one and arrives late.
            self.counts.duplicate += 1;
            return Ok(());
        }
        let keys = self.selector.key_count() as u64 + self.selector.evicted_keys();
        self.with_peers(move |peers| peers.general(origin, at, &body, &head, &share)).await?;
        let brought = (self.selector.key_count() as u64 + self.selector.evicted_keys()).saturating_sub(keys);
        self.charge(origin, 0, brought);
        self.counts.global_snapshots_applied += 1;
        self.seen.entry(origin).or_default().rejected = None;
        Ok(())
    }

    fn refuse_general(&mut self, origin: Origin, what: &str) -> Result<(), FleetError> {
        self.counts.rejected += 1;
        self.seen.entry(origin).or_default().rejected = Some(format!("its general image: {what}"));
        Ok(())
    }
}

/// Returns the size of all held global snapshots other than that of `node_id`, in bytes.
fn book_bytes(peers: &crate::peer_store::Peers, origin: Origin) -> usize {
    peers.book.generals.iter().filter(|(of, _)| **of != origin).map(|(_, held)| held.body.len()).sum()
}
