//! Visits: `POST /v1/visits` begins one or several, `POST /v1/visits/{id}/report` reports a result
//! and returns the next step.
//!
//! Invariants: the response to a report is sent once its attempt is in the log at the journal's
//! durability. A report with a request number is recorded once, however often it arrives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State as Get};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Shared;
use super::extractors::{Path, Query};
use super::report_body::{Report, ReportContent};
use crate::auth::Client;
#[cfg(test)]
use crate::description::{Both, Either};
use crate::json_response;
use crate::problem::{Problem, ProblemDetails};
use crate::request_body;
use crate::routes::decision_context::{CallerContext, ResolvedContext, wrong};
use crate::state::State;
use crate::visits::{ActiveVisit, OwnedVisit, TooMany, VisitSlot, VisitState, write};
#[cfg(test)]
use crate::visits::{StepJson, VisitStepJson};
use fetchwise::heuristic::url::parse;
use fetchwise::router::Mode;
use fetchwise::visit::Visit;
use fetchwise_present::ProblemJson;

/// The longest wait within one request, in seconds.
const MAX_WAIT_S: u64 = 60;

described_routes![
    ("/v1/visits", post(begin), visits("beginVisits", "Begin one visit or several"), |of| {
        of.body::<BeginBody>()
            .responds::<VisitStepJson<'_>>(201, "application/json", "The visit and its first step")
            .ok::<Vec<Either<VisitStepJson<'_>, ProblemJson<'_>>>>(
                "Several visits, each with its first step, in the order of the request",
            )
            .problem(422, "The URL cannot be fetched, or a name is unknown")
            .problem(
                503,
                "Too many visits are active, there is no room for the body, or the server is loading; send it again",
            )
    }),
    ("/v1/visits", get(sum), visits("countVisits", "Count visits"), |of| {
        of.ok::<SumJson>("Active visits, and totals since the server started")
    }),
    (
        "/v1/visits/report",
        post(report_many),
        visits("reportToVisits", "Report to several visits"),
        |of| {
            of.body::<ReportsBody>()
            .ok::<Vec<Either<VisitStepJson<'_>, RefusedJson<'_>>>>(
                "The next step of each visit, in the order of the request; the attempts are in the log",
            )
            .problem(422, "The body is not a list")
            .stores_attempts()
        }
    ),
    (
        "/v1/visits/{id}",
        get(current_step),
        visits("getVisit", "Get the current step of a visit"),
        |of| {
            of.parameter("Id of the visit")
                .query::<Waiting>()
                .ok::<VisitStepJson<'_>>("The current step")
                .problem(404, "Unknown visit")
        }
    ),
    ("/v1/visits/{id}", delete(give_up), visits("cancelVisit", "Cancel a visit"), |of| {
        of.parameter("Id of the visit")
            .ok::<GivenUpJson<'_>>(
                "The visit is cancelled; its unreported request counts as never handed out",
            )
            .problem(404, "Unknown visit")
    }),
    (
        "/v1/visits/{id}/next",
        post(current_step),
        visits(
            "nextVisitStep",
            "Get the current step of a visit, for clients that avoid a GET with side effects"
        ),
        |of| {
            of.parameter("Id of the visit")
                .query::<Waiting>()
                .ok::<VisitStepJson<'_>>("The current step")
                .problem(404, "Unknown visit")
        }
    ),
    (
        "/v1/visits/{id}/report",
        post(report),
        visits("reportToVisit", "Report the result of a request"),
        |of| {
            of.parameter("Id of the visit")
                .body::<Report>()
                .ok::<VisitStepJson<'_>>("The next step; the attempt is in the log")
                .problem(404, "Unknown visit")
                .fails::<RefusedJson<'_>>(409, "The report does not match the state of the visit")
                .problem(422, "Invalid report")
                .stores_attempts()
        }
    ),
];

/// A visit to begin.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Visit"))]
struct VisitRequest {
    url: String,
    /// The caller's id for the link, to which pauses apply; default: the URL.
    #[serde(default)]
    id: Option<String>,
    /// Whether evidence decides or the router table; default: as the mode says.
    #[serde(default)]
    learning: Option<bool>,
}

// What the body of `begin` may be.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(untagged, inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum BeginBody {
    One(Both<VisitRequest, CallerContext>),
    List(Vec<Both<VisitRequest, CallerContext>>),
    Object { visits: Vec<Both<VisitRequest, CallerContext>> },
}

// What the body of `report_many` may be.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(untagged, inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum ReportsBody {
    List(Vec<Both<OfVisit, Report>>),
    Object { reports: Vec<Both<OfVisit, Report>> },
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Waiting {
    /// Seconds to wait until the visit has something to do; at most 60.
    wait_s: Option<u64>,
}

