//! Attempts, as JavaScript makes and reads them.
//! Must not know: what is valid in an attempt; JSON goes through the library's only reader.

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::json::{from_json_line, to_json_line};
use fetchwise::attempt::{Attempt as CoreAttempt, ErrorType, Tag, stored_headers};
use fetchwise::registry::FetcherSpec;
use fetchwise::time::Timestamp;
use fetchwise_bindings_core::outcome::with_result;
use napi::Env;
use napi::bindgen_prelude::{Object, Unknown};
use napi_derive::napi;
use serde_json::Value;

use crate::convert;
use crate::decision::Decision;
use crate::detector::Verdict;
use crate::errors::{Code, Failure};

type Result<T> = std::result::Result<T, napi::Error<Code>>;

/// What is known about an attempt. Durations are in milliseconds, times in milliseconds since 1970
/// (`Date.now()`).
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct AttemptOptions<'a> {
    /// The caller's name for the link; defaults to the URL.
    pub link: Option<String>,
    /// The HTTP status.
    pub status: Option<f64>,
    /// The response's headers; the attempt keeps some of them.
    #[napi(ts_type = "HeadersLike")]
    pub headers: Option<Object<'a>>,
    /// The duration of the request.
    pub duration: Option<f64>,
    /// The time of the request; defaults to now.
    pub at: Option<f64>,
    /// The label of the decision behind the request.
    pub source: Option<String>,
    /// The rule of that decision.
    pub rule: Option<String>,
    /// The confidence of that decision, from 0 to 1.
    pub confidence: Option<f64>,
    /// The propensity of that decision, from 0 to 1.
    pub propensity: Option<f64>,
    /// The hint at the last failure.
    #[napi(ts_type = "Hint")]
    pub hint: Option<String>,
    /// The number of this try of the URL; defaults to 1.
    pub try_no: Option<f64>,
    /// What the caller knows besides the URL.
    #[napi(ts_type = "Record<string, string> | Array<[string, string]>")]
    pub heuristics: Option<Object<'a>>,
}

/// One request by one fetcher for one URL, and its result.
///
/// Immutable: `delivered()` and `failed(kind)` return a new attempt.
#[napi]
pub struct Attempt {
    pub(crate) kept: CoreAttempt,
}

/// The longest accepted duration, in milliseconds: the largest integer that a number represents
/// exactly.
const MAX_MS: u64 = 1 << 53;

fn filled(
    env: &Env,
    url: &Unknown<'_>,
    fetcher: &str,
    given: AttemptOptions<'_>,
) -> std::result::Result<CoreAttempt, Failure> {
    let mut kept = CoreAttempt::new(&convert::url(url)?, fetcher, convert::date(given.at)?)
        .map_err(Failure::url)?;
    kept.link = given.link.filter(|link| !link.is_empty()).unwrap_or(kept.link);
    kept.http_status = given.status.map(convert::status).transpose()?;
    kept.response_headers = stored_headers(&convert::headers(env, given.headers.as_ref())?);
    kept.duration_ms =
        given.duration.map_or(Ok(0), |ms| convert::count("duration", ms.round(), MAX_MS))?;
    kept.source = given.source.map(Into::into);
    kept.rule = given.rule.map(Into::into);
    kept.confidence = convert::share("confidence", given.confidence)?;
    kept.propensity = convert::share("propensity", given.propensity)?;
    kept.hint = convert::hint(given.hint.as_deref())?;
    kept.try_no =
        given.try_no.map_or(Ok(1), |no| convert::count("tryNo", no, u64::from(u32::MAX)))?.max(1)
            as u32;
    kept.heuristics
        .extend(convert::known(env, given.heuristics.as_ref())?.into_iter().map(Tag::from));
    Ok(kept)
}

#[napi]
impl Attempt {
    /// Creates an attempt that has not ended yet. Throws `ERR_FETCHWISE_URL` for a URL that cannot
    /// be fetched.
    #[napi(catch_unwind, constructor)]
    pub fn new(
        env: &Env,
        #[napi(ts_arg_type = "string | URL")] url: Unknown<'_>,
        fetcher: String,
        options: Option<AttemptOptions<'_>>,
    ) -> Result<Self> {
        Ok(Self { kept: filled(env, &url, &fetcher, options.unwrap_or_default())? })
    }

    /// Creates the attempt of a classified response. The outcome, headers and heuristics come from
    /// the verdict, the reasons for the request from the decision.
    #[napi(catch_unwind, factory)]
    pub fn from_response(
        env: &Env,
        decision: Decision,
        #[napi(ts_arg_type = "string | URL")] url: Unknown<'_>,
        verdict: &Verdict,
        options: Option<AttemptOptions<'_>>,
    ) -> Result<Self> {
        let Some(name) = decision.fetcher else {
            return Err(Failure::misuse(format_args!(
                "no fetch to record: the decision is {:?}",
                decision.kind
            ))
            .into());
        };
        let by = FetcherSpec { renders: decision.renders, ..FetcherSpec::by_name(&name) };
        let given = options.unwrap_or_default();
        let kept = filled(
            env,
            &url,
            &name,
            AttemptOptions {
                source: Some(decision.source),
                rule: Some(decision.rule),
                confidence: decision.confidence,
                propensity: decision.propensity,
                hint: decision.hint,
                ..given
            },
        )?;
        Ok(Self { kept: with_result(kept, &verdict.answer(), &by) })
    }

