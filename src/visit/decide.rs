//! The next step of a visit that is not settled yet: the decision, the host's pause, single flight.

use std::borrow::Borrow;
use std::ops::Deref;
use std::time::Duration;

use url::Url;

use super::passage::Passage;
use super::step::{
    FetchClaims, FetcherTrial, HostTrial, Step, VisitOutcome, Wait, WaitReason, WaitScope,
};
use super::{NextStep, Visit};
use crate::backoff::LinkState;
use crate::pause_coordination::TrialPermission;
use crate::router::{Mode, Routed};
use crate::selector::pauses::BreakerTrial;
use crate::selector::{HostRisk, SelectContext, Selector};
use crate::state::single_flight::{FlightRole, Lead};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{Arm, ErrorType};
use fetchwise_types::decision::{Decision, Rule, Selection, Source};
use fetchwise_types::registry::{Class, FetcherId};
use fetchwise_types::time::Timestamp;

/// Maximum time for which a trial that neither ends nor is dropped holds off others.
const MAX_TRIAL: Duration = Duration::from_secs(600);
/// Time added to the limits of a probe and its retry, after which followers stop waiting for it.
const PROBE_GRACE: Duration = Duration::from_secs(10);

/// Time after which a visit asks again for a permission that other nodes settle.
const MAX_PERMISSION_WAIT: Duration = Duration::from_secs(10);

/// Whether a request may go out to a host.
pub(super) enum HostAdmission {
    /// The request may go out.
    Open,
    /// Ask again: another visit has just reached a verdict.
    Retry,
    /// The visit has to wait.
    Wait(Wait),
    /// The host is paused until then.
    Paused(Timestamp),
}

