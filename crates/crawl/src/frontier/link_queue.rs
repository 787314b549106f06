//! A queue of links in little memory: about ten bytes per link instead of the link itself.
//!
//! A link is named by its offset in the list, from which its text is read again. Neighbours in a
//! queue have similar numbers, so each link is stored as its differences from the one before.
//!
//! Invariants: links leave in the order in which they came. Memory is freed as links leave.
//!
//! Must not know: hosts, and what an offset refers to.

use std::collections::VecDeque;

/// The capacity of the first chunk of a queue; most hosts have few links.
const MIN_CHUNK: usize = 32;
/// The limit of a chunk's capacity. It bounds both the unused memory and the copying.
const MAX_CHUNK: usize = 512;
/// The maximum length of a stored link.
const MAX_BYTES: usize = 30;
/// The number of refusals that a queue stores; more count as this many.
const MAX_REFUSED: u8 = 3;

/// A link that was read and is not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuedLink {
    /// The offset of its text in the list, below 2^60.
    pub offset: u64,
    /// Its line or its position among the arguments, counted from 1.
    pub line: u64,
    /// Its number in the order of reading.
    pub number: u64,
    /// The number of refusals by its host because the crawl was too fast, at most three.
    pub refused: u8,
}

/// A queue of links. It is small itself, because there may be as many as hosts.
#[derive(Debug, Default)]
pub(super) struct LinkQueue {
    /// The chunk that links leave, which may be the only one. Like the last one it is outside of
    /// `middle`, where it would be one access to memory further away.
    first: Vec<u8>,
    /// The chunk that links come into; empty while `first` is the only one.
    last_chunk: Vec<u8>,
    middle: Option<Box<MiddleChunks>>,
    /// The number of bytes of the first chunk that have been read.
    read: u32,
    len: usize,
    /// The last link that came in, and the last one that went out.
    last: [LinkNumbers; 2],
}

/// The chunks between the first and the last one; few queues have any.
#[derive(Debug, Default)]
struct MiddleChunks(VecDeque<Vec<u8>>);

/// The numbers of a link that the next one is stored as the difference from.
#[derive(Clone, Copy, Debug, Default)]
struct LinkNumbers {
    offset: u64,
    line: u64,
    number: u64,
}

impl LinkQueue {
    /// Returns the number of links.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends a link.
    pub(super) fn push(&mut self, link: QueuedLink) {
        let (mut bytes, mut len) = ([0; MAX_BYTES], 0);
        let [last, _] = self.last;
        let offset =
            zigzag(link.offset, last.offset) << 2 | u64::from(link.refused.min(MAX_REFUSED));
        for value in [offset, zigzag(link.line, last.line), zigzag(link.number, last.number)] {
            write(value, &mut bytes, &mut len);
        }
        self.last[0] = LinkNumbers::of(link);
        self.len += 1;
        let (bytes, is_only) = (&bytes[..len], self.last_chunk.is_empty());
        let chunk = if is_only { &mut self.first } else { &mut self.last_chunk };
        if chunk.capacity() - chunk.len() >= len {
            return chunk.extend_from_slice(bytes);
        }
        let mut next = Vec::with_capacity((chunk.capacity() * 2).clamp(MIN_CHUNK, MAX_CHUNK));
        next.extend_from_slice(bytes);
        match (self.first.is_empty(), is_only) {
            (true, _) => self.first = next,
            (false, true) => self.last_chunk = next,
            (false, false) => {
                let full = std::mem::replace(&mut self.last_chunk, next);
                self.middle.get_or_insert_default().0.push_back(full);
            }
        }
    }

    /// Removes and returns the first link.
    pub(super) fn pop(&mut self) -> Option<QueuedLink> {
        if self.len == 0 {
            return None;
        }
        let (chunk, mut at) = (&self.first, self.read as usize);
        let [offset, line, number] = [(); 3].map(|()| read(chunk, &mut at));
        let is_read = at >= chunk.len();
        self.read = at as u32;
        let [_, last] = self.last;
        let refused = (offset & 3) as u8;
        let link = QueuedLink {
            offset: unzigzag(offset >> 2, last.offset),
            line: unzigzag(line, last.line),
            number: unzigzag(number, last.number),
            refused,
        };
        self.last[1] = LinkNumbers::of(link);
        self.len -= 1;
        if is_read {
            self.read = 0;
            let next = self.middle.as_mut().and_then(|middle| middle.0.pop_front());
            self.first = next.unwrap_or_else(|| std::mem::take(&mut self.last_chunk));
            self.middle = self.middle.take().filter(|middle| !middle.0.is_empty());
        }
        debug_assert_eq!(
            self.len == 0,
            self.first.is_empty(),
            "a queue without links has bytes, or the reverse"
        );
        Some(link)
    }
}

impl LinkNumbers {
    fn of(link: QueuedLink) -> Self {
        Self { offset: link.offset, line: link.line, number: link.number }
    }
}

/// Returns the difference of two numbers such that a small one in either direction is small.
fn zigzag(to: u64, from: u64) -> u64 {
    let difference = to.wrapping_sub(from);
    difference << 1 ^ (difference >> 63).wrapping_neg()
}

fn unzigzag(value: u64, from: u64) -> u64 {
    from.wrapping_add(value >> 1 ^ (value & 1).wrapping_neg())
}

/// Appends `value`, seven bits per byte.
fn write(mut value: u64, to: &mut [u8; MAX_BYTES], len: &mut usize) {
    while value >= 0x80 {
        to[*len] = (value & 0x7f) as u8 | 0x80;
        value >>= 7;
        *len += 1;
    }
    to[*len] = value as u8;
    *len += 1;
}

fn read(from: &[u8], at: &mut usize) -> u64 {
    let (mut value, mut shift) = (0, 0);
    while let Some(&byte) = from.get(*at) {
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 || shift > 63 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl LinkQueue {
        /// Returns the memory of all chunks.
        fn bytes(&self) -> usize {
            let middle = self.middle.iter().flat_map(|middle| &middle.0);
            middle.chain([&self.first, &self.last_chunk]).map(Vec::capacity).sum()
        }
    }

    fn link() -> impl Strategy<Value = QueuedLink> {
        (0..1_u64 << 60, any::<u64>(), any::<u64>(), 0..=MAX_REFUSED).prop_map(
            |(offset, line, number, refused)| QueuedLink { offset, line, number, refused },
        )
    }

    proptest! {
        #[test]
        fn links_leave_as_they_came(operations in prop::collection::vec(prop::option::of(link()), 0..200)) {
            let (mut queue, mut model) = (LinkQueue::default(), VecDeque::new());
            for operation in operations {
                match operation {
                    Some(link) => {
                        queue.push(link);
                        model.push_back(link);
                    }
                    None if model.is_empty() => prop_assert_eq!(queue.len(), 0),
                    None => prop_assert_eq!(queue.pop(), model.pop_front()),
                }
                prop_assert_eq!(queue.len(), model.len());
            }
            while let Some(link) = model.pop_front() {
                prop_assert_eq!(queue.pop(), Some(link));
            }
            prop_assert_eq!(queue.bytes(), 0, "an empty queue takes no memory");
        }
    }

    #[test]
    fn a_link_takes_ten_bytes() {
        let mut queue = LinkQueue::default();
        for n in 0..1_000 {
            // One line in a hundred thousand, as in a list whose hosts take turns.
            queue.push(QueuedLink {
                offset: n * 6_000_000,
                line: n * 100_000,
                number: n * 100_000,
                refused: 0,
            });
        }
        assert!(queue.bytes() <= 11_000, "{}", queue.bytes());
    }
}
