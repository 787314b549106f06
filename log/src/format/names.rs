//! File names, as specified in FORMAT.md section 1.
//!
//! Owns: formatting and parsing of names.
//!
//! Invariant: a formatted name parses to the same numbers; any other spelling is not a name of the
//! log.
//!
//! Must not know: which files exist.

/// Returns the name of a segment.
pub(crate) fn segment_name(number: u32, first_seq: u64) -> String {
    format!("seg-{number:08x}-{first_seq:016x}.fwl")
}

/// Parses number and first sequence number from a segment's name.
pub(crate) fn parse_segment_name(name: &str) -> Option<(u32, u64)> {
    let (number, first_seq) = name.strip_prefix("seg-")?.strip_suffix(".fwl")?.split_once('-')?;
    Some((u32::try_from(hex(number, 8)?).ok()?, hex(first_seq, 16)?))
}

/// Returns the name of a snapshot.
pub(crate) fn snapshot_name(covers_seq: u64, generation: u32) -> String {
    format!("snap-{covers_seq:016x}-{generation:08x}.fws")
}

/// Parses sequence number and generation from a snapshot's name.
pub(crate) fn parse_snapshot_name(name: &str) -> Option<(u64, u32)> {
    let (covers, generation) = name.strip_prefix("snap-")?.strip_suffix(".fws")?.split_once('-')?;
    Some((hex(covers, 16)?, u32::try_from(hex(generation, 8)?).ok()?))
}

/// Parses a number of exactly `digits` lower-case hex digits.
fn hex(text: &str, digits: usize) -> Option<u64> {
    let is_hex =
        text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_hex { u64::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_to_what_they_were_made_of_and_other_spellings_are_none() {
        for (a, b) in [(1, 1), (u32::MAX, u64::MAX), (0xabc, 0xdef)] {
            assert_eq!(parse_segment_name(&segment_name(a, b)), Some((a, b)));
            assert_eq!(parse_snapshot_name(&snapshot_name(b, a)), Some((b, a)));
        }
        for other in [
            "seg-0000000A-000000000000000a.fwl",
            "seg-+0000001-0000000000000001.fwl",
            "seg-1-1.fwl",
            "seg-.fwl",
        ] {
            assert_eq!(parse_segment_name(other), None, "{other}");
        }
        for other in [
            "snap-000000000000000A-00000001.fws",
            "snap-000000000000000a-+0000001.fws",
            "snap-a-1.fws",
        ] {
            assert_eq!(parse_snapshot_name(other), None, "{other}");
        }
    }
}