/// What a visit that would probe its host does.
enum ProbeTurn {
    /// It fetches, with the lead of the host's probe if it leads one.
    Fetch(Option<Lead>),
    /// It decides again, as a follower.
    Again,
    /// It waits for another visit's probe.
    Wait(Wait),
}

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    pub(super) fn decide(&mut self, now: Timestamp) -> Step<S> {
        loop {
            let (mut selection, host) = match self.select_once(now) {
                Ok(decided) => decided,
                Err(NoSelection::Ended(how)) => return Step::End(self.end(how, now)),
                Err(NoSelection::Failed(error)) => return Step::End(self.fail(error, now)),
                Err(NoSelection::NoViableFetcher) => return Step::End(self.no_viable_fetcher(now)),
                Err(NoSelection::Wait(wait)) => return Step::Wait(wait),
                Err(NoSelection::Retry) => continue,
            };
            if host == HostRisk::AtRisk
                && self.tried.attempts == 0
                && !self.passage.has_trial_of(self.domain())
            {
                let domain: Box<str> = self.domain().into();
                match self.passage.admit(&domain, now) {
                    // The visit has just become the trial, which another fetcher makes.
                    HostAdmission::Open
                        if self.fetcher_left_out(now) == Some(selection.fetcher) =>
                    {
                        continue;
                    }
                    HostAdmission::Open => {}
                    HostAdmission::Retry => continue,
                    HostAdmission::Wait(wait) => return Step::Wait(wait),
                    HostAdmission::Paused(until) => {
                        return Step::End(
                            self.end(VisitOutcome::Paused { until, whom: WaitScope::Host }, now),
                        );
                    }
                }
            }
            let mut claims = FetchClaims::NONE;
            if host == HostRisk::AtRisk && !selection.breaker_ignored {
                let domain = self.decided_domain();
                match self.selector.claim_breaker_trial(domain, selection.fetcher, now) {
                    BreakerTrial::NotNeeded => {}
                    claimed @ BreakerTrial::Claimed { .. } => {
                        claims.trial = Some(FetcherTrial::new(
                            self.selector.clone(),
                            domain,
                            selection.fetcher,
                            claimed,
                        ));
                    }
                    // The owner of the trial has opened the breaker again; the next decision sees
                    // that.
                    BreakerTrial::Taken => continue,
                }
            }
            if selection.source == Source::Probe && self.tried.attempts == 0 {
                match self.join_probe(&mut selection, now) {
                    ProbeTurn::Fetch(lead) => claims.lead = lead,
                    ProbeTurn::Again => continue,
                    ProbeTurn::Wait(wait) => return Step::Wait(wait),
                }
            }
            let has_no_claims = claims.lead.is_none() && claims.trial.is_none();
            let step = self.hand_out_when_admitted(selection, claims, now);
            if has_no_claims && matches!(step, Step::Wait(_)) {
                // A visit that holds no claim decides again when its turn comes, with the evidence
                // of that time.
                self.next = NextStep::Decide;
            }
            return step;
        }
    }

    /// Makes no more requests of a host that answers nothing to anybody: only an archive may have
    /// its pages.
    pub(super) fn leave_silent_host(&mut self, now: Timestamp) {
        let silent = match &self.next {
            NextStep::Ended(_) => None,
            _ if self.redirects.target.is_some() => None,
            _ => self.selector.state().silent_hosts.gone(self.domain(), now),
        };
        let Some(silent) = silent else { return };
        for (fetcher, spec) in self.selector.candidates() {
            if spec.class != Class::Archive {
                self.tried.excluded.insert(fetcher);
            }
        }
        if self.last.error.is_none() {
            self.last.error = Some(ErrorType::Known(ErrorKind::NetworkError));
            self.last.message = format!(
                "no answer to {} requests of {} in {} s; it is asked again five minutes after the last one",
                silent.requests,
                self.domain(),
                now.since(silent.since).as_secs(),
            );
        }
        if let NextStep::Repeat(selection, _) = &self.next
            && self.tried.excluded.contains(selection.fetcher)
        {
            self.next = NextStep::Decide;
        }
    }

    /// Joins the probe of the host that is in flight, or leads a new one. A visit that has followed
    /// one to its end uses its result.
    fn join_probe(&mut self, selection: &mut Selection, now: Timestamp) -> ProbeTurn {
        if let Some(follower) = self.probe.following.take() {
            // Listen before the check, so that an end in between is not missed.
            let listener = follower.listen();
            match follower.verdict() {
                None if follower.expected_by() > now => {
                    let wait = Wait::following(&follower, listener, WaitReason::Probe);
                    self.probe.following = Some(follower);
                    return ProbeTurn::Wait(wait);
                }
                verdict => {
                    self.probe.followed = verdict == Some(true);
                    self.probe.followed_in_vain |= follower.is_abandoned(now);
                }
            }
        }
        if self.probe.followed {
            (selection.source, selection.rule) = (Source::Inferred, Rule::SharedProbe);
            return ProbeTurn::Fetch(None);
        }
        if self.probe.followed_in_vain {
            return ProbeTurn::Fetch(None);
        }
        let settings = self.selector.visit_settings();
        let expected_by =
            now.saturating_add(settings.probe_deadline + settings.deadline + PROBE_GRACE);
        match self.selector.state().probes.join(self.domain(), now, expected_by) {
            FlightRole::Leader(lead) => ProbeTurn::Fetch(Some(lead)),
            FlightRole::Follower(follower) => {
                self.probe.following = Some(follower);
                ProbeTurn::Again
            }
        }
    }

    /// Calls the router (for the first attempt) or the selector (for later ones) once.
    fn select_once(&mut self, now: Timestamp) -> Result<(Selection, HostRisk), NoSelection> {
        let first = self.tried.attempts == 0;
        let state = self.selector.state();
        // Another visit of the same link may have ended while this one waited.
        let link = state.links.get(self.link_name());
        if first {
            self.tried.hint = link.hint;
        }
        let known = self.options.heuristics.clone();
        let context = SelectContext {
            now,
            // The pause was checked before the first attempt; this visit's own failures do not stop
            // it half way.
            link: if first { link } else { LinkState { paused_until: None, ..link } },
            hint: self.tried.hint,
            excluded: self.tried.excluded,
            attempts: self.tried.attempts,
            prefer: self.options.preferred.filter(|id| first && !self.tried.excluded.contains(*id)),
            host_trial: self.passage.has_trial_of(self.decided_domain()),
            heuristics: known.as_deref().unwrap_or_default(),
        };
        self.selector.bring_back(self.decided_url(), context.heuristics);
        let (decision, host) = match self
            .fetcher_left_out(now)
            .map(|left_out| self.select_without(left_out, &context))
        {
            Some(other) => other?,
            None if first => self.route(&context)?,
            None => self.select(&context)?,
        };
        match decision {
            Decision::Selected(selection) if !self.tried.excluded.contains(selection.fetcher) => {
                Ok((selection, host))
            }
            Decision::Selected(selection) => {
                let name = self.selector.fetcher_name(selection.fetcher);
                self.last.message = format!("{name} is not available");
                Err(self.no_fetcher_left())
            }
            // A pause that began during this visit ends it with the failure that it has.
            Decision::Paused { .. } if !first => Err(self.no_fetcher_left()),
            Decision::Paused { until, host: true } => Err(self.on_paused_host(until, now)),
            Decision::Paused { until, .. } => {
                Err(NoSelection::Ended(VisitOutcome::Paused { until, whom: WaitScope::Link }))
            }
            Decision::GiveUp | Decision::NoViableFetcher if self.is_left_by_policy(now) => {
                self.last.message =
                    "the site refuses signed requests, and no other fetcher may go on there"
                        .to_owned();
                Err(NoSelection::Failed(ErrorType::Known(ErrorKind::LeftByPolicy)))
            }
            Decision::NoViableFetcher if first && self.last.error.is_none() => {
                Err(NoSelection::NoViableFetcher)
            }
            Decision::GiveUp | Decision::NoViableFetcher => Err(self.no_fetcher_left()),
        }
    }

    /// Calls the router for a trial by another fetcher than `left_out`; if there is none, by that
    /// one.
    fn select_without(
        &mut self,
        left_out: FetcherId,
        context: &SelectContext<'_>,
    ) -> Result<(Decision, HostRisk), NoSelection> {
        let mut excluded = context.excluded;
        excluded.insert(left_out);
        let prefer = context.prefer.filter(|prefer| *prefer != left_out);
        match self.route(&SelectContext { excluded, prefer, ..*context }) {
            Ok((Decision::Selected(selection), host)) if !excluded.contains(selection.fetcher) => {
                Ok((Decision::Selected(selection), host))
            }
            _ => self.route(context),
        }
    }

    fn select(&self, context: &SelectContext<'_>) -> Result<(Decision, HostRisk), NoSelection> {
        // The URL was checked when the visit began.
        let decided = self.selector.select_with_host_risk(self.decided_url(), context);
        decided.map_err(|_| NoSelection::Ended(VisitOutcome::NoFetcher))
    }

    /// Returns the URL whose evidence decides: after a failure at another host, that of the other
    /// host.
    fn decided_url(&self) -> &Url {
        self.redirects
            .landed
            .as_deref()
            .filter(|_| self.tried.attempts > 0)
            .unwrap_or_else(|| self.url.borrow())
    }

    /// Returns whether the crawl's policy leaves the host that the last decision was about.
    fn is_left_by_policy(&self, now: Timestamp) -> bool {
        self.selector.is_left_by_policy(self.decided_url(), now)
    }

    /// Returns the domain whose evidence the next decision reads.
    fn decided_domain(&self) -> &str {
        if self.tried.attempts > 0 { self.host() } else { self.domain() }
    }

    fn route(&mut self, context: &SelectContext<'_>) -> Result<(Decision, HostRisk), NoSelection> {
        if self.options.learning.is_none() && self.selector.is_only_learning() {
            (self.tried.arm, self.tried.shadow) = (None, None);
            return self.select(context);
        }
        match self.selector.route_uncounted(self.url.borrow(), context, self.options.learning) {
            Ok(Routed { decision, arm, shadow }) => {
                let arm = if arm == Mode::Legacy { Arm::Legacy } else { Arm::Learning };
                (self.tried.arm, self.tried.shadow) = (Some(arm), shadow);
                Ok((decision, HostRisk::AtRisk))
            }
            Err(error) => {
                self.last.source = Some(Source::HardCoded);
                self.last.message = error.to_string();
                Err(NoSelection::Ended(VisitOutcome::NoRoute(error)))
            }
        }
    }

    /// Ends a visit that has no usable fetcher: with its last failure, or with `NoFetcher` if it
    /// made no attempt.
    fn no_fetcher_left(&mut self) -> NoSelection {
        match self.last.error.take() {
            Some(error) => NoSelection::Failed(error),
            None => {
                if let Some(why) = self.tried.unavailable.take() {
                    self.last.message = why;
                } else if self.last.message.is_empty() {
                    self.last.message = "no configured fetcher is available".to_owned();
                }
                NoSelection::Ended(VisitOutcome::NoFetcher)
            }
        }
    }

    /// Handles a paused host: waits while another visit tries it out, or ends.
    fn on_paused_host(&self, until: Timestamp, now: Timestamp) -> NoSelection {
        let domain = self.domain();
        match self.passage.wait_at(domain, until, now) {
            Some(wait) => NoSelection::Wait(wait),
            // The trial has reached a verdict since the pause was read, so no visit was found to
            // follow.
            None if self.selector.host_pause(domain) != Some(until) => NoSelection::Retry,
            None => NoSelection::Ended(VisitOutcome::Paused { until, whom: WaitScope::Host }),
        }
    }
}

