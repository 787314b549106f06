//! What the visits of one process share beside evidence: probes and trials under way, links and hosts at risk, pages that
//! come again.
//!
//! Each kind has a file. All of it lies in small concurrent maps that hold only what is under way or at risk, and none of it is
//! read by a decision: [`Selector::select`](crate::Selector::select) gets a link's state by value and a host's pause from the
//! host's entry. Must not know how a visit goes.

use std::sync::{Arc, OnceLock};

use crate::neighbours::Neighbours;

pub(crate) mod flights;
#[cfg(feature = "pace")]
pub(crate) mod freed;
pub(crate) mod hosts;
pub(crate) mod links;
pub(crate) mod pages;

/// Everything that visits share.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The probes under way.
    pub(crate) probes: flights::Flights,
    /// The trials of paused hosts under way.
    pub(crate) trials: flights::Flights,
    /// Links at risk or paused.
    pub(crate) links: links::Links,
    /// Hosts at risk.
    pub(crate) hosts: hosts::Hosts,
    /// Who waits for a request of a host to end.
    #[cfg(feature = "pace")]
    pub(crate) freed: freed::Freed,
    /// Pages that come again.
    pub(crate) pages: pages::Pages,
    /// Those who share the address.
    pub(crate) neighbours: OnceLock<Arc<dyn Neighbours>>,
}
