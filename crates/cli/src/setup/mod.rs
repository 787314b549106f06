//! The shared setup of commands: settings, the data directory, fetchers, listeners and reloading.
//!
//! Must not know: any single command.

pub(crate) mod background_maintenance;
pub(crate) mod control;
pub(crate) mod decider;
pub(crate) mod fetcher_availability;
pub(crate) mod file_size_limit;
pub(crate) mod identity;
pub(crate) mod listen;
mod log_failure;
pub(crate) mod log_scan;
mod open_selector;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
pub(crate) mod part_file;
pub(crate) mod peer_attempt_counts;
pub(crate) mod priors_file;
pub(crate) mod reload;
pub(crate) mod server_discovery;
mod setting_changes;
pub(crate) mod settings;
