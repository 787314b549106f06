//! Tests of each fetcher with servers, services and child processes on loopback, and of the stores
//! for bodies.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod archive;
#[cfg(unix)]
mod command;
mod filtering_proxy;
mod flaresolverr;
mod http;
mod search_api;
#[path = "../common/signed.rs"]
mod signed;
mod upstream_proxy;
mod warc;
#[cfg(unix)]
mod yt_dlp;
