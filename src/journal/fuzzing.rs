//! Fuzzing entry points of the decoders: any bytes in, no panic and no contradiction out.
//!
//! They stand for bytes that have passed a checksum.
//!
//! Owns: the way from any bytes to records and snapshots.
//!
//! Must not know: which fuzzer calls it.

use fetchwise_log::{Block, BlockFormat as _, OwnedBlock, RecordRef};
use rkyv::util::AlignedVec;

use super::schema;
use super::snapshot;
use crate::evidence::Observation;
use crate::selector::{SelectContext, Selector};
use fetchwise_types::time::Timestamp;
use schema::{AttemptColumns, ClampedAttempt, ColumnsRecord, RowBuffer, RowError};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Decodes `data` as a record in each version of the schema. The first byte is the kind, the rest the payload.
pub fn decode_record(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    let mut payload = AlignedVec::<16>::new();
    payload.extend_from_slice(bytes);
    let kind = u16::from(*kind);
    for version in 1..=schema::version_of(kind) {
        decode_version(kind, version, &payload);
    }
}

fn decode_version(kind: u16, version: u16, payload: &[u8]) {
    if let Ok(Some(attempt)) = schema::attempt(kind, version, payload) {
        let _ = (attempt.id(), attempt.link(), attempt.domain(), attempt.fetcher(), attempt.at());
        let selector = selector();
        let shared = selector.empty_shared_evidence();
        selector.observe_apart(&shared, &ClampedAttempt(attempt, NOW));
        selector.merge_shared_evidence(&shared);
        selector.retract(&ClampedAttempt(attempt, NOW), true);
        ClampedAttempt(attempt, NOW).each_heuristic(&mut |_, _| {});
    }
    let Ok(entry) = schema::decode(kind, version, payload) else { return };
    let Ok(encoded) = schema::encode(&entry) else { return };
    let again = schema::decode(encoded.kind, schema::version_of(encoded.kind), &encoded.payload);
    // Compared as text, because a NaN is not equal to itself.
    assert_eq!(again.ok().map(|again| format!("{again:?}")), Some(format!("{entry:?}")));
}

/// Unpacks `data` as a block of attempts: the number of records, the length of the hot part in 8-byte words, the hot
/// part, the cold part. Records that come out can be packed and come out again.
pub fn decode_block(data: &[u8]) {
    let [records, words, parts @ ..] = data else { return };
    let (hot, cold) = parts.split_at(parts.len().min(usize::from(*words) * 8));
    let Some(records) = unpack(usize::from(*records), hot, cold) else { return };
    let aligned: Vec<(RecordRef<'_>, AlignedVec)> =
        records.iter().map(|(record, payload)| (RecordRef { payload: &[], ..*record }, aligned(payload))).collect();
    let again: Vec<RecordRef<'_>> = aligned.iter().map(|(record, payload)| RecordRef { payload, ..*record }).collect();
    let Some(packed) = schema::pack_exactly(&again) else { return };
    let back = unpack(again.len(), &packed.hot, &packed.cold);
    assert!(back.is_some_and(|back| back == records), "what was packed comes out different");
}

fn aligned(bytes: &[u8]) -> AlignedVec {
    let mut all = AlignedVec::new();
    all.extend_from_slice(bytes);
    all
}

fn unpack(records: usize, hot: &[u8], cold: &[u8]) -> Option<Vec<(RecordRef<'static>, Vec<u8>)>> {
    let (hot, mut out) = (aligned(hot), Vec::new());
    let block = Block { schema: 3, records, hot: &hot, cold };
    let add = &mut |record: RecordRef<'_>| {
        let RecordRef { kind, schema, key_hash, payload } = record;
        out.push((RecordRef { kind, schema, key_hash, payload: &[] }, payload.to_vec()));
    };
    let unpacked = schema::BLOCKS.unpack(&block, add).is_ok();
    // A replay reads the same block without making records.
    assert!(reads_in_columns(&block) || !unpacked, "a block that can be unpacked is refused in columns");
    unpacked.then_some(out)
}

fn reads_in_columns(block: &Block<'_>) -> bool {
    let Ok(columns) = AttemptColumns::parse(OwnedBlock::new(block)) else { return false };
    let (Ok(mut reader), mut buffer) = (columns.reader(), RowBuffer::default()) else { return false };
    (0..columns.keys().len()).all(|place| match reader.read(place, &mut buffer) {
        Ok(ColumnsRecord::Attempt(attempt)) => {
            attempt.each_heuristic(&mut |_, _| {});
            true
        }
        Ok(ColumnsRecord::Whole(_)) | Err(RowError::Record(_)) => true,
        Err(RowError::Block(_)) => false,
    })
}

/// Decodes `data` as the sections of a snapshot. Each section is a kind, a length in 8-byte words, and that number of
/// words.
pub fn decode_snapshot(mut data: &[u8]) {
    let mut sections = Vec::new();
    while let [kind, words, rest @ ..] = data {
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*words) * 8));
        sections.push((u32::from(*kind), bytes));
        data = rest;
    }
    let Some(mut contents) = snapshot::decode_sections(&sections, 1) else { return };
    // The first releases kept no daily counts. Encoding writes whatever there is.
    contents.lacks_days = false;
    let encoded = contents.encode();
    let again: Vec<(u32, &[u8])> = encoded.iter().map(|(kind, bytes)| (*kind, bytes.as_slice())).collect();
    assert_eq!(snapshot::decode_sections(&again, 1).map(|c| format!("{c:?}")), Some(format!("{contents:?}")));
    let selector = selector();
    selector.absorb(&contents.image, contents.now);
    let url = url::Url::parse("https://example.org/a/b.pdf").ok();
    let _ = url.map(|url| selector.select(&url, &SelectContext::first_attempt(NOW)));
    let _ = selector.image(NOW, &contents.image.fetchers);
}

fn selector() -> Selector {
    match Selector::builder().around(NOW).build() {
        Ok(selector) => selector,
        Err(error) => panic!("the default half-life can be configured: {error}"),
    }
}

#[cfg(test)]
mod tests {
    /// The target `journal_decode` begins with these.
    #[test]
    fn every_seed_is_decoded_as_the_fuzz_target_does() {
        let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/journal_decode");
        let mut decoded = 0;
        for seed in std::fs::read_dir(seeds).unwrap() {
            let data = std::fs::read(seed.unwrap().path()).unwrap();
            match data.split_first() {
                Some((255, rest)) => super::decode_block(rest),
                Some((way, rest)) if way % 2 == 0 => super::decode_record(rest),
                Some((_, rest)) => super::decode_snapshot(rest),
                None => {}
            }
            decoded += 1;
        }
        assert!(decoded > 10, "{decoded}");
    }

    #[test]
    fn the_seed_with_a_group_of_entries_is_a_snapshot() {
        let seed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/journal_decode/snapshot-group");
        let data = std::fs::read(seed).unwrap();
        let (fetchers, group) = data[1..].split_at(2 + 8 * usize::from(data[2]));
        let sections = [(u32::from(fetchers[0]), &fetchers[2..]), (u32::from(group[0]), &group[2..])];
        let contents = super::snapshot::decode_sections(&sections, 1).unwrap();
        assert_eq!((contents.image.entries.len(), contents.image.cells.len()), (1, 1));
    }
}
