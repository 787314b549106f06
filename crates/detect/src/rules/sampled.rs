//! A table of pieces of four bytes, for a search that looks at every fourth or every second place of the text only.
//!
//! A string of seven bytes contains four neighbouring pieces. Wherever the string stands, exactly one of them begins at
//! a multiple of four. So with these four pieces in the table every occurrence is found once. The same holds for two
//! pieces of a string of five bytes and every second place.
//!
//! Must not know: patterns.

use std::ops::Range;

use crate::rules::prefilter::CORE;

/// Numbers of neighbouring pieces of each string, and so the distance of the places that are looked up.
pub(crate) const FOURTH: usize = 4;
pub(crate) const SECOND: usize = 2;
/// Bits of a piece's hash: the table takes 16 KiB, so it stays in the nearest cache.
const HASH_BITS: u32 = 17;
const WORDS: usize = 1 << (HASH_BITS - u64::BITS.ilog2());

/// The pieces.
#[derive(Debug)]
pub(crate) struct PieceTable {
    /// A bit for each hash that a piece has.
    bits: Box<[u64; WORDS]>,
    /// The pieces, sorted, and the range of each one's entries.
    pieces: Vec<(u32, Range<u32>)>,
}

impl PieceTable {
    /// Returns a table of `pieces`, which are sorted: equal ones get one range of their positions.
    pub(crate) fn new(sorted: impl Iterator<Item = [u8; CORE]>) -> Self {
        let mut table = Self { bits: Box::new([0; WORDS]), pieces: Vec::new() };
        for (at, piece) in sorted.map(u32::from_be_bytes).enumerate() {
            let at = at as u32;
            match table.pieces.last_mut() {
                Some((last, range)) if *last == piece => range.end = at + 1,
                _ => table.pieces.push((piece, at..at + 1)),
            }
            let (word, bit) = place(piece.swap_bytes());
            table.bits[word] |= 1 << bit;
        }
        table
    }

    /// Calls `found` with the offset and the entries of each piece that begins at a multiple of `STEP`, until it returns
    /// false. Returns whether to continue.
    #[inline]
    pub(crate) fn each<const STEP: usize>(
        &self,
        text: &[u8],
        mut found: impl FnMut(usize, Range<u32>) -> bool,
    ) -> bool {
        for (n, piece) in text.windows(CORE).step_by(STEP).filter_map(<[u8]>::first_chunk).enumerate() {
            let (word, bit) = place(u32::from_le_bytes(*piece));
            if self.bits[word] >> bit & 1 != 0
                && let Some(entries) = self.entries(*piece)
                && !found(n * STEP, entries)
            {
                return false;
            }
        }
        true
    }

    #[inline(never)]
    fn entries(&self, piece: [u8; CORE]) -> Option<Range<u32>> {
        let at = self.pieces.binary_search_by_key(&u32::from_be_bytes(piece), |(piece, _)| *piece).ok()?;
        self.pieces.get(at).map(|(_, range)| range.clone())
    }
}

/// Returns the word and the bit of a piece's hash.
#[inline]
fn place(piece: u32) -> (usize, u32) {
    let hash = piece.wrapping_mul(0x9E37_79B1) >> (u32::BITS - HASH_BITS);
    ((hash / u64::BITS) as usize, hash % u64::BITS)
}
