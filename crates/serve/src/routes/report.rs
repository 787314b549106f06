//! What a crawler says of a request that a visit handed out: an outcome by its name, a whole response to be judged, or that the fetcher
//! is not to be had.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::classify::Given;
use crate::problem::Problem;
use crate::routes::decision_context::wrong;
use crate::state::State;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::stored_headers;
use fetchwise::backoff::retry_after;
use fetchwise::fetch_result::{FetchResult, Outcome};
use fetchwise::response::Page;
use fetchwise::time::Timestamp;
use fetchwise::unknown_name::UnknownName;

/// Names of failures that begin so are the caller's own.
const OWN: &str = "x_";
/// They are no longer than this.
const MAX_OWN: usize = 64;
/// Bodies up to this are read on the spot: it takes some ten microseconds.
const ON_THE_SPOT_BYTES: usize = 16 << 10;

/// A report.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    /// Which of the visit's requests it is about; the one that is out when none.
    pub(super) number: Option<u32>,
    outcome: Option<String>,
    status: Option<u16>,
    /// Seconds, or as a `Retry-After` header has it.
    retry_after: Option<Value>,
    duration_ms: Option<f64>,
    /// How many requests to the host it was.
    requests: Option<u16>,
    message: Option<String>,
    /// The body ended before its announced length.
    truncated: bool,
    final_url: Option<String>,
    headers: Value,
    body: Option<String>,
    body_base64: Option<String>,
    /// Why the fetcher is not to be had: nobody was asked.
    unavailable: Option<String>,
}

/// What a report comes to.
#[derive(Debug)]
pub(super) enum Came {
    Answer(Box<FetchResult>),
    Unavailable(String),
}

impl Report {
    /// Reads it; a response is judged as one of `url`. None when it says nothing.
    ///
    /// # Errors
    /// 422 when it says what cannot be.
    pub(super) async fn read(mut self, state: &Arc<State>, url: Url) -> Result<Option<Came>, Problem> {
        if let Some(why) = self.unavailable.take() {
            return Ok(Some(Came::Unavailable(why)));
        }
        let now = state.selector.now();
        if let Some(name) = self.outcome.take() {
            let answer = self.named(&name, now)?;
            return Ok(Some(Came::Answer(Box::new(answer))));
        }
        if self.status.is_none() {
            return match self.body.is_some() || self.body_base64.is_some() {
                true => Err(wrong("a response needs a `status`")),
                false => Ok(None),
            };
        }
        let length = self.body.as_ref().or(self.body_base64.as_ref()).map_or(0, String::len);
        let answer = match length > ON_THE_SPOT_BYTES {
            false => self.judged(state, &url, now)?,
            true => state.aside(move |state| self.judged(state, &url, now)).await??,
        };
        Ok(Some(Came::Answer(Box::new(answer))))
    }

    /// An outcome by its name.
    fn named(mut self, name: &str, now: Timestamp) -> Result<FetchResult, Problem> {
        let outcome = match name {
            "content" => Outcome::Content,
            name => match ErrorKind::from_name(name) {
                Some(kind) => Outcome::from(kind),
                None if is_own(name) => Outcome::Other(name.into()),
                None => {
                    let known = ["content"].into_iter().chain(ErrorKind::ALL.iter().map(|kind| kind.name()));
                    let error = UnknownName::new("outcome", name, known);
                    return Err(wrong(format!("{error}; a failure that only you have a name for begins with {OWN}")));
                }
            },
        };
        let mut answer = FetchResult::from(outcome);
        answer.status = self.status()?;
        let headers = self.given().headers()?;
        answer.headers = stored_headers(&headers);
        self.rest(answer, now)
    }

    /// A response, read by the detector.
    fn judged(mut self, state: &State, url: &Url, now: Timestamp) -> Result<FetchResult, Problem> {
        let Some(status) = self.status()? else { return Err(wrong("a response needs a `status`")) };
        let mut given = self.given();
        let (headers, body) = (given.headers()?, given.bytes()?);
        let final_url = self.final_url.take();
        let page =
            Page { url: Some(url.as_str()), final_url: final_url.as_deref(), status, headers: &headers, body: &body };
        let mut answer = state.detector.judge_page(&page);
        if self.truncated {
            answer.outcome = answer.outcome.truncated();
        }
        self.rest(answer, now)
    }

    fn rest(self, mut answer: FetchResult, now: Timestamp) -> Result<FetchResult, Problem> {
        if let Some(value) = &self.retry_after {
            answer.retry_after = asked(value, now)?;
        }
        if let Some(ms) = self.duration_ms {
            let duration = Duration::try_from_secs_f64(ms / 1000.0);
            answer.duration = Some(duration.map_err(|_| wrong("`duration_ms` must be a number of milliseconds"))?);
        }
        answer.requests = self.requests.or(answer.requests);
        answer.message = self.message.or(answer.message);
        Ok(answer)
    }

    fn status(&self) -> Result<Option<u16>, Problem> {
        match self.status {
            None => Ok(None),
            Some(status @ 100..=999) => Ok(Some(status)),
            Some(other) => Err(wrong(format!("{other} is no status: 100 to 999 are"))),
        }
    }

    fn given(&mut self) -> Given {
        Given::of(self.headers.take(), self.body.take(), self.body_base64.take())
    }
}

fn is_own(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.starts_with(OWN) && name.len() <= MAX_OWN && name.bytes().all(is_plain)
}

/// How long the site asks to be left alone: seconds as a number or as text, or a date.
fn asked(value: &Value, now: Timestamp) -> Result<Option<Duration>, Problem> {
    match value {
        Value::Null => Ok(None),
        Value::Number(seconds) => {
            let span = seconds.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            span.map(Some).ok_or_else(|| wrong("`retry_after` must not be negative"))
        }
        Value::String(text) => Ok(retry_after(text, now)),
        _ => Err(wrong("`retry_after` must be seconds, or the header's text")),
    }
}
