//! The program as its users meet it: exit codes, fields, messages.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod analytics;
mod archive;
mod classify;
mod config;
mod decide;
mod fetch;
mod full_disk;
mod log;
mod look_back;
mod maintain;
mod metrics;
mod migrating;
mod pocketbase;
mod rollout;
mod small_disk;
mod sources;
mod support;
mod town;
