//! The payloads that an archive already contains, so that the same page is stored once.
//!
//! Invariants: memory is bounded. Beyond the maximum, the oldest payloads are forgotten and stored again when they
//! reappear. Payloads of an earlier process are not known.

use std::collections::{HashMap, VecDeque};

use super::record::{Digest, Original};

/// Maximum number of remembered payloads: about 30 MB with URLs of ordinary length.
const MAX_PAYLOADS: usize = 100_000;

/// The recent payloads.
#[derive(Debug, Default)]
pub(super) struct KnownPayloads {
    originals: HashMap<Digest, Original>,
    /// Digests in `originals`, oldest first.
    order: VecDeque<Digest>,
}

impl KnownPayloads {
    /// Returns the record with this payload.
    pub(super) fn get(&self, payload: &Digest) -> Option<&Original> {
        self.originals.get(payload)
    }

    /// Remembers that `original` has this payload; an earlier record with it stays.
    pub(super) fn add(&mut self, payload: Digest, original: Original) {
        if self.originals.contains_key(&payload) {
            return;
        }
        if self.order.len() >= MAX_PAYLOADS
            && let Some(oldest) = self.order.pop_front()
        {
            self.originals.remove(&oldest);
        }
        self.order.push_back(payload);
        self.originals.insert(payload, original);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise_types::time::Timestamp;

    #[test]
    fn the_oldest_payload_is_evicted_and_a_known_one_takes_no_room() {
        let url: url::Url = "http://e.org/".parse().unwrap();
        let original = |n: i64| Original { id: uuid::Uuid::nil(), url: url.clone(), at: Timestamp::from_millis(n) };
        let digest = |n: usize| {
            let mut digest = [0; 20];
            digest[..8].copy_from_slice(&(n as u64).to_le_bytes());
            digest
        };
        let mut known = KnownPayloads::default();
        for n in 0..MAX_PAYLOADS {
            known.add(digest(n), original(n as i64));
        }
        known.add(digest(7), original(-1));
        assert_eq!(known.get(&digest(7)).unwrap().at, Timestamp::from_millis(7), "the first one that had it");
        known.add(digest(MAX_PAYLOADS), original(0));
        assert!(
            known.get(&digest(0)).is_none()
                && known.get(&digest(1)).is_some()
                && known.get(&digest(MAX_PAYLOADS)).is_some()
        );
    }
}
