//! `peers/`: everything received from peers, as a log alongside the node's own.
//!
//! Owns: what is stored of peers, and what of it counts.
//!
//! Must not know: brokers.

mod background_snapshot;
mod fold;
mod fold_visitors;
mod forget_offline;
mod global_evidence;
pub mod own_state_file;
mod owned_sites;
mod record;
mod scan;
mod store;

pub(crate) use background_snapshot::{FadedNode, PeerSnapshotter, with_own_past};
pub use background_snapshot::{PeerSnapshotReport, load_peers};
pub use fold::FOLDER;
pub(crate) use fold::MAX_EVIDENCE_BYTES;
pub use forget_offline::{ForgottenEvidence, forget};
pub(crate) use owned_sites::part_of;
pub use scan::{ScanReport, scan_attempts};
pub(crate) use store::PeerStore;
