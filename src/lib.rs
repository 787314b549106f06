//! fetchwise learns which fetcher works for which URL, and keeps a crawler from getting its IP address banned.
#![warn(missing_docs)]

pub mod attempt;
#[cfg(feature = "detect")]
pub mod detect;
#[cfg(feature = "fetch")]
pub mod fetch;
pub mod heuristic;
pub mod response;
pub mod time;
