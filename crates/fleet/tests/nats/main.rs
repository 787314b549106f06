//! The transport over NATS, against real brokers on loopback that are killed, stopped and wiped.
#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![allow(unreachable_pub, reason = "its modules are used by other crates' tests")]

#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod disk;
mod divided;
mod eight;
mod faults;
mod hosts;
mod hot;
mod links;
mod newer;
mod nodes;
mod own;
mod process;
mod proxy;
mod rows;
mod secrets;
mod servers;
mod setup;
#[path = "../../../cli/tests/cli/small_disk.rs"]
mod small_disk;
mod start;
mod suite;
