//! The visit's side of its host's pace: each request takes a permit, and each result is reported to
//! the pace.
//!
//! A selector without a pace costs a visit one comparison.
//!
//! Must not know: how the pace is learned.

use std::borrow::Borrow;
use std::ops::Deref;
use std::time::Duration;

use url::Url;

use super::Visit;
use super::passage::Passage;
use super::record::SentRequest;
use super::redirect_target;
use super::step::{Step, Wait, WaitReason};
use crate::selector::Selector;
use crate::visit::pace_permit::PacePermit;
use fetchwise_pace;
use fetchwise_pace::{Cost, DoubtVerdict, RateLimit, ResponseEffect, Scope, Signal};
use fetchwise_types::attempt::ErrorType;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::decision::Selection;
use fetchwise_types::fetch_result::{FetchResult, Outcome};
use fetchwise_types::registry::{Class, FetcherId};
use fetchwise_types::time::Timestamp;

/// Shorter latencies count as this. Below it, jitter of the network and of this machine exceeds the
/// effect of any busy host.
const MIN_LATENCY: Duration = Duration::from_millis(10);
/// Time to wait, after the hold of a doubt, for another URL of the host.
const DOUBT_GRACE: Duration = Duration::from_secs(10);
/// Time for which a host refuses one fetcher until a trial is given to another.
const BEFORE_OTHER_FETCHER: Duration = Duration::from_secs(900);

/// The effect of a result on the host's pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaceEffect {
    /// No effect on the visit.
    None,
    /// The block may concern the page or the pace: the visit waits for the verdict.
    Doubt,
    /// The host is held until then.
    Held(Timestamp),
    /// The host refused the request because of a limit that the pace knows of. It may be asked
    /// again then.
    Refused(Timestamp),
}

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Requests a pace permit for a request with `selection`; `None` without a pace.
    pub(super) fn take_pace_permit(
        &self,
        selection: Selection,
        now: Timestamp,
    ) -> Result<Option<PacePermit<S>>, Wait> {
        if self.selector.pace().is_none() {
            return Ok(None);
        }
        let spec = self.selector.fetcher(selection.fetcher);
        // An archive serves in place of the site: it has its own pace, under its fetcher's name.
        let domain = match spec.filter(|spec| spec.class == Class::Archive) {
            Some(archive) => &archive.name,
            None => redirect_target::domain(self.url()),
        };
        self.take_pace_permit_at(domain, selection, now)
    }

    /// Requests a pace permit of `domain`; `None` without a pace.
    pub(super) fn take_pace_permit_at(
        &self,
        domain: &str,
        selection: Selection,
        now: Timestamp,
    ) -> Result<Option<PacePermit<S>>, Wait> {
        let cost = self.cost(selection);
        PacePermit::take(self.selector.clone(), domain, cost, now).map_err(Wait::for_pace)
    }

    fn cost(&self, selection: Selection) -> Cost {
        match self.selector.fetcher(selection.fetcher) {
            Some(spec) if spec.renders => Cost::Rendered,
            _ => Cost::Plain,
        }
    }

    /// Reports a result to the pace of the host that responded. A host that the client reached
    /// through a redirect without a permit gets one now.
    pub(super) fn report_to_pace(
        &mut self,
        permit: Option<PacePermit<S>>,
        sent: &SentRequest<'_>,
        result: &FetchResult,
        asked: Option<Duration>,
    ) -> PaceEffect {
        let SentRequest { selection, at, ref by, now, .. } = *sent;
        // Another server responded, so the host has said nothing: the permit is returned.
        let Some(permit) = permit.filter(|_| result.provenance.is_none()) else {
            return PaceEffect::None;
        };
        let host = self.host();
        let permit = if by.class == Class::Archive || permit.domain() == host {
            permit
        } else {
            report_redirect(permit, selection, now);
            let sent =
                PacePermit::of_sent(self.selector.clone(), host, self.cost(selection), at, now);
            let Some(sent) = sent else { return PaceEffect::None };
            sent
        };
        // The time of a chain that led elsewhere is not the latency of the host at its end.
        let is_direct = result
            .final_url
            .as_deref()
            .is_none_or(|url| redirect_target::domain(url) == redirect_target::domain(self.url()));
        let response = fetchwise_pace::Response {
            retry_after: asked,
            // A response without a body says little about how long a page takes, and the time of a
            // rendered page is mostly the browser's. Next to the latency of plain requests, each
            // rendered page would look like an overloaded host.
            latency: result
                .duration
                .filter(|_| is_direct && !by.renders && result.outcome != Outcome::NotModified)
                .map(|latency| latency.max(MIN_LATENCY)),
            local_delay: result.local_delay,
            cost: result.requests,
            renders: by.renders,
            policy: RateLimit::read(&result.headers, self.selector.clock().date_of(now)),
            ..fetchwise_pace::Response::new(self.signal(result, now), selection.fetcher)
        };
        match permit.report(&response, now) {
            // The site is not involved.
            _ if by.class == Class::Archive => PaceEffect::None,
            ResponseEffect::Nothing => PaceEffect::None,
            ResponseEffect::Doubt { hold_until, doubt } => {
                self.selector.recorder().count_ambiguous_block();
                self.seen.doubt = Some((doubt, hold_until.saturating_add(DOUBT_GRACE)));
                PaceEffect::Doubt
            }
            ResponseEffect::Refused { until } => PaceEffect::Refused(until),
            ResponseEffect::LimitHit { hold_until, level } => {
                self.selector.recorder().count_rate_limit_hit(level as usize);
                PaceEffect::Held(hold_until)
            }
        }
    }

    /// Returns what a result says to the pace. A page that keeps failing while its host serves
    /// others says nothing new of the host.
    fn signal(&self, result: &FetchResult, now: Timestamp) -> Signal {
        let signal = Signal::of(&result.outcome, result.status);
        let is_error = matches!(signal, Signal::Unavailable | Signal::Broken | Signal::ServerError);
        let has_served = |since| {
            self.selector.pace().is_some_and(|pace| pace.has_served_since(self.host(), since, now))
        };
        let is_own = is_error && self.seen.failed_at.is_some_and(has_served);
        if is_own { Signal::NotAsked } else { signal }
    }

    /// Returns whether the host recently served the fetcher of `by`, or any fetcher if `None`. A
    /// block then concerns the crawl's speed.
    pub(super) fn was_served_recently(
        &self,
        host: &str,
        by: Option<Selection>,
        now: Timestamp,
    ) -> bool {
        let Some(pace) = self.selector.pace() else { return false };
        pace.has_delivered(host, by.map(|selection| selection.fetcher), now)
    }

    /// Returns whether a refusal of this request concerns the crawl's speed, as far as anyone
    /// knows: the host has served its fetcher recently, or this is a trial of a host that served
    /// until it began to refuse.
    pub(super) fn is_about_pace(&self, by: Selection, now: Timestamp) -> bool {
        self.is_trial_of_pace(now) || self.was_served_recently(self.host(), Some(by), now)
    }

    /// Returns whether a request is a trial of a host that served until it began to refuse: nothing
    /// else goes out there.
    pub(super) fn is_trial_of_pace(&self, now: Timestamp) -> bool {
        self.selector.pace().is_some_and(|pace| pace.refusing_since(self.host(), now).is_some())
    }

    /// Returns whether a block concerns one of several pages that the host blocks at any rate, and
    /// would open the breaker of a fetcher that gets the others.
    pub(super) fn is_page_block(&self, kind: Option<ErrorKind>, by: Selection) -> bool {
        let host = self.host();
        kind.is_some_and(ErrorKind::is_banned)
            && self.selector.pace().is_some_and(|pace| pace.page_blocks(host).is_some())
            && self.selector.is_breaker_about_to_open(host, by.fetcher)
    }

    /// Returns the fetcher that this visit's trial of its host leaves out, if that is the better
    /// question by now: waiting has not helped the fetcher of the earlier trials. What another one
    /// gets shows whether it is the fetcher.
    pub(super) fn fetcher_left_out(&self, now: Timestamp) -> Option<FetcherId> {
        let host = self.domain();
        if self.tried.attempts > 0 || !self.passage.has_trial_of(host) {
            return None;
        }
        let since = self.selector.pace()?.refusing_since(host, now)?;
        if now.since(since) < BEFORE_OTHER_FETCHER {
            return None;
        }
        self.selector
            .state()
            .hosts
            .refused_trial(host)
            .filter(|fetcher| !self.tried.excluded.contains(*fetcher))
    }

    /// Returns the wait for the verdict on a doubtful block, or the end that follows from it;
    /// `None` if nothing is in doubt any more.
    pub(super) fn doubt_step(&mut self, now: Timestamp) -> Option<Step<S>> {
        let (doubt, until) = self.seen.doubt?;
        let selector = self.selector.clone();
        let pace = selector.pace()?;
        // Listen before the check, so that a verdict in between is not missed.
        let listener = selector.state().capacity.listen(self.host());
        match pace.doubt_verdict(self.host(), doubt, now) {
            DoubtVerdict::Pending if now < until => Some(Step::Wait(Wait {
                until,
                reason: WaitReason::Doubt,
                listener: Some(listener),
            })),
            // No other URL of the host was fetched: this visit continues, and its next request
            // decides.
            DoubtVerdict::Pending | DoubtVerdict::Page => {
                self.seen.doubt = None;
                None
            }
            DoubtVerdict::Pace => {
                self.seen.doubt = None;
                let hold = pace.hold(Scope::host(self.host()), now).unwrap_or(now);
                self.seen.retry_after = Some(hold.since(now));
                Some(Step::End(self.fail(ErrorType::Known(ErrorKind::RateLimited), now)))
            }
        }
    }
}

