//! An evidence snapshot: the evidence of one node's log up to a position, as bytes.
//!
//! Owns: the container and its validation.
//!
//! Invariants: any bytes are read or refused. The decompressed size stays in proportion to the
//! input.
//!
//! Must not know: where snapshots are stored.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use fetchwise::evidence::EvidenceSnapshot;
use fetchwise::journal::replication::{decode, encode};
use fetchwise::time::Timestamp;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::model::peer_link_states::{MAX_PER_NODE, StoredLink};
use crate::model::position::Position;
use crate::model::position_set::{Intervals, count};

const MAGIC: [u8; 4] = *b"FWs\x1a";
const MAJOR: u8 = 1;
const LEVEL: i32 = 3;
/// The maximum time in milliseconds by which evidence may be newer than the broker's timestamp.
pub const MAX_AHEAD_MS: i64 = 3_600_000;
/// The maximum compression ratio of columns of numbers. A higher ratio is an attempt to fill
/// memory.
const MAX_RATIO: u64 = 512;
/// The section with link states, alongside those of a log snapshot, and its maximum length.
const LINKS: u32 = 200;
const MAX_LINKS: usize = 8 << 20;
/// The maximum length of the head in bytes.
const MAX_HEAD: usize = 1 << 20;
/// The maximum number of epochs of a snapshot. A node has one epoch, and one more for each restore
/// from a backup.
const MAX_EPOCHS: usize = 10_000;

/// The head of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHead {
    /// The current epoch and its base.
    pub epoch: u32,
    /// See `epoch`.
    pub base: u64,
    /// The positions of each epoch that the snapshot covers.
    pub covers: BTreeMap<u32, Intervals>,
    /// Every position that is missing here was published after this message of the stream.
    pub incarnation: u64,
    /// See `incarnation`.
    pub seq: u64,
    /// The half-life of its weights.
    pub half_life_ms: u64,
    /// The tombstones that were applied before it was made, by [`tombstone_hash`].
    #[serde(default)]
    pub forgot: BTreeSet<u64>,
    /// The link states that may still matter. They travel in a separate section.
    #[serde(skip)]
    pub links: Vec<StoredLink>,
}

/// Returns the hash that identifies a domain forgotten up to a time.
pub fn tombstone_hash(domain: &str, until: Timestamp) -> u64 {
    xxh3_64_with_seed(domain.as_bytes(), until.as_millis() as u64)
}

impl SnapshotHead {
    /// Returns the stream position after which the missing positions were published.
    pub fn behind(&self) -> Position {
        Position { incarnation: self.incarnation, seq: self.seq }
    }

    /// Returns the number of positions that the snapshot claims to cover.
    pub fn positions(&self) -> u64 {
        self.covers
            .values()
            .fold(0u64, |sum, all| sum.saturating_add(count(all.runs().iter().copied())))
    }

    /// Returns the last covered position of the current epoch.
    pub fn position(&self) -> u64 {
        self.covers.get(&self.epoch).and_then(Intervals::top).unwrap_or(self.base)
    }
}

/// The note of a snapshot in the broker's listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotNote {
    /// The current epoch.
    pub epoch: u32,
    /// The last position that the snapshot covers in this epoch.
    pub position: u64,
}

/// Encodes a snapshot.
///
/// # Errors
/// Returns errors of the compressor.
pub fn pack(head: &SnapshotHead, share: &EvidenceSnapshot) -> std::io::Result<Bytes> {
    let (landmark_ms, half_life_ms, mut sections) = encode(share);
    if !head.links.is_empty() {
        sections.push((LINKS, serde_json::to_vec(&head.links)?));
    }
    let mut raw = Vec::new();
    raw.extend_from_slice(&landmark_ms.to_le_bytes());
    raw.extend_from_slice(&half_life_ms.to_le_bytes());
    for (kind, bytes) in &sections {
        raw.extend_from_slice(&kind.to_le_bytes());
        raw.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        raw.extend_from_slice(bytes);
    }
    let head = serde_json::to_vec(head)?;
    let frame = zstd::bulk::compress(&raw, LEVEL)?;
    let mut out = Vec::with_capacity(frame.len() + head.len() + 24);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[MAJOR, 0, 0, 0]);
    out.extend_from_slice(&(head.len() as u32).to_le_bytes());
    out.extend_from_slice(&(raw.len() as u64).to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(&frame);
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    Ok(out.into())
}

