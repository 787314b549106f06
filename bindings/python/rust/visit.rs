//! Visits: the library's state machine, stepped from Python.
//! Must not know: how anything is decided.

use fetchwise::fetch_result::FetchResult as CoreFetchResult;
use fetchwise::time::Timestamp;
use fetchwise::visit::{End as CoreEnd, Wait};
use fetchwise_bindings_core::visit::{Asked, EndDetails, HeldStep, SteppedVisit, VisitSettings};
use pyo3::prelude::*;
use pyo3::types::PyString;
use url::Url;

use crate::asyncio_bridge;
use crate::asyncio_bridge::Made;
use crate::build_selector::Handle;
use crate::decision::Decision;
use crate::detector::{FetchResult, Verdict};
use crate::{convert as given, errors};

/// The visit of one URL, from the decision to the last recorded attempt, including retries, other
/// fetchers, pauses and paces.
///
/// `next()` returns the next step: fetch, wait, or None; `report()` takes the result. Dropping the
/// visit, or leaving its `with`, releases everything that it holds, so cancelling is always safe.
#[pyclass(frozen, module = "fetchwise", name = "Visit")]
pub(crate) struct Visit {
    kept: SteppedVisit<Handle>,
    core: Handle,
}

impl Visit {
    pub(crate) fn new(core: Handle, url: Url, settings: VisitSettings<'_>) -> PyResult<Self> {
        Ok(Self {
            kept: SteppedVisit::begin(core.clone(), url, settings).map_err(errors::config)?,
            core,
        })
    }
}

/// Converts a reported object.
fn answer(given: &Bound<'_, PyAny>) -> PyResult<CoreFetchResult> {
    if let Ok(answer) = given.cast::<FetchResult>() {
        return Ok(answer.get().kept.clone());
    }
    if let Ok(verdict) = given.cast::<Verdict>() {
        return Ok(verdict.get().answer());
    }
    if let Ok(name) = given.cast::<PyString>() {
        return Ok(FetchResult::named(name.to_str()?).kept);
    }
    let answer = given.py().import("fetchwise._outcomes")?.call_method1("answer_of", (given,))?;
    Ok(answer.cast::<FetchResult>()?.get().kept.clone())
}

#[pymethods]
impl Visit {
    /// Returns the next step, a `FetchStep` or a `WaitStep`, or None when the visit has ended
    /// (`end` says how). Report a fetch, or drop it, before the next call.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Py<Step>>> {
        self.core.0.check()?;
        self.kept.next().map(|(held, asked)| Step::object(py, &self.core, held, asked)).transpose()
    }

    /// Reports the result of a fetch: a `FetchResult`, a `Verdict`, an `ErrorKind` or `"content"`,
    /// or the exception that the client raised. Records the attempt before it returns. `duration`
    /// is in seconds; the default is the time since the step.
    #[pyo3(signature = (step, outcome, *, duration=None))]
    fn report(
        &self,
        step: &Step,
        outcome: &Bound<'_, PyAny>,
        duration: Option<f64>,
    ) -> PyResult<()> {
        self.core.0.check()?;
        self.kept.check(&step.held).map_err(errors::misuse)?;
        let mut answer = answer(outcome)?;
        if let Some(seconds) = duration {
            answer.duration = Some(given::span("duration", seconds)?);
        }
        self.kept.report(&step.held, answer).map_err(errors::misuse)
    }

    /// Declines to wait for `step`. The visit ends with its last failure, or as paused until then.
    fn give_up(&self, step: &Step) -> PyResult<()> {
        self.kept.give_up(&step.held).map_err(errors::misuse)
    }

    /// Releases everything that the visit and its last step hold. It returns no further steps;
    /// recorded attempts stay.
    fn close(&self) {
        self.kept.close();
    }

    /// The end of the visit, once `next()` has returned None.
    #[getter]
    fn end(&self, py: Python<'_>) -> Option<End> {
        let end = self.kept.end()?;
        let fetcher = end.fetcher.map(|id| self.core.0.name(py, id));
        Some(End { kept: end.clone(), fetcher })
    }

    /// The address to request: the URL, or the target of a redirect that was written in HTML.
    #[getter]
    fn url(&self) -> Option<String> {
        self.kept.url()
    }

    /// The number of attempts that the visit has recorded.
    #[getter]
    fn requests(&self) -> u32 {
        self.kept.requests()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        match (self.kept.end(), self.url()) {
            (Some(end), _) => format!("<Visit, {}>", end.how.name()),
            (None, url) => format!("<Visit of {}>", url.as_deref().unwrap_or("nothing any more")),
        }
    }
}

