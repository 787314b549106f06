//! Bit masks of a page, 64 bytes at a time: where markup begins, where tags may end, white space,
//! text that cannot be counted byte by byte, and attributes that may hide their element.
//!
//! A block is read with vectors of 16 bytes, or of 32 if the processor has AVX2, which is found out
//! at run time.
//!
//! Must not know: HTML, only bytes.

#[cfg(target_arch = "x86_64")]
use fearless_simd::{Avx2, Level, Simd, SimdBase, SimdMask, u8x32};
use wide::u8x16;

/// Bytes in a block.
pub(crate) const BLOCK: usize = 64;

/// The masks of one block; bit n is the byte at `base + n`. Bytes beyond the end of the page are in
/// no mask.
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
    /// The proof that the processor has AVX2.
    #[cfg(target_arch = "x86_64")]
    avx2: Option<Avx2>,
}

/// The places of single bytes in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Places {
    angle: u64,
    ends: u64,
    space: u64,
    odd: u64,
    d: u64,
    y: u64,
    l: u64,
}

impl ByteMasks {
    /// Reads the first block of `text`.
    pub(crate) fn first(text: &[u8]) -> Self {
        let mut block = Self {
            base: 0,
            angle: 0,
            ends: 0,
            space: 0,
            odd: 0,
            hides: 0,
            #[cfg(target_arch = "x86_64")]
            avx2: Level::new().as_avx2(),
        };
        block.read(text, 0);
        block
    }

    /// Moves to the block that contains the byte at `at`, unless it is there; returns the block's
    /// offset.
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
        let Places { angle, ends, space, odd, d, y, l } = self.places(bytes);
        self.base = base;
        self.angle = angle;
        self.ends = ends;
        self.space = space;
        self.odd = odd;
        let next = |byte| u64::from(text.get(base + BLOCK) == Some(&byte)) << (BLOCK - 1);
        self.hides = (d & (d >> 1 | next(b'd'))) | (y & (l >> 1 | next(b'l')));
    }

    #[inline(always)]
    fn places(&self, bytes: &[u8; BLOCK]) -> Places {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = self.avx2 {
            return places_by_32(avx2, bytes);
        }
        places_by_16(bytes)
    }
}

#[inline(always)]
fn places_by_16(bytes: &[u8; BLOCK]) -> Places {
    let mut places = Places::default();
    for (n, part) in bytes.as_chunks::<16>().0.iter().enumerate() {
        let v = u8x16::new(*part);
        let is = |byte: u8| v.simd_eq(u8x16::splat(byte));
        let at = 16 * n;
        places.angle |= u64::from(is(b'<').to_bitmask()) << at;
        places.ends |= u64::from((is(b'>') | is(b'"') | is(b'\'')).to_bitmask()) << at;
        // A tab and a carriage return differ in one bit.
        let tab = (v | u8x16::splat(4)).simd_eq(u8x16::splat(b'\r'));
        places.space |= u64::from((is(b' ') | is(b'\n') | is(0x0C) | tab).to_bitmask()) << at;
        places.odd |= u64::from((is(b'&') | v).to_bitmask()) << at;
        places.d |= u64::from(is(b'd').to_bitmask()) << at;
        places.y |= u64::from(is(b'y').to_bitmask()) << at;
        places.l |= u64::from(is(b'l').to_bitmask()) << at;
    }
    places
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn places_by_32(avx2: Avx2, bytes: &[u8; BLOCK]) -> Places {
    avx2.vectorize(
        #[inline(always)]
        || {
            let mut places = Places::default();
            for (n, part) in bytes.as_chunks::<32>().0.iter().enumerate() {
                let v = u8x32::from_slice(avx2, part);
                let is = |byte: u8| v.simd_eq(u8x32::splat(avx2, byte));
                let at = 32 * n;
                places.angle |= is(b'<').to_bitmask() << at;
                places.ends |= (is(b'>') | is(b'"') | is(b'\'')).to_bitmask() << at;
                let tab = (v | u8x32::splat(avx2, 4)).simd_eq(u8x32::splat(avx2, b'\r'));
                places.space |= (is(b' ') | is(b'\n') | is(0x0C) | tab).to_bitmask() << at;
                places.odd |= (is(b'&') | v.simd_ge(u8x32::splat(avx2, 0x80))).to_bitmask() << at;
                places.d |= is(b'd').to_bitmask() << at;
                places.y |= is(b'y').to_bitmask() << at;
                places.l |= is(b'l').to_bitmask() << at;
            }
            places
        },
    )
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

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn both_widths_find_the_same_places() {
        let Some(avx2) = Level::new().as_avx2() else { return };
        // Every byte at every place, among others.
        for shift in 0..=255_u8 {
            for stride in [1, 3, 7, 251_u8] {
                let bytes =
                    std::array::from_fn(|at| shift.wrapping_add((at as u8).wrapping_mul(stride)));
                assert_eq!(places_by_32(avx2, &bytes), places_by_16(&bytes));
            }
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
        for name in
            [" href=", " class=", " id=", " content=", " type=", " data-id=", "d", "y", "l", "dy"]
        {
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
