//! The end of a visit.

use serde::Serialize;

use fetchwise::decision::Source;
use fetchwise::rfc3339;
use fetchwise::selector::Selector;
use fetchwise::visit::{End, VisitOutcome};

/// How a visit ended.
#[derive(Debug, Serialize)]
pub struct VisitEndJson<'a> {
    /// `delivered`, `failed` or `paused`.
    end: &'static str,
    error_type: Option<&'a str>,
    paused_until: Option<String>,
    fetcher: Option<&'a str>,
    source: Option<&'static str>,
    confidence: Option<f64>,
    status: Option<u16>,
    is_banned: bool,
    requests: u32,
    /// Whether the last attempt was the trial of a host that refuses everything, which says nothing of the link.
    was_trial: bool,
    /// Whether what was delivered is a page of no site.
    default_page: bool,
    error: Option<&'a str>,
    /// The price that a 402 named.
    #[serde(skip_serializing_if = "Option::is_none")]
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
            paused_until: end.paused_until.map(|until| rfc3339::format(selector.clock().date_of(until))),
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