impl<S: Deref<Target = Selector> + Clone> Passage<S> {
    /// Returns the wait for the pace of a host that is paused until then, if the pause is its hold.
    pub(super) fn pace_holds_until(
        &self,
        domain: &str,
        until: Timestamp,
        now: Timestamp,
    ) -> Option<Wait> {
        // Listen before the check, so that an end in between is not missed.
        let listener = self.selector.state().ended_holds.listen(domain);
        self.is_pace_hold(domain, until, now).then_some(Wait {
            until,
            reason: WaitReason::Pace,
            listener: Some(listener),
        })
    }

    /// Returns whether the host's pause until `until` is the hold of its pace.
    pub(super) fn is_pace_hold(&self, domain: &str, until: Timestamp, now: Timestamp) -> bool {
        let hold = self.selector.pace().and_then(|pace| pace.hold(Scope::host(domain), now));
        // A hold that outlived its process is stored in whole seconds.
        hold.is_some_and(|hold| hold.saturating_add(Duration::from_secs(1)) >= until)
    }

    /// Returns the remaining hold of a host's pace.
    pub(crate) fn remaining_hold(&self, host: &str, now: Timestamp) -> Option<Duration> {
        let until = self.selector.host_pause(host).filter(|until| *until > now)?;
        self.is_pace_hold(host, until, now).then(|| until.since(now))
    }
}

/// Reports a redirect to the pace of the host that sent it: the host has served the request.
pub(super) fn report_redirect<S: Deref<Target = Selector>>(
    permit: PacePermit<S>,
    selection: Selection,
    now: Timestamp,
) {
    let response = fetchwise_pace::Response::new(Signal::Content, selection.fetcher);
    let _ = permit.report(&response, now);
}
