//! A global snapshot: the part of one node's evidence that belongs to no single site, as bytes.
//!
//! Owns: its validation. The container is that of evidence snapshots.
//!
//! Invariants: any bytes are read or refused within bounded memory. A decoded snapshot has no
//! evidence of a site, and no more weight than its positions allow.
//!
//! Must not know: where snapshots are stored.

use bytes::Bytes;
use fetchwise::evidence::EvidenceSnapshot;
use fetchwise::time::Timestamp;

use crate::model::evidence_snapshot;
use crate::model::evidence_snapshot::SnapshotHead;

/// The maximum length of a global snapshot in bytes.
pub const MAX_BYTES: usize = (1 << 20) - 4096;
/// The maximum length of its decompressed columns in bytes.
const MAX_RAW: u64 = 8 << 20;

/// Encodes a global snapshot. If it is too long, the keys with the least weight are dropped.
///
/// # Errors
/// Returns errors of the compressor.
pub fn pack(head: &SnapshotHead, share: &EvidenceSnapshot) -> std::io::Result<Bytes> {
    let mut general = share.global_part();
    loop {
        let packed = evidence_snapshot::pack(head, &general)?;
        // The length of the columns follows the length of the head.
        let raw_len = packed
            .get(12..20)
            .and_then(|len| len.first_chunk().copied())
            .map_or(0, u64::from_le_bytes);
        let fits = packed.len() <= MAX_BYTES && raw_len <= MAX_RAW;
        if fits || !general.lighten() {
            return Ok(packed);
        }
    }
}

/// Decodes a global snapshot that the broker stored at `at`.
///
/// # Errors
/// Returns what is wrong with it.
pub fn unpack(
    bytes: &[u8],
    half_life_ms: u64,
    at: Timestamp,
) -> Result<(SnapshotHead, EvidenceSnapshot), &'static str> {
    if bytes.len() > MAX_BYTES {
        return Err("too long");
    }
    let (head, share) = evidence_snapshot::unpack_within(bytes, MAX_RAW)?;
    if !share.is_global() {
        return Err("contains evidence of sites");
    }
    evidence_snapshot::validate(&head, &share, half_life_ms, Some(at))?;
    Ok((head, share))
}
