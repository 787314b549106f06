//! The transport over NATS, against real brokers on loopback that are killed, stopped and wiped.
#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![allow(unreachable_pub, reason = "its modules are used by other crates' tests")]

mod conformance;
mod faults;
mod hosts;
mod servers;
mod setup;