/// The next step of a visit: a `FetchStep` or, when `wait` is true, a `WaitStep`. A step that is
/// dropped without a report has no effect.
///
/// >>> selector = fetchwise.Selector(fetchers=["direct_access", "playwright"])
/// >>> with selector.visit("https://example.org/") as visit:
/// ...     isinstance(visit.next(), fetchwise.Step)
/// True
#[pyclass(frozen, subclass, module = "fetchwise", name = "Step")]
pub(crate) struct Step {
    held: HeldStep<Handle>,
    is_wait: bool,
}

impl Step {
    /// Returns the object of a step: a `FetchStep` or a `WaitStep`.
    fn object(
        py: Python<'_>,
        core: &Handle,
        held: HeldStep<Handle>,
        asked: Asked,
    ) -> PyResult<Py<Self>> {
        let base = |is_wait| PyClassInitializer::from(Self { held, is_wait });
        let step = match asked {
            Asked::Request { fetcher, deadline, is_probe, max_redirects, decision } => {
                let fetcher = core.0.name(py, fetcher);
                let decision = core.0.decision(py, decision, None)?;
                let request = FetchStep {
                    fetcher,
                    deadline: deadline.as_secs_f64(),
                    is_probe,
                    max_redirects,
                    decision,
                };
                Bound::new(py, base(false).add_subclass(request))?.into_super()
            }
            Asked::Wait { until, reason } => {
                Bound::new(py, base(true).add_subclass(WaitStep { until, reason }))?.into_super()
            }
        };
        Ok(step.unbind())
    }

    fn take_wait(&self) -> PyResult<Wait> {
        self.held.take_wait().map_err(errors::misuse)
    }
}

#[pymethods]
impl Step {
    /// Whether to wait and then call `next()` again.
    #[getter]
    fn wait(&self) -> bool {
        self.is_wait
    }

    /// The address to request.
    #[getter]
    fn url(&self) -> &str {
        self.held.url()
    }
}

/// A step of a visit: one request with `fetcher` for `url`, within `deadline` seconds, to report to
/// the visit.
///
/// >>> selector = fetchwise.Selector(fetchers=["direct_access", "playwright"])
/// >>> with selector.visit("https://example.org/") as visit:
/// ...     step = visit.next()
/// ...     step.wait, step.fetcher, step.deadline, step.is_probe
/// (False, 'direct_access', 3.0, True)
#[pyclass(frozen, extends = Step, module = "fetchwise", name = "FetchStep")]
pub(crate) struct FetchStep {
    fetcher: Py<PyString>,
    /// Seconds.
    deadline: f64,
    is_probe: bool,
    max_redirects: u32,
    decision: Py<Decision>,
}

#[pymethods]
impl FetchStep {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    fn match_args(py: Python<'_>) -> PyResult<Bound<'_, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, ["fetcher", "url"])
    }

    /// The fetcher to use.
    #[getter]
    fn fetcher(&self, py: Python<'_>) -> Py<PyString> {
        self.fetcher.clone_ref(py)
    }

    /// Seconds for the whole request.
    #[getter]
    fn deadline(&self) -> f64 {
        self.deadline
    }

    /// Whether the request is a probe: short, because a longer request can follow.
    #[getter]
    fn is_probe(&self) -> bool {
        self.is_probe
    }

    /// The maximum number of redirects.
    #[getter]
    fn max_redirects(&self) -> u32 {
        self.max_redirects
    }

    /// The decision that chose the fetcher.
    #[getter]
    fn decision(&self, py: Python<'_>) -> Py<Decision> {
        self.decision.clone_ref(py)
    }

    fn __repr__(slf: PyRef<'_, Self>) -> String {
        let fetcher = slf.fetcher.to_str(slf.py()).unwrap_or("?").to_owned();
        format!("<FetchStep {fetcher} {}>", slf.as_super().held.url())
    }
}

/// A step of a visit: a wait of `seconds`, or until the event that is waited for. Then call
/// `next()` again.
///
/// >>> selector = fetchwise.Selector(fetchers=["direct_access"], pace=False)
/// >>> first, second = (selector.visit(f"https://example.org/{n}") for n in range(2))
/// >>> step, other = first.next(), second.next()
/// >>> match other:
/// ...     case fetchwise.WaitStep(reason):
/// ...         print(reason, other.seconds > 0)
/// probe True
#[pyclass(frozen, extends = Step, module = "fetchwise", name = "WaitStep")]
pub(crate) struct WaitStep {
    until: Timestamp,
    reason: String,
}

