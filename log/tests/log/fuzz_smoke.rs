//! Fault suite, row 12: the fuzzer's entry points on random, mutated and hand-made bytes. The real fuzzing is `cargo
//! fuzz`.

use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, Oracle, options, report, scaled};
use fetchwise_log::ManualLog;
use fetchwise_log::fs::sim::{Rng, SimFs};
use fetchwise_log::fuzzing::{decode_frames, decode_manifests, decode_records, decode_segment, decode_snapshot};

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
        let noise: Vec<u8> =
            (0..len).map(|_| if rng.below(3) == 0 { rng.draw() as u8 } else { rng.below(3) as u8 }).collect();
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
    report("12", "decoders on random bytes and on real frames with changed fields", rounds * 6, 0, 0);
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
