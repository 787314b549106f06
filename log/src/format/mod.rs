//! The bytes of segments, as FORMAT.md lays them out. Pure functions of bytes.

mod segment;

pub use segment::*;
