//! What the visits of one process share beside evidence: probes and trials under way, links and hosts at risk, pages that
//! come again.
//!
//! Each kind has a file. All of it lies in small concurrent maps that hold only what is under way or at risk, and none of it is
//! read by a decision: [`Selector::select`](crate::Selector::select) gets a link's state by value and a host's pause from the
//! host's entry. Must not know how a visit goes.

use std::sync::{Arc, OnceLock};

use crate::pause_coordination::Neighbours;

pub(crate) mod capacity_notify;
pub(crate) mod host_pauses;
pub(crate) mod link_backoff;
pub(crate) mod repeated_pages;
pub(crate) mod single_flight;

/// Everything that visits share.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The probes under way.
    pub(crate) probes: crate::state::single_flight::Flights,
    /// The trials of paused hosts under way.
    pub(crate) trials: crate::state::single_flight::Flights,
    /// Links at risk or paused.
    pub(crate) links: crate::state::link_backoff::Links,
    /// Hosts at risk.
    pub(crate) hosts: crate::state::host_pauses::Hosts,
    /// Who waits for a request of a host to end.
    pub(crate) freed: crate::state::capacity_notify::Freed,
    /// Pages that come again.
    pub(crate) pages: crate::state::repeated_pages::Pages,
    /// Those who share the address.
    pub(crate) neighbours: OnceLock<Arc<dyn Neighbours>>,
}
