//! Reading: a directory as a chain of segments, segments as frames, frames as records. Takes no
//! lock.

mod bounds;
pub(crate) mod catalog;
pub(crate) mod chain;
pub(crate) mod progress;
pub(crate) mod reader;
pub(crate) mod resume_mark;
pub(crate) mod scan;
pub(crate) mod segment_check;
pub(crate) mod sharded_replay;
pub(crate) mod snapshot;
pub(crate) mod times;
pub(crate) mod unpack;
