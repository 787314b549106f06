//! The detector, its verdicts and fetch results. Bodies are borrowed, and read without the
//! interpreter's lock where that pays.

use std::cell::RefCell;
use std::path::PathBuf;

use fetchwise::detect::{Detector as Reader, DetectorOptions, Scratch, Verdict as Read};
use fetchwise::fetch_result::{FetchResult as CoreFetchResult, Outcome};
use fetchwise::response::{Header, Page};
use fetchwise_bindings_core::outcome::{error_for, name};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{convert, errors};

/// Bodies up to this size are read with the interpreter's lock held: releasing and retaking it
/// costs about as much.
const SMALL: usize = 4 << 10;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Distinguishes content from a block or captcha, a client-rendered shell, an empty page, and a
/// waiting room.
///
/// A detector is compiled once and shared by all threads. Its rules can be replaced while pages are
/// read. No page makes it raise.
///
/// >>> detector = fetchwise.Detector()
/// >>> verdict = detector.classify(b"<title>Just a moment...</title><script>window._cf_chl_opt={}</script>", status=403)
/// >>> verdict.is_blocked, verdict.vendor, verdict.outcome
/// (True, 'cloudflare', 'blocked')
#[pyclass(frozen, module = "fetchwise", name = "Detector")]
pub(crate) struct Detector {
    // Boxed: Python's allocator aligns objects to 16 bytes, and the reader's tables need 32.
    pub(crate) reader: Box<Reader>,
    rules: Option<PathBuf>,
}

impl Detector {
    fn read<'a>(&self, py: Python<'_>, page: Page<'a>) -> Read {
        let read = || SCRATCH.with_borrow_mut(|scratch| self.reader.inspect(&page, scratch));
        if page.body.len() <= SMALL { read() } else { py.detach(read) }
    }
}

#[pymethods]
impl Detector {
    /// Loads the shipped rules, and those of a TOML file. Raises `ConfigError`, which names the
    /// line and field of an error in the file.
    ///
    /// `max_bytes` is the part of a body that is read (default 1 MiB). `block_threshold` is the
    /// confidence that evidence of a block needs (default 0.5). `count_all` counts visible text to
    /// the end.
    #[new]
    #[pyo3(signature = (*, rules=None, max_bytes=None, block_threshold=None, count_all=false))]
    fn new(
        rules: Option<PathBuf>,
        max_bytes: Option<usize>,
        block_threshold: Option<f32>,
        count_all: bool,
    ) -> PyResult<Self> {
        let reader = match &rules {
            Some(path) => Reader::from_file(path).map_err(errors::config)?,
            None => Reader::new(),
        };
        let mut options = DetectorOptions::default();
        if let Some(bytes) = max_bytes {
            options = options.with_max_bytes(bytes);
        }
        if let Some(threshold) = block_threshold {
            options = options.with_block_threshold(threshold);
        }
        if count_all {
            options = options.counting_all();
        }
        Ok(Self { reader: Box::new(reader.with_options(options)), rules })
    }

