//! The place of a link in the input, which its result names.

use fetchwise::pipeline::Link;
use xxhash_rust::xxh3::xxh3_128;

/// The place of an item in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputPosition {
    /// The position among the arguments, counted from 1.
    Position(u64),
    /// The line of a file or of stdin, counted from 1.
    Line(u64),
    /// A link that was added to the running crawl, counted from 1.
    Added(u64),
    /// A link of a work queue.
    Queue {
        /// Its number in the order of reading.
        number: u64,
        /// Its position in the queue.
        seq: u64,
        /// Whether another result of it may have been written before.
        is_redelivered: bool,
    },
}

impl InputPosition {
    /// Returns the line number; none for an argument.
    pub fn line(self) -> Option<u64> {
        if let Self::Line(line) = self { Some(line) } else { None }
    }

    /// Returns the position in the queue, and whether the link may have another result; none for
    /// other inputs.
    pub fn queue(self) -> Option<(u64, bool)> {
        if let Self::Queue { seq, is_redelivered, .. } = self {
            Some((seq, is_redelivered))
        } else {
            None
        }
    }

    /// Returns the number among the links that were added to the running crawl; none for a link of
    /// the input.
    pub fn added(self) -> Option<u64> {
        if let Self::Added(added) = self { Some(added) } else { None }
    }

    /// Returns its number among those of its kind.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Position(number) | Self::Line(number) | Self::Added(number) => number,
            Self::Queue { seq, .. } => seq,
        }
    }

    /// Returns the hash of a link that has this place.
    pub(crate) fn key_of(self, link: &Link) -> u128 {
        let id = link.id.as_deref().unwrap_or_default();
        xxh3_128(format!("{id}\0{}\0{:?}{:?}", link.url, self.line(), self.position()).as_bytes())
    }

    /// Returns the position; none for a line.
    pub fn position(self) -> Option<u64> {
        if let Self::Position(position) = self { Some(position) } else { None }
    }
}