/// One report of a list.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "ReportOf"))]
struct OfVisit {
    visit: String,
}

/// The URL or the visit of an item, for its error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ItemName {
    url: Option<String>,
    visit: Option<String>,
}

async fn begin(
    Get(state): Shared,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Problem> {
    let body = state.bodies.read(client, body).await?;
    let (status, out) =
        state.with_body(body, move |state, body| begin_all(state, client, body)).await??;
    Ok(json_response::bytes(status, out, "application/json"))
}

/// Begins the visits of a body, one after the other, so that one request at a time is in memory
/// besides the text.
fn begin_all(state: &State, client: Client, body: &[u8]) -> Result<(StatusCode, Vec<u8>), Problem> {
    let mut out = Vec::with_capacity(1024);
    let Some(items) = request_body::items(body, "visits", state.options.max_items)? else {
        let (request, said) = request_body::parse_both(body)?;
        let slot = begin_one(state, client, request, said)?;
        write(&mut out, slot.id(), &slot.lock(), &state.selector);
        return Ok((StatusCode::CREATED, out));
    };
    request_body::known_fields(body, &[&["visits"]])?;
    out.push(b'[');
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        let begun =
            item_as(item).and_then(|(request, said)| begin_one(state, client, request, said));
        match begun {
            Ok(slot) => write(&mut out, slot.id(), &slot.lock(), &state.selector),
            Err(problem) => write_problem(&mut out, name_of(item).url.as_deref(), &problem),
        }
    }
    out.push(b']');
    Ok((StatusCode::OK, out))
}

/// Parses an item of a list.
fn item_as<'a, A: Deserialize<'a>, B: Deserialize<'a>>(
    item: &'a RawValue,
) -> Result<(A, B), Problem> {
    request_body::parse_both(item.get().as_bytes()).map_err(|problem| match problem.error_type() {
        // The body as a whole is valid.
        "bad_request" => wrong(problem.words()),
        _ => problem,
    })
}

fn name_of(item: &RawValue) -> ItemName {
    serde_json::from_str(item.get()).unwrap_or_default()
}

fn begin_one(
    state: &State,
    client: Client,
    request: VisitRequest,
    said: CallerContext,
) -> Result<Arc<VisitSlot>, Problem> {
    if state.is_stopping() {
        return Err(Problem::unavailable("stopping", "the server is stopping"));
    }
    let invalid =
        |error: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_url", error);
    let url = parse(request.url.trim()).map_err(|error| invalid(error.to_string()))?;
    let known = ResolvedContext::of(&said, state)?;
    let lacking = known.lacking();
    let mut visit: OwnedVisit = Visit::new(Arc::clone(&state.selector), url)
        .map_err(|error| invalid(error.to_string()))?
        .without(lacking.union(known.tried));
    if let Some(id) = &request.id {
        visit = visit.link_id(id);
    }
    if !known.heuristics.is_empty() {
        visit = visit.with_heuristics(known.heuristics);
    }
    if let Some(learning) = request.learning {
        visit = visit.mode(if learning { Mode::Learning } else { Mode::Legacy });
    }
    if let Some(preferred) = known.prefer.filter(|id| !lacking.contains(*id)) {
        visit = visit
            .prefer(state.selector.fetcher_name(preferred))
            .map_err(|error| wrong(error.to_string()))?;
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| {
        Problem::internal(format!("cannot read the system's randomness: {error}"))
    })?;
    let slot = state.visits.add(u128::from_ne_bytes(id), client, visit).map_err(|TooMany| {
        Problem::unavailable(
            "too_many_visits",
            "too many active visits: report or cancel the ones that you have begun",
        )
    })?;
    state.visits.advance(&slot, &mut slot.lock(), state.selector.now());
    Ok(slot)
}

/// The number of visits since the server started, and of those that are active.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "VisitSum"))]
struct SumJson {
    under_way: usize,
    begun: u64,
    ended: u64,
    /// Visits whose client did not return.
    abandoned: u64,
    /// Visits that were refused because there were too many.
    refused: u64,
}

/// Returns the number of active visits, and totals since the server started.
async fn sum(Get(state): Shared) -> Response {
    let counts = state.visits.counts();
    json_response::json(&SumJson {
        under_way: state.visits.len(),
        begun: counts.begun.load(Ordering::Relaxed),
        ended: counts.ended.load(Ordering::Relaxed),
        abandoned: counts.abandoned.load(Ordering::Relaxed),
        refused: counts.refused.load(Ordering::Relaxed),
    })
}

