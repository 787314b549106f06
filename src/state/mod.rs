//! State that the visits of one process share besides evidence: probes and trials in flight, links
//! and hosts at risk, repeated pages.
//!
//! Each kind has a file, and a small concurrent map that holds only what is in flight or at risk.
//! No decision reads it: [`Selector::select`](crate::Selector::select) gets a link's state by value
//! and a host's pause from the host's entry.
//!
//! Must not know: the steps of a visit.

use std::sync::{Arc, OnceLock};

use crate::ended_pauses::PauseListeners;
use crate::pause_coordination::PauseCoordinator;

pub(crate) mod cross_site_pages;
pub(crate) mod host_events;
pub(crate) mod host_pauses;
pub(crate) mod link_backoff;
pub(crate) mod proxies;
pub(crate) mod repeated_pages;
pub(crate) mod silent_hosts;
pub(crate) mod single_flight;
pub(crate) mod sweep_trigger;
pub(crate) mod uplink;

/// All state that visits share.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The probes in flight.
    pub(crate) probes: single_flight::SingleFlight,
    /// The trials of paused hosts in flight.
    pub(crate) trials: single_flight::SingleFlight,
    /// Links at risk or paused.
    pub(crate) links: link_backoff::LinkBackoff,
    /// Hosts at risk.
    pub(crate) hosts: host_pauses::HostPauses,
    /// Proxies that fail.
    pub(crate) proxies: proxies::Proxies,
    /// Hosts that answer nothing.
    pub(crate) silent_hosts: silent_hosts::SilentHosts,
    /// Wakes visits that wait for a request of a host to end.
    pub(crate) capacity: host_events::HostEvents,
    /// Wakes visits that wait for the end of a hold, when somebody ends it early.
    pub(crate) ended_holds: host_events::HostEvents,
    /// The crawler's own connection.
    pub(crate) uplink: uplink::Uplink,
    /// Pages of several sites.
    pub(crate) cross_site_pages: cross_site_pages::CrossSitePages,
    /// Repeated pages.
    pub(crate) pages: repeated_pages::RepeatedPages,
    /// The coordinator of the processes that share this address.
    pub(crate) pause_coordinator: OnceLock<Arc<dyn PauseCoordinator>>,
    /// Who is told of pauses that end before their time.
    pub(crate) pause_listeners: PauseListeners,
}
