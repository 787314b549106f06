//! Any bytes as a record, a block or a snapshot that has passed its checksum: nothing panics, and
//! decoded data encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| match data.split_first() {
    Some((255, rest)) => fetchwise::journal::fuzzing::decode_block(rest),
    Some((way, rest)) if way % 2 == 0 => fetchwise::journal::fuzzing::decode_record(rest),
    Some((_, rest)) => fetchwise::journal::fuzzing::decode_snapshot(rest),
    None => {}
});
