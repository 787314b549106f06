//! Visits: `POST /v1/visits` begins one or many, `POST /v1/visits/{id}/report` says what came and gives the next step.
//!
//! Invariant: a report is answered once its attempt is in the log at the journal's durability. A report that names its request is taken
//! once, however often it comes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, Query, State as Get};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::report::{Came, Report};
use crate::auth::Client;
use crate::json::ProblemJson;
use crate::json_response;
use crate::problem::Problem;
use crate::request_body;
use crate::routes::decision_context::{Known, Said, wrong};
use crate::state::State;
use crate::visits::{Slot, Stands, TooMany, UnderWay, Way, write};
use fetchwise::heuristic::url::parse;
use fetchwise::router::Mode;
use fetchwise::visit::Visit;

/// A visit can be waited with for so long in one request.
const MAX_WAIT_S: u64 = 60;
/// So many visits are begun, or reports taken, before others get their turn.
const IN_A_ROW: usize = 64;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/v1/visits", get(sum).post(begin))
        .route("/v1/visits/report", post(report_many))
        .route("/v1/visits/{id}", get(look).delete(give_up))
        .route("/v1/visits/{id}/next", post(look))
        .route("/v1/visits/{id}/report", post(report))
}

/// What a visit is to be.
#[derive(Debug, Deserialize)]
struct Wish {
    url: String,
    #[serde(flatten)]
    said: Said,
    /// Whether evidence shall decide, or the table; without it the mode says.
    #[serde(default)]
    learning: Option<bool>,
}

#[derive(Deserialize)]
struct Waiting {
    wait_s: Option<u64>,
}

/// A report of many.
#[derive(Debug, Deserialize)]
struct OfVisit {
    visit: String,
    #[serde(flatten)]
    report: Report,
}

async fn begin(Get(state): Shared, Extension(client): Extension<Client>, body: Body) -> Result<Response, Problem> {
    let body = request_body::read(body, state.options.max_body, state.options.body_time).await?;
    let value: Value = request_body::parse(&body)?;
    let mut out = Vec::with_capacity(1024);
    let Some(wishes) = many(value, "visits", &state)? else {
        let wish: Wish = request_body::parse(&body)?;
        let slot = begin_one(&state, client, &wish)?;
        write(&mut out, slot.id(), &slot.lock(), &state.selector);
        return Ok(json_response::bytes(StatusCode::CREATED, out, "application/json"));
    };
    let begun = each(wishes, &mut out, |value, out| {
        let url = value.get("url").and_then(Value::as_str).map(str::to_owned);
        let begun = serde_json::from_value(value)
            .map_err(|error| wrong(error.to_string()))
            .and_then(|wish: Wish| begin_one(&state, client, &wish));
        match begun {
            Ok(slot) => write(out, slot.id(), &slot.lock(), &state.selector),
            Err(problem) => write_problem(out, url.as_deref(), &problem),
        }
    });
    begun.await;
    Ok(json_response::bytes(StatusCode::OK, out, "application/json"))
}

fn begin_one(state: &State, client: Client, wish: &Wish) -> Result<Arc<Slot>, Problem> {
    if state.is_stopping() {
        return Err(Problem::unavailable("stopping", "the server is stopping"));
    }
    let invalid = |error: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_url", error);
    let url = parse(wish.url.trim()).map_err(|error| invalid(error.to_string()))?;
    let known = Known::of(&wish.said, state)?;
    let lacking = known.lacking();
    let mut way: Way = Visit::new(Arc::clone(&state.selector), url)
        .map_err(|error| invalid(error.to_string()))?
        .without(lacking.union(known.tried));
    if let Some(id) = &wish.said.id {
        way = way.link_id(id);
    }
    if !known.heuristics.is_empty() {
        way = way.with_heuristics(known.heuristics);
    }
    if let Some(learning) = wish.learning {
        way = way.mode(if learning { Mode::Learning } else { Mode::Legacy });
    }
    if let Some(wanted) = known.wanted.filter(|id| !lacking.contains(*id)) {
        way = way.prefer(state.selector.fetcher_name(wanted)).map_err(|error| wrong(error.to_string()))?;
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| Problem::internal(format!("the system has no randomness: {error}")))?;
    let slot = state.visits.add(u128::from_ne_bytes(id), client, way).map_err(|TooMany| {
        Problem::unavailable(
            "too_many_visits",
            "there are too many visits under way: report those that you have begun, or end them",
        )
    })?;
    state.visits.go_on(&slot, &mut slot.lock(), state.selector.now());
    Ok(slot)
}

#[derive(serde::Serialize)]
struct SumJson {
    under_way: usize,
    begun: u64,
    ended: u64,
    /// Ended by themselves, since nobody came back.
    abandoned: u64,
    /// Not begun, since there were too many.
    refused: u64,
}

