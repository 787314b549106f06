//! A page as sets of bits, sixty-four bytes at a time: where markup begins, where tags may end, what is white space, what
//! text cannot be counted byte by byte, and where attributes that hide their element may be. Knows bytes, not HTML.

use wide::u8x16;

/// Bytes in a block.
pub(crate) const BLOCK: usize = 64;

/// The bits of one block; bit n stands for the byte at `base + n`. Bytes beyond the end of the page are in no set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Where it begins, a multiple of [`BLOCK`].
    base: usize,
    /// `<`.
    pub(crate) angle: u64,
    /// `>`, `"` and `'`.
    pub(crate) ends: u64,
    /// White space as HTML has it.
    pub(crate) space: u64,
    /// `&` and what is not ASCII.
    pub(crate) odd: u64,
    /// `dd` and `yl`, where they begin: attributes without them are neither `hidden` nor `style`.
    pub(crate) hides: u64,
}

impl Block {
    /// The first block of `text`.
    pub(crate) fn first(text: &[u8]) -> Self {
        let mut block = Self { base: 0, angle: 0, ends: 0, space: 0, odd: 0, hides: 0 };
        block.read(text, 0);
        block
    }

    /// Makes this the block that holds the byte at `at`, if it is not; returns where it begins.
    #[inline]
    pub(crate) fn seek(&mut self, text: &[u8], at: usize) -> usize {
        let base = at & !(BLOCK - 1);
        if base != self.base {
            self.read(text, base);
        }
        base
    }

    /// Field by field: a block that is moved as a whole would be waited for.
    fn read(&mut self, text: &[u8], base: usize) {
        let mut filled = [0; BLOCK];
        let bytes = match text.get(base..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => bytes,
            None => {
                // Filled up with bytes that are in no set.
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
            // A tab and a carriage return are one bit apart.
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

/// The bits from `n` on.
#[inline]
pub(crate) const fn from(n: usize) -> u64 {
    !0 << (n % BLOCK)
}

/// The bits below `n`, which is at most [`BLOCK`].
#[inline]
pub(crate) const fn below(n: usize) -> u64 {
    if n >= BLOCK { !0 } else { (1 << n) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_the_sets_it_belongs_to() {
        let text: Vec<u8> = (0..=255u8).chain([b'<', b' ']).collect();
        let mut block = Block::first(&text);
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
    fn what_hides_is_hinted_at_wherever_it_stands() {
        for name in ["hidden", "style"] {
            for before in 0..2 * BLOCK {
                let text = [vec![b'-'; before], name.as_bytes().to_vec()].concat();
                let mut block = Block::first(&text);
                let hinted = (0..text.len()).step_by(BLOCK).any(|at| {
                    block.seek(&text, at);
                    block.hides != 0
                });
                assert!(hinted, "{name} behind {before} bytes");
            }
        }
        for name in [" href=", " class=", " id=", " content=", " type=", " data-id=", "d", "y", "l", "dy"] {
            assert_eq!(Block::first(name.as_bytes()).hides, 0, "{name}");
        }
    }

    #[test]
    fn nothing_is_beyond_the_end() {
        for len in 0..BLOCK {
            let text = vec![b'<'; len];
            let block = Block::first(&text);
            assert_eq!(block.angle, below(len));
            assert_eq!((block.ends, block.space, block.odd), (0, 0, 0));
        }
    }

    #[test]
    fn a_block_is_read_again_after_a_jump() {
        let text = [vec![b'a'; 200], vec![b'<'; 3]].concat();
        let mut block = Block::first(&text);
        assert_eq!(block.seek(&text, 202), 192);
        assert_eq!(block.angle, 0b111 << 8);
        assert_eq!(block.seek(&text, 3), 0);
        assert_eq!(block.angle, 0);
        assert_eq!((from(64), from(66), below(64)), (!0, !0 << 2, !0));
    }
}
