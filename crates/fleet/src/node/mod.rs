//! A running node of a fleet: the handle and the tasks behind it.

mod handle;
mod own_scope_task;
mod publish_task;
mod read_task;
mod shared;

pub use handle::Fleet;
