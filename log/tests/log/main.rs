//! The tests of the log's public API and its fault suite: crashes at every step, damage, full and
//! failing disks, killed processes.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod basics;
mod common;
mod crash;
mod damage;
mod fuzz_smoke;
mod golden;
mod imports;
mod losses;
mod maintenance;
mod model;
mod packing;
mod process;
#[cfg(unix)]
mod real_disk;