impl<S: Deref<Target = Selector> + Clone> Passage<S> {
    /// Returns the wait at a host that is paused until then, if that is for a trial or for its
    /// pace.
    pub(super) fn wait_at(&self, domain: &str, until: Timestamp, now: Timestamp) -> Option<Wait> {
        self.follow_trial(domain, now).or_else(|| self.pace_holds_until(domain, until, now))
    }

    pub(super) fn follow_trial(&self, domain: &str, now: Timestamp) -> Option<Wait> {
        let follower = self.selector.state().trials.follow(domain, now)?;
        let listener = follower.listen();
        follower
            .verdict()
            .is_none()
            .then(|| Wait::following(&follower, listener, WaitReason::Trial))
    }

    /// Requests admission to the host, whose pause, if any, is over.
    pub(super) fn admit(&mut self, domain: &str, now: Timestamp) -> HostAdmission {
        let Some(ended) = self.selector.host_pause(domain) else { return HostAdmission::Open };
        if ended <= now
            && let Some(not_yet) = self.trial_refusal(domain, ended, now)
        {
            return not_yet;
        }
        let held_until = now.saturating_add(MAX_TRIAL);
        // The flight begins before its pause and ends after it: a visit that sees the pause of a
        // trial finds a trial to follow, and does not take the time limit of the trial for a pause
        // of the host.
        if ended <= now
            && let FlightRole::Leader(lead) =
                self.selector.state().trials.join(domain, now, held_until)
            && self.selector.claim_host_trial(domain, ended, held_until)
        {
            let (selector, domain) = (self.selector.clone(), domain.into());
            self.host_trial = Some(HostTrial {
                selector,
                domain,
                held_until,
                ended,
                is_settled: false,
                lead: Some(lead),
            });
            return HostAdmission::Open;
        }
        if let Some(wait) = self.follow_trial(domain, now) {
            return HostAdmission::Wait(wait);
        }
        match self.selector.host_pause(domain) {
            // Another visit has reached a verdict already.
            None => HostAdmission::Open,
            Some(until) if until > now => HostAdmission::Paused(until),
            Some(_) => HostAdmission::Retry,
        }
    }

