//! Redirects to other hosts: which host a response belongs to, and admission to the host of a
//! redirect's target.
//!
//! A link can lead anywhere, so the host that responded gets the pause, the pace, the block and the
//! evidence. The host that redirected has served the request: that ends its trial, and is all that
//! it is charged with.
//!
//! Invariants: each host of a chain gets one permit of its pace, whether the fetcher, the client or
//! the visit follows the redirect. A request to a paused host does not go out, if the visit learns
//! of it in time.
//!
//! Must not know: how a redirect is written on the wire.

use std::borrow::Borrow;
use std::ops::Deref;

use url::Url;

use super::decide::HostAdmission;
use super::passage::Passage;
use super::redirect_target::domain;
use super::step::{End, FetchClaims, HostTrial, Step, VisitOutcome, Wait, WaitScope};
use super::{NextStep, Visit};
use crate::selector::Selector;
use fetchwise_types::decision::Selection;
use fetchwise_types::fetch_result::{FetchResult, Outcome};
use fetchwise_types::heuristic::url::{fetchable, parse};
use fetchwise_types::registry::{Class, FetcherSpec};
use fetchwise_types::time::Timestamp;

/// The reason why the target of a redirect is not requested now.
pub(crate) enum RedirectRefusal {
    /// Ask again later.
    Wait(Wait),
    /// Its host is paused until then.
    Paused(Timestamp),
}

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Returns the domain that the last attempt ended at, which is the requested one unless
    /// redirects led elsewhere.
    pub(super) fn host(&self) -> &str {
        self.redirects.landed.as_deref().map_or_else(|| self.domain(), domain)
    }

    /// Returns the URL that responded to a request for `requested`, if it is on another host than
    /// the visit's URL.
    pub(super) fn landing(
        &self,
        result: &FetchResult,
        by: &FetcherSpec,
        requested: Option<&Url>,
    ) -> Option<Box<Url>> {
        // Another server responded, so none of the hosts has said anything. A captive portal is not
        // where the URL leads.
        let is_of_network = result.outcome == Outcome::NetworkBlock;
        if result.provenance.is_some() || is_of_network || by.class == Class::Archive {
            return None;
        }
        let landed =
            result.final_url.as_deref().filter(|url| fetchable(url).is_ok()).or(requested)?;
        (domain(landed) != self.domain()).then(|| Box::new(landed.clone()))
    }

    /// Returns whether the visit follows the redirect of a response. A browser follows redirects
    /// itself. What it leaves is a page whose time is longer than the browser waits: that is
    /// followed once, since it may come again each time.
    pub(super) fn follows(&self, result: &FetchResult, by: &FetcherSpec) -> bool {
        !by.renders
            || matches!(result.outcome, Outcome::Redirect { .. }) && self.redirects.followed == 0
    }

    /// Follows a redirect within the attempt's limit; `from` sent it.
    pub(super) fn follow(
        &mut self,
        from: Option<&Url>,
        to: &str,
        now: Timestamp,
    ) -> Result<(), Outcome> {
        let here = from.unwrap_or_else(|| self.url());
        let Some(there) = here.join(to.trim()).ok().and_then(|url| parse(url.as_str()).ok()) else {
            // A mail address, a script, a data URL: there is no target, and no content here.
            return Err(Outcome::Empty);
        };
        if self.redirects.followed >= self.selector.visit_settings().max_redirects {
            return Err(Outcome::RedirectLoop);
        }
        if domain(&there) != domain(here) {
            let served: Box<str> = domain(here).into();
            self.passage.end_trial_of(&served, now);
        }
        self.redirects.followed += 1;
        self.redirects.target = Some(Box::new(there));
        Ok(())
    }

    /// Hands out the request for the target of a redirect, once its host admits it.
    pub(super) fn hand_out_redirected(
        &mut self,
        selection: Selection,
        claims: FetchClaims<S>,
        now: Timestamp,
    ) -> Step<S> {
        let target: Box<str> = domain(self.url()).into();
        match self.admit_target(&target, now) {
            Ok(()) => self.hand_out_when_admitted(selection, claims, now),
            Err(RedirectRefusal::Wait(wait)) => {
                self.next = NextStep::Repeat(selection, claims);
                Step::Wait(wait)
            }
            Err(RedirectRefusal::Paused(until)) => {
                drop(claims);
                Step::End(self.end_before_target(until, now))
            }
        }
    }

    /// Ends the visit before a request to the host of a redirect's target, which is paused.
    pub(super) fn end_before_target(&mut self, until: Timestamp, now: Timestamp) -> End {
        match self.last.error.take() {
            Some(error) => self.fail(error, now),
            None => self.end(VisitOutcome::Paused { until, whom: WaitScope::Host }, now),
        }
    }

    /// Requests admission to the host of a redirect's target.
    pub(super) fn admit_target(
        &mut self,
        domain: &str,
        now: Timestamp,
    ) -> Result<(), RedirectRefusal> {
        // The visit was admitted to its own host when it began.
        if domain == self.domain() {
            return Ok(());
        }
        self.passage.admit_host(domain, now)
    }
}