/// Returns the step of a visit; with `wait_s`, once there is something to do, or after that time.
async fn current_step(
    Get(state): Shared,
    Path(id): Path<String>,
    Query(waiting): Query<Waiting>,
) -> Result<Response, Problem> {
    let slot = find(&state, &id)?;
    let end = Instant::now() + Duration::from_secs(waiting.wait_s.unwrap_or(0).min(MAX_WAIT_S));
    loop {
        let (until, mut wait) = {
            let mut active = slot.lock();
            state.visits.advance(&slot, &mut active, state.selector.now());
            match std::mem::replace(&mut active.state, VisitState::Open) {
                // Only this request waits; the visit shows the same step to other requests.
                VisitState::Waits(wait) if Instant::now() < end && !state.is_stopping() => {
                    (wait.until(), Some(wait))
                }
                VisitState::Held(until) if Instant::now() < end && !state.is_stopping() => {
                    (until, None)
                }
                other => {
                    active.state = other;
                    return Ok(shown(&slot, &active, &state));
                }
            }
        };
        let at = end.min(Instant::now() + until.since(state.selector.now()));
        match &mut wait {
            Some(wait) => drop(timeout_at(at, wait.notified()).await),
            None => sleep_until(at).await,
        }
    }
}

/// Cancels a visit. Its unreported request counts as never handed out.
async fn give_up(Get(state): Shared, Path(id): Path<String>) -> Result<Response, Problem> {
    let slot = find(&state, &id)?;
    let mut active = slot.lock();
    if let VisitState::Waits(wait) = std::mem::replace(&mut active.state, VisitState::Open) {
        let end = active.visit.give_up(&wait);
        active.state = state.visits.ended(end);
    }
    state.visits.remove(&slot);
    Ok(json_response::with_status(StatusCode::OK, &GivenUpJson { visit: &id, given_up: true }))
}

/// A visit that was cancelled.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "VisitCancelled"))]
struct GivenUpJson<'a> {
    visit: &'a str,
    given_up: bool,
}

async fn report(
    Get(state): Shared,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Response, Problem> {
    let body = state.bodies.read(client, body).await?;
    let slot = find(&state, &id)?;
    let reported = state.with_body(body, move |state, body| {
        let report = match body.iter().all(u8::is_ascii_whitespace) {
            true => Report::default(),
            false => request_body::parse(body)?,
        };
        take(state, &slot, report).map(|refused| (slot, refused))
    });
    let (slot, refused) = reported.await??;
    settled(&state).await?;
    let active = slot.lock();
    match refused {
        None => Ok(shown(&slot, &active, &state)),
        Some(problem) => Ok(problem.with(&slot, &active, &state)),
    }
}

/// The end of one report of a list: its visit, and what became of the report.
type Reported = (String, Result<(Arc<VisitSlot>, Option<ReportRefusal>), Problem>);

fn report_all(state: &State, body: &[u8]) -> Result<Vec<Reported>, Problem> {
    let reports = request_body::items(body, "reports", state.options.max_items)?
        .ok_or_else(|| wrong("invalid body: expected a list of reports, each with its `visit`"))?;
    request_body::known_fields(body, &[&["reports"]])?;
    let mut ends = Vec::with_capacity(reports.len());
    for item in reports {
        let taken = item_as::<OfVisit, Report>(item).and_then(|(of, report)| {
            let slot = find(state, &of.visit)?;
            take(state, &slot, report).map(|refused| (slot, refused))
        });
        ends.push((name_of(item).visit.unwrap_or_default(), taken));
    }
    Ok(ends)
}

async fn report_many(
    Get(state): Shared,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Problem> {
    let body = state.bodies.read(client, body).await?;
    let ends = state.with_body(body, |state, body| report_all(state, body)).await??;
    settled(&state).await?;
    let mut out = vec![b'['];
    for (place, (visit, taken)) in ends.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        match taken {
            Ok((slot, None)) => write(&mut out, slot.id(), &slot.lock(), &state.selector),
            Ok((_, Some(refused))) => refused.write(&mut out, visit),
            Err(problem) => {
                let refused = ReportRefusal {
                    error_type: problem.error_type(),
                    error: problem.words().to_owned(),
                };
                refused.write(&mut out, visit);
            }
        }
    }
    out.push(b']');
    Ok(json_response::bytes(StatusCode::OK, out, "application/json"))
}

/// A report that does not match the state of its visit.
struct ReportRefusal {
    error_type: &'static str,
    error: String,
}

/// A report that does not match the state of its visit.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "VisitProblem"))]
struct RefusedJson<'a> {
    /// None within a list.
    #[serde(flatten)]
    details: Option<ProblemDetails<'a>>,
    visit: &'a str,
    #[cfg_attr(test, schemars(extend("const" = false)))]
    success: bool,
    error_type: &'a str,
    error: &'a str,
    /// The current step of the visit; absent within a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "StepJson<'a>"))]
    step: Option<Value>,
}

