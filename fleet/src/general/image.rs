//! A general image: what one node's log has taught up to a position of what belongs to no one site, as bytes.
//!
//! Owns what is believed of one. Invariants: any bytes are read or refused, within bounded memory; what is read has nothing of a site in it,
//! and no more than its positions can have taught. The container is that of shares. Must not know where images are kept.

use bytes::Bytes;
use fetchwise::evidence::Share;
use fetchwise::time::Timestamp;

use crate::book::AHEAD_MAX_MS;
use crate::intervals::count;
use crate::share::{self, Head};

/// An image is not longer than this.
pub const BYTES_MAX: usize = (1 << 20) - 4096;
/// Nor are its columns, decompressed.
const RAW_MAX: u64 = 8 << 20;
/// Histories that an image may be of. A node has one, and one more for each backup that it was restored from.
const HISTORIES_MAX: usize = 10_000;

/// An image as bytes. Where it would be too long the keys that weigh least are left out.
///
/// # Errors
/// What the compressor says.
pub fn pack(head: &Head, share: &Share) -> std::io::Result<Bytes> {
    let mut general = share.general();
    loop {
        let packed = share::pack(head, &general)?;
        // The columns' length stands behind that of the head.
        let raw_len = packed.get(12..20).and_then(|len| len.first_chunk().copied()).map_or(0, u64::from_le_bytes);
        let fits = packed.len() <= BYTES_MAX && raw_len <= RAW_MAX;
        if fits || !general.lighten() {
            return Ok(packed);
        }
    }
}

/// Reads an image that the broker had at `at`.
///
/// # Errors
/// Says what is wrong with it.
pub fn unpack(bytes: &[u8], half_life_ms: u64, at: Timestamp) -> Result<(Head, Share), &'static str> {
    if bytes.len() > BYTES_MAX {
        return Err("it is too long");
    }
    let (head, share) = share::unpack_within(bytes, RAW_MAX)?;
    if head.half_life_ms != half_life_ms || share.half_life_ms().is_some_and(|ms| ms != half_life_ms) {
        return Err("its half-life is another one");
    }
    if head.covers.len() > HISTORIES_MAX || !head.covers.contains_key(&head.epoch) {
        return Err("it does not say what it is of");
    }
    if !share.is_general() {
        return Err("it has more in it than belongs to no one site");
    }
    let latest = at.as_millis().saturating_add(AHEAD_MAX_MS);
    if share.as_of().as_millis() > latest {
        return Err("it is of a time to come");
    }
    let positions = head.covers.values().fold(0u64, |sum, all| sum.saturating_add(count(all.runs().iter().copied())));
    if !share.is_of(positions, Timestamp::from_millis(latest)) {
        return Err("it weighs more than its attempts can");
    }
    Ok((head, share))
}
