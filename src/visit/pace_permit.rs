//! A request's place in its host's pace.
//!
//! Invariant: a place that was taken is told what came of its request, or given back when it is dropped. Must not know what a visit is.

use std::ops::Deref;
use std::time::Duration;

use event_listener::EventListener;

use crate::selector::Selector;
use fetchwise_pace::{Admit, Cost, Done, Pace, Permit, Scope};
use fetchwise_types::time::Timestamp;

/// As many requests as may be are under way: it is asked again when one has ended, and after this at the latest.
const FULL: Duration = Duration::from_secs(1);

/// There is no place yet.
#[derive(Debug)]
pub(crate) struct Later {
    /// Ask again then.
    pub(crate) until: Timestamp,
    /// Or earlier, when this says so.
    pub(crate) listener: Option<EventListener>,
}

/// A request's place in its host's pace.
#[derive(Debug)]
pub(crate) struct Place<S: Deref<Target = Selector>> {
    selector: S,
    domain: Box<str>,
    permit: Option<Permit>,
}

impl<S: Deref<Target = Selector>> Place<S> {
    /// Takes one in the pace of `domain`, or says when to ask again; none where there is no pace.
    pub(crate) fn take(selector: S, domain: &str, cost: Cost, now: Timestamp) -> Result<Option<Self>, Later> {
        let Some(pace) = selector.pace() else { return Ok(None) };
        let permit = enter(&selector, pace, domain, cost, now)?;
        Ok(Some(Self { selector, domain: domain.into(), permit: Some(permit) }))
    }

    /// Says what came of the request.
    pub(crate) fn tell(mut self, answer: &fetchwise_pace::Response, now: Timestamp) -> Done {
        let (Some(permit), Some(pace)) = (self.permit.take(), self.selector.pace()) else { return Done::Nothing };
        let done = pace.done(permit, answer, now);
        self.selector.state().freed.notify(&self.domain);
        done
    }
}

impl<S: Deref<Target = Selector>> Drop for Place<S> {
    fn drop(&mut self) {
        let (Some(permit), Some(pace)) = (self.permit.take(), self.selector.pace()) else { return };
        pace.give_back(permit, self.selector.now());
        self.selector.state().freed.notify(&self.domain);
    }
}

/// Enters the pace of `domain`, or says when to ask again.
fn enter(selector: &Selector, pace: &Pace, domain: &str, cost: Cost, now: Timestamp) -> Result<Permit, Later> {
    let scope = Scope::host(domain);
    match pace.admit(scope, cost, now) {
        Admit::Go(permit) => return Ok(permit),
        Admit::Wait(until) => return Err(Later { until, listener: None }),
        Admit::AtCapacity => {}
    }
    // Listening comes before asking once more, so that an end in between is not missed.
    let listener = selector.state().freed.listen(domain);
    match pace.admit(scope, cost, now) {
        Admit::Go(permit) => Ok(permit),
        Admit::Wait(until) => Err(Later { until, listener: None }),
        Admit::AtCapacity => Err(Later { until: now.saturating_add(FULL), listener: Some(listener) }),
    }
}
