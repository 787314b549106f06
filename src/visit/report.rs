//! The result of a fetch: what follows from its [meaning](super::classify) for the visit, its link
//! and its host.

use std::borrow::Borrow;
use std::ops::Deref;
use std::time::Duration;

use url::Url;

use super::classify::{Circumstances, Classified, Meaning, classify, error_of};
use super::pace::PaceEffect;
use super::record::SentRequest;
use super::step::{Fetch, FetchClaims, VisitOutcome, WaitScope};
use super::{NextStep, Visit, redirect_target};
use crate::backoff::retry_after;
use crate::metrics::recorder::ProbeEnd;
use crate::selector::Selector;
use crate::state::host_pauses::PauseReason;
use crate::state::uplink::{Sign, Silence};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{Arm, ErrorType, Hint};
use fetchwise_types::fetch_result::{FetchResult, Outcome};
use fetchwise_types::registry::Class;
use fetchwise_types::response::header;
use fetchwise_types::time::Timestamp;

/// Delay before the first retry after a local fault; it doubles each time.
const LOCAL_FAULT_BASE: Duration = Duration::from_millis(250);

/// Wait until the last retry of a host that has just served.
const LATER: Duration = Duration::from_secs(3);
/// Least wait for a link that a known limit has refused.
const REFUSED_WAIT: Duration = Duration::from_secs(1);

