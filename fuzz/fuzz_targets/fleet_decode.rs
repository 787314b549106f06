//! Any bytes as a message, a share, a general image, or a node's state: nothing panics, memory stays in bounds, and what is read is written to the same.
#![no_main]

use fetchwise::time::Timestamp;
use fetchwise_fleet::codec::{BODY_MAX, Batch, Builder, peek};
use fetchwise_fleet::{general, share, state};
use libfuzzer_sys::fuzz_target;

/// A message whose checksum fits these columns, so that the fuzzer gets behind it.
fn message(data: &[u8]) -> Option<Vec<u8>> {
    let (head, raw) = data.split_at_checked(26)?;
    let mut body = b"FWf\x1a\x01\0\0\0\x01\0\0\0".to_vec();
    body.extend_from_slice(&u64::from(head[0]).max(1).to_le_bytes());
    body.extend_from_slice(&(u64::from(head[0]).max(1) + u64::from(head[1])).to_le_bytes());
    body.extend_from_slice(&head[2..10]);
    body.extend_from_slice(&u32::from(head[10]).to_le_bytes());
    let frame = zstd::bulk::compress(raw, 1).ok()?;
    body.extend_from_slice(&(raw.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&body), &frame);
    body.extend_from_slice(&crc.to_le_bytes());
    body.extend_from_slice(&frame);
    (body.len() <= BODY_MAX).then_some(body)
}

fn read(body: &[u8]) {
    let Ok(batch) = Batch::decode(body) else { return };
    let header = *batch.header();
    assert_eq!(peek(body).unwrap().first, header.first);
    let mut builder = Builder::new(header.epoch, header.base, header.first);
    batch.each(|position, fact, link| {
        while builder.next() < position {
            builder.skip();
        }
        builder.push(fact, link);
    });
    if header.last - header.first < 1 << 16 {
        while builder.next() <= header.last {
            builder.skip();
        }
        let (again, bytes) = builder.finish(header.top).unwrap();
        assert_eq!(again, header);
        assert_eq!(Batch::decode(&bytes).map(|batch| *batch.header()), Ok(header));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((way, rest)) = data.split_first() else { return };
    match way % 4 {
        0 => read(rest),
        1 => message(rest).iter().for_each(|body| read(body)),
        2 => {
            let mut bytes = rest.to_vec();
            let crc = crc32c::crc32c(&bytes);
            bytes.extend_from_slice(&crc.to_le_bytes());
            let _ = (share::unpack(rest), share::unpack(&bytes));
            let half_life_ms = 30 * 86_400_000;
            let at = Timestamp::from_millis(1_800_000_000_000);
            if let Ok((_, share)) = general::unpack(&bytes, half_life_ms, at) {
                assert!(share.is_general());
            }
        }
        _ => {
            if let Ok(state) = state::State::decode(rest) {
                assert_eq!(state::State::decode(&state.encode()), Ok(state));
            }
        }
    }
});
