//! fetchwise under attack: hostile servers, pages, children, files, signals and limits, each named
//! by its temper. A hostile peer must cost bounded time and memory, must get nothing that it may
//! not have, and must be recorded correctly.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod child;
mod files;
mod floods;
mod limits;
mod page;
mod server;
mod signals;
mod support;
mod tempers;
