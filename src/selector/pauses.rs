//! Pauses of hosts and half-open trials of fetchers, as atomics in the host's entry.

use std::sync::Arc;

use super::Selector;
use crate::backoff::LinkState;
use crate::ended_pauses::{EndedPause, PauseListener};
use crate::evidence::{Breaker, Key};
use crate::metrics::recorder::PauseCause;
use crate::pause_coordination::PauseCoordinator;
use crate::state::host_pauses::{LinkFailure, PauseReason, PauseStore, TrialRole};
use crate::trace;
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

/// Result of claiming the half-open trial of a fetcher on a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerTrial {
    /// The breaker is closed: nothing has to be claimed.
    NotNeeded,
    /// This caller has the trial.
    Claimed {
        /// The breaker as it was before.
        seen: Breaker,
        /// The time of the claim.
        at: Timestamp,
    },
    /// Another caller has the trial.
    Taken,
}

impl Selector {
    /// Returns the end of the last pause of the host of `domain`, if it ever was paused. It reads a
    /// file if the evidence of the host has left memory.
    pub fn host_pause(&self, domain: &str) -> Option<Timestamp> {
        let guard = self.learned.evidence.guard();
        self.learned.evidence.known(Key::domain(domain), &guard)?.paused_until()
    }

    /// Pauses the host of `domain`, or lifts its pause. If a pause ends earlier than before, the
    /// [listeners](Self::add_pause_listener) are told.
    pub fn set_host_pause(&self, domain: &str, until: Option<Timestamp>) {
        let before = self.swap_host_pause(domain, until);
        self.tell_if_shorter(before, until, EndedPause::Host(domain));
    }

    /// Sets the end of the pause of a host, and returns the one before.
    fn swap_host_pause(&self, domain: &str, until: Option<Timestamp>) -> Option<Timestamp> {
        let guard = self.learned.evidence.guard();
        // Dated at the beginning of time, so that no host that is or was paused is evicted for this
        // one.
        let entry =
            self.learned.evidence.entry_or_new(Key::domain(domain), Timestamp::default(), &guard);
        let before = entry.paused_until();
        entry.set_paused_until(until);
        before
    }

    /// Adds a listener that is told of every pause that an operator or another node ends, until the
    /// caller drops it.
    pub fn add_pause_listener(&self, listener: &Arc<dyn PauseListener>) {
        self.state.pause_listeners.add(listener);
    }

    /// Tells the listeners of a pause that had a running time left and has less now.
    fn tell_if_shorter(
        &self,
        before: Option<Timestamp>,
        until: Option<Timestamp>,
        ended: EndedPause<'_>,
    ) {
        if until < before && before > Some(self.now()) {
            self.tell_ended_pause(ended);
        }
    }

    /// Tells all who wait for the end of a pause that it has ended.
    pub(super) fn tell_ended_pause(&self, ended: EndedPause<'_>) {
        if let EndedPause::Host(_) = ended {
            // The hold may have been that of a site or an address, and so of other hosts.
            self.state.ended_holds.notify_all();
        }
        self.state.pause_listeners.tell(ended);
    }

    /// Takes the one trial request of a host whose pause has ended: for all others it is paused
    /// until `next`. Returns `true` to one caller only.
    pub fn claim_host_trial(&self, domain: &str, ended: Timestamp, next: Timestamp) -> bool {
        let guard = self.learned.evidence.guard();
        self.learned
            .evidence
            .entry_to_change(Key::domain(domain), &guard)
            .is_some_and(|entry| entry.swap_paused_until(ended, next))
    }

    /// Sets the coordinator of the processes that share this one's address. From now on it receives
    /// pauses, and gives permission before a host is tried out. Returns `false`, and changes
    /// nothing, if one is set already.
    pub fn set_pause_coordinator(&self, pause_coordinator: Arc<dyn PauseCoordinator>) -> bool {
        self.state.pause_coordinator.set(pause_coordinator).is_ok()
    }