/// How many visits there are, and were since the server began.
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

/// Where a visit stands; with `wait_s`, once there is something to do, or after that time.
async fn look(Get(state): Shared, Path(id): Path<String>, Query(waiting): Query<Waiting>) -> Result<Response, Problem> {
    let slot = find(&state, &id)?;
    let end = Instant::now() + Duration::from_secs(waiting.wait_s.unwrap_or(0).min(MAX_WAIT_S));
    loop {
        let wait = {
            let mut under_way = slot.lock();
            state.visits.go_on(&slot, &mut under_way, state.selector.now());
            match std::mem::replace(&mut under_way.stands, Stands::Open) {
                // The wait itself goes to whoever waits for it; the visit tells the same of the next who asks.
                Stands::Waits(wait) if Instant::now() < end && !state.is_stopping() => Some(wait),
                other => {
                    under_way.stands = other;
                    return Ok(shown(&slot, &under_way, &state));
                }
            }
        };
        if let Some(mut wait) = wait {
            let at = end.min(Instant::now() + wait.until().since(state.selector.now()));
            let _ = timeout_at(at, wait.notified()).await;
        }
    }
}

/// Nobody goes on with it. What is out is as if it had never been handed out.
async fn give_up(Get(state): Shared, Path(id): Path<String>) -> Result<Response, Problem> {
    let slot = find(&state, &id)?;
    let mut under_way = slot.lock();
    if let Stands::Waits(wait) = std::mem::replace(&mut under_way.stands, Stands::Open) {
        let end = under_way.way.give_up(&wait);
        under_way.stands = state.visits.ended(end);
    }
    state.visits.remove(&slot);
    Ok(json_response::with_status(StatusCode::OK, &GivenUpJson { visit: &id, given_up: true }))
}

#[derive(serde::Serialize)]
struct GivenUpJson<'a> {
    visit: &'a str,
    given_up: bool,
}

async fn report(Get(state): Shared, Path(id): Path<String>, body: Body) -> Result<Response, Problem> {
    let body = request_body::read(body, state.options.max_body, state.options.body_time).await?;
    let slot = find(&state, &id)?;
    let report = match body.iter().all(u8::is_ascii_whitespace) {
        true => Report::default(),
        false => request_body::parse(&body)?,
    };
    let refused = take(&state, &slot, report).await?;
    settled(&state).await?;
    let under_way = slot.lock();
    match refused {
        None => Ok(shown(&slot, &under_way, &state)),
        Some(problem) => Ok(problem.with(&slot, &under_way, &state)),
    }
}

async fn report_many(Get(state): Shared, body: Body) -> Result<Response, Problem> {
    let body = request_body::read(body, state.options.max_body, state.options.body_time).await?;
    let reports = many(request_body::parse(&body)?, "reports", &state)?
        .ok_or_else(|| wrong("expected a list of reports, each with the `visit` that it is of"))?;
    drop::<Bytes>(body);
    let mut ends = Vec::with_capacity(reports.len());
    for value in reports {
        let visit = value.get("visit").and_then(Value::as_str).unwrap_or_default().to_owned();
        let taken = match serde_json::from_value::<OfVisit>(value) {
            Err(error) => Err(wrong(error.to_string())),
            Ok(of) => match find(&state, &of.visit) {
                Err(problem) => Err(problem),
                Ok(slot) => take(&state, &slot, of.report).await.map(|refused| (slot, refused)),
            },
        };
        ends.push((visit, taken));
        if ends.len() % IN_A_ROW == 0 {
            tokio::task::yield_now().await;
        }
    }
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
                let refused = Refused { error_type: problem.error_type(), error: problem.words().to_owned() };
                refused.write(&mut out, visit);
            }
        }
    }
    out.push(b']');
    Ok(json_response::bytes(StatusCode::OK, out, "application/json"))
}

/// A report that does not fit where its visit stands.
struct Refused {
    error_type: &'static str,
    error: String,
}

#[derive(serde::Serialize)]
struct RefusedJson<'a> {
    visit: &'a str,
    success: bool,
    error_type: &'a str,
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<Value>,
}

impl Refused {
    fn with(&self, slot: &Slot, under_way: &UnderWay, state: &State) -> Response {
        let mut now = Vec::new();
        write(&mut now, slot.id(), under_way, &state.selector);
        let step = serde_json::from_slice::<Value>(&now).ok().and_then(|mut now| now.get_mut("step").map(Value::take));
        let visit = format!("{:032x}", slot.id());
        let (error_type, error) = (self.error_type, self.error.as_str());
        json_response::with_status(
            StatusCode::CONFLICT,
            &RefusedJson { visit: &visit, success: false, error_type, error, step },
        )
    }

