//! The tests of the store's public API and its fault suite: crashes at every step, failing calls,
//! damage.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod basics;
mod crash;
mod damage;
mod decoders;
mod model;
