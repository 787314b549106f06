//! A broker within the process, with every fault that a real one can have: for tests and simulations.

mod broker;
mod global_evidence;
mod node;

pub use broker::{Faults, Memory};
pub use node::Node;
