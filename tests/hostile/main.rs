//! fetchwise under attack: hostile servers, pages, children, files, signals and limits, each named by its temper. What is
//! asserted is that a hostile peer costs bounded time and memory, gets nothing it may not have, and is recorded as what it is.
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
