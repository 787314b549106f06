//! Where a visit meets its host's pace: each request takes a place in it, and what came is told to it.
//!
//! A selector without a pace costs a visit one comparison. Must not know how a pace is found.

use std::borrow::Borrow;
use std::ops::Deref;
use std::time::Duration;

use url::Url;

use super::Visit;
use super::step::{Step, Wait, WaitReason};
use crate::selector::Selector;
use crate::visit::pace_permit::Place;
use fetchwise_pace;
use fetchwise_pace::{Cost, Done, Signal, RateLimit, Scope, DoubtVerdict};
use fetchwise_types::attempt::ErrorType;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::decision::Selection;
use fetchwise_types::fetch_result::FetchResult;
use fetchwise_types::heuristic::url::domain_of;
use fetchwise_types::registry::{Class, FetcherSpec};
use fetchwise_types::time::Timestamp;

/// Quicker answers count as this: below it the network and this machine scatter more than any host that has too much to do.
const LATENCY_LEAST: Duration = Duration::from_millis(10);
/// Another URL of the host is waited for so long after the hold of a doubt.
const DOUBT_PATIENCE: Duration = Duration::from_secs(10);

/// What an answer means to the host's pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Nothing that the visit has to know.
    Nothing,
    /// The wall is the page's or the pace's: the verdict is waited for.
    Doubt,
    /// The host is held until then.
    Held(Timestamp),
}

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Asks for a place for a request by `take`; none without a pace.
    pub(super) fn take_place(&self, take: Selection, now: Timestamp) -> Result<Option<Place<S>>, Wait> {
        if self.selector.pace().is_none() {
            return Ok(None);
        }
        let spec = self.selector.fetcher(take.fetcher);
        // An archive is asked in the site's place: its pace is its own, under its fetcher's name.
        let domain = match spec.filter(|spec| spec.class == Class::Archive) {
            Some(archive) => &archive.name,
            None => domain_of(self.url().host_str().unwrap_or_default()),
        };
        let cost = if spec.is_some_and(|spec| spec.renders) { Cost::Rendered } else { Cost::Plain };
        Place::take(self.selector.clone(), domain, cost, now).map_err(Wait::for_place)
    }

    /// Tells the host's pace what came.
    pub(super) fn tell_pace(
        &mut self,
        place: Option<Place<S>>,
        take: Selection,
        by: &FetcherSpec,
        answer: &FetchResult,
        asked: Option<Duration>,
        now: Timestamp,
    ) -> Word {
        // Where somebody else was asked the host has said nothing: the place is given back.
        let Some(place) = place.filter(|_| answer.elsewhere.is_none()) else { return Word::Nothing };
        let told = fetchwise_pace::Response {
            retry_after: asked,
            latency: answer.duration.map(|latency| latency.max(LATENCY_LEAST)),
            cost: answer.requests,
            renders: by.renders,
            policy: RateLimit::read(&answer.headers, now),
            ..fetchwise_pace::Response::new(Signal::of(&answer.outcome, answer.status), take.fetcher)
        };
        match place.tell(&told, now) {
            // The site has nothing to do with it.
            _ if by.class == Class::Archive => Word::Nothing,
            Done::Nothing => Word::Nothing,
            Done::Doubt { hold_until, doubt } => {
                self.selector.meter().doubted();
                self.doubt = Some((doubt, hold_until.saturating_add(DOUBT_PATIENCE)));
                Word::Doubt
            }
            Done::Event { hold_until, level } => {
                self.selector.meter().tripped(level as usize);
                Word::Held(hold_until)
            }
        }
    }

    /// Whether a wait for the host's pace is one for a hold of its own, which a pause of the host's until `until` then is.
    pub(super) fn pace_holds_until(&self, until: Timestamp, now: Timestamp) -> Option<Wait> {
        let pace = self.selector.pace()?;
        // A hold that outlived its process is remembered in whole seconds.
        let hold = pace.hold(Scope::host(self.domain()), now)?;
        (hold.saturating_add(Duration::from_secs(1)) >= until).then_some(Wait { until, why: WaitReason::Pace, listener: None })
    }

    /// Whether the host let `by` through lately, or, without one, anybody: then it is the crawl's speed that a block is about.
    pub(super) fn was_let_through(&self, by: Option<Selection>, now: Timestamp) -> bool {
        let Some(pace) = self.selector.pace() else { return false };
        pace.has_delivered(self.domain(), by.map(|take| take.fetcher), now)
    }

    /// Whether this is the trial of a hold whose trial was blocked before. Waiting has not helped then, so that a block may be about
    /// the fetcher after all: it counts against it, and the next trial can be another's.
    pub(super) fn is_later_trial(&self) -> bool {
        self.host_trial.is_some() && self.selector.state().hosts.blocked_trials(self.domain()) > 0
    }

    /// The wait for the verdict on a wall, or the end that it came to; none where nothing is in doubt any more.
    pub(super) fn in_doubt(&mut self, now: Timestamp) -> Option<Step<S>> {
        let (doubt, until) = self.doubt?;
        let selector = self.selector.clone();
        let pace = selector.pace()?;
        // Listening comes before looking, so that a verdict in between is not missed.
        let listener = selector.state().freed.listen(self.domain());
        match pace.verdict(self.domain(), doubt, now) {
            DoubtVerdict::Pending if now < until => {
                Some(Step::Wait(Wait { until, why: WaitReason::Doubt, listener: Some(listener) }))
            }
            // No other URL of the host has come: this one goes on, and its next request is what tells.
            DoubtVerdict::Pending | DoubtVerdict::Page => {
                self.doubt = None;
                None
            }
            DoubtVerdict::Pace => {
                self.doubt = None;
                let hold = pace.hold(Scope::host(self.domain()), now).unwrap_or(now);
                self.retry_after = Some(hold.since(now));
                Some(Step::End(self.fail(ErrorType::Known(ErrorKind::RateLimited), now)))
            }
        }
    }
}
