//! The binary format of messages: a run of positions of one node's log and the attempts at them.
//!
//! Owns: the format that `log/FORMAT.md` describes.
//!
//! Invariants: decoding returns what was encoded. Any bytes decode or are refused without a panic,
//! and decoding takes no more memory than the limits below allow.
//!
//! Must not know: who sends or reads a message.

mod names;
mod read;
mod write;

pub use read::{Batch, DecodeError, peek};
pub use write::Builder;

use fetchwise::attempt::Hint;
use fetchwise::time::Timestamp;

/// The maximum length of a message in bytes. With its headers it fits into a broker's 1 MiB.
pub const MAX_BODY: usize = (1 << 20) - 4096;
/// The maximum length of a decompressed message in bytes.
pub const MAX_RAW: usize = 8 << 20;
/// The maximum number of attempts in a message, and of link states.
pub const MAX_ATTEMPTS: usize = 65_536;
/// The version of the format that this release writes.
pub const VERSION: (u8, u8) = (1, 0);

pub(crate) const MAGIC: [u8; 4] = *b"FWf\x1a";
pub(crate) const HEADER_LEN: usize = 48;
/// The maximum length of a name in bytes.
const MAX_NAME: usize = 4096;
/// The maximum number of heuristics of one attempt.
const MAX_TAGS: usize = 256;
/// The maximum size of all names of a decoded message in bytes.
const MAX_ARENA: usize = 16 << 20;

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The epoch of the node's log.
    pub epoch: u32,
    /// The last position before this epoch.
    pub base: u64,
    /// The first position that the message covers.
    pub first: u64,
    /// The last position that the message covers.
    pub last: u64,
    /// The time of the newest attempt; `i64::MIN` without attempts.
    pub newest: Timestamp,
    /// The number of attempts.
    pub count: u32,
    /// The last position that the node has published in this epoch. It is greater than `last` in a
    /// retransmitted message.
    pub top: u64,
}

/// The kinds of columns. A reader skips unknown kinds.
pub(crate) mod column {
    pub(crate) const POSITIONS: u8 = 1;
    pub(crate) const TIMES: u8 = 2;
    pub(crate) const NAME_LENS: u8 = 3;
    pub(crate) const NAMES: u8 = 4;
    pub(crate) const FETCHERS: u8 = 5;
    pub(crate) const BITS: u8 = 6;
    pub(crate) const DURATIONS: u8 = 7;
    pub(crate) const WEIGHTS: u8 = 8;
    pub(crate) const PATTERNS: u8 = 9;
    pub(crate) const SHAPES: u8 = 10;
    pub(crate) const DOMAINS: u8 = 11;
    pub(crate) const SITES: u8 = 12;
    pub(crate) const PARTS: u8 = 13;
    pub(crate) const NUMBERS: u8 = 14;
    pub(crate) const VALUES: u8 = 15;
    pub(crate) const LINKS: u8 = 16;
    pub(crate) const BASE: u8 = 17;
    pub(crate) const TOP: u8 = 18;
    pub(crate) const LINK_STATES: u8 = 19;
    pub(crate) const EGRESS: u8 = 20;
    /// The number of kinds, including 0, which is unused.
    pub(crate) const COUNT: usize = 21;
}

/// Returns the code of a hint; 0 for none.
pub(crate) fn code_of(hint: Option<Hint>) -> u8 {
    hint.map_or(0, |hint| hint as u8 + 1)
}

/// Returns the hint of a code; none for a code that this release does not know.
pub(crate) fn hint_of(code: u8) -> Option<Hint> {
    match code {
        1 => Some(Hint::Blocked),
        2 => Some(Hint::Empty),
        3 => Some(Hint::Timeout),
        4 => Some(Hint::Unknown),
        _ => None,
    }
}

/// The flags of an attempt.
pub(crate) mod bit {
    pub(crate) const SUCCESS: u8 = 1;
    pub(crate) const BANNED: u8 = 2;
    pub(crate) const FILE: u8 = 4;
    /// The weight is not 1 and is stored in a separate column.
    pub(crate) const WEIGHT: u8 = 8;
    /// The offset of the hint's code.
    pub(crate) const HINT_SHIFT: u8 = 4;
}

/// The encoding of the values of a heuristic type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Domain,
    Site,
    /// The domain followed by a suffix.
    Part,
    Number,
    Value,
}

impl Style {
    pub(crate) fn of(kind: &str) -> Self {
        match kind {
            "domain" => Self::Domain,
            "site" => Self::Site,
            "domain_path" | "domain_suffix" => Self::Part,
            "path_depth" => Self::Number,
            _ => Self::Value,
        }
    }
}

/// Returns the number of a text, if the text is its canonical form.
pub(crate) fn number_of(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    let is_plain =
        text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    (is_plain && number < u32::MAX).then_some(number)
}

/// Returns the domain without its first label.
pub(crate) fn parent_of(domain: &str) -> Option<&str> {
    domain.split_once('.').map(|(_, parent)| parent)
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests;
