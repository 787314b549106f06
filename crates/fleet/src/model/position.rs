//! A position in the message stream of a broker.

/// A position in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The incarnation of the stream: a different number each time it is created.
    pub incarnation: u64,
    /// The sequence number of a message, from 1 on.
    pub seq: u64,
}