    /// Counts a block that another node met on a link of the host at `at`; `link` is the hash of
    /// the link. It counts like a block of this process:
    /// [`BackoffSettings::host_block_threshold`](crate::backoff::BackoffSettings::host_block_threshold)
    /// links pause the host. A block that is older than the window is ignored. Returns the end of
    /// the pause if this set one.
    pub fn observe_remote_block(
        &self,
        domain: &str,
        link: u64,
        at: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if now.since(at) > self.backoff.host_block_window {
            return None;
        }
        // No link of a crawler starts with NUL.
        let link = format!("\0{link:016x}");
        let (role, why) = (TrialRole::Ordinary, PauseReason::Blocked);
        let failure = LinkFailure { domain, link: &link, role, why, now };
        self.state.hosts.record_failure(self, failure, &self.backoff, |until| {
            self.announce_pause(domain, until, PauseCause::Blocked, now);
        })
    }

    /// Sets the state that other nodes report for a link, by the xxh3-64 of its name; `None`
    /// removes it. Visits respect the later pause of this state and of their own, and pauses grow
    /// from the greater risk. The caller bounds their number: one takes some hundred bytes. Reading
    /// takes no lock, and is skipped while there are none.
    pub fn set_remote_link_state(&self, link: u64, state: Option<LinkState>) {
        let pause = |state: Option<LinkState>| state.and_then(|state| state.paused_until);
        let before = self.state.links.set_remote(link, state);
        self.tell_if_shorter(pause(before), pause(state), EndedPause::Link(link));
    }

    /// Returns the hash of a link's name: the caller's id for it, or its URL without the fragment.
    pub fn link_hash(&self, link: &str) -> u64 {
        self.state.links.hash(link)
    }

    /// Announces a pause that has just begun: to the trace, the metrics, the sink and the processes
    /// that share the address.
    pub(crate) fn announce_pause(
        &self,
        domain: &str,
        until: Timestamp,
        cause: PauseCause,
        now: Timestamp,
    ) {
        trace::host_paused(domain, until);
        self.recorder().count_host_pause(cause);
        if let Some(sink) = self.sink() {
            sink.host_pause(domain, Some(until), now);
        }
        if let Some(pause_coordinator) = self.state.pause_coordinator.get() {
            pause_coordinator.paused(domain, until, now);
        }
    }

    pub(crate) fn notify_lifted(&self, domain: &str) {
        if let Some(pause_coordinator) = self.state.pause_coordinator.get() {
            pause_coordinator.lifted(domain);
        }
    }

    /// Returns whether one more block opens the breaker of a fetcher on `domain`.
    pub(crate) fn is_breaker_about_to_open(&self, domain: &str, fetcher: FetcherId) -> bool {
        let guard = self.learned.evidence.guard();
        let entry = self.learned.evidence.known(Key::domain(domain), &guard);
        entry.is_some_and(|entry| {
            entry.breaker(fetcher).blocks.saturating_add(1) >= self.backoff.breaker_blocks
        })
    }

    /// Claims the half-open trial of a fetcher whose breaker on `domain` had run out when the
    /// decision was made. One caller may try whether the fetcher gets through again.
    pub(crate) fn claim_breaker_trial(
        &self,
        domain: &str,
        fetcher: FetcherId,
        now: Timestamp,
    ) -> BreakerTrial {
        let guard = self.learned.evidence.guard();
        let Some(entry) = self.learned.evidence.entry_to_change(Key::domain(domain), &guard) else {
            return BreakerTrial::NotNeeded;
        };
        let seen = entry.breaker(fetcher);
        if seen.blocks < self.backoff.breaker_blocks {
            BreakerTrial::NotNeeded
        } else if !self.is_open(seen, now)
            && entry.claim_breaker(fetcher, seen, Breaker { last: now, ..seen })
        {
            BreakerTrial::Claimed { seen, at: now }
        } else {
            BreakerTrial::Taken
        }
    }

    /// Returns a trial that was not used, unless an attempt of the fetcher was recorded here
    /// meanwhile.
    pub(crate) fn return_breaker_trial(
        &self,
        domain: &str,
        fetcher: FetcherId,
        seen: Breaker,
        at: Timestamp,
    ) {
        let guard = self.learned.evidence.guard();
        if let Some(entry) = self.learned.evidence.entry_to_change(Key::domain(domain), &guard) {
            entry.claim_breaker(fetcher, Breaker { last: at, ..seen }, seen);
        }
    }
}

impl PauseStore for Selector {
    fn until(&self, domain: &str) -> Option<Timestamp> {
        self.host_pause(domain)
    }

    fn set(&self, domain: &str, until: Option<Timestamp>) {
        // The visits of this process that wait for a trial follow it.
        self.swap_host_pause(domain, until);
    }
}
