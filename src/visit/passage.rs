//! The way of one link through the pauses and paces of hosts: the gate that each of its requests
//! takes, for a page as well as for robots.txt and the licences that it names.
//!
//! Owns: the claim of the one trial of a host whose pause has ended, and the pause of a host. Other
//! methods stand where their subject is:
//!
//! - `decide.rs`: admission to a host whose pause is over, and the wait for another link's trial
//! - `redirect.rs`: admission to any host, and the end of a trial
//! - `pace.rs`: the hold of a host's pace
//!
//! Invariants: a claim without a verdict is returned when it is dropped.
//!
//! Must not know: what is requested.

use std::ops::Deref;

use super::step::HostTrial;
use crate::metrics::recorder::PauseCause;
use crate::selector::Selector;
use crate::state::host_pauses::{LinkFailure, PauseReason, TrialRole};
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

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

impl<S: Deref<Target = Selector> + Clone> Passage<S> {
    /// Pauses the host for the hold of its pace, which a refusal of the fetcher `by` has begun or
    /// extended.
    pub(crate) fn pause_for_hold(
        &mut self,
        host: &str,
        until: Timestamp,
        by: Option<FetcherId>,
        now: Timestamp,
    ) {
        let selector = &*self.selector;
        let refused = by.filter(|_| self.has_trial_of(host));
        selector.state().hosts.record_hold(
            selector,
            host,
            (self.role_at(host), refused),
            until,
            |until| {
                selector.announce_pause(host, until, PauseCause::Pace, now);
            },
        );
        if let Some(trial) = self.take_trial_of(host) {
            trial.settle();
        }
    }

    /// Counts a failure of a link against its host, which may pause it.
    pub(crate) fn record_host_failure(
        &mut self,
        host: &str,
        link: &str,
        why: PauseReason,
        now: Timestamp,
    ) {
        let (selector, role) = (&*self.selector, self.role_at(host));
        let announce = |until| selector.announce_pause(host, until, why.cause(), now);
        let failure = LinkFailure { domain: host, link, role, why, now };
        let until =
            selector.state().hosts.record_failure(selector, failure, selector.backoff(), announce);
        if until.is_some()
            && let Some(trial) = self.take_trial_of(host)
        {
            trial.settle();
        }
    }

    fn role_at(&self, host: &str) -> TrialRole {
        if self.has_trial_of(host) { TrialRole::Trial } else { TrialRole::Ordinary }
    }
}