    fn write(&self, out: &mut Vec<u8>, visit: &str) {
        let (error_type, error) = (self.error_type, self.error.as_str());
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(out, &RefusedJson { visit, success: false, error_type, error, step: None });
    }
}

/// Takes a report. None when the visit has gone on, or the report was taken before.
async fn take(state: &Arc<State>, slot: &Arc<Slot>, report: Report) -> Result<Option<Refused>, Problem> {
    let number = report.number;
    let address = slot.lock().way.url().clone();
    let came = report.read(state, address).await?;
    let failures = state.kept.failures();
    let mut guard = slot.lock();
    let under_way = &mut *guard;
    if number.is_some_and(|number| number < under_way.number || is_taken(under_way, number)) {
        return Ok(None);
    }
    let refuse = |error_type, error: &str| Ok(Some(Refused { error_type, error: error.to_owned() }));
    if number.is_some_and(|number| number > under_way.number) {
        return refuse("no_such_request", "the visit has handed out no request of this number");
    }
    match (std::mem::replace(&mut under_way.stands, Stands::Open), came) {
        (Stands::Out(fetch), Some(Came::Answer(answer))) => under_way.way.report(fetch, *answer),
        (Stands::Out(fetch), Some(Came::Unavailable(why))) => under_way.way.unavailable(fetch, why),
        (Stands::Waits(_) | Stands::Open, None) => {}
        (stands, came) => {
            let refused = match (&stands, came) {
                (Stands::Out(_), _) => {
                    refuse("nothing_reported", "the report says nothing: send an `outcome`, or a response")
                }
                (Stands::Ended(_), None) => Ok(None),
                (Stands::Ended(_), _) => refuse("visit_ended", "the visit has ended: there is nothing to report to it"),
                _ => refuse("nothing_to_report", "the visit waits: it has handed out no request"),
            };
            under_way.stands = stands;
            return refused;
        }
    }
    state.visits.go_on(slot, under_way, state.selector.now());
    match state.kept.failures() == failures {
        true => Ok(None),
        false => Err(Problem::unavailable(
            "log_degraded",
            "the attempt is in memory, and not in the log: it is full or failing",
        )),
    }
}

/// Whether the request of this number, the last one, has been reported.
fn is_taken(under_way: &UnderWay, number: u32) -> bool {
    number == under_way.number && !matches!(under_way.stands, Stands::Out(_))
}

async fn settled(state: &State) -> Result<(), Problem> {
    state.journal().settled().await.map_err(|error| {
        Problem::unavailable("log_degraded", format!("the attempt is in memory, and not in the log yet: {error}"))
    })
}

fn shown(slot: &Slot, under_way: &UnderWay, state: &State) -> Response {
    let mut out = Vec::with_capacity(512);
    write(&mut out, slot.id(), under_way, &state.selector);
    json_response::bytes(StatusCode::OK, out, "application/json")
}

fn find(state: &State, id: &str) -> Result<Arc<Slot>, Problem> {
    let number = (id.len() == 32).then(|| u128::from_str_radix(id, 16).ok()).flatten();
    number.and_then(|id| state.visits.get(id)).ok_or_else(|| {
        let words = "there is no such visit: it never was, or nobody came back to it in time and it ended by itself; what came of its \
                     last request can be told with POST /v1/attempts";
        Problem::new(StatusCode::NOT_FOUND, "unknown_visit", words)
    })
}

/// The values of a list, or of an object that has one under `name`; none for an object of another kind.
fn many(value: Value, name: &str, state: &State) -> Result<Option<Vec<Value>>, Problem> {
    let list = match value {
        Value::Array(list) => list,
        Value::Object(mut map) => match map.remove(name) {
            Some(Value::Array(list)) => list,
            Some(_) => return Err(wrong(format!("`{name}` must be a list"))),
            None => return Ok(None),
        },
        _ => return Err(Problem::bad_request("the body must be an object or a list of objects")),
    };
    match list.len() > state.options.max_items {
        true => Err(wrong(format!("{} in one call; {} are the most", list.len(), state.options.max_items))),
        false => Ok(Some(list)),
    }
}

/// Writes a list of what `one` writes for each value; others get their turn in between.
async fn each(values: Vec<Value>, out: &mut Vec<u8>, mut one: impl FnMut(Value, &mut Vec<u8>)) {
    out.push(b'[');
    for (place, value) in values.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
            if place % IN_A_ROW == 0 {
                tokio::task::yield_now().await;
            }
        }
        one(value, out);
    }
    out.push(b']');
}

fn write_problem(out: &mut Vec<u8>, url: Option<&str>, problem: &Problem) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(out, &ProblemJson::of_url(url, problem.error_type(), problem.words()));
}
