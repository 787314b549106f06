//! An in-process broker with every fault of a real one, for tests and simulations.

mod broker;
mod global_evidence;
mod node;
mod work_queue;
mod work_queue_calls;

pub use broker::{Faults, InProcessBroker, SiteCall};
pub use node::InProcessNode;
