//! The way of one link through the pauses and paces of hosts: the gate that each of its requests takes, for a page as
//! well as for robots.txt and the licences that it names.
//!
//! Owns: the claim of the one trial of a host whose pause has ended. The methods stand where their subject is:
//!
//! - `decide.rs`: admission to a host whose pause is over, and the wait for another link's trial
//! - `redirect.rs`: admission to any host, and the end of a trial
//! - `pace.rs`: the hold of a host's pace
//! - `report.rs`: the pause of a host
//!
//! Invariants: a claim without a verdict is returned when it is dropped.
//!
//! Must not know: what is requested.

use std::ops::Deref;

use super::step::HostTrial;
use crate::selector::Selector;

/// The way of one link.
#[derive(Debug)]
pub(crate) struct Passage<S: Deref<Target = Selector>> {
    pub(super) selector: S,
    /// The claim of a link that is the one trial of a host whose pause has ended.
    pub(super) host_trial: Option<HostTrial<S>>,
}

impl<S: Deref<Target = Selector>> Passage<S> {
    /// Returns the way of a link that has asked no host yet.
    pub(crate) fn new(selector: S) -> Self {
        Self { selector, host_trial: None }
    }

    /// Returns the selector whose hosts it asks.
    #[cfg(feature = "pipeline")]
    pub(crate) fn selector(&self) -> S
    where
        S: Clone,
    {
        self.selector.clone()
    }
}
