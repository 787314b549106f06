//! The report of a crawler about a request of a visit: an outcome by name, a whole response to
//! judge, or an unavailable fetcher.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use url::Url;
use xxhash_rust::xxh3::xxh3_64;

#[cfg(test)]
use super::classify::HeadersSchema;
use super::classify::ResponseParts;
#[cfg(test)]
use crate::description::Either;
use crate::problem::Problem;
use crate::request_body::AnyJson;
use crate::routes::decision_context::wrong;
use crate::state::State;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::backoff::retry_after;
use fetchwise::fetch_result::{FetchResult, Outcome};
use fetchwise::heuristic::url::parse;
use fetchwise::response::{Header, Page};
use fetchwise::time::Timestamp;
use fetchwise::unknown_name::UnknownName;

/// The prefix of the caller's own error types.
const OWN: &str = "x_";
/// The longest name of such an error type.
const MAX_OWN: usize = 64;

/// A report.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Report"))]
pub(super) struct Report {
    /// The number of the request within the visit; default: the current one. A report with a number
    /// is recorded once.
    pub(super) number: Option<u32>,
    /// `content`, a documented error type, or your own name that begins with `x_`.
    outcome: Option<String>,
    #[cfg_attr(test, schemars(range(min = 100, max = 999)))]
    status: Option<u16>,
    /// Seconds, or the text of a `Retry-After` header.
    #[cfg_attr(test, schemars(with = "Option<Either<f64, String>>"))]
    retry_after: Option<AnyJson>,
    #[cfg_attr(test, schemars(range(min = 0)))]
    duration_ms: Option<f64>,
    /// The part of `duration_ms` that the crawler's machine caused: it does not count as the host's
    /// latency.
    #[cfg_attr(test, schemars(range(min = 0)))]
    local_delay_ms: Option<f64>,
    /// The number of requests that were sent to the host.
    requests: Option<u16>,
    message: Option<String>,
    /// Whether the body ended before its announced length.
    truncated: bool,
    /// The URL after redirects: its host gets the pause, the pace, the block and the evidence.
    final_url: Option<String>,
    /// An object of names and values (a value may be a list), or a list of pairs of name and value.
    #[cfg_attr(test, schemars(with = "Option<HeadersSchema>"))]
    headers: AnyJson,
    body: Option<String>,
    #[cfg_attr(test, schemars(extend("contentEncoding" = "base64")))]
    body_base64: Option<String>,
    /// The reason why the fetcher is unavailable; no request was sent.
    unavailable: Option<String>,
}

/// The content of a report.
#[derive(Debug)]
pub(super) enum ReportContent {
    Fetched(Box<FetchResult>),
    Unavailable(String),
}

impl ReportContent {
    /// Returns a hash of how the request ended, which a repeated report has in common with the
    /// first one. Times that depend on the moment of reading are left out.
    pub(super) fn end_hash(&self) -> u64 {
        let end = match self {
            Self::Fetched(answer) => format!("{:?} {:?}", answer.outcome, answer.status),
            Self::Unavailable(_) => String::new(),
        };
        xxh3_64(end.as_bytes())
    }
}

impl Report {
    /// Parses the report; a response is judged as a response of `url`. None for an empty report.
    ///
    /// # Errors
    /// 422 for invalid values.
    pub(super) fn read(
        mut self,
        state: &State,
        url: &Url,
    ) -> Result<Option<ReportContent>, Problem> {
        if let Some(why) = self.unavailable.take() {
            return Ok(Some(ReportContent::Unavailable(why)));
        }
        let date = state.selector.clock().date();
        if let Some(name) = self.outcome.take() {
            let answer = self.named(state, url, &name, date)?;
            return Ok(Some(ReportContent::Fetched(Box::new(answer))));
        }
        if self.status.is_none() {
            return match self.body.is_some() || self.body_base64.is_some() {
                true => Err(wrong("missing `status`: a response needs one")),
                false => Ok(None),
            };
        }
        let answer = self.judged(state, url, date)?;
        Ok(Some(ReportContent::Fetched(Box::new(answer))))
    }

