//! The result of a fetch: the attempt that is recorded, and whether the visit goes on, retries, or ends.

use std::borrow::{Borrow, Cow};
use std::ops::Deref;
use std::time::Duration;

use url::Url;

use super::pace::PaceEffect;
use super::passage::Passage;
use super::step::{End, Fetch, VisitOutcome};
use super::{NextStep, Visit, redirect_target};
use crate::backoff::{FetchEnd, LinkState, retry_after};
use crate::metrics::recorder::PauseCause;
use crate::metrics::recorder::ProbeEnd;
use crate::selector::Selector;
use crate::state::host_pauses::{PauseReason, TrialRole};
use crate::trace::Span;
use fetchwise_types::attempt::error_kind::{ErrorKind, FailureAction};
use fetchwise_types::attempt::{
    ALLOWED_FOR_HEADER, Arm, Attempt, CONSENT_HEADER, ErrorType, Hint, Tag, stored_headers,
};
use fetchwise_types::decision::Selection;
use fetchwise_types::fetch_result::{FetchResult, Outcome};
use fetchwise_types::heuristic::url::identity;
use fetchwise_types::heuristic::{ASKS_SIGNATURE, CHARGES, Heuristic, REDIRECTED_BY};
use fetchwise_types::registry::FetcherSpec;
use fetchwise_types::response::{Header, header};
use fetchwise_types::time::Timestamp;

/// Delay before the first retry after a local fault; it doubles each time.
const LOCAL_FAULT_BASE: Duration = Duration::from_millis(250);

