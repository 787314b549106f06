//! `GET /v1/attempts`: single attempts, with the filters of the command `attempts`, page by page.
//!
//! Invariant: pages that follow each other's `next` contain each matching attempt once, as long as
//! nothing is forgotten.

use std::ops::ControlFlow;

use axum::extract::State as Get;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::Shared;
#[cfg(test)]
use super::attempt_schema::RecordedAttemptSchema;
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
use fetchwise::time::Timestamp;
use fetchwise::unknown_name::UnknownName;
use fetchwise_present::TimeJson;

/// The default and the maximum number of attempts of a page.
const PAGE: (usize, usize) = (50, 1000);
/// The orders of a page, the default first.
const ORDERS: [&str; 2] = ["newest", "oldest"];

described_routes![(
    "/v1/attempts",
    get(attempts),
    attempts(
        "listAttempts",
        "List single attempts by URL, link, domain, time or outcome, page by page"
    ),
    |of| {
        of.query::<AttemptsQuery>()
            .ok::<AttemptsJson<'_>>("A page of attempts, in the order of recording")
            .problem(422, "Invalid or unknown value")
            .problem(503, "The server is loading")
    }
)];

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AttemptsQuery {
    /// Only attempts at this URL.
    url: Option<String>,
    /// Only attempts of this link: its id or its URL.
    link: Option<String>,
    /// Only attempts of this domain, with or without `www.`.
    domain: Option<String>,
    /// Only attempts from this time on: RFC 3339, a day, or an age such as `2h`.
    since: Option<String>,
    /// Only attempts up to this time.
    until: Option<String>,
    /// Only this outcome: `content`, `failed`, `blocked`, or an error type.
    outcome: Option<String>,
    /// By the order of recording.
    #[cfg_attr(test, schemars(extend("enum" = ORDERS, "default" = ORDERS[0])))]
    order: Option<String>,
    /// Maximum number of attempts of the page.
    #[cfg_attr(test, schemars(range(min = 1, max = PAGE.1), extend("default" = PAGE.0)))]
    limit: Option<usize>,
    /// `next` of the page before, with otherwise the same parameters.
    cursor: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AttemptsPage"))]
struct AttemptsJson<'a> {
    #[cfg_attr(test, schemars(with = "Vec<RecordedAttemptSchema>"))]
    attempts: Vec<AttemptJson<'a>>,
    /// `cursor` of the next page; null after the last one.
    next: Option<String>,
    /// Attempts before this time may have been removed from the log.
    compacted_before: Option<TimeJson>,
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

/// Returns the domain as attempts have it. Recorded names are accepted as they are, even if no host
/// can have them.
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
        query.domain =
            given(asked.domain).map(|domain| known_domain(state, &domain)).transpose()?;
        query.since = read_time("since", asked.since.as_deref(), now)?;
        query.until = read_time("until", asked.until.as_deref(), now)?;
        if query.since.zip(query.until).is_some_and(|(since, until)| since > until) {
            return Err(wrong("`since` is later than `until`"));
        }
        query.ended =
            given(asked.outcome).map(|text| parse_outcome(&text)).transpose().map_err(wrong)?;
        let order = match asked.order.as_deref() {
            None | Some("" | "newest") => Order::NewestFirst,
            Some("oldest") => Order::OldestFirst,
            Some(other) => return Err(wrong(UnknownName::new("order", other, ORDERS).to_string())),
        };
        if let Some(cursor) = given(asked.cursor) {
            let seq = cursor
                .parse()
                .map_err(|_| wrong("invalid `cursor`: send `next` of the page before"))?;
            match order {
                Order::NewestFirst => query.before_seq = Some(seq),
                Order::OldestFirst => query.after_seq = Some(seq),
            }
        }
        Ok(Self { query, order, limit: asked.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1) })
    }
}

async fn attempts(
    Get(state): Shared,
    Query(asked): Query<AttemptsQuery>,
) -> Result<Response, Problem> {
    let wanted = AttemptsRequest::read(asked, &state)?;
    // What was reported before this request is in the response. If the log fails, `readyz` reports
    // it.
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
            compacted_before: page.found.compacted_before.map(TimeJson::from),
            attempts: page.attempts.iter().map(|(_, attempt)| AttemptJson(attempt)).collect(),
        }))
    });
    responded.await?
}

/// Returns the problem of a log that cannot be read.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn unreadable(error: JournalError) -> Problem {
    Problem::internal(format!(
        "cannot read the log: {error}; run `fetchwise verify` to find the cause"
    ))
}

/// Reads a page from the log, so no thread that serves requests may call it.
pub(super) fn page(
    state: &State,
    query: &AttemptQuery,
    order: Order,
    limit: usize,
) -> Result<Page, JournalError> {
    let mut attempts = Vec::with_capacity(limit.min(64));
    // One more tells whether there is another page.
    let most = limit.saturating_add(1);
    let found =
        journal::attempts(state.log_dir(), query, order, Some(most as u64), |seq, attempt| {
            attempts.push((seq, attempt));
            ControlFlow::Continue(())
        })?;
    let has_more = attempts.len() > limit;
    attempts.truncate(limit);
    Ok(Page { attempts, has_more, found })
}
