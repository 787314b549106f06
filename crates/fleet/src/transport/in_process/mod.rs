//! An in-process broker with every fault of a real one, for tests and simulations.

mod broker;
mod global_evidence;
mod node;

pub use broker::{Faults, InProcessBroker};
pub use node::InProcessNode;