/// Share of the pages of a host with errors at any rate that may still fail after all retries.
const LOST_TO_NOISE: f64 = 0.002;
/// Maximum number of retries of one page for such errors.
const MAX_NOISE_RETRIES: u32 = 8;

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Reports the result of a fetch: a [`FetchResult`], or an [`Outcome`] alone. Records the attempt with all that the
    /// log needs, and settles the next step.
    ///
    /// A redirect written in HTML does not end the attempt: it goes on at another [`url`](Visit::url), and is recorded
    /// when that URL has responded. A local fault is not recorded.
    pub fn report(&mut self, fetch: Fetch<S>, answer: impl Into<FetchResult>) {
        let mut answer = answer.into();
        let now = self.selector.now();
        let Fetch { selection, at, mut claims, number, is_probe, requested, span, .. } = fetch;
        let _entered = span.enter();
        let permit = claims.permit.take();
        if number != self.number || matches!(self.next, NextStep::Ended(_)) {
            // An older fetch, abandoned when the driver asked for the next step: record it, and change nothing else.
            if answer.outcome == Outcome::Local {
                return;
            }
            let Some(by) = self.by(selection) else { return };
            let landed = self.landing(&answer, &by, requested.as_deref());
            let (doubt, landed) = (self.doubt, std::mem::replace(&mut self.landed, landed));
            self.report_to_pace(permit, selection, at, &by, &answer, self.requested_pause(&answer, now), now);
            let error = answer.outcome.counts_as(&by).err();
            self.record(&span, selection, at, &answer, error, 0.0, now);
            (self.doubt, self.landed) = (doubt, landed);
            return;
        }
        let Some(by) = self.by(selection) else { return };
        if answer.outcome == Outcome::Local {
            // A follower may have more luck.
            drop(claims);
            return self.local_fault(answer.message, now);
        }
        self.record_unanswered(&span, selection, at, &by, &mut answer, now);
        self.landed = self.landing(&answer, &by, requested.as_deref());
        if self.landed.is_some() {
            let served: Box<str> = self.domain().into();
            self.passage.end_trial_of(&served, now);
        }
        if let Some(to) = redirect_target::target(&answer).filter(|_| !by.renders) {
            match self.follow(answer.final_url.as_deref(), &to, now) {
                Ok(()) => {
                    self.report_to_pace(permit, selection, at, &by, &answer, None, now);
                    self.next = NextStep::Repeat(selection, claims);
                    return;
                }
                Err(outcome) => answer.outcome = outcome,
            }
        }
        self.judge_short_page(&mut answer, selection.fetcher, &by);
        self.judge_repeated_page(&mut answer, selection.fetcher);
        let mut error = answer.outcome.counts_as(&by).err();
        let asked = self.requested_pause(&answer, now);
        // Checked before the pace gets the result, since afterwards it knows of the block only.
        let was_served_recently =
            error.is_some() && self.was_served_recently(self.host(), Some(selection), now) && !self.is_later_trial();
        let effect = self.report_to_pace(permit, selection, at, &by, &answer, asked, now);
        let blocked = error.as_ref().and_then(ErrorType::kind).is_some_and(ErrorKind::is_banned);
        let is_limit = is_limit(&answer, error.as_ref(), asked) || blocked && matches!(effect, PaceEffect::Held(_));
        if is_limit && blocked && was_served_recently {
            error = Some(ErrorType::Known(ErrorKind::RateLimited));
        }
        self.retry_after = self.retry_after.max(asked);
        let kind = error.as_ref().and_then(ErrorType::kind);
        self.timeouts += u32::from(kind == Some(ErrorKind::Timeout));
        let settings = *self.selector.visit_settings();
        let out_of_time = self.timeouts >= settings.max_timeouts;
        let retries = kind.is_some_and(ErrorKind::is_transient)
            && !is_limit
            && self.retries < self.retry_limit(settings.max_retries, kind)
            && !(kind == Some(ErrorKind::Timeout) && out_of_time);
        let weight = match &error {
            // The page is the one that an earlier attempt brought. Its cost and its time are not those of a page.
            None if answer.outcome == Outcome::NotModified => 0.0,
            None => 1.0,
            // Not final yet, or not about the fetcher: the host says "not now" to every client.
            Some(_) if retries || is_limit && kind == Some(ErrorKind::ServerError) || effect == PaceEffect::Doubt => {
                0.0
            }
            // The server says that it failed, so no fetcher caused it.
            Some(_) if answer.outcome == Outcome::ServerError => 0.0,
            Some(error) => error.kind().map_or(1.0, ErrorKind::weight),
        };
        self.requests += 1;
        if is_probe {
            self.selector.recorder().count_probe(if error.is_none() { ProbeEnd::Reused } else { ProbeEnd::Failed });
        }
        self.record(&span, selection, at, &answer, error.clone(), weight, now);
        let of_intermediary = kind.is_some_and(ErrorKind::is_of_intermediary);
        // The site's own earlier response stays decisive: a missing archive copy does not undo a block.
        let site_error = if of_intermediary { self.last.error.take() } else { None };
        if site_error.is_none() {
            self.keep_last_attempt(selection, &answer, error.as_ref());
        }
        self.last_attempt_at = Some(at);
        (self.redirected, self.redirects) = (None, 0);
        if let PaceEffect::Held(until) = effect {
            let host: Box<str> = self.host().into();
            self.passage.pause_for_hold(&host, until, now);
        }
        let Some(error) = error else {
            claims.settle(self.host());
            if answer.provenance.is_some() {
                // The host was not contacted, so its trial has not taken place.
                self.passage.host_trial = None;
            }
            self.deliver(now);
            return;
        };
        if retries {
            self.retries += 1;
            if is_probe && kind == Some(ErrorKind::Timeout) {
                // The retry may take long. Another visit probes meanwhile, and the others follow that one.
                claims.lead = None;
            }
            self.last.error = Some(error);
            self.next = NextStep::Repeat(selection, claims);
            return;
        }
        claims.settle(self.host());
        self.attempts += 1;
        if answer.is_refused {
            self.exclude_browsers();
        }
        self.excluded.insert(selection.fetcher);
        let hint = kind.map_or(Hint::Unknown, Hint::after);
        self.hint = self.hint.filter(|_| of_intermediary).or(Some(hint));
        let error = site_error.unwrap_or(error);
        let next = kind.map_or(FailureAction::OtherFetcher, ErrorKind::next);
        let ends = matches!(next, FailureAction::End | FailureAction::RetryThenEnd);
        let strict = kind.is_some_and(ErrorKind::is_banned) && !settings.escalate_after_block;
        // The table's arm does what the table says. Only an empty page goes on to the browser.
        let table_only = self.arm == Some(Arm::Legacy) && kind != Some(ErrorKind::WrongTool);
        if is_limit {
            self.last.error = Some(error.clone());
            match self.passage.remaining_hold(self.host(), now) {
                Some(hold) => self.retry_after = self.retry_after.max(Some(hold)),
                None => self.pause_limited_host(now),
            }
        }
        if ends || strict || table_only || is_limit || out_of_time {
            self.last.error = None;
            // The end is kept for the next call of `next`.
            let _ = self.fail(error, now);
        } else {
            self.last.error = Some(error);
            self.next = NextStep::Decide;
        }
    }

    /// Reports that the fetcher is unavailable (its program does not start). No request was made, so nothing is
    /// recorded, and the visit chooses another fetcher.
    pub fn unavailable(&mut self, fetch: Fetch<S>, why: impl Into<String>) {
        let name = self.selector.fetcher_name(fetch.selection.fetcher);
        let why = format!("{name} is not available: {}", why.into());
        self.excluded.insert(fetch.selection.fetcher);
        self.unavailable.get_or_insert(why);
        if !matches!(self.next, NextStep::Ended(_)) {
            self.next = NextStep::Decide;
        }
    }

    /// Excludes the browsers: the host refused the connection, so a render is wasted.
    fn exclude_browsers(&mut self) {
        let browsers = self.selector.candidates().filter(|(_, spec)| spec.renders).map(|(id, _)| id);
        let browsers: Vec<_> = browsers.collect();
        browsers.into_iter().for_each(|id| self.excluded.insert(id));
    }

    fn by(&self, selection: Selection) -> Option<FetcherSpec> {
        self.selector.fetcher(selection.fetcher).cloned()
    }

    fn local_fault(&mut self, message: Option<String>, now: Timestamp) {
        self.last.message = message.unwrap_or_else(|| Outcome::Local.to_string());
        if self.local_faults >= self.selector.visit_settings().max_local_faults {
            let _ = self.fail(ErrorType::Known(ErrorKind::LocalFault), now);
            return;
        }
        let wait = LOCAL_FAULT_BASE.saturating_mul(1 << self.local_faults.min(16));
        self.local_faults += 1;
        (self.redirected, self.redirects) = (None, 0);
        self.next = NextStep::DecideAfter(now.saturating_add(wait));
    }

    /// Returns the maximum number of retries after a failure of this kind. A host that gives errors at any rate would
    /// lose many pages with a single one.
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

    /// Returns the pause that the response asks for.
    fn requested_pause(&self, answer: &FetchResult, now: Timestamp) -> Option<Duration> {
        let date = || self.selector.clock().date_of(now);
        let said = || header(&answer.headers, "retry-after").and_then(|value| retry_after(value, date()));
        answer.retry_after.or_else(said)
    }

    /// Records the requests that a server did not answer on a kept connection. It may have read them, so that each is an
    /// attempt, as a failure that is retried is.
    fn record_unanswered(
        &mut self,
        span: &Span,
        selection: Selection,
        at: Timestamp,
        by: &FetcherSpec,
        answer: &mut FetchResult,
        now: Timestamp,
    ) {
        for url in std::mem::take(&mut answer.unanswered) {
            let failed = FetchResult::from(Outcome::Network).with_final_url(url).with_duration(Duration::ZERO);
            let before = std::mem::take(&mut self.landed);
            self.landed = self.landing(&failed, by, None);
            self.requests += 1;
            self.record(span, selection, at, &failed, failed.outcome.counts_as(by).err(), 0.0, now);
            self.landed = before;
        }
    }

    #[allow(clippy::too_many_arguments, reason = "each is a plain property of one attempt")]
    fn record(
        &self,
        span: &Span,
        selection: Selection,
        at: Timestamp,
        answer: &FetchResult,
        error: Option<ErrorType>,
        weight: f64,
        now: Timestamp,
    ) {
        let url = self.url.borrow();
        // The attempt is evidence about the host that responded.
        let landed = self.landed.as_deref();
        let Ok(mut heuristics) = self.selector.heuristics(landed.unwrap_or(url)) else { return };
        let mut known = Cow::Borrowed(self.caller_heuristics.as_deref().unwrap_or_default());
        if landed.is_some() {
            heuristics.push(Heuristic::new(REDIRECTED_BY, self.domain().to_owned()));
            heuristics.retain(|of_url| !known.contains(of_url));
            known.to_mut().append(&mut heuristics);
        }
        let shown = answer.heuristics.iter().filter(|shown| !known.contains(shown));
        let shown = shown.cloned().chain(self.signs_of_identity(answer));
        let tags = heuristics.into_iter().chain(known.iter().cloned()).chain(shown).map(Tag::from).collect();
        let name = self.selector.fetcher_name(selection.fetcher);
        let Ok(mut attempt) = Attempt::tagged(url, name, self.selector.clock().date_of(at), tags) else {
            return;
        };
        attempt.success = error.is_none();
        attempt.is_banned = error.as_ref().and_then(ErrorType::kind).is_some_and(ErrorKind::is_banned);
        attempt.error_type = error;
        attempt.weight = weight;
        if let Some(link) = &self.link {
            attempt.link = link.to_string();
        }
        attempt.http_status = answer.status;
        attempt.response_headers = stored_headers(&answer.headers);
        if let Some(consent) = &answer.consent {
            attempt.response_headers.push(Header::new(CONSENT_HEADER, consent.terms_text()));
            attempt.response_headers.push(Header::new(ALLOWED_FOR_HEADER, consent.allowed_text()));
        }
        let duration = answer.duration.unwrap_or_else(|| now.since(at));
        attempt.duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        attempt.source = Some(selection.source.name().into());
        attempt.propensity = Some(selection.propensity);
        attempt.hint = self.hint;
        attempt.try_no = self.requests;
        attempt.rule = Some(selection.rule.name().into());
        attempt.confidence = Some(selection.confidence);
        attempt.arm = self.arm;
        attempt.shadow_fetcher = self.shadow.map(|id| self.selector.fetcher_name(id).to_owned());
        span.recorded(&attempt);
        // The log reports its own errors; the attempt is in memory anyway.
        let _ = self.selector.record_with_heuristics(attempt, &known, now);
    }

    /// Returns what a response says to a crawler that signs: that it wants a signature, or money.
    fn signs_of_identity(&self, answer: &FetchResult) -> Vec<Heuristic> {
        if !self.selector.candidates().any(|(_, spec)| spec.signed) {
            return Vec::new();
        }
        let asks = header(&answer.headers, "accept-signature").is_some();
        let charges = answer.outcome == Outcome::PaymentRequired;
        let signs = [(asks, ASKS_SIGNATURE), (charges, CHARGES)].into_iter().filter(|(is_there, _)| *is_there);
        signs.map(|(_, name)| Heuristic::flag(name)).collect()
    }

    /// Keeps what the visit's end reports about the last attempt.
    fn keep_last_attempt(&mut self, selection: Selection, answer: &FetchResult, error: Option<&ErrorType>) {
        let host: Box<str> = self.host().into();
        let last = &mut self.last;
        last.fetcher = Some(selection.fetcher);
        last.source = Some(selection.source);
        last.confidence = selection.confidence;
        last.status = answer.status;
        if error.and_then(ErrorType::kind).is_some_and(ErrorKind::is_banned) {
            (last.is_banned, last.blocked_by) = (true, Some(host));
        }
        last.price.clone_from(&answer.price);
        last.message = match error {
            None => String::new(),
            Some(error) => answer.message.clone().unwrap_or_else(|| describe(error, answer)),
        };
    }

    fn deliver(&mut self, now: Timestamp) {
        self.update_link(FetchEnd::Delivered, None, now);
        if self.passage.host_trial.is_some() {
            let host: Box<str> = self.host().into();
            self.passage.end_trial_of(&host, now);
        }
        let _ = self.end(VisitOutcome::Delivered, now);
    }

    /// Pauses the host for every link and every fetcher: it has said "not now".
    fn pause_limited_host(&mut self, now: Timestamp) {
        let host: Box<str> = self.host().into();
        self.record_host_failure(&host, PauseReason::Limited(self.retry_after), now);
    }

    fn record_host_failure(&mut self, host: &str, why: PauseReason, now: Timestamp) {
        let link = self.link.as_deref().unwrap_or_else(|| identity(self.url.borrow()));
        self.passage.record_host_failure(host, link, why, now);
    }

    /// Ends the visit without content, with `error`.
    pub(super) fn fail(&mut self, error: ErrorType, now: Timestamp) -> End {
        let end = match error.kind() {
            Some(ErrorKind::Queued) => FetchEnd::Queued,
            Some(ErrorKind::RateLimited) => FetchEnd::Limited,
            Some(kind) if kind.leaves_link() => FetchEnd::Left,
            Some(kind) if kind.is_neutral() => FetchEnd::Neutral,
            _ if self.last.is_banned => FetchEnd::Blocked,
            _ => FetchEnd::Failed,
        };
        // If the host serves other requests, its pace judges its blocks.
        if end == FetchEnd::Blocked {
            let host = self.last.blocked_by.take().unwrap_or_else(|| self.host().into());
            if !self.was_served_recently(&host, None, now) {
                self.record_host_failure(&host, PauseReason::Blocked, now);
            }
        }
        if error.kind() == Some(ErrorKind::Declined) {
            let host: Box<str> = self.host().into();
            self.record_host_failure(&host, PauseReason::Declined, now);
        }
        let hint = (!matches!(end, FetchEnd::Neutral | FetchEnd::Left))
            .then(|| error.kind().map_or(Hint::Unknown, Hint::after));
        self.update_link(end, hint, now);
        self.end(VisitOutcome::Failed(error), now)
    }

    /// Ends the visit without a request: no fetcher gets past the host's vendor.
    pub(super) fn no_viable_fetcher(&mut self, now: Timestamp) -> End {
        let reason = self.selector.no_viable_fetcher(self.url.borrow(), now);
        self.last.message = reason.to_string();
        self.update_link(FetchEnd::Blocked, Some(Hint::Blocked), now);
        self.end(VisitOutcome::NoViableFetcher { vendor: reason.vendor }, now)
    }

    /// Updates the link's state from its current one.
    fn update_link(&self, end: FetchEnd, hint: Option<Hint>, now: Timestamp) {
        let selector = &*self.selector;
        let change = |state: LinkState| {
            let state = LinkState {
                attempt_count: state.attempt_count.saturating_add(self.requests),
                last_attempt_at: self.last_attempt_at.or(state.last_attempt_at),
                hint: hint.or(state.hint),
                ..state
            };
            let was_until = state.paused_until;
            let state = state.after(end, self.retry_after, selector.backoff(), now);
            if state.paused_until.is_some() && state.paused_until != was_until {
                selector.recorder().count_link_pause();
            }
            state
        };
        let (link, url) = (self.link_name(), self.url.borrow().as_str());
        selector.state().links.change(link, change, |state| {
            if let Some(sink) = selector.sink() {
                sink.link_state(link, url, state, now);
            }
        });
    }
}

