//! Writing: the queue that callers append to, the thread that writes it to segments, and recovery
//! at open.

pub(crate) mod ack_future;
pub(crate) mod ack_tracker;
pub(crate) mod batch;
pub(crate) mod directory_lock;
pub(crate) mod log;
#[cfg(feature = "sim")]
pub(crate) mod manual_log;
pub(crate) mod options;
pub(crate) mod recover;
pub(crate) mod segment;
pub(crate) mod shared;
pub(crate) mod sync;
pub(crate) mod worker;
pub(crate) mod writer;
mod young_segment;
