//! Fuzzing entry points of the decoders: any bytes in, no panic and no contradiction out.
//!
//! They stand for bytes that have passed a checksum.
//!
//! Owns: the way from any bytes to records and snapshots.
//!
//! Must not know: which fuzzer calls it.

use rkyv::util::AlignedVec;

use super::schema;
use super::snapshot;
use crate::evidence::Observation;
use crate::selector::{SelectContext, Selector};
use fetchwise_types::time::Timestamp;
use schema::ClampedAttempt;

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
