//! The program as a server: every line of its contract, hostile clients, and what is left after a kill.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![allow(unreachable_pub, reason = "the brokers are those of the fleet's own tests")]

mod attempts;
#[cfg(feature = "fleet")]
#[path = "../../../fleet/tests/nats/servers.rs"]
mod brokers;
mod clients;
mod contract;
mod description;
#[cfg(feature = "fleet")]
mod fleet;
mod forget;
mod full_disk;
mod hostile;
mod release;
mod reload;
mod rollout;
mod server;
#[path = "../cli/small_disk.rs"]
mod small_disk;
mod tokens;
mod upkeep;
mod visits;
