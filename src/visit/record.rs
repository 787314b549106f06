//! The attempt that a fetch becomes in the log, and what a visit's end reports about it.
//!
//! Must not know: what follows from a result.

use std::borrow::{Borrow, Cow};
use std::ops::Deref;
use std::time::Duration;

use url::Url;

use super::Visit;
use crate::selector::Selector;
use crate::trace::Span;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{ALLOWED_FOR_HEADER, Attempt, CONSENT_HEADER, ErrorType, Tag};
use fetchwise_types::decision::Selection;
use fetchwise_types::fetch_result::{FetchResult, Outcome};
use fetchwise_types::heuristic::{ASKS_SIGNATURE, CHARGES, Heuristic, REDIRECTED_BY};
use fetchwise_types::registry::FetcherSpec;
use fetchwise_types::response::{Header, header};
use fetchwise_types::time::Timestamp;

/// A request whose result has come.
pub(super) struct SentRequest<'s> {
    pub(super) span: &'s Span,
    pub(super) selection: Selection,
    pub(super) by: FetcherSpec,
    /// When it went out, and when its result came.
    pub(super) at: Timestamp,
    pub(super) now: Timestamp,
    pub(super) is_probe: bool,
}

/// Most weight of an error that may pass while its host has delivered nothing to any fetcher: the
/// host is more likely down than choosy. In full, two of them would leave it to fetchers that cost
/// many times as much.
const OF_HOST_DOWN: f64 = 0.25;

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Records the requests that a server did not answer on a kept connection. It may have read
    /// them, so that each is an attempt, as a failure that is retried is.
    pub(super) fn record_unanswered(&mut self, sent: &SentRequest<'_>, result: &mut FetchResult) {
        for url in std::mem::take(&mut result.unanswered) {
            let failed = FetchResult::from(Outcome::Network)
                .with_final_url(url)
                .with_duration(Duration::ZERO);
            let before = std::mem::take(&mut self.redirects.landed);
            self.redirects.landed = self.landing(&failed, &sent.by, None);
            self.tried.requests += 1;
            self.record(sent, &failed, failed.outcome.counts_as(&sent.by).err(), 0.0);
            self.redirects.landed = before;
        }
    }

    /// Records an attempt.
    pub(super) fn record(
        &self,
        sent: &SentRequest<'_>,
        result: &FetchResult,
        error: Option<ErrorType>,
        weight: f64,
    ) {
        let SentRequest { span, selection, at, now, .. } = *sent;
        let url = self.url.borrow();
        // The attempt is evidence about the host that responded.
        let landed = self.redirects.landed.as_deref();
        let Ok(mut heuristics) = self.selector.heuristics(landed.unwrap_or(url)) else { return };
        let mut known = Cow::Borrowed(self.options.heuristics.as_deref().unwrap_or_default());
        if landed.is_some() {
            heuristics.push(Heuristic::new(REDIRECTED_BY, self.domain().to_owned()));
            heuristics.retain(|of_url| !known.contains(of_url));
            known.to_mut().append(&mut heuristics);
        }
        let shown = result.heuristics.iter().filter(|shown| !known.contains(shown));
        let shown = shown.cloned().chain(self.signs_of_identity(result));
        let tags = heuristics
            .into_iter()
            .chain(known.iter().cloned())
            .chain(shown)
            .map(Tag::from)
            .collect();
        let name = self.selector.fetcher_name(selection.fetcher);
        let Ok(mut attempt) = Attempt::tagged(url, name, self.selector.clock().date_of(at), tags)
        else {
            return;
        };
        attempt.success = error.is_none();
        attempt.is_banned =
            error.as_ref().and_then(ErrorType::kind).is_some_and(ErrorKind::is_banned);
        let may_pass =
            error.as_ref().and_then(ErrorType::kind).is_some_and(ErrorKind::is_transient);
        attempt.error_type = error;
        attempt.weight = match may_pass && !self.selector.has_host_delivered(&attempt) {
            true => weight.min(OF_HOST_DOWN),
            false => weight,
        };
        if let Some(link) = &self.options.link {
            attempt.link = link.to_string();
        }
        attempt.http_status = result.status;
        attempt.response_headers = result.recorded_headers();
        if let Some(consent) = &result.consent {
            attempt.response_headers.push(Header::new(CONSENT_HEADER, consent.terms_text()));
            attempt.response_headers.push(Header::new(ALLOWED_FOR_HEADER, consent.allowed_text()));
        }
        // The order of the log, which need not copy the attempt then.
        attempt.response_headers.sort_by(|a, b| a.name.cmp(&b.name));
        let duration = result.duration.unwrap_or_else(|| now.since(at));
        attempt.duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        attempt.source = Some(selection.source.name().into());
        attempt.propensity = Some(selection.propensity);
        attempt.hint = self.tried.hint;
        attempt.try_no = self.tried.requests;
        attempt.rule = Some(selection.rule.name().into());
        attempt.confidence = Some(selection.confidence);
        attempt.arm = self.tried.arm;
        attempt.shadow_fetcher =
            self.tried.shadow.map(|id| self.selector.fetcher_name(id).to_owned());
        span.recorded(&attempt);
        // The log reports its own errors; the attempt is in memory anyway.
        let _ = self.selector.record_with_heuristics(attempt, &known, now);
    }

    /// Returns what a response says to a crawler that signs: that it wants a signature, or money.
    fn signs_of_identity(&self, result: &FetchResult) -> Vec<Heuristic> {
        if !self.selector.candidates().any(|(_, spec)| spec.signed) {
            return Vec::new();
        }
        let asks = header(&result.headers, "accept-signature").is_some();
        let charges = result.outcome == Outcome::PaymentRequired;
        let signs = [(asks, ASKS_SIGNATURE), (charges, CHARGES)]
            .into_iter()
            .filter(|(is_there, _)| *is_there);
        signs.map(|(_, name)| Heuristic::flag(name)).collect()
    }

    /// Keeps what the visit's end reports about the last attempt.
    pub(super) fn keep_last_attempt(
        &mut self,
        selection: Selection,
        result: &FetchResult,
        error: Option<&ErrorType>,
    ) {
        let host: Box<str> = self.host().into();
        let last = &mut self.last;
        last.fetcher = Some(selection.fetcher);
        last.source = Some(selection.source);
        last.confidence = selection.confidence;
        last.status = result.status;
        if error.and_then(ErrorType::kind).is_some_and(ErrorKind::is_banned) {
            (last.is_banned, last.blocked_by) = (true, Some(host));
        }
        last.price.clone_from(&result.price);
        last.is_default_page = result.is_default_page();
        last.verdict = error.and(result.verdict.clone());
        last.message = match error {
            None => String::new(),
            Some(error) => result.message.clone().unwrap_or_else(|| describe(error, result)),
        };
    }
}

fn describe(error: &ErrorType, result: &FetchResult) -> String {
    match (&result.outcome, result.status) {
        (Outcome::Http(_), Some(status)) => format!("{error} (status {status})"),
        (outcome, _) => outcome.to_string(),
    }
}