    /// Creates the attempt that an object or one line of JSON describes, in the format of
    /// `fetchwise import`: `url`, `fetcher`, `success` and `attempted_at` are required. A time in
    /// the future becomes now.
    #[napi(catch_unwind, factory, js_name = "fromJSON", ts_args_type = "fields: object | string")]
    pub fn from_json(env: &Env, fields: Unknown<'_>) -> Result<Self> {
        let line = convert::json(env, fields)?;
        let (kept, _) = from_json_line(&line, Timestamp::date()).map_err(Failure::value)?;
        Ok(Self { kept })
    }

    /// Returns the attempt as ended with content.
    #[napi(catch_unwind)]
    pub fn delivered(&self) -> Self {
        Self { kept: self.kept.clone().delivered() }
    }

    /// Returns the attempt as failed for good with an `ErrorKind`. It counts by the kind's weight,
    /// which is 0 for failures that no fetcher caused. Any other name is kept and counts in full.
    #[napi(catch_unwind)]
    pub fn failed(&self, #[napi(ts_arg_type = "ErrorKind | (string & {})")] kind: String) -> Self {
        let kept = self.kept.clone();
        Self {
            kept: match ErrorKind::from_name(&kind) {
                Some(kind) => kept.failed(kind),
                None => {
                    let error_type = Some(ErrorType::from_name(&kind));
                    CoreAttempt {
                        success: false,
                        is_banned: false,
                        error_type,
                        weight: 1.0,
                        ..kept
                    }
                }
            },
        }
    }

    /// Returns the attempt with another weight: 0 while a retry may still succeed.
    #[napi(catch_unwind)]
    pub fn weighing(&self, weight: f64) -> Result<Self> {
        if ![0.0, 0.5, 1.0].contains(&weight) {
            return Err(Failure::value(format_args!(
                "invalid weight {weight}: expected 0, 0.5 or 1"
            ))
            .into());
        }
        Ok(Self { kept: CoreAttempt { weight, ..self.kept.clone() } })
    }

    /// Returns all fields, as in the JSON lines of `fetchwise import` and `export`.
    #[napi(catch_unwind, js_name = "toJSON", ts_return_type = "Record<string, unknown>")]
    pub fn to_json(&self) -> Value {
        serde_json::from_str(&to_json_line(&self.kept)).unwrap_or_default()
    }

    /// The UUID of the attempt.
    #[napi(catch_unwind, getter)]
    pub fn id(&self) -> String {
        self.kept.id.hyphenated().to_string()
    }

    /// The caller's name for the link; the URL unless another name is set.
    #[napi(catch_unwind, getter)]
    pub fn link(&self) -> &str {
        &self.kept.link
    }

    /// The requested URL, without user info and fragment.
    #[napi(catch_unwind, getter)]
    pub fn url(&self) -> &str {
        &self.kept.url
    }

    /// The fetcher that made the request.
    #[napi(catch_unwind, getter)]
    pub fn fetcher(&self) -> &str {
        &self.kept.fetcher
    }

    /// Whether content was delivered.
    #[napi(catch_unwind, getter)]
    pub fn success(&self) -> bool {
        self.kept.success
    }

    /// Whether the site blocked the request.
    #[napi(catch_unwind, getter)]
    pub fn is_banned(&self) -> bool {
        self.kept.is_banned
    }

    /// The reason of the failure: the name of an `ErrorKind`, or a custom name.
    #[napi(catch_unwind, getter)]
    pub fn error_type(&self) -> Option<&str> {
        self.kept.error_type.as_ref().map(ErrorType::name)
    }

    /// The HTTP status.
    #[napi(catch_unwind, getter)]
    pub fn status(&self) -> Option<u32> {
        self.kept.http_status.map(u32::from)
    }

    /// The duration in milliseconds.
    #[napi(catch_unwind, getter)]
    pub fn duration(&self) -> f64 {
        self.kept.duration_ms as f64
    }

    /// The time of the request, in milliseconds since 1970.
    #[napi(catch_unwind, getter)]
    pub fn attempted_at(&self) -> f64 {
        convert::ms(self.kept.attempted_at)
    }

    /// The weight as evidence: 0, 0.5 or 1.
    #[napi(catch_unwind, getter)]
    pub fn weight(&self) -> f64 {
        self.kept.weight
    }
}