/// Share of the pages of a host with errors at any rate that may still fail after all retries.
const LOST_TO_NOISE: f64 = 0.002;
/// Maximum number of retries of one page for such errors.
const MAX_NOISE_RETRIES: u32 = 8;

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Reports the result of a fetch: a [`FetchResult`], or an [`Outcome`] alone. Records the
    /// attempt with all that the log needs, and settles the next step.
    ///
    /// A redirect written in HTML does not end the attempt: it goes on at another
    /// [`url`](Visit::url), and is recorded when that URL has responded. A local fault is not
    /// recorded.
    pub fn report(&mut self, fetch: Fetch<S>, result: impl Into<FetchResult>) {
        let mut result = result.into();
        let Fetch { selection, at, mut claims, number, is_probe, requested, span, .. } = fetch;
        let _entered = span.enter();
        let is_abandoned = number != self.tried.number || matches!(self.next, NextStep::Ended(_));
        let Some(by) = self.selector.fetcher(selection.fetcher).cloned() else { return };
        let sent =
            SentRequest { span: &span, selection, by, at, is_probe, now: self.selector.now() };
        self.attribute_silence(&mut result, sent.now);
        if result.status.is_some() {
            self.selector.state().proxies.passed(selection.fetcher);
        }
        if let Outcome::Http(status) = result.outcome
            && is_limit(status, self.requested_pause(&result, sent.now))
        {
            result.outcome = Outcome::RateLimited;
        }
        if result.outcome == Outcome::Local {
            // A follower may have more luck.
            drop(claims);
            if !is_abandoned {
                self.local_fault(result.message, sent.now);
            }
            return;
        }
        if is_abandoned {
            return self.record_abandoned(&sent, claims, &result, requested.as_deref());
        }
        self.record_unanswered(&sent, &mut result);
        self.redirects.landed = self.landing(&result, &sent.by, requested.as_deref());
        if self.redirects.landed.is_some() {
            let served: Box<str> = self.domain().into();
            self.passage.end_trial_of(&served, sent.now);
        }
        if let Some(to) =
            redirect_target::target(&result).filter(|_| self.follows(&result, &sent.by))
        {
            match self.follow(result.final_url.as_deref(), &to, sent.now) {
                Ok(()) => {
                    self.report_to_pace(claims.permit.take(), &sent, &result, None);
                    self.next = NextStep::Repeat(selection, claims);
                    return;
                }
                Err(outcome) => result.outcome = outcome,
            }
        }
        self.judge_short_page(&mut result, (selection.fetcher, &sent.by), sent.now);
        let history = self.judge_repeated_page(&mut result, selection.fetcher);
        self.judge_cross_site_page(&mut result, (selection.fetcher, history), sent.now);
        let case = self.circumstances(&sent, &mut claims, &result);
        let classified = classify(&result, &sent.by, &case);
        self.tried.requests += 1;
        if is_probe {
            let end = if classified.error.is_none() { ProbeEnd::Reused } else { ProbeEnd::Failed };
            self.selector.recorder().count_probe(end);
        }
        self.record(&sent, &result, classified.error.clone(), classified.weight);
        if let PaceEffect::Held(until) = case.effect {
            let host: Box<str> = self.host().into();
            self.passage.pause_for_hold(&host, until, Some(sent.selection.fetcher), sent.now);
        }
        self.apply(classified, &sent, &result, claims);
    }

    /// Records the result of an older fetch, which was abandoned when the driver asked for the next
    /// step. Nothing else changes.
    fn record_abandoned(
        &mut self,
        sent: &SentRequest<'_>,
        mut claims: FetchClaims<S>,
        result: &FetchResult,
        requested: Option<&Url>,
    ) {
        let landed = self.landing(result, &sent.by, requested);
        let (doubt, landed) =
            (self.seen.doubt, std::mem::replace(&mut self.redirects.landed, landed));
        let asked = self.requested_pause(result, sent.now);
        self.report_to_pace(claims.permit.take(), sent, result, asked);
        self.record(sent, result, error_of(result, &sent.by), 0.0);
        (self.seen.doubt, self.redirects.landed) = (doubt, landed);
    }

    /// Tells the host's pace the result, and returns what its meaning depends on besides.
    fn circumstances(
        &mut self,
        sent: &SentRequest<'_>,
        claims: &mut FetchClaims<S>,
        result: &FetchResult,
    ) -> Circumstances {
        let error = error_of(result, &sent.by);
        let kind = error.as_ref().and_then(ErrorType::kind);
        let asked = self.requested_pause(result, sent.now);
        // Checked before the pace gets the result, since afterwards it knows of the block only.
        let was_served = error.is_some() && self.is_about_pace(sent.selection, sent.now);
        let is_trial = self.is_trial_of_pace(sent.now);
        let effect = self.report_to_pace(claims.permit.take(), sent, result, asked);
        self.last.was_trial = is_trial && matches!(effect, PaceEffect::Held(_));
        self.seen.retry_after = self.seen.retry_after.max(asked);
        if let PaceEffect::Refused(until) = effect
            && was_served
        {
            self.seen.retry_after =
                self.seen.retry_after.max(Some(until.since(sent.now).max(REFUSED_WAIT)));
        }
        self.tried.timeouts += u32::from(kind == Some(ErrorKind::Timeout));
        let settings = self.selector.visit_settings();
        let retries = self.retry_limit(settings.max_retries, kind);
        let may_retry_later = was_served && self.may_retry_later(settings.max_retries, kind);
        Circumstances {
            asked,
            effect,
            was_served,
            is_page_block: was_served && self.is_page_block(kind, sent.selection),
            may_retry: self.tried.retries < retries + u32::from(may_retry_later),
            is_out_of_time: self.tried.timeouts >= settings.max_timeouts,
            ends_after_block: !settings.escalate_after_block,
            is_by_table: self.tried.arm == Some(Arm::Legacy),
            is_settled: self.seen.short_pages.is_settled,
        }
    }

    /// Does what follows from a recorded result.
    fn apply(
        &mut self,
        classified: Classified,
        sent: &SentRequest<'_>,
        result: &FetchResult,
        mut claims: FetchClaims<S>,
    ) {
        let Classified { meaning, error, .. } = classified;
        let kind = error.as_ref().and_then(ErrorType::kind);
        // The site's own earlier response stays decisive: a missing archive copy does not undo a
        // block.
        let is_of_intermediary = kind.is_some_and(ErrorKind::is_of_intermediary);
        let site_error = if is_of_intermediary { self.last.error.take() } else { None };
        if site_error.is_none() {
            self.keep_last_attempt(sent.selection, result, error.as_ref());
        }
        self.last.at = Some(sent.at);
        (self.redirects.target, self.redirects.followed) = (None, 0);
        let Some(error) = error else {
            claims.settle(self.host());
            if result.provenance.is_some() {
                // The host was not contacted, so its trial has not taken place.
                self.passage.host_trial = None;
            }
            return self.deliver(sent.now);
        };
        if meaning == Meaning::Retry {
            let is_late = self.tried.retries
                >= self.retry_limit(self.selector.visit_settings().max_retries, kind);
            self.tried.retries += 1;
            if is_late {
                // Others need not wait for it.
                claims.lead = None;
                self.seen.failed_at = Some(sent.now);
                self.seen.retry_at = Some(sent.now.saturating_add(LATER));
            }
            if sent.is_probe && kind == Some(ErrorKind::Timeout) {
                // The retry may take long. Another visit probes meanwhile, and the others follow
                // that one.
                claims.lead = None;
            }
            self.last.error = Some(error);
            self.next = NextStep::Repeat(sent.selection, claims);
            return;
        }
        claims.settle(self.host());
        if kind == Some(ErrorKind::ProxyError)
            && let Some(wait) = self.wait_for_proxy(sent, site_error.as_ref())
        {
            self.last.error = site_error.or(Some(error));
            self.next = NextStep::DecideAfter(sent.now.saturating_add(wait));
            return;
        }
        self.tried.attempts += 1;
        if result.is_refused
            || kind == Some(ErrorKind::NetworkBlock) && self.is_refused_to_browsers(sent)
        {
            self.exclude_browsers();
        }
        self.tried.excluded.insert(sent.selection.fetcher);
        let hint = kind.map_or(Hint::Unknown, Hint::after);
        self.tried.hint = self.tried.hint.filter(|_| is_of_intermediary).or(Some(hint));
        let error = site_error.unwrap_or(error);
        if meaning == Meaning::OtherFetcher {
            self.last.error = Some(error);
            self.next = NextStep::Decide;
            return;
        }
        if meaning == Meaning::Limit {
            match self.passage.remaining_hold(self.host(), sent.now) {
                Some(hold) => self.seen.retry_after = self.seen.retry_after.max(Some(hold)),
                None => self.pause_limited_host(sent.now),
            }
            if kind == Some(ErrorKind::ServerError)
                && let Some(until) = self.selector.host_pause(self.host())
            {
                // A server that is being maintained, and says for how long, says nothing of the
                // page.
                let _ = self.end(VisitOutcome::Paused { until, whom: WaitScope::Host }, sent.now);
                return;
            }
        }
        // The end is kept for the next call of `next`.
        let _ = self.fail(error, sent.now);
    }

    /// Reports that the fetcher is unavailable (its program does not start). No request was made,
    /// so nothing is recorded, and the visit chooses another fetcher.
    pub fn unavailable(&mut self, fetch: Fetch<S>, why: impl Into<String>) {
        let name = self.selector.fetcher_name(fetch.selection.fetcher);
        let why = format!("{name} is not available: {}", why.into());
        self.tried.excluded.insert(fetch.selection.fetcher);
        self.tried.unavailable.get_or_insert(why);
        if !matches!(self.next, NextStep::Ended(_)) {
            self.next = NextStep::Decide;
        }
    }

    /// Returns how long the visit waits for the proxy, or the service, that has just failed; `None`
    /// if it has another fetcher, or has waited long enough. If the site has refused another
    /// fetcher, only a service that has passed something before is waited for.
    fn wait_for_proxy(
        &mut self,
        sent: &SentRequest<'_>,
        site_error: Option<&ErrorType>,
    ) -> Option<Duration> {
        let (selector, failed) = (self.selector.clone(), sent.selection.fetcher);
        let has_other = selector
            .candidates()
            .any(|(fetcher, _)| fetcher != failed && !self.tried.excluded.contains(fetcher));
        let is_retried = selector.visit_settings().max_retries > 0;
        let proxies = &selector.state().proxies;
        let of_site = site_error.and_then(ErrorType::kind);
        let is_refused = of_site.is_some_and(|kind| !kind.is_of_intermediary());
        let is_missing = is_refused && !proxies.has_passed(failed);
        if has_other || !is_retried || is_missing || sent.by.class == Class::Archive {
            return None;
        }
        proxies.failed(failed, &mut self.tried.proxy_faults, sent.now)
    }

    /// Returns whether the crawler's network, which put a page in place of this one, does so for
    /// browsers, too.
    fn is_refused_to_browsers(&self, sent: &SentRequest<'_>) -> bool {
        let (hosts, host) = (&self.selector.state().hosts, self.host());
        if sent.by.renders {
            hosts.record_network_refusal(host, sent.now);
        }
        hosts.is_refused_by_network(host, sent.now)
    }

    /// Excludes the browsers: the host or the network refused the request, so a render is wasted.
    fn exclude_browsers(&mut self) {
        let browsers =
            self.selector.candidates().filter(|(_, spec)| spec.renders).map(|(id, _)| id);
        let browsers: Vec<_> = browsers.collect();
        browsers.into_iter().for_each(|id| self.tried.excluded.insert(id));
    }

    /// Tells the state of this machine's connection what came. If no site can be reached, the failure
    /// is a local fault. If a name does not resolve that did a moment ago, its server is out of
    /// reach, and it may pass.
    fn attribute_silence(&self, result: &mut FetchResult, now: Timestamp) {
        let asked = result.final_url.as_deref().unwrap_or_else(|| self.url());
        match self.selector.take_sign(asked, Sign::of(result), now) {
            Some(Silence::Uplink) => {
                let what = result.message.take().unwrap_or_else(|| result.outcome.to_string());
                result.message = Some(format!("no site answers this machine: {what}"));
                result.outcome = Outcome::Local;
            }
            Some(Silence::AnsweringSite) if result.outcome == Outcome::Dns => {
                result.message.get_or_insert_with(|| Outcome::Dns.to_string());
                result.outcome = Outcome::Network;
            }
            _ => {}
        }
    }

    fn local_fault(&mut self, message: Option<String>, now: Timestamp) {
        self.last.message = message.unwrap_or_else(|| Outcome::Local.to_string());
        let uplink = &self.selector.state().uplink;
        if uplink.lost_since(now).is_some() {
            (self.redirects.target, self.redirects.followed) = (None, 0);
            self.next = NextStep::DecideAfter(uplink.wait(now).unwrap_or(now));
            return;
        }
        if self.tried.local_faults >= self.selector.visit_settings().max_local_faults {
            let _ = self.fail(ErrorType::Known(ErrorKind::LocalFault), now);
            return;
        }
        let wait = LOCAL_FAULT_BASE.saturating_mul(1 << self.tried.local_faults.min(16));
        self.tried.local_faults += 1;
        (self.redirects.target, self.redirects.followed) = (None, 0);
        self.next = NextStep::DecideAfter(now.saturating_add(wait));
    }

    /// Returns the maximum number of retries after a failure of this kind. A host that gives errors
    /// at any rate would lose many pages with a single one.
    fn retry_limit(&self, max_retries: u32, kind: Option<ErrorKind>) -> u32 {
        let noise = match kind {
            Some(ErrorKind::ServerError) if max_retries > 0 => {
                self.selector.pace().and_then(|pace| pace.error_noise(self.host()))
            }
            _ => None,
        };
        // After n requests, the n-th power of the share of errors is left.
        let requests = noise.map_or(0.0, |share| LOST_TO_NOISE.ln() / share.clamp(1e-6, 0.99).ln());
        max_retries.max((requests.ceil() as u32).saturating_sub(1).min(MAX_NOISE_RETRIES))
    }

    /// Returns whether a failure may be retried once more, a little later: a host that has just
    /// served and fails twice in a row may refuse for a moment, and its pace has not seen enough to
    /// say so.
    fn may_retry_later(&self, max_retries: u32, kind: Option<ErrorKind>) -> bool {
        let may_be_refusal =
            [ErrorKind::ServerError, ErrorKind::NetworkError, ErrorKind::Truncated];
        max_retries > 0 && kind.is_some_and(|kind| may_be_refusal.contains(&kind))
    }

    /// Returns the pause that the response asks for.
    fn requested_pause(&self, result: &FetchResult, now: Timestamp) -> Option<Duration> {
        let date = || self.selector.clock().date_of(now);
        let said =
            || header(&result.headers, "retry-after").and_then(|value| retry_after(value, date()));
        result.retry_after.or_else(said)
    }

    /// Pauses the host for every link and every fetcher: it has said "not now".
    fn pause_limited_host(&mut self, now: Timestamp) {
        let host: Box<str> = self.host().into();
        self.record_host_failure(&host, PauseReason::Limited(self.seen.retry_after), now);
    }
}

/// Returns whether an error of the client is a limit: it says for how long, or it has the status by
/// which some services limit. Statuses that say what a page is, or who may have it, stay.
fn is_limit(status: u16, asked: Option<Duration>) -> bool {
    let is_of_page = matches!(status, 401 | 402 | 404 | 407 | 408 | 410 | 421 | 425);
    matches!(status, 420 | 430) || (400..500).contains(&status) && !is_of_page && asked.is_some()
}
