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
use crate::evidence::{Learned, Observation};
use crate::selector::{SelectContext, Selector};
use fetchwise_types::time::Timestamp;
use schema::{AttemptColumns, ClampedAttempt, ColumnsRecord, RowBuffer, RowError};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Decodes `data` as a record. The first byte is the kind, the rest the payload.
pub fn decode_record(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    let mut payload = AlignedVec::<16>::new();
    payload.extend_from_slice(bytes);
    let kind = u16::from(*kind);
    if let Ok(Some(attempt)) = schema::attempt(kind, schema::VERSION, &payload) {
        let _ = (attempt.id(), attempt.link(), attempt.domain(), attempt.fetcher(), attempt.at());
        let selector = selector();
        let Learned { evidence, registry } = selector.learned();
        let shared = evidence.empty_like();
        evidence.observe_apart(&shared, &ClampedAttempt(attempt, NOW), registry);
        evidence.merge(&shared);
        evidence.retract(&ClampedAttempt(attempt, NOW), registry, true);
        ClampedAttempt(attempt, NOW).each_heuristic(&mut |_, _| {});
    }
    let Ok(entry) = schema::decode(kind, schema::VERSION, &payload) else { return };
    let Ok(encoded) = schema::encode(&entry) else { return };
    let again = schema::decode(encoded.kind, schema::VERSION, &encoded.payload);
    // Compared as text, because a NaN is not equal to itself.
    assert_eq!(again.ok().map(|again| format!("{again:?}")), Some(format!("{entry:?}")));
}

/// Unpacks `data` as a block of attempts: the number of records, the length of the hot part in
/// 8-byte words, the hot part, the cold part. Records that come out can be packed and come out
/// again.
pub fn decode_block(data: &[u8]) {
    let [records, words, parts @ ..] = data else { return };
    let (hot, cold) = parts.split_at(parts.len().min(usize::from(*words) * 8));
    let Some(records) = unpack(usize::from(*records), hot, cold) else { return };
    let aligned: Vec<(RecordRef<'_>, AlignedVec)> = records
        .iter()
        .map(|(record, payload)| (RecordRef { payload: &[], ..*record }, aligned(payload)))
        .collect();
    let again: Vec<RecordRef<'_>> =
        aligned.iter().map(|(record, payload)| RecordRef { payload, ..*record }).collect();
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
    let block = Block { schema: schema::VERSION, records, hot: &hot, cold };
    let add = &mut |record: RecordRef<'_>| {
        let RecordRef { kind, schema, key_hash, payload } = record;
        out.push((RecordRef { kind, schema, key_hash, payload: &[] }, payload.to_vec()));
    };
    let unpacked = schema::BLOCKS.unpack(&block, add).is_ok();
    // A replay reads the same block without making records.
    assert!(
        reads_in_columns(&block) || !unpacked,
        "a block that can be unpacked is refused in columns"
    );
    unpacked.then_some(out)
}

fn reads_in_columns(block: &Block<'_>) -> bool {
    let Ok(columns) = AttemptColumns::parse(OwnedBlock::new(block)) else { return false };
    let (Ok(mut reader), mut buffer) = (columns.reader(), RowBuffer::default()) else {
        return false;
    };
    (0..columns.keys().len()).all(|place| match reader.read(place, &mut buffer) {
        Ok(ColumnsRecord::Attempt(attempt)) => {
            attempt.each_heuristic(&mut |_, _| {});
            true
        }
        Ok(ColumnsRecord::Whole(_)) | Err(RowError::Record(_)) => true,
        Err(RowError::Block(_)) => false,
    })
}

