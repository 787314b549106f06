//! The JSON of a visit's step.

use serde::Serialize;

use super::{ActiveVisit, VisitState};
use crate::signing::SignatureHeaders;
#[cfg(test)]
use crate::signing::SignatureHeadersSchema;
use fetchwise::selector::Selector;
use fetchwise_present::{DecisionJson, TimeJson, VisitEndJson};

/// A visit with its current step.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "VisitStep"))]
pub(crate) struct VisitStepJson<'a> {
    /// The id of the visit.
    visit: &'a str,
    step: StepJson<'a>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Step"))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum StepJson<'a> {
    /// Make one request and report its result.
    #[cfg_attr(test, schemars(title = "FetchStep"))]
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
        /// The headers to add, if the request is signed: if the fetcher signs (`direct_signed`,
        /// `browser_signed`, and others by the config) and the server runs with `--sign`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, schemars(with = "SignatureHeadersSchema"))]
        headers: Option<&'a SignatureHeaders>,
    },
    /// Come back later.
    #[cfg_attr(test, schemars(title = "WaitStep"))]
    Wait {
        until: TimeJson,
        /// `probe`, `trial`, `pace`, `doubt`, `local_fault` or `reports_owed`.
        reason: String,
    },
    /// The visit has ended.
    #[cfg_attr(test, schemars(title = "EndStep"))]
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
                StepJson::Wait { until: until.into(), reason: wait.reason().to_string() }
            }
            VisitState::Held(until) => {
                let until = selector.clock().date_of(*until);
                StepJson::Wait { until: until.into(), reason: "reports_owed".to_owned() }
            }
            VisitState::Ended(end) => StepJson::End(VisitEndJson::new(end, selector)),
            VisitState::Open => StepJson::Wait {
                until: selector.clock().date().into(),
                reason: "local_fault".to_owned(),
            },
        };
        Self { visit: id, step }
    }
}

/// Writes the step of a visit.
pub(crate) fn write(out: &mut Vec<u8>, id: u128, active: &ActiveVisit, selector: &Selector) {
    // Writing to memory cannot fail.
    let _ =
        serde_json::to_writer(out, &VisitStepJson::new(&format!("{id:032x}"), active, selector));
}
