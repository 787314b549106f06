//! The JSON of a visit's step.

use serde::Serialize;

use super::{ActiveVisit, VisitState};
use crate::signing::SignatureHeaders;
use fetchwise::rfc3339;
use fetchwise::selector::Selector;
use fetchwise::visit::{End, VisitOutcome};
use fetchwise_present::DecisionJson;

/// A visit with its current step.
#[derive(Debug, Serialize)]
pub(crate) struct VisitStepJson<'a> {
    visit: &'a str,
    step: StepJson<'a>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum StepJson<'a> {
    /// Make one request and report its result.
    Fetch {
        /// The number of the request within the visit; a report with it is recorded once.
        number: u32,
        /// The URL to fetch: the visit's, or the target of a redirect.
        url: &'a str,
        fetcher: &'a str,
        deadline_ms: u128,
        is_probe: bool,
        max_redirects: u32,
        decision: DecisionJson<'a>,
        /// The headers to add, if the request is signed.
        #[serde(skip_serializing_if = "Option::is_none")]
        headers: Option<&'a SignatureHeaders>,
    },
    /// Come back later.
    Wait { until: String, reason: String },
    /// The visit has ended.
    End {
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
        error: Option<&'a str>,
        /// The price that a 402 named.
        #[serde(skip_serializing_if = "Option::is_none")]
        price: Option<&'a str>,
    },
}

impl<'a> VisitStepJson<'a> {
    /// Creates the step of the visit `id`.
    pub(crate) fn new(id: &'a str, active: &'a ActiveVisit, selector: &'a Selector) -> Self {
        let step = match &active.state {
            VisitState::Out(fetch) => {
                let (mode, url) = (selector.router().mode, active.visit.url().as_str());
                StepJson::Fetch {
                    number: active.number,
                    url,
                    fetcher: fetch.fetcher(),
                    deadline_ms: fetch.deadline().as_millis(),
                    is_probe: fetch.is_probe(),
                    max_redirects: fetch.max_redirects(),
                    decision: DecisionJson::of_take(url, selector, mode, fetch.decision()),
                    headers: active.signature.as_ref(),
                }
            }
            VisitState::Waits(wait) => {
                let until = selector.clock().date_of(wait.until());
                StepJson::Wait { until: rfc3339::format(until), reason: wait.reason().to_string() }
            }
            VisitState::Held(until) => {
                let until = rfc3339::format(selector.clock().date_of(*until));
                StepJson::Wait { until, reason: "reports_owed".to_owned() }
            }
            VisitState::Ended(end) => ended(end, selector),
            VisitState::Open => {
                StepJson::Wait { until: rfc3339::format(selector.clock().date()), reason: "local_fault".to_owned() }
            }
        };
        Self { visit: id, step }
    }
}

fn ended<'a>(end: &'a End, selector: &'a Selector) -> StepJson<'a> {
    let error_type = match &end.how {
        VisitOutcome::Failed(error) => Some(error.name()),
        _ => None,
    };
    StepJson::End {
        end: end.how.name(),
        error_type,
        paused_until: end.paused_until.map(|until| rfc3339::format(selector.clock().date_of(until))),
        fetcher: end.fetcher.map(|id| selector.fetcher_name(id)),
        source: end.source.map(fetchwise::decision::Source::name),
        confidence: end.fetcher.map(|_| end.confidence),
        status: end.status,
        is_banned: end.is_banned,
        requests: end.requests,
        error: Some(end.message.as_str()).filter(|message| !message.is_empty()),
        price: end.price.as_deref(),
    }
}

/// Writes the step of a visit.
pub(crate) fn write(out: &mut Vec<u8>, id: u128, active: &ActiveVisit, selector: &Selector) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, &VisitStepJson::new(&format!("{id:032x}"), active, selector));
}
