//! What the responses of a host say about its limit: status and headers, latency, and failures
//! added up.
//!
//! Must not know: how a request is admitted.

pub(crate) mod declared_limits;
pub(crate) mod error_noise;
pub(crate) mod failure_accumulator;
pub(crate) mod headers;
pub(crate) mod latency;
pub(crate) mod local_load;
pub(crate) mod response;
