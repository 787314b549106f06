//! Decisions as JavaScript objects.

use fetchwise::attempt::Hint;
use fetchwise::decision::{Decision as Decided, Rule, Source};
use napi_derive::napi;

use crate::convert;

/// The decision of a selector: the fetcher to use, or the reason why there is none.
#[napi(object)]
#[derive(Clone, Debug)]
pub struct Decision {
    /// `take`: use `fetcher`. `paused`: not before `pausedUntil`. `give_up`: no further attempt is
    /// worth its cost. `no_viable_fetcher`: no fetcher gets past the host's vendor.
    #[napi(ts_type = "'take' | 'paused' | 'give_up' | 'no_viable_fetcher'")]
    pub kind: String,
    /// The fetcher to use; set only when the kind is `take`.
    pub fetcher: Option<String>,
    /// The label of the decision: `learned`, `inferred`, `explore`, `probe`, `hinted`, `paused`, or
    /// `none`.
    pub source: String,
    /// The rule of the policy that made the choice, or `none`.
    pub rule: String,
    /// The fetcher's confidence for this URL, from 0 to 1.
    pub confidence: Option<f64>,
    /// The decayed number of attempts behind the confidence.
    pub sample_size: Option<f64>,
    /// The probability with which the policy made this choice.
    pub propensity: Option<f64>,
    /// Whether the fetcher's breaker on this domain is open and was ignored.
    pub breaker_ignored: bool,
    /// The end of the pause, in milliseconds since 1970.
    pub paused_until: Option<f64>,
    /// Whether the whole host is paused.
    pub is_host_paused: bool,
    /// Whether the fetcher runs scripts.
    pub renders: bool,
    /// The hint that the decision used.
    pub hint: Option<String>,
}

impl Decision {
    pub fn new(selector: &fetchwise::Selector, decided: &Decided, hint: Option<Hint>) -> Self {
        let take = decided.selected();
        let (kind, source, rule) = match decided {
            Decided::Selected(take) => ("take", take.source.name(), take.rule.name()),
            Decided::Paused { .. } => ("paused", Source::Paused.name(), Rule::Paused.name()),
            Decided::GiveUp => ("give_up", "none", "none"),
            Decided::NoViableFetcher => ("no_viable_fetcher", "none", "no_viable_fetcher"),
        };
        let (until, host) = match decided {
            Decided::Paused { until, host } => (Some(convert::date_ms(*until)), *host),
            _ => (None, false),
        };
        Self {
            kind: kind.to_owned(),
            fetcher: take.map(|take| selector.fetcher_name(take.fetcher).to_owned()),
            source: source.to_owned(),
            rule: rule.to_owned(),
            confidence: take.map(|take| take.confidence),
            sample_size: take.map(|take| take.sample_size),
            propensity: take.map(|take| take.propensity),
            breaker_ignored: take.is_some_and(|take| take.breaker_ignored),
            paused_until: until,
            is_host_paused: host,
            renders: take
                .and_then(|take| selector.fetcher(take.fetcher))
                .is_some_and(|spec| spec.renders),
            hint: hint.map(|hint| hint.name().to_owned()),
        }
    }
}
