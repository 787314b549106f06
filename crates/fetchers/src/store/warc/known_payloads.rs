//! The payloads that an archive already contains, so that the same page is stored once.
//!
//! Invariants: memory is bounded. Beyond the maximum, the oldest payloads are forgotten and stored
//! again when they reappear. Payloads of an earlier process are not known.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use super::record::{Digest, Original};

/// Maximum number of remembered payloads: about 30 MB with URLs of ordinary length.
const MAX_PAYLOADS: usize = 100_000;

/// A record with a payload, and its place.
#[derive(Clone, Debug)]
pub(super) struct StoredRecord {
    pub(super) original: Original,
    pub(super) place: RecordPlace,
}

/// The place of a record.
#[derive(Clone, Debug)]
pub(super) struct RecordPlace {
    pub(super) file: Arc<Path>,
    /// The byte at which it begins.
    pub(super) offset: u64,
}

/// The recent payloads.
#[derive(Debug, Default)]
pub(super) struct KnownPayloads {
    records: HashMap<Digest, StoredRecord>,
    /// Digests in `records`, oldest first.
    order: VecDeque<Digest>,
}

impl KnownPayloads {
    /// Returns the record with this payload.
    pub(super) fn get(&self, payload: &Digest) -> Option<&StoredRecord> {
        self.records.get(payload)
    }

    /// Remembers that `record` has this payload, in place of an earlier one.
    pub(super) fn add(&mut self, payload: Digest, record: StoredRecord) {
        if self.records.insert(payload, record).is_some() {
            return;
        }
        if self.order.len() >= MAX_PAYLOADS
            && let Some(oldest) = self.order.pop_front()
        {
            self.records.remove(&oldest);
        }
        self.order.push_back(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise_types::time::Timestamp;

    #[test]
    fn the_oldest_payload_is_evicted_and_a_known_one_takes_no_room() {
        let url: url::Url = "http://e.org/".parse().unwrap();
        let place = RecordPlace { file: Path::new("crawl.warc").into(), offset: 0 };
        let record = |n: i64| {
            let original =
                Original { id: uuid::Uuid::nil(), url: url.clone(), at: Timestamp::from_millis(n) };
            StoredRecord { original, place: place.clone() }
        };
        let digest = |n: usize| {
            let mut digest = [0; 20];
            digest[..8].copy_from_slice(&(n as u64).to_le_bytes());
            digest
        };
        let mut known = KnownPayloads::default();
        for n in 0..MAX_PAYLOADS {
            known.add(digest(n), record(n as i64));
        }
        known.add(digest(7), record(-1));
        assert_eq!(
            known.get(&digest(7)).unwrap().original.at,
            Timestamp::from_millis(-1),
            "the last one that has it"
        );
        known.add(digest(MAX_PAYLOADS), record(0));
        assert!(
            known.get(&digest(0)).is_none()
                && known.get(&digest(1)).is_some()
                && known.get(&digest(MAX_PAYLOADS)).is_some()
        );
    }
}
