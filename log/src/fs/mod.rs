//! File systems: the trait that a store on disk needs, the machine's, and a simulated one for
//! tests.

mod real;
#[cfg(feature = "sim")]
pub mod sim;
mod system;

pub use real::RealFs;
pub use system::{
    Fs, FsFile, LockAttempt, LockGuard, SyncSite, create_dir_durably, publish, read_full_at, sync,
    write_all_at,
};
