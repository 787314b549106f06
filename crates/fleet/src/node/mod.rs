//! A running node of a fleet: the handle and the tasks behind it.

mod global_task;
mod handle;
mod publish_task;
mod read_task;
mod shared;

pub use handle::Fleet;