/// Decodes `data` as the sections of a snapshot. Each section is a kind, a length in 8-byte words,
/// and that number of words.
pub fn decode_snapshot(data: &[u8]) {
    let Some(contents) = snapshot::decode_sections(&sections(data), 1) else { return };
    let encoded = contents.encode();
    let again: Vec<(u32, &[u8])> =
        encoded.iter().map(|(kind, bytes)| (*kind, bytes.as_slice())).collect();
    assert_eq!(
        snapshot::decode_sections(&again, 1).map(|c| format!("{c:?}")),
        Some(format!("{contents:?}"))
    );
    let selector = selector();
    let Learned { evidence, registry } = selector.learned();
    evidence.absorb(&contents.image, registry, contents.now);
    let url = url::Url::parse("https://example.org/a/b.pdf").ok();
    let _ = url.map(|url| selector.select(&url, &SelectContext::first_attempt(NOW)));
    let _ = evidence.image(registry, NOW, &contents.image.fetchers);
}

fn sections(mut data: &[u8]) -> Vec<(u32, &[u8])> {
    let mut sections = Vec::new();
    while let [kind, words, rest @ ..] = data {
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*words) * 8));
        sections.push((u32::from(*kind), bytes));
        data = rest;
    }
    sections
}

fn selector() -> Selector {
    match Selector::builder().around(NOW).build() {
        Ok(selector) => selector,
        Err(error) => panic!("the default half-life can be configured: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::snapshot::SnapshotContents;
    use super::*;
    use crate::evidence::evidence_snapshot::FADED;
    use fetchwise_types::attempt::Attempt;

    fn seeds() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/journal_decode")
    }

    /// Returns the sections of a small snapshot as the fuzz target reads them, the group of a
    /// domain last.
    fn snapshot_seed() -> Vec<u8> {
        let selector = selector();
        for n in 0..3 {
            let url = url::Url::parse(&format!("https://e.org/{n}.pdf")).unwrap();
            selector.observe(&Attempt::new(&url, "plain", NOW).unwrap().delivered());
        }
        let contents = SnapshotContents {
            image: selector.learned().evidence_snapshot(NOW, FADED),
            ..SnapshotContents::default()
        };
        let mut seed = vec![1];
        for (kind, bytes) in contents.encode().iter().filter(|(_, bytes)| bytes.len() <= 2040) {
            let words = bytes.len().div_ceil(8);
            // Only the last section may end within a word.
            if bytes.len() == words * 8 || *kind == snapshot::kind::ENTRY_GROUP && bytes[0] == 4 {
                seed.extend([*kind as u8, words as u8]);
                seed.extend_from_slice(bytes);
            }
        }
        seed
    }

    /// The target `journal_decode` begins with these. `FETCHWISE_BLESS=1` writes a missing
    /// snapshot.
    #[test]
    fn every_seed_is_decoded_as_the_fuzz_target_does() {
        if std::env::var_os("FETCHWISE_BLESS").is_some() && !seeds().join("snapshot").exists() {
            std::fs::write(seeds().join("snapshot"), snapshot_seed()).unwrap();
        }
        let mut decoded = 0;
        for seed in std::fs::read_dir(seeds()).unwrap() {
            let data = std::fs::read(seed.unwrap().path()).unwrap();
            match data.split_first() {
                Some((255, rest)) => decode_block(rest),
                Some((way, rest)) if way % 2 == 0 => decode_record(rest),
                Some((_, rest)) => decode_snapshot(rest),
                None => {}
            }
            decoded += 1;
        }
        assert!(decoded > 9, "{decoded}");
    }

    #[test]
    fn the_seeds_mean_something() {
        let data = std::fs::read(seeds().join("snapshot")).unwrap();
        let contents = snapshot::decode_sections(&sections(&data[1..]), 1).unwrap();
        assert!(contents.image.entries.len() > 1 && contents.image.fetchers == ["plain"]);
        let record = std::fs::read(seeds().join("attempt-full")).unwrap();
        let mut payload = AlignedVec::<16>::new();
        payload.extend_from_slice(&record[2..]);
        assert!(schema::decode(u16::from(record[1]), schema::VERSION, &payload).is_ok());
        let [_, records, words, parts @ ..] = &std::fs::read(seeds().join("block")).unwrap()[..]
        else {
            panic!()
        };
        let (hot, cold) = parts.split_at(usize::from(*words) * 8);
        assert!(
            unpack(usize::from(*records), hot, cold).is_some_and(|records| !records.is_empty())
        );
    }
}