    /// Classifies one response: its decoded body (`bytes` are not copied), and whatever else is
    /// known about it.
    ///
    /// `headers` is a mapping or pairs, of `str` or `bytes`. The time is linear in the bytes read.
    #[pyo3(signature = (body, *, url=None, final_url=None, status=200, headers=None))]
    fn classify(
        &self,
        py: Python<'_>,
        body: &Bound<'_, PyAny>,
        url: Option<&str>,
        final_url: Option<&str>,
        status: u16,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Verdict> {
        let body = convert::body(body)?;
        let headers = convert::headers(headers)?;
        let read = self.read(py, Page { url, final_url, status, headers: &headers, body: &body });
        Ok(Verdict { read, status, headers, urls: urls(url, final_url) })
    }

    /// Judges a whole response and returns the fetch result, with everything that an attempt
    /// records of it. `Visit.report` accepts it. `final_url` is the URL after redirects: a pause or
    /// block counts at its host.
    ///
    /// >>> answer = fetchwise.Detector().judge(403, {"Retry-After": "120"}, b"<h1>Forbidden</h1>")
    /// >>> answer.outcome, answer.error_for("direct_access")
    /// ('blocked', 'blocked_403')
    #[pyo3(signature = (status, headers, body, *, url=None, final_url=None))]
    fn judge(
        &self,
        py: Python<'_>,
        status: u16,
        headers: Option<&Bound<'_, PyAny>>,
        body: &Bound<'_, PyAny>,
        url: Option<&str>,
        final_url: Option<&str>,
    ) -> PyResult<FetchResult> {
        let body = convert::body(body)?;
        let headers = convert::headers(headers)?;
        let page = Page { url, final_url, status, headers: &headers, body: &body };
        let judge = || self.reader.judge_page(&page);
        Ok(FetchResult { kept: if body.len() <= SMALL { judge() } else { py.detach(judge) } })
    }

    /// Classifies like `classify`, and returns everything that matched: a dict with `verdict`,
    /// `matches` and `cues`.
    ///
    /// >>> explained = fetchwise.Detector().explain(b"<title>Just a moment...</title><script>window._cf_chl_opt={}</script>")
    /// >>> any(match["counted"] for match in explained["matches"])
    /// True
    #[pyo3(signature = (body, *, url=None, final_url=None, status=200, headers=None))]
    fn explain<'py>(
        &self,
        py: Python<'py>,
        body: &Bound<'py, PyAny>,
        url: Option<&str>,
        final_url: Option<&str>,
        status: u16,
        headers: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let body = convert::body(body)?;
        let headers = convert::headers(headers)?;
        let page = Page { url, final_url, status, headers: &headers, body: &body };
        let explained = SCRATCH.with_borrow_mut(|scratch| self.reader.explain(&page, scratch));
        let out = PyDict::new(py);
        out.set_item(
            "verdict",
            Verdict {
                read: explained.verdict,
                status,
                headers: headers.clone(),
                urls: urls(url, final_url),
            },
        )?;
        let mut matches = Vec::new();
        for found in &explained.matches {
            let one = PyDict::new(py);
            one.set_item("rule", &*found.rule)?;
            one.set_item("vendor", found.vendor.as_deref())?;
            one.set_item("grade", found.grade.name())?;
            one.set_item("place", found.place.name())?;
            one.set_item("offset", found.offset)?;
            one.set_item("text", &found.text)?;
            one.set_item("counted", found.counted)?;
            one.set_item("note", &*found.note)?;
            matches.push(one);
        }
        out.set_item("matches", matches)?;
        let cues = explained.cues.map(|sum| {
            let one = PyDict::new(py);
            one.set_item("sum", sum.sum)?;
            one.set_item("threshold", sum.threshold)?;
            let cues: Vec<_> = sum
                .cues
                .iter()
                .map(|cue| (cue.id.to_string(), cue.weight, cue.text.clone()))
                .collect();
            one.set_item("cues", cues)?;
            Ok::<_, PyErr>(one)
        });
        out.set_item("cues", cues.transpose()?)?;
        Ok(out)
    }

    /// Reloads the rules, from the file of the constructor or another one, while other threads
    /// continue to read. When it raises `ConfigError`, the old rules stay in force.
    ///
    /// >>> detector = fetchwise.Detector()
    /// >>> detector.reload(rules="no-such-file.toml")
    /// Traceback (most recent call last):
    /// fetchwise.ConfigError: ...
    #[pyo3(signature = (*, rules=None))]
    fn reload(&self, rules: Option<PathBuf>) -> PyResult<()> {
        match rules.as_ref().or(self.rules.as_ref()) {
            Some(path) => self.reader.reload_file(path).map_err(errors::config),
            None => Err(errors::misuse(
                "this detector has only the shipped rules: name a file with reload(rules=...)",
            )),
        }
    }

    /// The number of rules.
    #[getter]
    fn rule_count(&self) -> usize {
        self.reader.rule_count()
    }

    fn __repr__(&self) -> String {
        format!("<Detector of {} rules>", self.reader.rule_count())
    }
}

/// The classification of a response. Frozen; `reason` explains it in one sentence.
///
/// >>> verdict = fetchwise.Detector().classify(b"<html><body><div id=root></div><script src=/app.js></script></body></html>")
/// >>> verdict.is_content, verdict.outcome, verdict.error_for("direct_access"), verdict.error_for("playwright")
/// (False, 'shell', 'wrong_tool', 'empty_content')
#[pyclass(frozen, module = "fetchwise", name = "Verdict")]
pub(crate) struct Verdict {
    read: Read,
    status: u16,
    headers: Vec<Header>,
    /// The requested URL, and the one after redirects, if both are known and differ.
    urls: Option<(String, String)>,
}

/// Returns the requested URL and the final one, if they differ.
fn urls(url: Option<&str>, final_url: Option<&str>) -> Option<(String, String)> {
    let final_url = final_url.filter(|text| Some(*text) != url)?;
    Some((url.unwrap_or_default().to_owned(), final_url.to_owned()))
}

