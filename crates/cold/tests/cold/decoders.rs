//! Random bytes as every part of a store, for builds without a fuzzer.

use fetchwise_cold::fuzzing::{decode_forged_run, decode_manifest, decode_run};
use fetchwise_log::fs::sim::Rng;

use crate::model::{report, scaled};

#[test]
fn no_bytes_make_a_decoder_panic_or_hang() {
    let rounds = scaled(2000, 20_000, 200_000);
    let mut entries = 0;
    let mut rng = Rng::new(12);
    for _ in 0..rounds {
        // Most bytes are small: numbers of entries, short gaps, lengths.
        let len = rng.below(600);
        let bound = [4, 20, 256][rng.below(3) as usize];
        let bytes: Vec<u8> = (0..len).map(|_| rng.below(bound) as u8).collect();
        entries += decode_forged_run(&bytes);
        decode_manifest(&bytes);
        decode_run(&bytes);
    }
    assert!(entries as u64 > rounds, "only {entries} entries: the bytes are refused too early");
    report("decoders on random bytes with right checksums", rounds);
}
