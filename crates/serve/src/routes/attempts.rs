//! `GET /v1/attempts`: single attempts, with the filters of the command `attempts`, page by page.
//!
//! Invariant: pages that follow each other's `next` contain each matching attempt once, as long as nothing is forgotten.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Router;
use axum::extract::State as Get;
use axum::response::Response;
use axum::routing::get;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::extractors::Query;
use super::forget::read_domain;
use crate::attempt_filter::{parse_outcome, parse_time_arg};
use crate::json_response;
use crate::problem::Problem;
use crate::routes::decision_context::wrong;
use crate::state::State;
use fetchwise::analytics::By;
use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::json::AttemptJson;
use fetchwise::heuristic::url::parse;
use fetchwise::journal::{self, AttemptQuery, JournalError, Order, OutcomeFilter, QueryStats};
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;
use fetchwise::unknown_name::UnknownName;

/// The default and the maximum number of attempts of a page.
const PAGE: (usize, usize) = (50, 1000);

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/v1/attempts", get(attempts))
}

#[derive(Deserialize)]
struct AttemptsQuery {
    url: Option<String>,
    link: Option<String>,
    domain: Option<String>,
    since: Option<String>,
    until: Option<String>,
    outcome: Option<String>,
    order: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Serialize)]
struct AttemptsJson<'a> {
    attempts: Vec<AttemptJson<'a>>,
    /// The cursor of the next page; none after the last one.
    next: Option<String>,
    compacted_before: Option<String>,
}

/// The attempts of a page with their sequence numbers, and whether more match.
pub(super) struct Page {
    pub(super) attempts: Vec<(u64, Attempt)>,
    pub(super) has_more: bool,
    found: QueryStats,
}

/// The parsed query.
struct AttemptsRequest {
    query: AttemptQuery,
    order: Order,
    limit: usize,
}

fn read_time(name: &str, text: Option<&str>, now: Timestamp) -> Result<Option<Timestamp>, Problem> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let time = parse_time_arg(text).map_err(|error| wrong(format!("`{name}`: {error}")))?;
    Ok(Some(time.resolve_at(now)))
}

/// Returns the domain as attempts have it. Recorded names are accepted as they are, even if no host can have them.
pub(super) fn known_domain(state: &State, text: &str) -> Result<String, Problem> {
    read_domain(text).or_else(|problem| match state.attempts.has_row(By::Domain, text) {
        true => Ok(text.to_owned()),
        false => Err(problem),
    })
}

impl AttemptsRequest {
    fn read(asked: AttemptsQuery, state: &State) -> Result<Self, Problem> {
        let now = state.selector.clock().date();
        let mut query = AttemptQuery::default();
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        if let Some(url) = given(asked.url) {
            let parsed = parse(url.trim()).map_err(|error| wrong(format!("`url`: {error}")))?;
            query.url = Some(parsed.into());
        }
        query.link = given(asked.link);
        query.domain = given(asked.domain).map(|domain| known_domain(state, &domain)).transpose()?;
        query.since = read_time("since", asked.since.as_deref(), now)?;
        query.until = read_time("until", asked.until.as_deref(), now)?;
        if query.since.zip(query.until).is_some_and(|(since, until)| since > until) {
            return Err(wrong("`since` is later than `until`"));
        }
        query.ended = given(asked.outcome).map(|text| parse_outcome(&text)).transpose().map_err(wrong)?;
        let order = match asked.order.as_deref() {
            None | Some("" | "newest") => Order::NewestFirst,
            Some("oldest") => Order::OldestFirst,
            Some(other) => return Err(wrong(UnknownName::new("order", other, ["newest", "oldest"]).to_string())),
        };
        if let Some(cursor) = given(asked.cursor) {
            let seq = cursor.parse().map_err(|_| wrong("invalid `cursor`: send `next` of the page before"))?;
            match order {
                Order::NewestFirst => query.before_seq = Some(seq),
                Order::OldestFirst => query.after_seq = Some(seq),
            }
        }
        Ok(Self { query, order, limit: asked.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1) })
    }
}

async fn attempts(Get(state): Shared, Query(asked): Query<AttemptsQuery>) -> Result<Response, Problem> {
    let wanted = AttemptsRequest::read(asked, &state)?;
    // What was reported before this request is in the response. If the log fails, `readyz` reports it.
    let _ = state.journal().settled().await;
    let responded = state.run_blocking(move |state| {
        let page = page(state, &wanted.query, wanted.order, wanted.limit).map_err(unreadable)?;
        if page.attempts.is_empty()
            && let Some(OutcomeFilter::Error(name)) = &wanted.query.ended
            && ErrorKind::from_name(name).is_none()
        {
            let known = ErrorKind::ALL.iter().map(|kind| kind.name());
            return Err(wrong(UnknownName::new("error type", name, known).to_string()));
        }
        let last = page.attempts.last().filter(|_| page.has_more);
        Ok(json_response::json(&AttemptsJson {
            next: last.map(|(seq, _)| seq.to_string()),
            compacted_before: page.found.compacted_before.map(rfc3339::format),
            attempts: page.attempts.iter().map(|(_, attempt)| AttemptJson(attempt)).collect(),
        }))
    });
    responded.await?
}

/// Returns the problem of a log that cannot be read.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn unreadable(error: JournalError) -> Problem {
    Problem::internal(format!("cannot read the log: {error}; run `fetchwise verify` to find the cause"))
}

/// Reads a page from the log, so no thread that serves requests may call it.
pub(super) fn page(state: &State, query: &AttemptQuery, order: Order, limit: usize) -> Result<Page, JournalError> {
    let mut attempts = Vec::with_capacity(limit.min(64));
    // One more tells whether there is another page.
    let most = limit.saturating_add(1);
    let found = journal::attempts(state.log_dir(), query, order, Some(most as u64), |seq, attempt| {
        attempts.push((seq, attempt));
        ControlFlow::Continue(())
    })?;
    let has_more = attempts.len() > limit;
    attempts.truncate(limit);
    Ok(Page { attempts, has_more, found })
}
