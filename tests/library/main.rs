//! The library as its callers see it: selector, visits, journal, pipeline and metrics.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod adaptation;
#[cfg(feature = "pipeline")]
mod cache;
#[cfg(feature = "json")]
mod end_names;
mod evidence_reference;
#[cfg(all(feature = "identity", feature = "pipeline"))]
mod identity_rejected;
#[cfg(feature = "journal")]
mod journal;
#[cfg(feature = "journal")]
mod maintenance;
#[cfg(all(feature = "metrics", feature = "pipeline"))]
mod metrics;
mod pace;
#[cfg(feature = "pipeline")]
mod pipeline;
#[cfg(all(feature = "journal", feature = "json"))]
mod portable_records;
#[cfg(feature = "pipeline")]
mod robots;
#[cfg(all(feature = "metrics", feature = "pipeline"))]
mod robots_requests;
mod selector;
mod signed_arms;
