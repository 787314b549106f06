//! The program as its users meet it: the demo, the testbed and the simulator.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod demo;
mod simulate;
mod support;
mod testbed;
