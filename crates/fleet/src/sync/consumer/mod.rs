//! The consumer: it stores messages of peers, learns from them once, and requests missing ones.

mod gap_repair;
mod global_evidence;
mod limits;
mod reader;
mod rebalance;
mod site_handover;
mod snapshots;
mod status;
mod token_bucket;

pub(crate) use reader::Consumer;
pub(crate) use snapshots::delete_faded_snapshots;
