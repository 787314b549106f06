//! Fault suite, row 12: the fuzzer's entry points on random, mutated and hand-made bytes. The real
//! fuzzing is `cargo fuzz`.

use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, Oracle, options, report, scaled};
use fetchwise_log::ManualLog;
use fetchwise_log::format::{AlignedBuf, BlockHead, Records, unpack_block};
use fetchwise_log::fs::sim::{Rng, SimFs};
use fetchwise_log::fuzzing::{
    PlainBlocks, decode_block, decode_frames, decode_manifests, decode_records, decode_segment,
    decode_snapshot,
};

fn real_segment() -> Vec<u8> {
    let fs = SimFs::new(1);
    let mut oracle = Oracle::default();
    let (mut log, _) = ManualLog::open(Arc::new(fs.clone()), Path::new(DIR), &options()).unwrap();
    for _ in 0..10 {
        oracle.append(&mut log, &mut Rng::new(1));
        log.sync().unwrap();
    }
    log.close().unwrap();
    fs.read(&crate::common::last_segment(&fs)).unwrap()
}

#[test]
fn no_bytes_make_a_decoder_panic_or_hang() {
    let rounds = scaled(3000, 20_000, 100_000);
    let mut rng = Rng::new(1);
    let segment = real_segment();
    for _ in 0..rounds {
        let len = rng.below(400) as usize;
        let noise: Vec<u8> = (0..len)
            .map(|_| if rng.below(3) == 0 { rng.draw() as u8 } else { rng.below(3) as u8 })
            .collect();
        decode_segment(&noise);
        decode_frames(&noise);
        decode_snapshot(&noise);
        decode_manifests(&noise);
        decode_records(&noise);
        // Frames of a real segment with changed fields and corrected checksums.
        let mut body = segment[4096..].to_vec();
        for _ in 0..rng.below(4) + 1 {
            let at = rng.below(body.len() as u64) as usize;
            body[at] = rng.draw() as u8;
        }
        decode_frames(&body);
    }
    report(
        "12",
        "decoders on random bytes and on real frames with changed fields",
        rounds * 6,
        0,
        0,
    );
}

/// The seed with which the fuzz target `log_decode` begins to change blocks.
#[test]
fn the_seeds_of_blocks_are_blocks() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/log_decode");
    let bare = std::fs::read(seeds.join("block.bin")).unwrap();
    assert_eq!(bare[0], 0, "the mode for bare bytes");
    decode_block(&bare[1..]);
    let head = BlockHead::decode(&bare[1..], 6).unwrap();
    let aligned = AlignedBuf::copy_of(&bare[1..]);
    let mut out = AlignedBuf::default();
    unpack_block(&head, aligned.bytes(), &PlainBlocks, &mut out).unwrap();
    assert_eq!(Records::new(out.bytes()).count(), 6);
    // The same as a frame: mode, born_len, epoch, shape of the frame, length, payload, numbers that
    // it spans.
    let forged = std::fs::read(seeds.join("block-frame.bin")).unwrap();
    let [1, _, 1, 32, len, payload @ .., 6] = &forged[..] else { panic!("{forged:?}") };
    assert_eq!((usize::from(*len), payload), (payload.len(), &bare[1..]));
}

#[test]
fn extreme_fields_are_refused_or_read() {
    for value in [0u64, 1, u64::MAX, u64::MAX / 2, 1 << 63, 4096] {
        for field in (8..48).step_by(8) {
            let mut frame = vec![0; 96];
            frame[36] = 1;
            frame[field..field + 8].copy_from_slice(&value.to_le_bytes());
            decode_frames(&frame);
        }
    }
}
