//! Bit masks of a page, 64 bytes at a time: where markup begins, where tags may end, white space, text that cannot be
//! counted byte by byte, and attributes that may hide their element.
//!
//! Must not know: HTML, only bytes.

use wide::u8x16;

/// Bytes in a block.
pub(crate) const BLOCK: usize = 64;

/// The masks of one block; bit n is the byte at `base + n`. Bytes beyond the end of the page are in no mask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteMasks {
    /// Offset of its first byte, a multiple of [`BLOCK`].
    base: usize,
    /// `<`.
    pub(crate) angle: u64,
    /// `>`, `"` and `'`.
    pub(crate) ends: u64,
    /// White space of HTML.
    pub(crate) space: u64,
    /// `&` and bytes outside ASCII.
    pub(crate) odd: u64,
    /// First bytes of `dd` and `yl`: attributes without them are neither `hidden` nor `style`.
    pub(crate) hides: u64,
}

impl ByteMasks {
    /// Reads the first block of `text`.
    pub(crate) fn first(text: &[u8]) -> Self {
        let mut block = Self { base: 0, angle: 0, ends: 0, space: 0, odd: 0, hides: 0 };
        block.read(text, 0);
        block
    }

    /// Moves to the block that contains the byte at `at`, unless it is there; returns the block's offset.
    #[inline]
    pub(crate) fn seek(&mut self, text: &[u8], at: usize) -> usize {
        let base = at & !(BLOCK - 1);
        if base != self.base {
            self.read(text, base);
        }
        base
    }

    /// Writes each field separately: moving the struct as a whole would stall.
    fn read(&mut self, text: &[u8], base: usize) {
        let mut filled = [0; BLOCK];
        let bytes = match text.get(base..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => bytes,
            None => {
                // Padded with bytes that are in no mask.
                let rest = text.get(base..).unwrap_or_default();
                filled.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                &filled
            }
        };
        let (mut angle, mut ends, mut space, mut odd) = (0, 0, 0, 0);
        let (mut d, mut y, mut l) = (0, 0, 0);
        for (n, part) in bytes.as_chunks::<16>().0.iter().enumerate() {
            let v = u8x16::new(*part);
            let is = |byte: u8| v.simd_eq(u8x16::splat(byte));
            let at = 16 * n;
            angle |= u64::from(is(b'<').to_bitmask()) << at;
            ends |= u64::from((is(b'>') | is(b'"') | is(b'\'')).to_bitmask()) << at;
            // A tab and a carriage return differ in one bit.
            let tab = (v | u8x16::splat(4)).simd_eq(u8x16::splat(b'\r'));
            space |= u64::from((is(b' ') | is(b'\n') | is(0x0C) | tab).to_bitmask()) << at;
            odd |= u64::from((is(b'&') | v).to_bitmask()) << at;
            d |= u64::from(is(b'd').to_bitmask()) << at;
            y |= u64::from(is(b'y').to_bitmask()) << at;
            l |= u64::from(is(b'l').to_bitmask()) << at;
        }
        self.base = base;
        self.angle = angle;
        self.ends = ends;
        self.space = space;
        self.odd = odd;
        let next = |byte| u64::from(text.get(base + BLOCK) == Some(&byte)) << (BLOCK - 1);
        self.hides = (d & (d >> 1 | next(b'd'))) | (y & (l >> 1 | next(b'l')));
    }
}

/// Returns the mask of bit `n` and above.
#[inline]
pub(crate) const fn from(n: usize) -> u64 {
    !0 << (n % BLOCK)
}

/// Returns the mask of the bits below `n`, which is at most [`BLOCK`].
#[inline]
pub(crate) const fn below(n: usize) -> u64 {
    if n >= BLOCK { !0 } else { (1 << n) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_the_right_masks() {
        let text: Vec<u8> = (0..=255u8).chain([b'<', b' ']).collect();
        let mut block = ByteMasks::first(&text);
        for (at, byte) in text.iter().enumerate() {
            let base = block.seek(&text, at);
            let has = |set: u64| set >> (at - base) & 1 == 1;
            assert_eq!(has(block.angle), *byte == b'<', "{byte:#x}");
            assert_eq!(has(block.ends), b">\"'".contains(byte), "{byte:#x}");
            assert_eq!(has(block.space), b" \t\r\n\x0C".contains(byte), "{byte:#x}");
            assert_eq!(has(block.odd), *byte == b'&' || *byte >= 0x80, "{byte:#x}");
        }
    }

    #[test]
    fn hiding_attributes_are_hinted_at_any_offset() {
        for name in ["hidden", "style"] {
            for before in 0..2 * BLOCK {
                let text = [vec![b'-'; before], name.as_bytes().to_vec()].concat();
                let mut block = ByteMasks::first(&text);
                let hinted = (0..text.len()).step_by(BLOCK).any(|at| {
                    block.seek(&text, at);
                    block.hides != 0
                });
                assert!(hinted, "{name} behind {before} bytes");
            }
        }
        for name in [" href=", " class=", " id=", " content=", " type=", " data-id=", "d", "y", "l", "dy"] {
            assert_eq!(ByteMasks::first(name.as_bytes()).hides, 0, "{name}");
        }
    }

    #[test]
    fn masks_are_empty_beyond_the_end() {
        for len in 0..BLOCK {
            let text = vec![b'<'; len];
            let block = ByteMasks::first(&text);
            assert_eq!(block.angle, below(len));
            assert_eq!((block.ends, block.space, block.odd), (0, 0, 0));
        }
    }

    #[test]
    fn a_block_is_read_again_after_a_jump() {
        let text = [vec![b'a'; 200], vec![b'<'; 3]].concat();
        let mut block = ByteMasks::first(&text);
        assert_eq!(block.seek(&text, 202), 192);
        assert_eq!(block.angle, 0b111 << 8);
        assert_eq!(block.seek(&text, 3), 0);
        assert_eq!(block.angle, 0);
        assert_eq!((from(64), from(66), below(64)), (!0, !0 << 2, !0));
    }
}