#[pymethods]
impl WaitStep {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    fn match_args(py: Python<'_>) -> PyResult<Bound<'_, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, ["reason"])
    }

    /// The longest time to wait, in seconds from now. An earlier call is also fine.
    #[getter]
    fn seconds(&self) -> f64 {
        self.until.since(Timestamp::now()).as_secs_f64()
    }

    /// The reason of the wait: `"probe"`, `"trial"`, `"local_fault"`, `"pace"` or `"doubt"`.
    #[getter]
    fn reason(&self) -> &str {
        &self.reason
    }

    /// Blocks until the wait is over, for at most `seconds` (default: until it is due). Other
    /// threads run meanwhile.
    #[pyo3(signature = (seconds=None))]
    fn block(slf: PyRef<'_, Self>, py: Python<'_>, seconds: Option<f64>) -> PyResult<()> {
        let at_most = given::span("seconds", seconds.unwrap_or_else(|| slf.seconds()))?;
        let wait = slf.as_super().take_wait()?;
        py.detach(|| wait.block(at_most));
        Ok(())
    }

    /// An `asyncio` future that ends when the event that is waited for happens; never if only time
    /// can end the wait.
    fn _notified<'py>(slf: PyRef<'_, Self>, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut wait = slf.as_super().take_wait()?;
        asyncio_bridge::future(py, async move {
            wait.notified().await;
            let made: Made = Box::new(|py| Ok(py.None()));
            made
        })
    }

    /// Returns an awaitable of the wait: it ends with the event that is waited for, or when the
    /// wait is due.
    fn ready<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("fetchwise._fetching")?.call_method1("ready", (slf,))
    }

    fn __repr__(&self) -> String {
        format!("<WaitStep {:.3} s for {}>", self.seconds(), self.reason)
    }
}

/// The end of a visit. Truthy when it delivered content.
///
/// >>> selector = fetchwise.Selector(fetchers=["direct_access"])
/// >>> visit = selector.visit("https://example.org/gone")
/// >>> visit.report(visit.next(), "not_found")
/// >>> visit.next(), visit.end.kind, visit.end.error_type
/// (None, 'failed', 'not_found')
#[pyclass(frozen, module = "fetchwise", name = "End")]
pub(crate) struct End {
    kept: CoreEnd,
    fetcher: Option<Py<PyString>>,
}

#[pymethods]
impl End {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    fn match_args(py: Python<'_>) -> PyResult<Bound<'_, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, ["kind", "fetcher"])
    }

    /// `"delivered"`, `"failed"`, `"paused"`, `"paced"` (the host's pace admits no request in
    /// time), `"no_viable_fetcher"`, `"no_route"` or `"no_fetcher"`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.kept.how.name()
    }

    /// Whether the visit delivered content.
    #[getter]
    fn is_delivered(&self) -> bool {
        self.kept.is_delivered()
    }

    /// The reason of the failure, as the name of an `ErrorKind`; None unless it failed.
    #[getter]
    fn error_type(&self) -> Option<&str> {
        EndDetails::of(&self.kept).error_type
    }

    /// The vendor that no fetcher gets past; None unless that is the reason.
    #[getter]
    fn vendor(&self) -> Option<&str> {
        EndDetails::of(&self.kept).vendor
    }

    /// The fetcher that delivered, or that made the last attempt.
    #[getter]
    fn fetcher(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.fetcher.as_ref().map(|name| name.clone_ref(py))
    }

    /// The label of the decision that delivered, or that ended the visit.
    #[getter]
    fn source(&self) -> Option<&'static str> {
        self.kept.source.map(fetchwise::decision::Source::name)
    }

    /// The fetcher's confidence at the time of the decision.
    #[getter]
    fn confidence(&self) -> f64 {
        self.kept.confidence
    }

    /// The last HTTP status.
    #[getter]
    fn status(&self) -> Option<u16> {
        self.kept.status
    }

    /// Whether any attempt was blocked.
    #[getter]
    fn is_banned(&self) -> bool {
        self.kept.is_banned
    }

    /// The number of recorded attempts.
    #[getter]
    fn requests(&self) -> u32 {
        self.kept.requests
    }

    /// Whether the last attempt was the trial of a host that refuses all requests. That says
    /// nothing of the link.
    #[getter]
    fn was_trial(&self) -> bool {
        self.kept.was_trial
    }

    /// Whether what was delivered is a page of no site: of a parked domain, a hoster, or a product
    /// before its log-in.
    #[getter]
    fn is_default_page(&self) -> bool {
        self.kept.is_default_page
    }

    /// The end of the pause, in seconds since 1970; None when there is no pause.
    #[getter]
    fn paused_until(&self) -> Option<f64> {
        EndDetails::of(&self.kept).paused_until.map(given::date_seconds)
    }

    /// The paused object: `"link"`, `"host"` or `"pace"`; None unless the visit ended as paused.
    #[getter]
    fn paused(&self) -> Option<String> {
        EndDetails::of(&self.kept).paused
    }

    /// An explanation for people; empty when content was delivered.
    #[getter]
    fn message(&self) -> &str {
        &self.kept.message
    }

    fn __bool__(&self) -> bool {
        self.kept.is_delivered()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let by = self.fetcher.as_ref().and_then(|name| name.to_str(py).ok()).unwrap_or("nobody");
        format!("<End {} by {by} in {} requests>", self.kind(), self.kept.requests)
    }
}