    /// Returns why this process may not try out the host itself, if other processes share its
    /// address.
    fn trial_refusal(
        &self,
        domain: &str,
        ended: Timestamp,
        now: Timestamp,
    ) -> Option<HostAdmission> {
        let coordinator = self.selector.state().pause_coordinator.get()?;
        match coordinator.may_try(domain, ended, now) {
            TrialPermission::Now => None,
            TrialPermission::NotBefore(until) => {
                // No visit asks again before then, unless another one has reached a verdict
                // meanwhile.
                let is_held = self.selector.claim_host_trial(domain, ended, until);
                // A permission that arrived before the hold was set has not ended the hold.
                if is_held
                    && matches!(coordinator.may_try(domain, ended, now), TrialPermission::Now)
                {
                    self.selector.claim_host_trial(domain, until, ended);
                    return None;
                }
                Some(HostAdmission::Paused(until))
            }
            TrialPermission::Pending(settled) => {
                let until = now.saturating_add(MAX_PERMISSION_WAIT);
                Some(HostAdmission::Wait(Wait {
                    until,
                    reason: WaitReason::Trial,
                    listener: Some(settled.0),
                }))
            }
        }
    }
}

/// The reason why there is no fetch.
enum NoSelection {
    Ended(VisitOutcome),
    /// No other fetcher is worth a try after a failure.
    Failed(ErrorType),
    /// No fetcher is worth even a first try.
    NoViableFetcher,
    Wait(Wait),
    /// The state behind the decision has changed: decide again.
    Retry,
}
