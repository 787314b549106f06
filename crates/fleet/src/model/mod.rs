//! The data of a fleet: node ids, position sets, messages, peer states and snapshots.
//!
//! Invariants: pure values without I/O.
//!
//! Must not know: brokers and tasks.

pub mod codec;
pub mod evidence_snapshot;
pub mod global_evidence;
pub mod heartbeat;
pub mod lease_proof;
pub mod node_id;
pub mod options;
pub mod outliers;
pub mod peer_link_states;
pub mod peer_state;
pub mod position;
pub mod position_set;
pub mod rendezvous;
