//! A general image: what one node's log has taught up to a position of what belongs to no one site, as bytes.
//!
//! Owns what is believed of one. Invariants: any bytes are read or refused, within bounded memory; what is read has nothing of a site in it,
//! and no more than its positions can have taught. The container is that of shares. Must not know where images are kept.

use bytes::Bytes;
use fetchwise::evidence::Share;
use fetchwise::time::Timestamp;

use crate::model::evidence_snapshot;
use crate::model::evidence_snapshot::Head;

/// An image is not longer than this.
pub const BYTES_MAX: usize = (1 << 20) - 4096;
/// Nor are its columns, decompressed.
const RAW_MAX: u64 = 8 << 20;

/// An image as bytes. Where it would be too long the keys that weigh least are left out.
///
/// # Errors
/// What the compressor says.
pub fn pack(head: &Head, share: &Share) -> std::io::Result<Bytes> {
    let mut general = share.general();
    loop {
        let packed = evidence_snapshot::pack(head, &general)?;
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
    let (head, share) = evidence_snapshot::unpack_within(bytes, RAW_MAX)?;
    if !share.is_general() {
        return Err("it has more in it than belongs to no one site");
    }
    evidence_snapshot::believe(&head, &share, half_life_ms, Some(at))?;
    Ok((head, share))
}
