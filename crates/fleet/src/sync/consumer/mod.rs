//! The consumer: it stores messages of peers, learns from them once, and requests missing ones.

mod accept_messages;
mod gap_repair;
mod global_evidence;
mod limits;
mod rebalance;
mod site_handover;
mod snapshots;
mod status;
mod token_bucket;

pub(crate) use accept_messages::Consumer;
pub(crate) use snapshots::delete_faded_snapshots;
