//! Attempts, as Python makes and reads them.
//! Must not know: what is valid in an attempt; JSON goes through the library's only reader.

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::json::{from_json_line, to_json_line};
use fetchwise::attempt::{Attempt as CoreAttempt, ErrorType, Tag, stored_headers};
use fetchwise::registry::FetcherSpec;
use fetchwise_bindings_core::outcome::with_result;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::types::PyType;

use crate::decision::Decision;
use crate::detector::Verdict;
use crate::{convert, errors, json};

/// One request by one fetcher for one URL, and its result.
///
/// Frozen: `delivered()` and `failed(kind)` return a new attempt. Durations are in milliseconds,
/// times in seconds since 1970 (`time.time()`).
///
/// >>> attempt = fetchwise.Attempt("https://example.org/a", "direct_access", status=503, duration_ms=120)
/// >>> attempt = attempt.failed(fetchwise.ErrorKind.SERVER_ERROR)
/// >>> attempt.success, attempt.error_type, attempt.weight
/// (False, 'server_error', 1.0)
#[pyclass(frozen, module = "fetchwise", name = "Attempt")]
pub(crate) struct Attempt {
    pub(crate) kept: CoreAttempt,
}

#[pymethods]
impl Attempt {
    /// Creates an attempt that has not ended yet. Raises `UrlError` for a URL that cannot be
    /// fetched.
    #[new]
    #[pyo3(signature = (url, fetcher, *, link=None, status=None, headers=None, duration_ms=0, at=None, source=None, rule=None,
                        confidence=None, propensity=None, hint=None, try_no=1, heuristics=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn new(
        url: &Bound<'_, PyAny>,
        fetcher: &str,
        link: Option<String>,
        status: Option<u16>,
        headers: Option<&Bound<'_, PyAny>>,
        duration_ms: u64,
        at: Option<f64>,
        source: Option<String>,
        rule: Option<String>,
        confidence: Option<f64>,
        propensity: Option<f64>,
        hint: Option<&str>,
        try_no: u32,
        heuristics: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let share = |name: &str, value: Option<f64>| match value {
            Some(value) if !(0.0..=1.0).contains(&value) => Err(PyValueError::new_err(format!(
                "invalid {name} {value}: expected a number from 0 to 1"
            ))),
            other => Ok(other),
        };
        let mut kept = CoreAttempt::new(&convert::url(url)?, fetcher, convert::date(at)?)
            .map_err(|error| errors::url(&error))?;
        kept.link = link.filter(|link| !link.is_empty()).unwrap_or(kept.link);
        kept.http_status = status;
        kept.response_headers = stored_headers(&convert::headers(headers)?);
        kept.duration_ms = duration_ms;
        kept.source = source.map(Into::into);
        kept.rule = rule.map(Into::into);
        kept.confidence = share("confidence", confidence)?;
        kept.propensity = share("propensity", propensity)?;
        kept.hint = convert::hint(hint)?;
        kept.try_no = try_no.max(1);
        kept.heuristics.extend(convert::known(heuristics)?.into_iter().map(Tag::from));
        Ok(Self { kept })
    }