impl Verdict {
    fn page(&self) -> Page<'_> {
        Page { status: self.status, headers: &self.headers, ..Page::default() }
    }

    /// Returns everything that an attempt records of the response.
    pub(crate) fn answer(&self) -> CoreFetchResult {
        let (url, final_url) =
            self.urls.as_ref().map(|(url, last)| (url.as_str(), last.as_str())).unzip();
        self.read.fetch_result(&Page { url, final_url, ..self.page() })
    }
}

#[pymethods]
impl Verdict {
    /// Whether there is enough to read, and no block or waiting room. Ignores the status: see
    /// `outcome`.
    #[getter]
    fn is_content(&self) -> bool {
        self.read.is_content()
    }

    /// Whether the response is a challenge or a refusal.
    #[getter]
    fn is_blocked(&self) -> bool {
        self.read.is_blocked
    }

    /// `"blocked_captcha"` or `"blocked_403"` for a block, else None.
    #[getter]
    fn block_type(&self) -> Option<&'static str> {
        self.read.block_type.map(|kind| kind.name())
    }

    /// Whether the response is a waiting room.
    #[getter]
    fn is_queued(&self) -> bool {
        self.read.is_queued
    }

    /// Whether the network of the crawler refuses, not the site: a provider, a filter, a captive
    /// portal.
    #[getter]
    fn is_network_block(&self) -> bool {
        self.read.network_block
    }

    /// Whether the response is HTML with almost nothing to read.
    #[getter]
    fn is_empty(&self) -> bool {
        self.read.is_empty
    }

    /// Whether the response is the shell of an application, whose content comes by script.
    #[getter]
    fn is_shell(&self) -> bool {
        self.read.has_spa
    }

    /// The vendor of the block or waiting room, when known.
    #[getter]
    fn vendor(&self) -> Option<&str> {
        self.read.vendor.as_deref()
    }

    /// The id of the deciding rule, if there is one.
    #[getter]
    fn rule(&self) -> Option<&str> {
        self.read.rule.as_deref()
    }

    /// The framework of the page, when it is known.
    #[getter]
    fn framework(&self) -> Option<&str> {
        self.read.framework.as_deref()
    }

    /// The confidence, from 0 to 1; 0 when nothing was found.
    #[getter]
    fn confidence(&self) -> f32 {
        self.read.confidence
    }

    /// The number of visible characters; a lower bound unless `text_complete`.
    #[getter]
    fn text_chars(&self) -> u32 {
        self.read.text_chars
    }

    /// Whether `text_chars` counts all of the text.
    #[getter]
    fn text_complete(&self) -> bool {
        self.read.text_complete
    }

    /// Whether the body is HTML.
    #[getter]
    fn is_html(&self) -> bool {
        self.read.is_html
    }

    /// Whether the text continues for subscribers only.
    #[getter]
    fn has_paywall(&self) -> bool {
        self.read.has_paywall
    }

    /// Whether the response is a password form although something else was requested.
    #[getter]
    fn has_login_wall(&self) -> bool {
        self.read.has_login_wall
    }

    /// Whether the page has a success status but says that the content does not exist.
    #[getter]
    fn is_soft_404(&self) -> bool {
        self.read.soft_404
    }

    /// Vendors that are present, which is not evidence of a block.
    #[getter]
    fn vendors_present(&self) -> Vec<&str> {
        self.read.waf.iter().collect()
    }

    /// The target of a page that only redirects its reader, as it is written there.
    #[getter]
    fn redirect(&self) -> Option<&str> {
        self.read.redirect.as_deref()
    }

    /// The status that was passed to the detector.
    #[getter]
    fn status(&self) -> u16 {
        self.status
    }

    /// The outcome of the request, which takes the status into account: `"content"`, `"blocked"`,
    /// `"shell"`, `"empty"`, `"redirect"`, `"queued"` or `"http"`.
    #[getter]
    fn outcome(&self) -> String {
        name(&self.read.outcome(&self.page())).to_owned()
    }

    /// The reason, in one sentence for people.
    #[getter]
    fn reason(&self) -> String {
        self.read.reason()
    }

    /// Returns the failure that this counts as when `fetcher` made the request: the name of an
    /// `ErrorKind`, or None for content. `renders` says whether the fetcher runs scripts if its
    /// name does not imply it.
    #[pyo3(signature = (fetcher, *, renders=None))]
    fn error_for(&self, fetcher: &str, renders: Option<bool>) -> Option<String> {
        error_for(&self.read.outcome(&self.page()), fetcher, renders)
    }

    fn __repr__(&self) -> String {
        format!("<Verdict {}: {}>", self.outcome(), self.read.reason())
    }
}

