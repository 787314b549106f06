//! fetchwise learns which fetcher works for which URL, and keeps a crawler from getting its IP address banned.

pub mod attempt;
pub mod backoff;
#[cfg(feature = "config")]
pub mod config;
pub mod decision;
#[cfg(feature = "cli")]
pub mod demo;
#[cfg(feature = "detect")]
pub mod detect;
pub mod evidence;
#[cfg(feature = "fetch")]
pub mod fetch;
pub mod heuristic;
pub mod policy;
pub mod registry;
pub mod response;
pub mod router;
pub mod score;
pub mod selector;
pub mod time;

pub use selector::Selector;
