//! How texts and numbers are stored in a column.
//!
//! Owns: the conversion in both directions.
//!
//! Invariants: what was put is read back. Any bytes are read or refused.
//!
//! Must not know: which column holds what.
//!
//! The functions are marked for inlining. Their callers are in other modules, and a build without
//! LTO may not inline them there.

use fetchwise_log::{UnpackError, get_varint, put_varint};

use super::layout::COLUMNS;

#[inline]
pub(super) fn put_text(cold: &mut [Vec<u8>; COLUMNS], (lens, bytes): (usize, usize), text: &str) {
    put_varint(&mut cold[lens], text.len() as u64);
    cold[bytes].extend_from_slice(text.as_bytes());
}

#[inline]
pub(super) fn put_name(out: &mut Vec<u8>, name: &str) {
    put_varint(out, name.len() as u64);
    out.extend_from_slice(name.as_bytes());
}

/// Appends a number that may be negative: its distance from zero doubled, and one less for a
/// negative one.
#[inline]
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// A column being read. Past its end there is nothing.
#[derive(Clone, Copy, Default)]
pub(crate) struct Column<'a>(pub(crate) &'a [u8]);

impl<'a> Column<'a> {
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], UnpackError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(UnpackError::Bad)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], UnpackError> {
        self.take(N)?.try_into().map_err(|_| UnpackError::Bad)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, UnpackError> {
        self.array().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, UnpackError> {
        get_varint(&mut self.0).ok_or(UnpackError::Bad)
    }

    #[inline]
    pub(crate) fn len(&mut self) -> Result<usize, UnpackError> {
        usize::try_from(self.varint()?).map_err(|_| UnpackError::Bad)
    }

    #[inline]
    pub(crate) fn signed(&mut self) -> Result<i64, UnpackError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    #[inline]
    pub(crate) fn text(&mut self, len: usize) -> Result<&'a str, UnpackError> {
        std::str::from_utf8(self.take(len)?).map_err(|_| UnpackError::Bad)
    }

    #[inline]
    pub(crate) fn name(&mut self) -> Result<&'a str, UnpackError> {
        let len = self.len()?;
        self.text(len)
    }

    #[inline]
    pub(crate) fn flag(&mut self) -> Result<bool, UnpackError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(UnpackError::Bad),
        }
    }
}
