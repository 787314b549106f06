//! What one request came to: what a visit wants to hear, and the names of failures.

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch_result::{FetchResult as CoreFetchResult, Outcome};
use fetchwise::registry::FetcherSpec;
use fetchwise_bindings_core::outcome::{error_for, name};
use napi::Env;
use napi::bindgen_prelude::Object;
use napi_derive::napi;
use serde_json::{Value, json};

use crate::convert;
use crate::errors::Code;

type Result<T> = std::result::Result<T, napi::Error<Code>>;

/// What else is known of an answer. Spans are milliseconds.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct AnswerOptions<'a> {
    /// The HTTP status.
    pub status: Option<f64>,
    /// The response's headers.
    #[napi(ts_type = "HeadersLike")]
    pub headers: Option<Object<'a>>,
    /// How long it is asked to be left alone.
    pub retry_after: Option<f64>,
    /// How long the request took.
    pub duration: Option<f64>,
    /// What happened, for a person.
    pub message: Option<String>,
    /// Whose block it is.
    pub vendor: Option<String>,
}

/// What one request came to, with all that an attempt records of it. `Detector.judge` makes one of a response; `new FetchResult(kind)` is one
/// that brought none.
#[napi]
pub struct FetchResult {
    pub(crate) kept: CoreFetchResult,
}

impl FetchResult {
    /// From the name of an outcome, or of an `ErrorKind`.
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
    /// An answer without a page: `content`, an `ErrorKind`, or a name of one's own, which counts as the fetcher's failure.
    #[napi(catch_unwind, constructor)]
    pub fn new(
        env: &Env,
        #[napi(ts_arg_type = "'content' | ErrorKind | (string & {})")] kind: String,
        options: Option<AnswerOptions<'_>>,
    ) -> Result<Self> {
        let given = options.unwrap_or_default();
        let mut kept = Self::named(&kind).kept;
        if let (Some(vendor), Outcome::Blocked(block)) = (given.vendor, &kept.outcome) {
            kept.outcome = Outcome::Blocked(block.clone().by(&vendor));
        }
        kept.status = given.status.map(convert::status).transpose()?;
        kept.headers = convert::headers(env, given.headers.as_ref())?;
        kept.retry_after = given.retry_after.map(|ms| convert::span("retryAfter", ms)).transpose()?;
        kept.duration = given.duration.map(|ms| convert::span("duration", ms)).transpose()?;
        kept.message = given.message;
        Ok(Self { kept })
    }

    /// What it came to: a name as `Verdict.outcome` has it, or that of a failure on the way.
    #[napi(catch_unwind, getter)]
    pub fn outcome(&self) -> &str {
        name(&self.kept.outcome)
    }

    /// Whether content came.
    #[napi(catch_unwind, getter)]
    pub fn is_content(&self) -> bool {
        matches!(self.kept.outcome, Outcome::Content)
    }

    /// Whether a challenge or a refusal came.
    #[napi(catch_unwind, getter)]
    pub fn is_blocked(&self) -> bool {
        matches!(self.kept.outcome, Outcome::Blocked(_))
    }

    /// Whose block it is, when known.
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

    /// What happened, for a person.
    #[napi(catch_unwind, getter)]
    pub fn message(&self) -> String {
        self.kept.message.clone().unwrap_or_else(|| self.kept.outcome.to_string())
    }

    /// As `Verdict.errorFor`.
    #[napi(catch_unwind, ts_return_type = "ErrorKind | null")]
    pub fn error_for(&self, fetcher: String, renders: Option<bool>) -> Option<String> {
        error_for(&self.kept.outcome, &fetcher, renders)
    }

    /// The same as a plain object.
    #[napi(catch_unwind, js_name = "toJSON", ts_return_type = "Record<string, unknown>")]
    pub fn to_json(&self) -> Value {
        json!({"outcome": self.outcome(), "status": self.kept.status, "vendor": self.vendor(), "message": self.message()})
    }
}

/// The names of failures, which `index.js` makes `ErrorKind` of.
#[napi(catch_unwind, skip_typescript, js_name = "_errorKinds")]
pub fn error_kinds() -> Vec<String> {
    ErrorKind::ALL.iter().map(|kind| kind.name().to_owned()).collect()
}
