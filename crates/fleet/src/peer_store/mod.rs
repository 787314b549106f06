//! `peers/`: everything received from peers, as a log alongside the node's own.
//!
//! Owns: what is stored of peers, and what of it counts.
//!
//! Must not know: brokers.

mod apply;
mod fold;
mod global_evidence;
pub mod node_state;
mod offline;
mod record;
mod scan;
mod site_rows;
mod snapshots;
mod store;

pub use fold::FOLDER;
pub(crate) use fold::MAX_EVIDENCE_BYTES;
pub use offline::{ForgottenEvidence, forget};
pub use scan::{ScanReport, scan_attempts};
pub(crate) use site_rows::part_of;
pub(crate) use snapshots::{FadedNode, PeerSnapshotter, with_own_past};
pub use snapshots::{PeerSnapshotReport, load_peers};
pub(crate) use store::PeerStore;
