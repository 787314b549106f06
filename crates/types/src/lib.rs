//! The types that the crates of fetchwise share: attempts, heuristics, fetch results, fetchers,
//! decisions, responses and time.
//!
//! Embed [`fetchwise`](https://docs.rs/fetchwise), which re-exports every module of this crate
//! under the same name.
//!
//! Owns: the types that cross a crate boundary, and their form as JSON (feature `json`).
//!
//! Invariants: no I/O; no type here holds a lock or a handle of the operating system.
//!
//! Must not know: how evidence is stored, how a page is fetched, and how a decision is made.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod attempt;
pub mod cache_use;
pub mod consent;
pub mod decision;
pub mod fetch_result;
#[cfg(feature = "json")]
pub mod fleet_status;
pub mod heuristic;
pub mod provenance;
pub mod query_hash;
pub mod registry;
pub mod response;
#[cfg(feature = "json")]
pub mod rfc3339;
pub mod robots_use;
pub mod time;
pub mod unknown_name;