impl<S: Deref<Target = Selector> + Clone> Passage<S> {
    /// Requests admission to a host: it must not be paused, and a host whose pause has ended gets
    /// one trial.
    pub(crate) fn admit_host(
        &mut self,
        domain: &str,
        now: Timestamp,
    ) -> Result<(), RedirectRefusal> {
        if self.has_trial_of(domain) {
            return Ok(());
        }
        loop {
            let Some(until) = self.selector.host_pause(domain) else { return Ok(()) };
            if until > now {
                return match self.wait_at(domain, until, now) {
                    Some(wait) => Err(RedirectRefusal::Wait(wait)),
                    // A trial has reached a verdict since the pause was read.
                    None if self.selector.host_pause(domain) != Some(until) => continue,
                    None => Err(RedirectRefusal::Paused(until)),
                };
            }
            match self.admit(domain, now) {
                HostAdmission::Open => return Ok(()),
                HostAdmission::Retry => {}
                HostAdmission::Wait(wait) => return Err(RedirectRefusal::Wait(wait)),
                HostAdmission::Paused(until) => return Err(RedirectRefusal::Paused(until)),
            }
        }
    }

    /// Returns whether this is the trial of `domain`.
    pub(super) fn has_trial_of(&self, domain: &str) -> bool {
        self.host_trial.as_ref().is_some_and(|trial| *trial.domain == *domain)
    }

    /// Takes the claim of the trial of `domain`, if this is it.
    pub(super) fn take_trial_of(&mut self, domain: &str) -> Option<HostTrial<S>> {
        self.host_trial.take_if(|trial| *trial.domain == *domain)
    }

    /// Ends the trial of `domain`, which has served a request: its pause is lifted.
    pub(super) fn end_trial_of(&mut self, domain: &str, now: Timestamp) {
        let Some(trial) = self.take_trial_of(domain) else { return };
        let selector = &*self.selector;
        selector.state().hosts.record_trial_delivery(selector, &trial.domain);
        if let Some(sink) = selector.sink() {
            sink.host_pause(&trial.domain, None, now);
        }
        selector.notify_lifted(&trial.domain);
        trial.settle();
    }
}

#[cfg(feature = "pipeline")]
impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Requests admission to the target of a redirect that the fetcher is about to follow. After a
    /// wait, call it again with the same target.
    pub(crate) fn enter(
        &mut self,
        fetch: &mut super::Fetch<S>,
        to: &Url,
    ) -> Result<(), RedirectRefusal> {
        let (now, target) = (self.selector.now(), domain(to));
        let from = fetch.entered.as_deref().unwrap_or_else(|| domain(self.url()));
        if from != target {
            let served: Box<str> = from.into();
            if let Some(permit) = fetch.claims.permit.take() {
                super::pace::report_redirect(permit, fetch.selection, now);
            }
            self.passage.end_trial_of(&served, now);
            (fetch.entered, fetch.is_entering) = (Some(target.into()), true);
        }
        if fetch.is_entering {
            self.admit_target(target, now)?;
            let permit = self.take_pace_permit_at(target, fetch.selection, now);
            fetch.claims.permit = permit.map_err(RedirectRefusal::Wait)?;
            fetch.is_entering = false;
        }
        Ok(())
    }

    /// Ends a visit whose fetcher was not admitted to the target of a redirect. Nothing is
    /// recorded: no host has refused anything.
    pub(crate) fn stop_before(
        &mut self,
        fetch: super::Fetch<S>,
        to: Url,
        why: RedirectRefusal,
    ) -> End {
        drop(fetch);
        self.redirects.target = Some(Box::new(to));
        match why {
            RedirectRefusal::Wait(wait) => self.give_up(&wait),
            RedirectRefusal::Paused(until) => self.end_before_target(until, self.selector.now()),
        }
    }
}
