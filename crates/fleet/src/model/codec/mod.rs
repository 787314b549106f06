//! Messages: a run of positions of one origin's log, and what stands at them, as bytes.
//!
//! Owns the format that `log/FORMAT.md` describes. Invariants: what was encoded decodes to the same; any bytes decode or are refused
//! without a panic, and no more memory is taken for them than the bounds below allow. Must not know who sends or reads a message.

mod names;
mod read;
mod write;

pub use read::{Batch, DecodeError, peek};
pub use write::Builder;

use fetchwise::attempt::Hint;
use fetchwise::time::Timestamp;

/// A message's length at most, so that it fits into a broker's 1 MiB with its headers.
pub const BODY_MAX: usize = (1 << 20) - 4096;
/// What a message is decompressed to at most.
pub const RAW_MAX: usize = 8 << 20;
/// Facts in a message at most, and states of links.
pub const FACTS_MAX: usize = 65_536;
/// The version of the format that this release writes.
pub const VERSION: (u8, u8) = (1, 0);

pub(crate) const MAGIC: [u8; 4] = *b"FWf\x1a";
pub(crate) const HEADER_LEN: usize = 48;
/// The longest name of anything.
const NAME_MAX: usize = 4096;
/// Heuristics of one fact at most.
const TAGS_MAX: usize = 256;
/// What a decoded message's names may take together.
const ARENA_MAX: usize = 16 << 20;

/// What a message says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which history of the origin.
    pub epoch: u32,
    /// The position that this history begins behind.
    pub base: u64,
    /// The first position that it accounts for.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// The time of its newest fact; `i64::MIN` without one.
    pub newest: Timestamp,
    /// How many facts there are.
    pub count: u32,
    /// The last position that its origin has published in this history: greater than `last` in what is sent again.
    pub top: u64,
}

/// The kinds of columns. A reader skips those that it does not know.
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
    /// How many there are, with 0, which is none.
    pub(crate) const COUNT: usize = 21;
}

/// What stands for a hint: 0 for none.
pub(crate) fn code_of(hint: Option<Hint>) -> u8 {
    hint.map_or(0, |hint| hint as u8 + 1)
}

/// The hint that a number stands for; one that this release does not know is none.
pub(crate) fn hint_of(code: u8) -> Option<Hint> {
    match code {
        1 => Some(Hint::Blocked),
        2 => Some(Hint::Empty),
        3 => Some(Hint::Timeout),
        4 => Some(Hint::Unknown),
        _ => None,
    }
}

/// The bits of a fact.
pub(crate) mod bit {
    pub(crate) const SUCCESS: u8 = 1;
    pub(crate) const BANNED: u8 = 2;
    pub(crate) const FILE: u8 = 4;
    /// Its weight is not 1, and stands in a column of its own.
    pub(crate) const WEIGHT: u8 = 8;
    /// Where its hint begins: 0 for none, else its number and one more.
    pub(crate) const HINT_SHIFT: u8 = 4;
}

/// How the values of a type of heuristics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Domain,
    Site,
    /// Of the domain, and something behind it.
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

/// The number in a text that is written in no other way.
pub(crate) fn number_of(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    let is_plain = text.bytes().all(|b| b.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    (is_plain && number < u32::MAX).then_some(number)
}

/// The domain without its first label.
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
