//! `POST /v1/attempts`: attempts of other programs, as JSON lines in the format of `import`.
//!
//! Invariants: when the response is sent, every accepted attempt is in the log at the journal's durability. An invalid
//! line is listed and does not affect other lines. A known attempt is accepted and not recorded again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State as Get};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use serde::Serialize;

use super::Shared;
use super::stats::wait_for_scan;
use crate::auth::Client;
use crate::json_response;
use crate::problem::Problem;
use crate::state::State;
use fetchwise::attempt::Attempt;
use fetchwise::attempt::bounds::Unrecordable;
use fetchwise::attempt::json::{ImportError, MAX_LINE_BYTES, from_json_line};
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;

/// Maximum number of invalid lines that the response lists; further ones are counted.
const MAX_NAMED: usize = 1000;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/v1/attempts", post(attempts))
}

#[derive(Debug, Default, Serialize)]
struct TakenJson {
    accepted: u64,
    /// The number of accepted attempts that were already known.
    duplicates: u64,
    refused: Vec<RefusedJson>,
    /// The number of refused lines that are not listed.
    more_refused: u64,
}

#[derive(Debug, Serialize)]
struct RefusedJson {
    line: u64,
    error: String,
}

async fn attempts(Get(state): Shared, Extension(client): Extension<Client>, body: Body) -> Result<Response, Problem> {
    let body = state.bodies.read(client, body).await?;
    wait_for_scan(&state).await?;
    let taken = state.run_blocking(move |state| take(state, &body)).await??;
    if taken.accepted > 0 {
        // A known attempt may still be on its way to the disk, so the response waits for it too.
        state.journal().settled().await.map_err(|error| {
            Problem::unavailable(
                "log_degraded",
                format!("the attempts are in memory but not in the log yet: {error}; send them again"),
            )
        })?;
    }
    let is_useless = taken.accepted == 0 && !taken.refused.is_empty();
    let status = if is_useless { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    Ok(json_response::with_status(status, &taken))
}

/// Records the lines of a body.
fn take(state: &State, body: &[u8]) -> Result<TakenJson, Problem> {
    let (now, cutoff) = (state.selector.now(), state.attempts.cutoff());
    let mut taken = TakenJson::default();
    let mut last: HashMap<String, Attempt> = HashMap::new();
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    for (number, line) in body.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let attempt = match read(line, state.selector.clock().date_of(now), cutoff) {
            Ok(attempt) => attempt,
            Err(error) => {
                taken.refuse(number as u64 + 1, &error);
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
    // The last attempt of a link is its result: a block that another fetcher passed does not count against the host.
    for attempt in last.values() {
        let _ = state.selector.observe_remote_attempt(attempt, now);
    }
    Ok(taken)
}

/// The reason why a line was refused. It becomes text only if the response lists the line.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the line is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    #[error("the line is not valid UTF-8: {0}")]
    NotUtf8(std::str::Utf8Error),
    #[error(transparent)]
    Invalid(ImportError),
    #[error(transparent)]
    Unrecordable(Unrecordable),
    #[error("made before {}, the end of compaction: a snapshot may contain it already", rfc3339::format(*.0))]
    BeforeCutoff(Timestamp),
}

fn read(line: &[u8], date: Timestamp, cutoff: Option<Timestamp>) -> Result<Attempt, Refusal> {
    if line.len() > MAX_LINE_BYTES {
        return Err(Refusal::TooLong);
    }
    let text = std::str::from_utf8(line).map_err(Refusal::NotUtf8)?;
    let (attempt, _) = from_json_line(text, date).map_err(Refusal::Invalid)?;
    let attempt = attempt.bounded().map_err(Refusal::Unrecordable)?.into_owned();
    match cutoff.filter(|cutoff| attempt.attempted_at < *cutoff) {
        Some(cutoff) => Err(Refusal::BeforeCutoff(cutoff)),
        None => Ok(attempt),
    }
}

/// Records an attempt unless it is known. Returns whether it was new.
fn record(state: &State, attempt: &Attempt, now: Timestamp) -> Result<bool, Problem> {
    // The lock admits one attempt at a time. Of two concurrent attempts with the same id, the second finds the first in
    // the log.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.attempts.knows(attempt.id) {
        return Ok(false);
    }
    state.selector.record(attempt.clone(), now).map(|()| true).map_err(|error| {
        Problem::unavailable(
            "log_degraded",
            format!("the log cannot store more attempts now: {error}; send them again"),
        )
    })
}

impl TakenJson {
    fn refuse(&mut self, line: u64, error: &Refusal) {
        match self.refused.len() < MAX_NAMED {
            true => self.refused.push(RefusedJson { line, error: error.to_string() }),
            false => self.more_refused += 1,
        }
    }
}
