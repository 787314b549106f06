//! Pauses of hosts and trials of fetchers, as atomics in the host's entry.

use std::sync::Arc;

use super::Selector;
use crate::backoff::LinkState;
use crate::evidence::{Breaker, Key};
use crate::metrics::recorder::PauseCause;
use crate::pause_coordination::Neighbours;
use crate::state::host_pauses::{Pauses, Standing, PauseReason};
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

/// What came of asking for the half-open trial of a fetcher on a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerTrial {
    /// The breaker is closed: nothing has to be claimed.
    NotNeeded,
    /// This caller has it.
    Claimed {
        /// The breaker as it was.
        seen: Breaker,
        /// When it was claimed.
        at: Timestamp,
    },
    /// Somebody else came first.
    Taken,
}

impl Selector {
    /// Until when the host of `domain` is paused, if it ever was.
    pub fn host_pause(&self, domain: &str) -> Option<Timestamp> {
        let guard = self.evidence.guard();
        self.evidence.entry(Key::domain(domain), &guard)?.paused_until()
    }

    /// Pauses the host of `domain`, or lifts its pause.
    pub fn set_host_pause(&self, domain: &str, until: Option<Timestamp>) {
        let guard = self.evidence.guard();
        // As of the beginning of time: no host that is or was paused makes room for this one.
        self.evidence.entry_or_new(Key::domain(domain), Timestamp::default(), &guard).set_paused_until(until);
    }

    /// Takes the one trial request of a host whose pause has ended: it is paused until `next` for all others. True for one
    /// caller only.
    pub fn claim_host_trial(&self, domain: &str, ended: Timestamp, next: Timestamp) -> bool {
        let guard = self.evidence.guard();
        self.evidence.entry(Key::domain(domain), &guard).is_some_and(|entry| entry.swap_paused_until(ended, next))
    }

    /// Says who else asks from this process's address: from now on they are told of pauses, and asked before a host is tried out.
    /// False, and nothing changes, when that has been said before.
    pub fn set_neighbours(&self, neighbours: Arc<dyn Neighbours>) -> bool {
        self.state.neighbours.set(neighbours).is_ok()
    }

    /// A neighbour was blocked on a link of the host at `at`, by the hash of the link. It counts as a block of this process would: as
    /// many links as [`BackoffSettings::host_block_threshold`](crate::backoff::BackoffSettings::host_block_threshold) pause the host. What is older than
    /// the window of these counts is none. Returns until when the host is paused, when this set a pause.
    pub fn observe_remote_block(&self, domain: &str, link: u64, at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        if now.since(at) > self.backoff.host_block_window {
            return None;
        }
        // No link of a crawler's begins so.
        let link = format!("\0{link:016x}");
        self.state.hosts.failed(self, domain, &link, Standing::Ordinary, PauseReason::Blocked, &self.backoff, now, |until| {
            self.meter().host_paused(PauseCause::Blocked);
            if let Some(sink) = self.sink() {
                sink.host_pause(domain, Some(until), now);
            }
            self.tell_paused(domain, until, now);
        })
    }

    /// What neighbours say of a link now, by the xxh3-64 of its name; none when they take it back. Visits heed the later pause of this and
    /// what this process knows, and pauses grow from the greater risk. The caller sees to it that there are not too many: one takes some
    /// hundred bytes. Reading takes no lock, and where there are none nobody looks for one.
    pub fn set_remote_link_state(&self, link: u64, state: Option<LinkState>) {
        self.state.links.tell(link, state);
    }

    pub(crate) fn tell_paused(&self, domain: &str, until: Timestamp, now: Timestamp) {
        if let Some(neighbours) = self.state.neighbours.get() {
            neighbours.paused(domain, until, now);
        }
    }

    pub(crate) fn tell_lifted(&self, domain: &str) {
        if let Some(neighbours) = self.state.neighbours.get() {
            neighbours.lifted(domain);
        }
    }

    /// Takes the half-open trial of a fetcher whose breaker on `domain` had run out when the decision was made: of all who come, one
    /// may try whether the fetcher gets through again.
    pub(crate) fn claim_breaker_trial(&self, domain: &str, fetcher: FetcherId, now: Timestamp) -> BreakerTrial {
        let guard = self.evidence.guard();
        let Some(entry) = self.evidence.entry(Key::domain(domain), &guard) else { return BreakerTrial::NotNeeded };
        let seen = entry.breaker(fetcher);
        if seen.blocks < self.backoff.breaker_blocks {
            BreakerTrial::NotNeeded
        } else if !self.is_open(seen, now) && entry.claim_breaker(fetcher, seen, Breaker { last: now, ..seen }) {
            BreakerTrial::Claimed { seen, at: now }
        } else {
            BreakerTrial::Taken
        }
    }

    /// Gives back a trial that was never made, unless somebody has recorded something of the fetcher here meanwhile.
    pub(crate) fn give_back_breaker_trial(&self, domain: &str, fetcher: FetcherId, seen: Breaker, at: Timestamp) {
        let guard = self.evidence.guard();
        if let Some(entry) = self.evidence.entry(Key::domain(domain), &guard) {
            entry.claim_breaker(fetcher, Breaker { last: at, ..seen }, seen);
        }
    }
}

impl Pauses for Selector {
    fn until(&self, domain: &str) -> Option<Timestamp> {
        self.host_pause(domain)
    }

    fn set(&self, domain: &str, until: Option<Timestamp>) {
        self.set_host_pause(domain, until);
    }
}
