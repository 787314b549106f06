//! Metrics: the counters of a selector, and their export for Prometheus.
//!
//! Owns: `recorder`, which counts without a lock on the paths that decide and record, and
//! `exporter`, which exposes the counts to a registry of `prometheus-client`.
//!
//! Must not know: how the counts are served.

#[cfg(feature = "metrics")]
mod exporter;
pub(crate) mod recorder;

#[cfg(feature = "metrics")]
pub use exporter::*;