impl<S: Deref<Target = Selector> + Clone> Passage<S> {
    /// Pauses the host for the hold of its pace.
    pub(crate) fn pause_for_hold(&mut self, host: &str, until: Timestamp, now: Timestamp) {
        let (selector, role) = (&*self.selector, self.role_at(host));
        selector.state().hosts.record_hold(selector, host, role, until, |until| {
            selector.announce_pause(host, until, PauseCause::Pace, now);
        });
        if let Some(trial) = self.take_trial_of(host) {
            trial.settle();
        }
    }

    /// Counts a failure of a link against its host, which may pause it.
    pub(crate) fn record_host_failure(&mut self, host: &str, link: &str, why: PauseReason, now: Timestamp) {
        let (selector, role) = (&*self.selector, self.role_at(host));
        let announce = |until| selector.announce_pause(host, until, why.cause(), now);
        let hosts = &selector.state().hosts;
        let until = hosts.record_failure(selector, host, link, role, why, selector.backoff(), now, announce);
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

/// Returns whether the response says "not now" for the whole host: a 429, or a 503 or a block that says for how long.
fn is_limit(answer: &FetchResult, error: Option<&ErrorType>, asked: Option<Duration>) -> bool {
    let blocked = error.and_then(ErrorType::kind).is_some_and(ErrorKind::is_banned);
    match answer.status {
        _ if answer.outcome == Outcome::RateLimited => true,
        // A 429 that rejects the crawler's signature is about its key, unless it says for how long.
        _ if answer.outcome == Outcome::IdentityRejected && asked.is_none() => false,
        Some(429) => error.is_some(),
        Some(503) => error.is_some() && asked.is_some(),
        _ => blocked && asked.is_some(),
    }
}

fn describe(error: &ErrorType, answer: &FetchResult) -> String {
    match (&answer.outcome, answer.status) {
        (Outcome::Http(_) | Outcome::ServerError, Some(status)) => format!("{error} (status {status})"),
        (outcome, _) => outcome.to_string(),
    }
}
