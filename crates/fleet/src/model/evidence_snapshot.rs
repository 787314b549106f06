//! A share: what one origin's log has taught up to a position, as bytes.
//!
//! Owns the container, and what is believed of one. Invariant: any bytes are read or refused, and what they are decompressed to stays in
//! proportion to them. Must not know where shares are kept.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use fetchwise::evidence::Share;
use fetchwise::journal::replication::{decode, encode};
use fetchwise::time::Timestamp;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::model::intervals::{Intervals, count};
use crate::model::links::{Kept, OF_ONE_MAX};
use crate::transport::Position;

const MAGIC: [u8; 4] = *b"FWs\x1a";
const MAJOR: u8 = 1;
const LEVEL: i32 = 3;
/// Nothing is believed that is of a time so much later than when the broker had it, in milliseconds.
pub const AHEAD_MAX_MS: i64 = 3_600_000;
/// Columns of numbers do not get smaller than this; what claims to was made to fill memory.
const RATIO_MAX: u64 = 512;
/// The section with states of links, beside those of a snapshot; what it may be long.
const LINKS: u32 = 200;
const LINKS_MAX: usize = 8 << 20;
/// What the head may be long.
const HEAD_MAX: usize = 1 << 20;
/// Histories that a share may be of. A node has one, and one more for each backup that it was restored from.
const HISTORIES_MAX: usize = 10_000;

/// What a share says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The history that goes on, and its base.
    pub epoch: u32,
    /// See `epoch`.
    pub base: u64,
    /// Which positions of each history are in it.
    pub covers: BTreeMap<u32, Intervals>,
    /// What is not in it was published behind this message of the stream.
    pub incarnation: u64,
    /// See `incarnation`.
    pub seq: u64,
    /// The half-life that its weights fade by.
    pub half_life_ms: u64,
    /// What was forgotten before it was made, by [`forgot`].
    #[serde(default)]
    pub forgot: BTreeSet<u64>,
    /// What became of links that may still matter. In a section of its own.
    #[serde(skip)]
    pub links: Vec<Kept>,
}

/// What stands for a domain that is forgotten up to a time.
pub fn forgot(domain: &str, until: Timestamp) -> u64 {
    xxh3_64_with_seed(domain.as_bytes(), until.as_millis() as u64)
}

impl Head {
    /// What is not in it was published behind this.
    pub fn behind(&self) -> Position {
        Position { incarnation: self.incarnation, seq: self.seq }
    }

    /// How many positions it says that it is of.
    pub fn positions(&self) -> u64 {
        self.covers.values().fold(0u64, |sum, all| sum.saturating_add(count(all.runs().iter().copied())))
    }

    /// The last position of the present history that is in it.
    pub fn position(&self) -> u64 {
        self.covers.get(&self.epoch).and_then(Intervals::top).unwrap_or(self.base)
    }
}

/// What stands beside a share in the broker's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The history that goes on.
    pub epoch: u32,
    /// What it covers of it.
    pub position: u64,
}

/// A share as bytes.
///
/// # Errors
/// What the compressor says.
pub fn pack(head: &Head, share: &Share) -> std::io::Result<Bytes> {
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

/// Reads a share.
///
/// # Errors
/// Says what is wrong with it.
pub fn unpack(bytes: &[u8]) -> Result<(Head, Share), &'static str> {
    unpack_within(bytes, u64::MAX)
}

/// As [`unpack`], of a share whose columns are `most` bytes long at most.
pub(crate) fn unpack_within(bytes: &[u8], most: u64) -> Result<(Head, Share), &'static str> {
    let (rest, crc) = bytes.split_last_chunk().ok_or("it is cut off")?;
    if !rest.starts_with(&MAGIC) {
        return Err("it is no share");
    }
    if rest.get(4).is_none_or(|major| *major > MAJOR) {
        return Err("a newer release has written it");
    }
    if u32::from_le_bytes(*crc) != crc32c::crc32c(rest) {
        return Err("its checksum does not fit");
    }
    let lens = rest.get(8..20).ok_or("it is cut off")?;
    let (head_len, raw_len) = lens.split_first_chunk::<4>().ok_or("it is cut off")?;
    let head_len = u32::from_le_bytes(*head_len) as usize;
    let raw_len = raw_len.first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
    let body = rest.get(20..).unwrap_or_default();
    let (head, frame) = body.split_at_checked(head_len).filter(|_| head_len <= HEAD_MAX).ok_or("it is cut off")?;
    if raw_len > (frame.len() as u64).saturating_mul(RATIO_MAX).min(most) {
        return Err("it would grow too large");
    }
    let mut head: Head = serde_json::from_slice(head).map_err(|_| "its head makes no sense")?;
    let raw_len = usize::try_from(raw_len).map_err(|_| "it would grow too large")?;
    let raw = zstd::bulk::decompress(frame, raw_len).map_err(|_| "its frame makes no sense")?;
    let (share, links) = sections(&raw).ok_or("its columns do not add up")?;
    if let Some(links) = links {
        let rows = Some(links).filter(|links| links.len() <= LINKS_MAX).map(serde_json::from_slice::<Vec<Kept>>);
        let rows = rows.and_then(Result::ok).filter(|rows| rows.len() <= OF_ONE_MAX);
        head.links = rows.ok_or("its states of links make no sense")?;
    }
    Ok((head, share))
}

/// Whether what was read is to be believed: whole shares and general images alike. `now` is the broker's time, as far as it is known:
/// a reader whose own clock is wrong must not take honest attempts for such of times to come.
///
/// What is asked is what holds of every honest log, whatever of it was compacted, forgotten, evicted or has faded. A node that says it has
/// more positions than it has is not found out by this; it could as well publish as many facts.
///
/// # Errors
/// Says what cannot be.
pub fn believe(head: &Head, share: &Share, half_life_ms: u64, now: Option<Timestamp>) -> Result<(), &'static str> {
    if head.half_life_ms != half_life_ms || share.half_life_ms().is_some_and(|ms| ms != half_life_ms) {
        return Err("its half-life is another one");
    }
    if head.covers.len() > HISTORIES_MAX || !head.covers.contains_key(&head.epoch) {
        return Err("it does not say what it is of");
    }
    let latest = now.map_or(i64::MAX, |now| now.as_millis().saturating_add(AHEAD_MAX_MS));
    if share.as_of().as_millis() > latest {
        return Err("it is of a time to come");
    }
    if !share.is_of(head.positions(), Timestamp::from_millis(latest)) {
        return Err("it weighs more than its attempts can");
    }
    Ok(())
}

/// What columns say, and the section with states of links.
fn sections(raw: &[u8]) -> Option<(Share, Option<&[u8]>)> {
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
    decode(i64::from_le_bytes(*landmark_ms), u64::from_le_bytes(*half_life_ms), &sections).map(|share| (share, links))
}
