//! The limiter: the state of each host, site and address while it is in use, and the rules that
//! admit a request.
//!
//! Must not know: how state is written to disk.

pub(crate) mod active_state;
pub(crate) mod admission;
pub(crate) mod ceiling_probe;
pub(crate) mod flat_map;
pub(crate) mod hold;
pub(crate) mod host;
pub(crate) mod host_map;
pub(crate) mod limit_hit;
pub(crate) mod noise_recovery;
pub(crate) mod outage;
pub(crate) mod permit;
pub(crate) mod rate_gate;
pub(crate) mod sharded;
pub(crate) mod shared_levels;
pub(crate) mod window;
