//! A node's part in a fleet: the handle, and the two tasks behind it.

mod generals;
mod handle;
mod reads;
mod shared;
mod writes;

pub use handle::Fleet;
