//! File systems: the trait that the log needs, the machine's, and a simulated one for tests.

mod real;
#[cfg(feature = "sim")]
pub mod sim;
mod system;

pub use real::RealFs;
pub use system::{Fs, FsFile, LockAttempt, LockGuard, SyncSite};
pub(crate) use system::{read_full_at, sync, write_all_at};