    /// Creates the result for an outcome by name.
    fn named(
        mut self,
        state: &State,
        url: &Url,
        name: &str,
        date: Timestamp,
    ) -> Result<FetchResult, Problem> {
        let outcome = match name {
            "content" => Outcome::Content,
            name => match ErrorKind::from_name(name) {
                Some(kind) => Outcome::from(kind),
                None if is_own(name) => Outcome::Other(name.into()),
                None => {
                    let known = ["content"]
                        .into_iter()
                        .chain(ErrorKind::ALL.iter().map(|kind| kind.name()));
                    let error = UnknownName::new("outcome", name, known);
                    return Err(wrong(format!("{error}; your own error types begin with {OWN}")));
                }
            },
        };
        let mut answer = FetchResult::from(outcome);
        answer.status = self.status()?;
        let headers = self.given().headers()?;
        if let Some(url) = &self.final_url {
            let url = parse(url).map_err(|error| wrong(format!("invalid `final_url`: {error}")))?;
            answer.final_url = Some(Box::new(url));
        }
        observe(state, answer.final_url.as_deref().unwrap_or(url), &headers);
        answer.headers = headers;
        self.rest(answer, date)
    }

    /// Creates the result for a response, which the detector judges.
    fn judged(mut self, state: &State, url: &Url, date: Timestamp) -> Result<FetchResult, Problem> {
        let Some(status) = self.status()? else {
            return Err(wrong("missing `status`: a response needs one"));
        };
        let mut given = self.given();
        let (headers, body) = (given.headers()?, given.bytes()?);
        let final_url = self.final_url.take();
        let page = Page {
            url: Some(url.as_str()),
            final_url: final_url.as_deref(),
            status,
            headers: &headers,
            body: &body,
        };
        let mut answer = state.detector.judge_page(&page);
        observe(state, answer.final_url.as_deref().unwrap_or(url), &headers);
        if self.truncated {
            answer.outcome = answer.outcome.truncated();
        }
        self.rest(answer, date)
    }

    fn rest(self, mut answer: FetchResult, date: Timestamp) -> Result<FetchResult, Problem> {
        if let Some(value) = &self.retry_after {
            answer.retry_after = asked(&value.0, date)?;
        }
        answer.duration = milliseconds("duration_ms", self.duration_ms)?.or(answer.duration);
        answer.local_delay = milliseconds("local_delay_ms", self.local_delay_ms)?;
        answer.requests = self.requests.or(answer.requests);
        answer.message = self.message.or(answer.message);
        Ok(answer)
    }

    fn status(&self) -> Result<Option<u16>, Problem> {
        match self.status {
            None => Ok(None),
            Some(status @ 100..=999) => Ok(Some(status)),
            Some(other) => Err(wrong(format!("invalid status {other}: expected 100 to 999"))),
        }
    }

    fn given(&mut self) -> ResponseParts {
        ResponseParts::of(
            std::mem::take(&mut self.headers),
            self.body.take(),
            self.body_base64.take(),
        )
    }
}

/// Shows the signer the headers of a response.
fn observe(state: &State, url: &Url, headers: &[Header]) {
    let Some(signer) = state.signer() else { return };
    let names: Vec<String> =
        headers.iter().map(|header| header.name.to_ascii_lowercase()).collect();
    signer.observe(url, &names.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Parses a time in milliseconds.
fn milliseconds(field: &str, ms: Option<f64>) -> Result<Option<Duration>, Problem> {
    let span = ms.map(|ms| Duration::try_from_secs_f64(ms / 1000.0)).transpose();
    span.map_err(|_| wrong(format!("`{field}` must be a number of milliseconds")))
}

fn is_own(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.starts_with(OWN) && name.len() <= MAX_OWN && name.bytes().all(is_plain)
}

/// Parses the pause that a site requests: seconds as a number or text, or a date.
fn asked(value: &Value, date: Timestamp) -> Result<Option<Duration>, Problem> {
    match value {
        Value::Null => Ok(None),
        Value::Number(seconds) => {
            let span =
                seconds.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            span.map(Some).ok_or_else(|| wrong("`retry_after` must not be negative"))
        }
        Value::String(text) => Ok(retry_after(text, date)),
        _ => Err(wrong("`retry_after` must be seconds or the text of the header")),
    }
}
