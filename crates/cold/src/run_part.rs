//! Parts of all keys, by their top bits: large runs have keys of one part only.
//!
//! Must not know: runs.

/// The number of parts.
pub(crate) const PARTS: usize = 8;

/// Returns the part of a key.
pub(crate) fn part_of(key: u64) -> usize {
    (key >> 61) as usize
}
