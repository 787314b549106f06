//! `GET /v1/explain?url=`: explanation of a decision.

use std::sync::Arc;

use axum::extract::{RawQuery, State as Get};
use axum::http::StatusCode;
use axum::response::Response;
use url::Url;

use super::{Shared, attention};
use crate::json_response;
use crate::pause_cause::{Paused, pause_cause};
use crate::problem::{Problem, ProblemResponse};
#[cfg(test)]
use crate::routes::decision_context::HINTS;
use crate::routes::decision_context::{CallerContext, ContextDecision, ResolvedContext};
use crate::state::State;
use fetchwise::decision::Decision;
use fetchwise::heuristic::url::{domain_of, identity, parse};
use fetchwise::router::RouteError;
use fetchwise_present::{ExplainInput, ExplanationJson, PauseJson, ProblemJson};

described_routes![(
    "/v1/explain",
    get(explain),
    decisions("explainDecision", "Explain why a fetcher would be used"),
    |of| {
        of.query::<ExplainQuery>()
            .ok::<ExplanationJson<'_>>("The decision and the evidence behind it")
            .problem(400, "Missing `url`")
            .problem(422, "The URL cannot be fetched")
    }
)];

/// The query as [`read`] reads it.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct ExplainQuery {
    /// The URL, percent-encoded.
    url: String,
    /// The caller's id for the link.
    id: Option<String>,
    /// The fetcher that the caller prefers.
    prefer: Option<String>,
    /// A fetcher that is available to the caller; repeatable.
    fetchers: Option<Vec<String>>,
    /// A fetcher that was already tried; repeatable.
    tried: Option<Vec<String>>,
    /// The error type of the last failure.
    #[schemars(extend("enum" = HINTS))]
    last_failure: Option<String>,
    /// A heuristic as `TYPE=VALUE`; repeatable.
    tag: Option<Vec<String>>,
}

/// Parses `url`, `id`, `prefer`, `last_failure`, and the repeatable `tried` and `tag=TYPE=VALUE`.
fn read(query: &str) -> Result<(String, Option<String>, CallerContext), Problem> {
    let (mut url, mut id, mut said) = (None, None, CallerContext::default());
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let value = value.into_owned();
        match &*name {
            "url" => url = Some(value),
            "id" => id = Some(value),
            "prefer" => said.prefer = Some(value),
            "fetchers" => said.fetchers.get_or_insert_default().push(value),
            "tried" => said.tried.push(value),
            "last_failure" => said.last_failure = Some(value),
            "tag" => {
                let (kind, value) = value.split_once('=').ok_or_else(|| {
                    Problem::bad_request(
                        "invalid `tag`: expected TYPE=VALUE, as in tag=video_platform=vimeo",
                    )
                })?;
                said.tags.insert(kind.to_owned(), value.to_owned());
            }
            _ => {}
        }
    }
    let url = url.ok_or_else(|| {
        Problem::bad_request("missing `url`: add it to the query, percent-encoded")
    })?;
    Ok((url, id, said))
}

async fn explain(Get(state): Shared, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let (text, id, said) = read(query.as_deref().unwrap_or_default())?;
    let known = ResolvedContext::of(&said, &state)?;
    let (id, selector) = (id.as_deref(), &*state.selector);
    let found = parse(text.trim()).map_err(RouteError::from).and_then(|url| {
        let decided = known.decide(id, &url, &state)?;
        let explanation = selector.explain(&url, &known.select_context(id, &url, &state))?;
        Ok((url, decided, explanation))
    });
    let (url, decided, explanation) = match found {
        Ok(found) => found,
        Err(error) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            return Ok(json_response::with_status(
                status,
                &ProblemResponse::new(status, &ProblemJson::of_route(&text, &error)),
            ));
        }
    };
    let pace = selector.pace().and_then(|pace| {
        pace.explain(domain_of(url.host_str().unwrap_or_default()), selector.now())
    });
    let asked = ExplainInput {
        selector,
        routed: &decided.routed,
        explanation: &explanation,
        pace: pace.as_ref(),
        own: None,
    };
    let pause = pause(id, &url, &decided, &state).await?;
    let is_available =
        |name: &str| selector.fetcher_id(name).is_none_or(|id| !known.lacking().contains(id));
    let explained = ExplanationJson::new(known.json(&text, &decided, &state), asked, is_available);
    Ok(json_response::json(&explained.with_pause(pause)))
}

/// Returns what of `url` is paused, why and how often; none if the decision is not to wait.
async fn pause(
    id: Option<&str>,
    url: &Url,
    decided: &ContextDecision,
    state: &Arc<State>,
) -> Result<Option<PauseJson>, Problem> {
    let Decision::Paused { until, host: is_host } = decided.routed.decision else {
        return Ok(None);
    };
    let host = domain_of(url.host_str().unwrap_or_default()).to_owned();
    let link = id.unwrap_or_else(|| identity(url)).to_owned();
    // It may read the log.
    let found = state.run_blocking(move |state| {
        let now = state.selector.now();
        if is_host {
            let times = state
                .selector
                .paused_hosts(now)
                .into_iter()
                .find(|of| of.domain == host)
                .map_or(0, |of| of.times);
            return PauseJson::of_host(&host, until, times, attention::cause_of(state, &host, now));
        }
        let date = state.selector.clock().date_of(now);
        let cause = pause_cause(state.log_dir(), Paused::Link(&link), date).ok().flatten();
        PauseJson::of_link(&link, until, state.selector.link_state(&link).risk_level, cause)
    });
    found.await.map(Some)
}
