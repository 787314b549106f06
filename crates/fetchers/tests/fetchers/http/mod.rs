//! `HttpFetcher` against real servers on loopback: hyper where they keep to HTTP, bare sockets
//! where they do not.

mod address_guard;
mod as_browsers;
mod broken_responses;
mod content_coding;
mod cookies;
mod harness;
mod limits;
mod ordinary;
mod redirects;
mod signatures;
mod tls;
