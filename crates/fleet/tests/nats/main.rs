//! The transport over NATS, against real brokers on loopback that are killed, stopped and wiped.
//!
//! The tests need the nats-server that `.ci/nats-server` installs, and start it only if
//! `FETCHWISE_SYSTEM_TESTS` is set. Otherwise they print `SKIPPED` and pass.
#![allow(clippy::unwrap_used, reason = "an error fails the test")]
#![allow(unreachable_pub, reason = "the tests of other crates use its modules")]

mod authentication;
mod bench_hot_path;
mod bench_join;
mod broker_faults;
mod cluster_faults;
#[path = "../fleet/common/mod.rs"]
mod common;
mod conformance;
mod fault_matrix;
mod full_disk;
mod links;
mod node_control;
mod node_process;
mod pauses;
mod provisioning;
mod proxy;
mod scope_own;
mod scope_own_faults;
mod servers;
#[path = "../../../cli/tests/common/small_disk.rs"]
mod small_disk;
mod soak_eight_nodes;
mod version_skew;
