//! The ends of a visit, and the state of its link after each.
//!
//! Invariants: a visit ends once; its end is kept for each later call.
//!
//! Must not know: why the visit ends.

use std::borrow::Borrow;
use std::ops::Deref;

use url::Url;

use super::step::{End, VisitOutcome, WaitScope};
use super::{NextStep, Visit, redirect_target};
use crate::backoff::{FetchEnd, LinkState};
use crate::selector::Selector;
use crate::state::host_pauses::PauseReason;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{ErrorType, Hint};
use fetchwise_types::decision::Source;
use fetchwise_types::heuristic::url::identity;
use fetchwise_types::time::Timestamp;

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    pub(super) fn deliver(&mut self, now: Timestamp) {
        self.update_link(FetchEnd::Delivered, None, now);
        if self.passage.host_trial.is_some() {
            let host: Box<str> = self.host().into();
            self.passage.end_trial_of(&host, now);
        }
        let _ = self.end(VisitOutcome::Delivered, now);
    }

    pub(super) fn record_host_failure(&mut self, host: &str, why: PauseReason, now: Timestamp) {
        let link = self.options.link.as_deref().unwrap_or_else(|| identity(self.url.borrow()));
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
                attempt_count: state.attempt_count.saturating_add(self.tried.requests),
                last_attempt_at: self.last.at.or(state.last_attempt_at),
                hint: hint.or(state.hint),
                ..state
            };
            let was_until = state.paused_until;
            let state = state.after(end, self.seen.retry_after, selector.backoff(), now);
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

    /// Ends the visit.
    pub(super) fn end(&mut self, how: VisitOutcome, now: Timestamp) -> End {
        // Followers of a trial without a verdict continue at once.
        self.passage.host_trial = None;
        let last = std::mem::take(&mut self.last);
        let (mut source, mut message, mut paused_until) = (last.source, last.message, None);
        if let VisitOutcome::Paused { until, whom } = how {
            let left = until.since(now);
            message = match whom {
                WaitScope::Pace => format!(
                    "the host's pace admits no request for another {:.1} s",
                    left.as_secs_f64()
                ),
                WaitScope::Host if let Some(target) = self.redirects.target.as_deref() => format!(
                    "the host {}, to which the URL redirects, is paused for another {} s",
                    redirect_target::domain(target),
                    left.as_secs()
                ),
                whom => format!("the {whom} is paused for another {} s", left.as_secs()),
            };
            source = Some(Source::Paused);
            paused_until = Some(until);
        } else if matches!(how, VisitOutcome::Failed(_) | VisitOutcome::NoViableFetcher { .. }) {
            paused_until = self.selector.state().links.get(self.link_name()).pause_at(now);
        }
        #[cfg(feature = "metrics")]
        self.count_end(&how, now);
        let error = match &how {
            VisitOutcome::Failed(error) => Some(error.name()),
            VisitOutcome::NoViableFetcher { vendor } => Some(vendor.as_str()),
            _ => None,
        };
        self.span.ended(how.name(), error, self.tried.requests);
        let end = End {
            fetcher: last.fetcher,
            source,
            confidence: last.confidence,
            status: last.status,
            is_banned: last.is_banned,
            was_trial: last.was_trial,
            requests: self.tried.requests,
            paused_until,
            price: last.price.filter(
                |_| matches!(&how, VisitOutcome::Failed(error) if error.kind() == Some(ErrorKind::PaymentRequired)),
            ),
            is_default_page: last.is_default_page && how == VisitOutcome::Delivered,
            verdict: last.verdict,
            message,
            how,
        };
        self.next = NextStep::Ended(Box::new(end.clone()));
        end
    }
}

#[cfg(feature = "metrics")]
impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Counts how the visit ended, and the decision to make no request.
    fn count_end(&mut self, how: &VisitOutcome, now: Timestamp) {
        let undecided = match how {
            VisitOutcome::Paused { .. } => Some(Source::Paused as usize),
            VisitOutcome::NoFetcher => Some(Source::ALL.len()),
            VisitOutcome::NoViableFetcher { .. } => Some(Source::ALL.len() + 1),
            VisitOutcome::Delivered | VisitOutcome::Failed(_) | VisitOutcome::NoRoute(_) => None,
        };
        self.watch.ended(how.index(), undecided.filter(|_| self.tried.requests == 0), now);
    }
}