/// Decodes a snapshot.
///
/// # Errors
/// Returns what is wrong with it.
pub fn unpack(bytes: &[u8]) -> Result<(SnapshotHead, EvidenceSnapshot), &'static str> {
    unpack_within(bytes, u64::MAX)
}

/// Works like [`unpack`], for columns of at most `max_len` bytes.
pub(crate) fn unpack_within(
    bytes: &[u8],
    most: u64,
) -> Result<(SnapshotHead, EvidenceSnapshot), &'static str> {
    let (rest, crc) = bytes.split_last_chunk().ok_or("truncated")?;
    if !rest.starts_with(&MAGIC) {
        return Err("not an evidence snapshot");
    }
    if rest.get(4).is_none_or(|major| *major > MAJOR) {
        return Err("written by a newer release");
    }
    if u32::from_le_bytes(*crc) != crc32c::crc32c(rest) {
        return Err("checksum mismatch");
    }
    let lens = rest.get(8..20).ok_or("truncated")?;
    let (head_len, raw_len) = lens.split_first_chunk::<4>().ok_or("truncated")?;
    let head_len = u32::from_le_bytes(*head_len) as usize;
    let raw_len = raw_len.first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
    let body = rest.get(20..).unwrap_or_default();
    let (head, frame) =
        body.split_at_checked(head_len).filter(|_| head_len <= MAX_HEAD).ok_or("truncated")?;
    if raw_len > (frame.len() as u64).saturating_mul(MAX_RATIO).min(most) {
        return Err("decompresses to too much data");
    }
    let mut head: SnapshotHead = serde_json::from_slice(head).map_err(|_| "invalid head")?;
    let raw_len = usize::try_from(raw_len).map_err(|_| "decompresses to too much data")?;
    let raw = zstd::bulk::decompress(frame, raw_len).map_err(|_| "invalid frame")?;
    let (share, links) = sections(&raw).ok_or("inconsistent columns")?;
    if let Some(links) = links {
        let rows = Some(links)
            .filter(|links| links.len() <= MAX_LINKS)
            .map(serde_json::from_slice::<Vec<StoredLink>>);
        let rows = rows.and_then(Result::ok).filter(|rows| rows.len() <= MAX_PER_NODE);
        head.links = rows.ok_or("invalid link states")?;
    }
    Ok((head, share))
}

/// Validates a decoded evidence snapshot or global snapshot. `now` is the broker's time, if it is
/// known. A reader with a wrong clock must not take honest attempts for future ones.
///
/// The conditions hold for every honest log, however much of it was compacted, forgotten, evicted
/// or has faded. They do not detect a node that claims more positions than it has. Such a node
/// could as well publish that number of attempts.
///
/// # Errors
/// Returns the condition that does not hold.
pub fn validate(
    head: &SnapshotHead,
    share: &EvidenceSnapshot,
    half_life_ms: u64,
    now: Option<Timestamp>,
) -> Result<(), &'static str> {
    if head.half_life_ms != half_life_ms
        || share.half_life_ms().is_some_and(|ms| ms != half_life_ms)
    {
        return Err("different half-life");
    }
    if head.covers.len() > MAX_EPOCHS || !head.covers.contains_key(&head.epoch) {
        return Err("invalid coverage");
    }
    let latest = now.map_or(i64::MAX, |now| now.as_millis().saturating_add(MAX_AHEAD_MS));
    if share.as_of().as_millis() > latest {
        return Err("newer than the broker's time");
    }
    if !share.is_plausible_for(head.positions(), Timestamp::from_millis(latest)) {
        return Err("more weight than its attempts allow");
    }
    Ok(())
}

/// Splits the raw bytes into the columns and the section with link states.
fn sections(raw: &[u8]) -> Option<(EvidenceSnapshot, Option<&[u8]>)> {
    let (landmark_ms, rest) = raw.split_first_chunk()?;
    let (half_life_ms, mut rest) = rest.split_first_chunk()?;
    let mut sections = Vec::new();
    while !rest.is_empty() {
        let (kind, behind) = rest.split_first_chunk()?;
        let (len, behind) = behind.split_first_chunk()?;
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        let (bytes, behind) = behind.split_at_checked(len)?;
        sections.push((u32::from_le_bytes(*kind), bytes));
        rest = behind;
    }
    let links = sections.iter().find(|(kind, _)| *kind == LINKS).map(|(_, bytes)| *bytes);
    decode(i64::from_le_bytes(*landmark_ms), u64::from_le_bytes(*half_life_ms), &sections)
        .map(|share| (share, links))
}