impl ReportRefusal {
    fn with(&self, slot: &VisitSlot, active: &ActiveVisit, state: &State) -> Response {
        let mut now = Vec::new();
        write(&mut now, slot.id(), active, &state.selector);
        let step = serde_json::from_slice::<Value>(&now)
            .ok()
            .and_then(|mut now| now.get_mut("step").map(Value::take));
        let visit = format!("{:032x}", slot.id());
        let (error_type, error) = (self.error_type, self.error.as_str());
        let (status, visit) = (StatusCode::CONFLICT, visit.as_str());
        let details = Some(ProblemDetails::new(status, error));
        json_response::with_status(
            status,
            &RefusedJson { details, visit, success: false, error_type, error, step },
        )
    }

    fn write(&self, out: &mut Vec<u8>, visit: &str) {
        let (error_type, error) = (self.error_type, self.error.as_str());
        let refused =
            RefusedJson { details: None, visit, success: false, error_type, error, step: None };
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(out, &refused);
    }
}

/// Records a report. None if the visit continued or the report was already recorded.
fn take(
    state: &State,
    slot: &Arc<VisitSlot>,
    report: Report,
) -> Result<Option<ReportRefusal>, Problem> {
    let number = report.number;
    let address = slot.lock().visit.url().clone();
    let came = report.read(state, &address)?;
    let failures = state.attempts.failures();
    let mut guard = slot.lock();
    let active = &mut *guard;
    let end = came.as_ref().map(ReportContent::end_hash);
    let refuse =
        |error_type, error: &str| Ok(Some(ReportRefusal { error_type, error: error.to_owned() }));
    if let Some(number) =
        number.filter(|number| *number < active.number || is_taken(active, *number))
    {
        return match active.reported_end(number).zip(end) {
            Some((known, end)) if known != end => {
                refuse("already_reported", "another report of this request is in the log")
            }
            _ => Ok(None),
        };
    }
    if number.is_some_and(|number| number > active.number) {
        return refuse("no_such_request", "the visit has no request with this number");
    }
    match (std::mem::replace(&mut active.state, VisitState::Open), came) {
        (VisitState::Out(fetch), Some(ReportContent::Fetched(answer))) => {
            active.visit.report(fetch, *answer)
        }
        (VisitState::Out(fetch), Some(ReportContent::Unavailable(why))) => {
            active.visit.unavailable(fetch, why)
        }
        (VisitState::Waits(_) | VisitState::Held(_) | VisitState::Open, None) => {}
        (stands, came) => {
            let refused = match (&stands, came) {
                (VisitState::Out(_), _) => refuse(
                    "nothing_reported",
                    "the report is empty: send an `outcome` or a response",
                ),
                (VisitState::Ended(_), None) => Ok(None),
                (VisitState::Ended(_), _) => {
                    refuse("visit_ended", "the visit has ended: it accepts no more reports")
                }
                _ => {
                    refuse("nothing_to_report", "the visit is waiting: it has no request to report")
                }
            };
            active.state = stands;
            return refused;
        }
    }
    active.ends.extend(end.map(|end| (active.number, end)));
    state.visits.advance(slot, active, state.selector.now());
    match state.attempts.failures() == failures {
        true => Ok(None),
        false => Err(Problem::unavailable(
            "log_degraded",
            "the attempt is in memory but not in the log: the log is full or failing",
        )),
    }
}

/// Returns whether the request with this number, the last one, was already reported.
fn is_taken(active: &ActiveVisit, number: u32) -> bool {
    number == active.number && !matches!(active.state, VisitState::Out(_))
}

async fn settled(state: &State) -> Result<(), Problem> {
    state.journal().settled().await.map_err(|error| {
        Problem::unavailable(
            "log_degraded",
            format!("the attempt is in memory but not in the log yet: {error}"),
        )
    })
}

fn shown(slot: &VisitSlot, active: &ActiveVisit, state: &State) -> Response {
    let mut out = Vec::with_capacity(512);
    write(&mut out, slot.id(), active, &state.selector);
    json_response::bytes(StatusCode::OK, out, "application/json")
}

fn find(state: &State, id: &str) -> Result<Arc<VisitSlot>, Problem> {
    let number = (id.len() == 32).then(|| u128::from_str_radix(id, 16).ok()).flatten();
    number.and_then(|id| state.visits.get(id)).ok_or_else(|| {
        let words = "there is no such visit: it never was, or nobody came back to it in time and it ended by itself; what came of its \
                     last request can be told with POST /v1/attempts";
        Problem::new(StatusCode::NOT_FOUND, "unknown_visit", words)
    })
}

fn write_problem(out: &mut Vec<u8>, url: Option<&str>, problem: &Problem) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(
        out,
        &ProblemJson::of_url(url, problem.error_type(), problem.words()),
    );
}
