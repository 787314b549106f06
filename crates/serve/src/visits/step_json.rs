//! The JSON of a visit's step.

use serde::Serialize;

use super::{ActiveVisit, VisitState};
use crate::signing::SignatureHeaders;
use fetchwise::rfc3339;
use fetchwise::selector::Selector;
use fetchwise_present::{DecisionJson, VisitEndJson};

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
    End(VisitEndJson<'a>),
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
            VisitState::Ended(end) => StepJson::End(VisitEndJson::new(end, selector)),
            VisitState::Open => {
                StepJson::Wait { until: rfc3339::format(selector.clock().date()), reason: "local_fault".to_owned() }
            }
        };
        Self { visit: id, step }
    }
}

/// Writes the step of a visit.
pub(crate) fn write(out: &mut Vec<u8>, id: u128, active: &ActiveVisit, selector: &Selector) {
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, &VisitStepJson::new(&format!("{id:032x}"), active, selector));
}