    /// Creates the attempt of a classified response. The outcome, headers and heuristics come from
    /// the verdict, the reasons for the request from the decision.
    ///
    /// >>> decision = fetchwise.Selector().select("https://example.org/")
    /// >>> verdict = fetchwise.Detector().classify(b"<h1>Forbidden</h1>", status=403)
    /// >>> fetchwise.Attempt.from_response(decision, url="https://example.org/", verdict=verdict, duration_ms=31).error_type
    /// 'blocked_403'
    #[classmethod]
    #[pyo3(signature = (decision, *, url, verdict, duration_ms=0, link=None, at=None, try_no=1, heuristics=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn from_response(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        decision: &Decision,
        url: &Bound<'_, PyAny>,
        verdict: &Verdict,
        duration_ms: u64,
        link: Option<String>,
        at: Option<f64>,
        try_no: u32,
        heuristics: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (Some(chosen), Some(name)) = (decision.take(), decision.name.as_ref()) else {
            return Err(errors::misuse(format!(
                "no fetch to record: the decision is {:?}",
                decision.kind()
            )));
        };
        let name = name.to_str(py)?;
        let by = FetcherSpec { renders: decision.renders, ..FetcherSpec::by_name(name) };
        let mut kept = CoreAttempt::new(&convert::url(url)?, name, convert::date(at)?)
            .map_err(|error| errors::url(&error))?;
        kept.link = link.filter(|link| !link.is_empty()).unwrap_or(kept.link);
        kept.duration_ms = duration_ms;
        kept.source = Some(chosen.source.name().into());
        kept.rule = Some(chosen.rule.name().into());
        kept.confidence = Some(chosen.confidence);
        kept.propensity = Some(chosen.propensity);
        kept.hint = decision.hint;
        kept.try_no = try_no.max(1);
        kept.heuristics.extend(convert::known(heuristics)?.into_iter().map(Tag::from));
        Ok(Self { kept: with_result(kept, &verdict.answer(), &by) })
    }

    /// Returns the attempt as ended with content.
    fn delivered(&self) -> Self {
        Self { kept: self.kept.clone().delivered() }
    }

    /// Returns the attempt as failed for good with an `ErrorKind` (or its name). It counts by the
    /// kind's weight, which is 0 for failures that no fetcher caused. Any other name is kept and
    /// counts in full.
    fn failed(&self, kind: &str) -> Self {
        let kept = self.kept.clone();
        Self {
            kept: match ErrorKind::from_name(kind) {
                Some(kind) => kept.failed(kind),
                None => {
                    let error_type = Some(ErrorType::from_name(kind));
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
    fn weighing(&self, weight: f64) -> PyResult<Self> {
        if ![0.0, 0.5, 1.0].contains(&weight) {
            return Err(PyValueError::new_err(format!(
                "invalid weight {weight}: expected 0, 0.5 or 1"
            )));
        }
        Ok(Self { kept: CoreAttempt { weight, ..self.kept.clone() } })
    }

    /// Returns all fields, as in the JSON lines of `fetchwise import` and `export`.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::loads(py, &to_json_line(&self.kept))
    }

    /// Creates the attempt that such a dict describes. `url`, `fetcher`, `success` and
    /// `attempted_at` are required. A time in the future becomes now.
    ///
    /// >>> line = {"url": "https://example.org/", "fetcher": "playwright", "success": True, "attempted_at": 1763650000123}
    /// >>> fetchwise.Attempt.from_dict(line).to_dict()["attempted_at"]
    /// '2025-11-20T14:46:40.123Z'
    #[classmethod]
    fn from_dict(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        fields: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        Self::from_json_text(&json::dumps(py, fields)?)
    }

    /// Creates the attempt that one line of JSON describes.
    #[classmethod]
    fn from_json(_class: &Bound<'_, PyType>, line: &str) -> PyResult<Self> {
        Self::from_json_text(line)
    }

    /// Returns one line of JSON, without a line break.
    fn to_json(&self) -> String {
        to_json_line(&self.kept)
    }

    /// The UUID of the attempt.
    #[getter]
    fn id(&self) -> String {
        self.kept.id.hyphenated().to_string()
    }

    /// The caller's name for the link; the URL unless another name is set.
    #[getter]
    fn link(&self) -> &str {
        &self.kept.link
    }

    /// The requested URL, without user info and fragment.
    #[getter]
    fn url(&self) -> &str {
        &self.kept.url
    }

    /// The fetcher that made the request.
    #[getter]
    fn fetcher(&self) -> &str {
        &self.kept.fetcher
    }

    /// Whether content was delivered.
    #[getter]
    fn success(&self) -> bool {
        self.kept.success
    }

    /// Whether the site blocked the request.
    #[getter]
    fn is_banned(&self) -> bool {
        self.kept.is_banned
    }

    /// The reason of the failure, as the name of an `ErrorKind`, or None.
    #[getter]
    fn error_type(&self) -> Option<&str> {
        self.kept.error_type.as_ref().map(ErrorType::name)
    }

    /// The HTTP status, or None.
    #[getter]
    fn status(&self) -> Option<u16> {
        self.kept.http_status
    }

    /// The duration in milliseconds.
    #[getter]
    fn duration_ms(&self) -> u64 {
        self.kept.duration_ms
    }

    /// The time of the request, in seconds since 1970.
    #[getter]
    fn attempted_at(&self) -> f64 {
        convert::seconds(self.kept.attempted_at)
    }

    /// The weight as evidence: 0, 0.5 or 1.
    #[getter]
    fn weight(&self) -> f64 {
        self.kept.weight
    }

    /// The heuristics of the attempt: pairs of type and value.
    #[getter]
    fn heuristics(&self) -> Vec<(&str, &str)> {
        self.kept
            .heuristics
            .iter()
            .map(|tag| (tag.heuristic.kind.as_ref(), tag.heuristic.value.as_ref()))
            .collect()
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.kept == other.kept
    }

    fn __repr__(&self) -> String {
        let end =
            if self.kept.success { "delivered" } else { self.error_type().unwrap_or("not ended") };
        format!("<Attempt {} {} {end}>", self.kept.fetcher, self.kept.url)
    }
}

impl Attempt {
    fn from_json_text(line: &str) -> PyResult<Self> {
        let (kept, _) = from_json_line(line, fetchwise::time::Timestamp::date())
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { kept })
    }
}
