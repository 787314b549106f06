//! The program with other programs: a real Chromium, NATS, nginx, Prometheus, warcio and pywb.
//! `make test-system` installs and runs them.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![allow(unreachable_pub, reason = "the brokers are those of the fleet's own tests")]

mod archive;
#[cfg(feature = "fleet")]
#[path = "../../../fleet/tests/nats/servers.rs"]
mod brokers;
mod dashboard;
#[path = "../program/serve/description.rs"]
#[allow(dead_code, reason = "the tests of the server use the rest")]
mod description;
#[cfg(target_os = "linux")]
mod faulty_disk;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(feature = "fleet")]
mod fleet_queue;
#[path = "../common/identity_costs.rs"]
#[allow(dead_code, reason = "the tests of the program use the rest")]
mod identity_costs;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(feature = "fleet")]
mod prometheus;
#[cfg(feature = "fleet")]
#[path = "../../../fleet/tests/nats/proxy.rs"]
mod proxy;
#[cfg(feature = "fleet")]
mod serve_fleet;
#[path = "../program/serve/server.rs"]
#[allow(dead_code, reason = "the tests of the server use the rest")]
mod server;
mod signed_crawl;
#[path = "../common/support.rs"]
#[allow(dead_code, reason = "the other tests of the program use the rest")]
mod support;
