//! `POST /v1/attempts`: attempts of other programs, as JSON lines in the format of `import`.
//!
//! Invariants: when the response is sent, every accepted attempt is in the log at the journal's
//! durability. An invalid line is listed and does not affect other lines. A known attempt is
//! accepted and not recorded again. Another attempt with a known id is refused.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{Extension, State as Get};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use uuid::Uuid;

use super::Shared;
#[cfg(test)]
use super::attempt_schema::AttemptSchema;
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

described_routes![(
    "/v1/attempts",
    post(attempts),
    attempts("recordAttempts", "Record attempts made by another program"),
    |of| {
        of.lines::<AttemptSchema>()
            .ok::<TakenJson>("The accepted attempts are in the log")
            .fails::<TakenJson>(
                409,
                "No attempt was accepted, and a known id came with other content",
            )
            .fails::<TakenJson>(422, "No attempt was accepted")
            .stores_attempts()
    }
)];

#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AttemptsReport"))]
struct TakenJson {
    /// The number of attempts that are in the log at its durability, duplicates included.
    accepted: u64,
    /// The number of accepted attempts that were already in the log.
    duplicates: u64,
    refused: Vec<RefusedJson>,
    /// The number of refused lines that are not listed.
    more_refused: u64,
    /// Whether another attempt has the id of a refused one.
    #[serde(skip)]
    has_conflict: bool,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "RefusedLine"))]
struct RefusedJson {
    /// The line number, counted from 1.
    line: u64,
    error: String,
}

async fn attempts(
    Get(state): Shared,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Problem> {
    let body = state.bodies.read(client, body).await?;
    wait_for_scan(&state).await?;
    let taken = state.run_blocking(move |state| take(state, &body)).await??;
    if taken.accepted > 0 {
        // A known attempt may still be on its way to the disk, so the response waits for it too.
        state.journal().settled().await.map_err(|error| {
            Problem::unavailable(
                "log_degraded",
                format!(
                    "the attempts are in memory but not in the log yet: {error}; send them again"
                ),
            )
        })?;
    }
    let status = match taken.accepted == 0 && !taken.refused.is_empty() {
        true if taken.has_conflict => StatusCode::CONFLICT,
        true => StatusCode::UNPROCESSABLE_ENTITY,
        false => StatusCode::OK,
    };
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
        let (attempt, has_time) = match read(line, state.selector.clock().date_of(now), cutoff) {
            Ok(read) => read,
            Err(error) => {
                taken.refuse(number as u64 + 1, &error);
                continue;
            }
        };
        match record(state, &attempt, has_time, now)? {
            Recorded::Other => {
                taken.has_conflict = true;
                taken.refuse(number as u64 + 1, &Refusal::IdTaken(attempt.id));
                continue;
            }
            Recorded::Known => taken.duplicates += 1,
            Recorded::New => {
                let later = last
                    .get(&attempt.link)
                    .is_none_or(|other| other.attempted_at <= attempt.attempted_at);
                if later {
                    last.insert(attempt.link.clone(), attempt);
                }
            }
        }
        taken.accepted += 1;
    }
    // The last attempt of a link is its result: a block that another fetcher passed does not count
    // against the host.
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
    #[error("another attempt has the id {0}: give each attempt its own id, or none")]
    IdTaken(Uuid),
    #[error("made before {}, the end of compaction: a snapshot may contain it already", rfc3339::format(*.0))]
    BeforeCutoff(Timestamp),
}

/// Returns an attempt, and whether its time tells if it is known.
fn read(
    line: &[u8],
    date: Timestamp,
    cutoff: Option<Timestamp>,
) -> Result<(Attempt, bool), Refusal> {
    if line.len() > MAX_LINE_BYTES {
        return Err(Refusal::TooLong);
    }
    let text = std::str::from_utf8(line).map_err(Refusal::NotUtf8)?;
    let (attempt, notes) = from_json_line(text, date).map_err(Refusal::Invalid)?;
    let attempt = attempt.bounded().map_err(Refusal::Unrecordable)?.into_owned();
    match cutoff.filter(|cutoff| attempt.attempted_at < *cutoff) {
        Some(cutoff) => Err(Refusal::BeforeCutoff(cutoff)),
        None => Ok((attempt, !notes.clamped && !notes.id_of_content)),
    }
}

/// What became of a valid attempt.
enum Recorded {
    New,
    /// The log has it.
    Known,
    /// The log has another attempt with its id.
    Other,
}

/// Records an attempt unless its id is known.
fn record(
    state: &State,
    attempt: &Attempt,
    has_time: bool,
    now: Timestamp,
) -> Result<Recorded, Problem> {
    // The lock admits one attempt at a time. Of two concurrent attempts with the same id, the
    // second finds the first in the log.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = state.attempts.known(attempt.id) {
        let is_same = state.attempts.content_of(attempt).is_some_and(|content| {
            known.is_same(content) || !has_time && known.is_same_at_any_time(content)
        });
        return Ok(if is_same { Recorded::Known } else { Recorded::Other });
    }
    state.selector.record(attempt.clone(), now).map(|()| Recorded::New).map_err(|error| {
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
