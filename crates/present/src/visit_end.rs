//! The end of a visit.

use serde::Serialize;

use super::TimeJson;
use fetchwise::decision::Source;
use fetchwise::selector::Selector;
use fetchwise::visit::{End, VisitOutcome};

/// How a visit ended.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub struct VisitEndJson<'a> {
    /// How it ended.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = VisitOutcome::NAMES)))]
    end: &'static str,
    error_type: Option<&'a str>,
    paused_until: Option<TimeJson>,
    fetcher: Option<&'a str>,
    source: Option<&'static str>,
    confidence: Option<f64>,
    status: Option<u16>,
    is_banned: bool,
    requests: u32,
    /// Whether the last attempt was the trial of a host that refuses everything, which says nothing
    /// of the link.
    was_trial: bool,
    /// Whether what was delivered is a page of no site: of a parked domain, a hoster, or a product
    /// before its log-in.
    default_page: bool,
    error: Option<&'a str>,
    /// The price that a 402 named; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    price: Option<&'a str>,
}

impl<'a> VisitEndJson<'a> {
    /// Creates the JSON of the end of a visit of `selector`.
    pub fn new(end: &'a End, selector: &'a Selector) -> Self {
        let error_type = match &end.how {
            VisitOutcome::Failed(error) => Some(error.name()),
            _ => None,
        };
        Self {
            end: end.how.name(),
            error_type,
            paused_until: end.paused_until.map(|until| selector.clock().date_of(until).into()),
            fetcher: end.fetcher.map(|id| selector.fetcher_name(id)),
            source: end.source.map(Source::name),
            confidence: end.fetcher.map(|_| end.confidence),
            status: end.status,
            is_banned: end.is_banned,
            requests: end.requests,
            was_trial: end.was_trial,
            default_page: end.is_default_page,
            error: Some(end.message.as_str()).filter(|message| !message.is_empty()),
            price: end.price.as_deref(),
        }
    }
}
