//! Writing: the queue that callers append to, the thread that writes it to segments, and what an open does first.

pub(crate) mod ack;
pub(crate) mod acknowledgement;
pub(crate) mod batch;
pub(crate) mod home;
pub(crate) mod log;
pub(crate) mod options;
pub(crate) mod recover;
pub(crate) mod segment;
pub(crate) mod shared;
#[cfg(feature = "sim")]
pub(crate) mod stepper;
pub(crate) mod sync;
pub(crate) mod worker;
pub(crate) mod writer;
