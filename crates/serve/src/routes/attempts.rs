//! `POST /v1/attempts`: attempts made elsewhere, as JSON lines like those that `import` reads.
//!
//! Invariant: what is counted as accepted is in the log, at the journal's durability, when the answer goes out. A line that cannot be
//! used is named and keeps no other from being accepted; an attempt that is known is accepted and not recorded again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State as Get;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use serde::Serialize;

use super::Shared;
use super::stats::looked;
use crate::json_response;
use crate::problem::Problem;
use crate::request_body;
use crate::state::State;
use fetchwise::attempt::Attempt;
use fetchwise::attempt::json::{MAX_LINE_BYTES, from_json_line};
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;

/// So many lines that cannot be used are named, and the rest is counted.
const MAX_NAMED: usize = 1000;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/v1/attempts", post(attempts))
}

#[derive(Debug, Default, Serialize)]
struct TakenJson {
    accepted: u64,
    /// Of the accepted, those that were known.
    duplicates: u64,
    refused: Vec<RefusedJson>,
    /// Of the refused, those that are not named.
    more_refused: u64,
}

#[derive(Debug, Serialize)]
struct RefusedJson {
    line: u64,
    error: String,
}

async fn attempts(Get(state): Shared, body: Body) -> Result<Response, Problem> {
    let body = request_body::read(body, state.options.max_body, state.options.body_time).await?;
    looked(&state).await?;
    let taken = state.aside(move |state| take(state, &body)).await??;
    if taken.accepted > 0 {
        // Those that were known may have been told of a moment ago, and be on their way: they are waited for as well.
        state.journal().settled().await.map_err(|error| {
            Problem::unavailable(
                "log_degraded",
                format!("the attempts are in memory, and not in the log yet: {error}; send them again"),
            )
        })?;
    }
    let is_useless = taken.accepted == 0 && !taken.refused.is_empty();
    let status = if is_useless { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    Ok(json_response::with_status(status, &taken))
}

/// Takes the lines of a body.
fn take(state: &State, body: &Bytes) -> Result<TakenJson, Problem> {
    let (now, cutoff) = (state.selector.now(), state.kept.cutoff());
    let mut taken = TakenJson::default();
    let mut last: HashMap<String, Attempt> = HashMap::new();
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    for (number, line) in body.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let attempt = match read(line, now, cutoff) {
            Ok(attempt) => attempt,
            Err(error) => {
                taken.refuse(number as u64 + 1, error);
                continue;
            }
        };
        taken.accepted += 1;
        match record(state, &attempt, now)? {
            false => taken.duplicates += 1,
            true => {
                let later = last.get(&attempt.link).is_none_or(|other| other.attempted_at <= attempt.attempted_at);
                if later {
                    last.insert(attempt.link.clone(), attempt);
                }
            }
        }
    }
    // A link's last attempt is how it ended: a block that another fetcher got past is none of the host's.
    for attempt in last.values() {
        let _ = state.selector.observe_remote_attempt(attempt, now);
    }
    Ok(taken)
}

fn read(line: &[u8], now: Timestamp, cutoff: Option<Timestamp>) -> Result<Attempt, String> {
    if line.len() > MAX_LINE_BYTES {
        return Err(format!("the line is longer than {MAX_LINE_BYTES} bytes"));
    }
    let text = std::str::from_utf8(line).map_err(|error| format!("the line is no UTF-8: {error}"))?;
    let (attempt, _) = from_json_line(text, now).map_err(|error| error.to_string())?;
    let attempt = attempt.bounded().map_err(|error| error.to_string())?.into_owned();
    match cutoff.filter(|cutoff| attempt.attempted_at < *cutoff) {
        Some(cutoff) => Err(format!(
            "made before {}, up to where attempts were compacted: a snapshot may have it already",
            rfc3339::format(cutoff)
        )),
        None => Ok(attempt),
    }
}

/// Records an attempt unless it is known. Says whether it was new.
fn record(state: &State, attempt: &Attempt, now: Timestamp) -> Result<bool, Problem> {
    // One at a time, so that of two that come at once with the same id the second one finds the first in the log.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.kept.knows(attempt.id) {
        return Ok(false);
    }
    state.selector.record(attempt.clone(), now).map(|()| true).map_err(|error| {
        Problem::unavailable("log_degraded", format!("the log takes no more attempts now: {error}; send them again"))
    })
}

impl TakenJson {
    fn refuse(&mut self, line: u64, error: String) {
        match self.refused.len() < MAX_NAMED {
            true => self.refused.push(RefusedJson { line, error }),
            false => self.more_refused += 1,
        }
    }
}