/// The result of one request, with everything that an attempt records of it. `Detector.judge`
/// returns it for a response; `FetchResult(kind)` is a result without one.
///
/// >>> fetchwise.FetchResult("timeout", message="no byte in 30 s").error_for("direct_access")
/// 'timeout'
#[pyclass(frozen, module = "fetchwise", name = "FetchResult")]
pub(crate) struct FetchResult {
    pub(crate) kept: CoreFetchResult,
}

impl FetchResult {
    /// Returns the result for the name of an outcome, or of an `ErrorKind`.
    pub(crate) fn named(kind: &str) -> Self {
        use fetchwise::attempt::error_kind::ErrorKind;
        let outcome = match (kind, ErrorKind::from_name(kind)) {
            ("content", _) => Outcome::Content,
            (_, Some(kind)) => kind.into(),
            (other, None) => Outcome::Other(other.into()),
        };
        Self { kept: outcome.into() }
    }
}

#[pymethods]
impl FetchResult {
    /// Creates a result without a page: `"content"`, an `ErrorKind` or its name, or a custom name,
    /// which counts as the fetcher's failure. `retry_after` and `duration` are in seconds.
    /// `final_url` is the URL after redirects.
    #[new]
    #[pyo3(signature = (kind, *, status=None, headers=None, retry_after=None, duration=None, message=None, vendor=None, final_url=None))]
    #[allow(clippy::too_many_arguments, reason = "they are keyword arguments")]
    fn new(
        kind: &str,
        status: Option<u16>,
        headers: Option<&Bound<'_, PyAny>>,
        retry_after: Option<f64>,
        duration: Option<f64>,
        message: Option<String>,
        vendor: Option<&str>,
        final_url: Option<&str>,
    ) -> PyResult<Self> {
        let mut kept = Self::named(kind).kept;
        if let (Some(vendor), Outcome::Blocked(block)) = (vendor, &kept.outcome) {
            kept.outcome = Outcome::Blocked(block.clone().by(vendor));
        }
        kept.status = status;
        kept.headers = convert::headers(headers)?;
        kept.retry_after =
            retry_after.map(|seconds| convert::span("retry_after", seconds)).transpose()?;
        kept.duration = duration.map(|seconds| convert::span("duration", seconds)).transpose()?;
        kept.message = message;
        // A URL that cannot be fetched is not one that responded.
        kept.final_url =
            final_url.and_then(|url| fetchwise::heuristic::url::parse(url).ok()).map(Box::new);
        Ok(Self { kept })
    }

    /// Returns the result with the duration of the request, in seconds.
    fn with_duration(&self, seconds: f64) -> PyResult<Self> {
        Ok(Self { kept: self.kept.clone().with_duration(convert::span("duration", seconds)?) })
    }

    /// The outcome: a name like `Verdict.outcome`, or that of a failure before the response.
    #[getter]
    fn outcome(&self) -> &str {
        name(&self.kept.outcome)
    }

    /// Whether the request delivered content.
    #[getter]
    fn is_content(&self) -> bool {
        matches!(self.kept.outcome, Outcome::Content)
    }

    /// Whether the response was a challenge or a refusal.
    #[getter]
    fn is_blocked(&self) -> bool {
        matches!(self.kept.outcome, Outcome::Blocked(_))
    }

    /// The vendor of the block, when known.
    #[getter]
    fn vendor(&self) -> Option<&str> {
        match &self.kept.outcome {
            Outcome::Blocked(block) => block.vendor.as_deref(),
            _ => None,
        }
    }

    /// The HTTP status, when there was one.
    #[getter]
    fn status(&self) -> Option<u16> {
        self.kept.status
    }

    /// An explanation for people.
    #[getter]
    fn message(&self) -> String {
        self.kept.message.clone().unwrap_or_else(|| self.kept.outcome.to_string())
    }

    /// Returns the same as `Verdict.error_for`.
    #[pyo3(signature = (fetcher, *, renders=None))]
    fn error_for(&self, fetcher: &str, renders: Option<bool>) -> Option<String> {
        error_for(&self.kept.outcome, fetcher, renders)
    }

    fn __repr__(&self) -> String {
        format!("<FetchResult {}>", name(&self.kept.outcome))
    }
}
