//! `HttpFetcher` against real servers on loopback: hyper where they keep to HTTP, bare sockets where they do not.
#![cfg(feature = "pipeline")]
#![allow(clippy::unwrap_used)]

mod broken;
mod coding;
mod cookies;
mod guard;
mod harness;
mod limits;
mod ordinary;
mod redirects;
mod tls;
