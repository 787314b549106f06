//! The proof that this process held its node's lease at a moment, for leases that last as long as
//! that one.

use tokio::time::Instant;

/// A heartbeat that the broker has confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseProof {
    /// The id of the process, as in its heartbeat.
    pub holder: String,
    /// The time at which the heartbeat was sent.
    pub sent: Instant,
}
