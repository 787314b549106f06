//! fetchwise learns which fetcher works for which URL, and keeps a crawler from getting its IP address banned.

#[cfg(all(feature = "json", feature = "journal"))]
pub mod analytics;
pub mod answer;
pub mod attempt;
pub mod backoff;
#[cfg(feature = "config")]
pub mod config;
pub mod decision;
#[cfg(feature = "detect")]
pub mod detect;
pub mod error;
pub mod evidence;
pub(crate) mod explain;
#[cfg(feature = "pipeline")]
pub mod fetch;
pub mod heuristic;
#[cfg(feature = "journal")]
pub mod journal;
pub mod names;
pub mod off_policy;
#[cfg(feature = "pipeline")]
pub mod pipeline;
pub mod policy;
pub mod registry;
pub mod response;
#[cfg(feature = "json")]
pub mod rfc3339;
pub mod router;
pub mod score;
pub mod selector;
pub(crate) mod state;
#[cfg(feature = "pipeline")]
pub mod store;
pub mod time;
pub mod visit;

pub use error::Error;
pub use selector::Selector;

/// The README's example is compiled and run with the other documentation tests.
#[cfg(all(doctest, feature = "journal"))]
#[doc = include_str!("../README.md")]
struct Readme;
