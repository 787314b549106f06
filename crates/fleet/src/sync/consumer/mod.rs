//! The consumer: what others say is kept, learned from once, and asked for where it is missing.

mod gap_repair;
mod global_evidence;
mod limits;
mod reader;
mod rebalance;
mod site_handover;
mod snapshots;
mod status;
mod token_bucket;

pub(crate) use crate::sync::consumer::snapshots::drop_shares;
pub(crate) use reader::Consumer;
