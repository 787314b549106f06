//! The result of one request, as a visit takes it, and the names of failures.

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch_result::{FetchResult as CoreFetchResult, Outcome};
use fetchwise_bindings_core::outcome::{error_for, name};
use napi::Env;
use napi::bindgen_prelude::Object;
use napi_derive::napi;
use serde_json::{Value, json};

use crate::convert;
use crate::errors::Code;

type Result<T> = std::result::Result<T, napi::Error<Code>>;

/// What else is known about a result. Durations are in milliseconds.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct FetchResultOptions<'a> {
    /// The HTTP status.
    pub status: Option<f64>,
    /// The response's headers.
    #[napi(ts_type = "HeadersLike")]
    pub headers: Option<Object<'a>>,
    /// The time for which the site asks for no further requests.
    pub retry_after: Option<f64>,
    /// The duration of the request.
    pub duration: Option<f64>,
    /// An explanation for people.
    pub message: Option<String>,
    /// The vendor of the block.
    pub vendor: Option<String>,
    /// The URL after redirects: a pause or block counts at its host.
    pub final_url: Option<String>,
}

/// The result of one request, with everything that an attempt records of it. `Detector.judge`
/// returns it for a response; `new FetchResult(kind)` is a result without one.
#[napi]
pub struct FetchResult {
    pub(crate) kept: CoreFetchResult,
}

impl FetchResult {
    /// Returns the result for the name of an outcome, or of an `ErrorKind`.
    pub fn named(kind: &str) -> Self {
        let outcome = match (kind, ErrorKind::from_name(kind)) {
            ("content", _) => Outcome::Content,
            (_, Some(kind)) => kind.into(),
            (other, None) => Outcome::Other(other.into()),
        };
        Self { kept: outcome.into() }
    }
}

#[napi]
impl FetchResult {
    /// Creates a result without a page: `content`, an `ErrorKind`, or a custom name, which counts
    /// as the fetcher's failure.
    #[napi(catch_unwind, constructor)]
    pub fn new(
        env: &Env,
        #[napi(ts_arg_type = "'content' | ErrorKind | (string & {})")] kind: String,
        options: Option<FetchResultOptions<'_>>,
    ) -> Result<Self> {
        let given = options.unwrap_or_default();
        let mut kept = Self::named(&kind).kept;
        if let (Some(vendor), Outcome::Blocked(block)) = (given.vendor, &kept.outcome) {
            kept.outcome = Outcome::Blocked(block.clone().by(&vendor));
        }
        kept.status = given.status.map(convert::status).transpose()?;
        kept.headers = convert::headers(env, given.headers.as_ref())?;
        kept.retry_after =
            given.retry_after.map(|ms| convert::span("retryAfter", ms)).transpose()?;
        kept.duration = given.duration.map(|ms| convert::span("duration", ms)).transpose()?;
        kept.message = given.message;
        // A URL that cannot be fetched is not one that responded.
        kept.final_url = given
            .final_url
            .and_then(|url| fetchwise::heuristic::url::parse(&url).ok())
            .map(Box::new);
        Ok(Self { kept })
    }

    /// The outcome: a name like `Verdict.outcome`, or that of a failure before the response.
    #[napi(catch_unwind, getter)]
    pub fn outcome(&self) -> &str {
        name(&self.kept.outcome)
    }

    /// Whether the request delivered content.
    #[napi(catch_unwind, getter)]
    pub fn is_content(&self) -> bool {
        matches!(self.kept.outcome, Outcome::Content)
    }

    /// Whether the response was a challenge or a refusal.
    #[napi(catch_unwind, getter)]
    pub fn is_blocked(&self) -> bool {
        matches!(self.kept.outcome, Outcome::Blocked(_))
    }

    /// The vendor of the block, when known.
    #[napi(catch_unwind, getter)]
    pub fn vendor(&self) -> Option<&str> {
        match &self.kept.outcome {
            Outcome::Blocked(block) => block.vendor.as_deref(),
            _ => None,
        }
    }

    /// The HTTP status, when there was one.
    #[napi(catch_unwind, getter)]
    pub fn status(&self) -> Option<u32> {
        self.kept.status.map(u32::from)
    }

    /// An explanation for people.
    #[napi(catch_unwind, getter)]
    pub fn message(&self) -> String {
        self.kept.message.clone().unwrap_or_else(|| self.kept.outcome.to_string())
    }

    /// Returns the same as `Verdict.errorFor`.
    #[napi(catch_unwind, ts_return_type = "ErrorKind | null")]
    pub fn error_for(&self, fetcher: String, renders: Option<bool>) -> Option<String> {
        error_for(&self.kept.outcome, &fetcher, renders)
    }

    /// Returns the same as a plain object.
    #[napi(catch_unwind, js_name = "toJSON", ts_return_type = "Record<string, unknown>")]
    pub fn to_json(&self) -> Value {
        json!({"outcome": self.outcome(), "status": self.kept.status, "vendor": self.vendor(), "message": self.message()})
    }
}

/// Returns the names of failures, from which `index.js` makes `ErrorKind`.
#[napi(catch_unwind, skip_typescript, js_name = "_errorKinds")]
pub fn error_kinds() -> Vec<String> {
    ErrorKind::ALL.iter().map(|kind| kind.name().to_owned()).collect()
}
