//! The permit of one request in its host's pace.
//!
//! Invariants: a permit gets the result of its request, or is returned when it is dropped.
//!
//! Must not know: the visit that uses it.

use std::ops::Deref;
use std::time::Duration;

use event_listener::EventListener;

use crate::selector::Selector;
use fetchwise_pace::{Admit, Cost, Pace, Permit, ResponseEffect, Scope};
use fetchwise_types::time::Timestamp;

/// Time after which a visit asks again when the host has its maximum of parallel requests. The end
/// of one wakes it earlier.
const CAPACITY_RETRY: Duration = Duration::from_secs(1);
/// Shorter waits are a pace's ordinary ones, which nobody ends.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// The pace does not admit the request yet.
#[derive(Debug)]
pub(crate) struct AdmissionDelay {
    /// Time to ask again.
    pub(crate) until: Timestamp,
    /// Event after which to ask earlier.
    pub(crate) listener: Option<EventListener>,
}

/// A permit for one request in a host's pace.
#[derive(Debug)]
pub(crate) struct PacePermit<S: Deref<Target = Selector>> {
    selector: S,
    domain: Box<str>,
    permit: Option<Permit>,
}

impl<S: Deref<Target = Selector>> PacePermit<S> {
    /// Takes a permit in the pace of `domain`, or returns when to ask again; `None` if there is no
    /// pace.
    pub(crate) fn take(
        selector: S,
        domain: &str,
        cost: Cost,
        now: Timestamp,
    ) -> Result<Option<Self>, AdmissionDelay> {
        let Some(pace) = selector.pace() else { return Ok(None) };
        let permit = enter(&selector, pace, domain, cost, now)?;
        Ok(Some(Self { selector, domain: domain.into(), permit: Some(permit) }))
    }

    /// Returns a permit in the pace of `domain` for a request that already went out, at `sent`;
    /// `None` if there is no pace.
    pub(crate) fn of_sent(
        selector: S,
        domain: &str,
        cost: Cost,
        sent: Timestamp,
        now: Timestamp,
    ) -> Option<Self> {
        let permit = selector.pace()?.book_sent(Scope::host(domain), cost, sent, now);
        Some(Self { selector, domain: domain.into(), permit: Some(permit) })
    }

    /// Returns the domain whose pace admitted the request.
    pub(crate) fn domain(&self) -> &str {
        &self.domain
    }

    /// Reports the result of the request.
    pub(crate) fn report(
        mut self,
        response: &fetchwise_pace::Response,
        now: Timestamp,
    ) -> ResponseEffect {
        let (Some(permit), Some(pace)) = (self.permit.take(), self.selector.pace()) else {
            return ResponseEffect::Nothing;
        };
        let done = pace.record_response(permit, response, now);
        self.selector.state().capacity.notify(&self.domain);
        done
    }
}

impl<S: Deref<Target = Selector>> Drop for PacePermit<S> {
    fn drop(&mut self) {
        let (Some(permit), Some(pace)) = (self.permit.take(), self.selector.pace()) else { return };
        pace.cancel(permit, self.selector.now());
        self.selector.state().capacity.notify(&self.domain);
    }
}

/// Enters the pace of `domain`, or returns when to ask again.
fn enter(
    selector: &Selector,
    pace: &Pace,
    domain: &str,
    cost: Cost,
    now: Timestamp,
) -> Result<Permit, AdmissionDelay> {
    let (state, mut listening) = (selector.state(), None);
    loop {
        let (awaited, until) = match pace.admit(Scope::host(domain), cost, now) {
            Admit::Go(permit) => return Ok(permit),
            Admit::Wait(until) if until.since(now) < SHORT_WAIT => {
                return Err(AdmissionDelay { until, listener: None });
            }
            Admit::Wait(until) => (Awaited::EndOfHold, until),
            Admit::AtCapacity => (Awaited::Capacity, now.saturating_add(CAPACITY_RETRY)),
        };
        // Listen before the last check, so that an event in between is not missed.
        match listening {
            Some((of, listener)) if of == awaited => {
                return Err(AdmissionDelay { until, listener: Some(listener) });
            }
            _ => {
                let events = match awaited {
                    Awaited::EndOfHold => &state.ended_holds,
                    Awaited::Capacity => &state.capacity,
                };
                listening = Some((awaited, events.listen(domain)));
            }
        }
    }
}

/// The event that lets a host be asked earlier.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Capacity,
    EndOfHold,
}
