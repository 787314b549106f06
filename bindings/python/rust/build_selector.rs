//! The parts of a selector: its candidates, its journal, and the evidence replayed from it.
//!
//! Owns: what visits and the class `Selector` share.
//!
//! Must not know: the classes of Python that use it.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use fetchwise::journal::{JournalOptions, load};
use fetchwise::pace::{Pace, PaceSettings};
use fetchwise::policy;
use fetchwise::registry::{Class, FetcherId, FetcherSet, FetcherSpec};
use fetchwise::selector::{Selector as CoreSelector, SelectorBuilder};
use fetchwise::time::Timestamp;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::decision::{self, Decision};
use crate::errors;
use crate::journal::{Journal, Shared};
use fetchwise_bindings_core::candidates;
use fetchwise_bindings_core::config;
use fetchwise_bindings_core::journal_sink::JournalSink;

/// A builder, and the settings of the pace that the selector gets.
pub(crate) type Plan = (SelectorBuilder, PaceSettings);

/// A selector and the log that it records into.
pub(crate) struct Core {
    pub(crate) kept: CoreSelector,
    pub(crate) log: Option<Arc<Shared>>,
    /// The names of the candidates by id, so that a decision creates no new text.
    names: Vec<Py<PyString>>,
}

/// The handle by which visits hold their selector.
#[derive(Clone)]
pub(crate) struct Handle(pub(crate) Arc<Core>);

impl Deref for Handle {
    type Target = CoreSelector;

    fn deref(&self) -> &CoreSelector {
        &self.0.kept
    }
}

impl Core {
    /// Builds a selector that records into `log`, with the evidence of the attempts in it.
    pub(crate) fn build(
        py: Python<'_>,
        (builder, settings): Plan,
        log: Option<Arc<Shared>>,
    ) -> PyResult<Self> {
        let (mut builder, mut pace) = (builder, Pace::new(settings));
        if let Some(log) = &log {
            pace = pace.with_store(Box::new(JournalSink(Arc::clone(log))));
            builder = log.with(|journal| builder.keep_evicted(journal))?;
        }
        let mut kept = builder.pace(pace).build().map_err(|error| errors::any(py, &error))?;
        if let Some(log) = &log {
            let settled = log.with(fetchwise::journal::Journal::settled)?;
            py.detach(|| settled.wait()).map_err(|error| errors::wait(&error))?;
            let loaded = py.detach(|| load(&log.dir, &kept, Timestamp::now()));
            let registered = loaded.map_err(|error| errors::journal(py, &error))?.registered;
            let done =
                log.with(|journal| py.detach(|| journal.register_fetchers(&kept, &registered)))?;
            done.map_err(|error| errors::journal(py, &error))?;
            kept.set_sink(Box::new(JournalSink(Arc::clone(log))));
        }
        let names =
            kept.candidates().map(|(_, spec)| PyString::intern(py, &spec.name).unbind()).collect();
        Ok(Self { kept, log, names })
    }

    /// Refuses to record in a process that does not own the log, before memory observes what the
    /// log will not have.
    pub(crate) fn check(&self) -> PyResult<()> {
        match &self.log {
            Some(log) => Ok(log.check()?),
            None => Ok(()),
        }
    }

    pub(crate) fn name(&self, py: Python<'_>, id: FetcherId) -> Py<PyString> {
        match self.names.get(id.index()) {
            Some(name) => name.clone_ref(py),
            None => PyString::new(py, self.kept.fetcher_name(id)).unbind(),
        }
    }

    pub(crate) fn decision(
        &self,
        py: Python<'_>,
        decided: fetchwise::decision::Decision,
        hint: Option<fetchwise::attempt::Hint>,
    ) -> PyResult<Py<Decision>> {
        let id = decided.selected().map(|take| take.fetcher);
        let renders = id.and_then(|id| self.kept.fetcher(id)).is_some_and(|spec| spec.renders);
        decision::object(
            py,
            Decision { decided, name: id.map(|id| self.name(py, id)), renders, hint },
        )
    }

    /// Returns the candidates with these names.
    pub(crate) fn set(&self, names: &[String]) -> PyResult<FetcherSet> {
        candidates::candidates(&self.kept, names).map_err(errors::config)
    }

    pub(crate) fn candidate(&self, name: &str) -> PyResult<FetcherId> {
        candidates::candidate(&self.kept, name).map_err(errors::config)
    }
}

/// A fetcher in decisions: its name, the cost of a request, and whether it runs scripts.
///
/// `kind` is `"plain"`, `"rendering"`, `"stealth"`, `"archive"`, `"special"` or `"unknown"`, and
/// sets the defaults of the other arguments. `cost` is in plain requests. The names
/// `direct_access`, `playwright` and `playwright_stealth` imply their kinds.
///
/// >>> selector = fetchwise.Selector(fetchers=["direct_access", fetchwise.Fetcher("my_browser", kind="rendering", cost=30)])
/// >>> [fetcher.name for fetcher in selector.fetchers]
/// ['direct_access', 'my_browser']
#[pyclass(frozen, module = "fetchwise", name = "Fetcher")]
pub(crate) struct Fetcher {
    spec: FetcherSpec,
}

impl Fetcher {
    pub(crate) fn of(spec: &FetcherSpec) -> Self {
        Self { spec: spec.clone() }
    }
}

#[pymethods]
impl Fetcher {
    #[new]
    #[pyo3(signature = (name, *, kind=None, cost=None, renders=None))]
    fn new(
        name: &str,
        kind: Option<&str>,
        cost: Option<f64>,
        renders: Option<bool>,
    ) -> PyResult<Self> {
        let mut spec = match kind {
            Some(kind) => FetcherSpec::new(name, kind.parse::<Class>().map_err(errors::config)?),
            None => FetcherSpec::by_name(name),
        };
        if let Some(cost) = cost {
            if !(cost.is_finite() && cost > 0.0) {
                return Err(errors::config(format!(
                    "invalid cost {cost} of {name}: expected a number of plain requests above 0"
                )));
            }
            spec.cost = cost;
        }
        if let Some(renders) = renders {
            spec.renders = renders;
            spec.false_success = if renders { 0.0 } else { 0.05 };
        }
        Ok(Self { spec })
    }

    /// The name of the fetcher in logged attempts.
    #[getter]
    fn name(&self) -> &str {
        &self.spec.name
    }

    /// The kind of the fetcher.
    #[getter]
    fn kind(&self) -> &'static str {
        self.spec.class.name()
    }

    /// The cost of a request, in plain requests.
    #[getter]
    fn cost(&self) -> f64 {
        self.spec.cost
    }

    /// Whether the fetcher runs the scripts of a page.
    #[getter]
    fn renders(&self) -> bool {
        self.spec.renders
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.spec == other.spec
    }

    fn __repr__(&self) -> String {
        format!(
            "Fetcher({:?}, kind={:?}, cost={}, renders={})",
            self.spec.name,
            self.kind(),
            self.spec.cost,
            if self.spec.renders { "True" } else { "False" }
        )
    }
}

/// Returns the builder of a selector with these settings, and the settings of its pace.
pub(crate) fn builder(
    config: Option<&PathBuf>,
    fetchers: Option<&Bound<'_, PyAny>>,
    (half_life_days, policy_name, max_keys): (Option<f64>, Option<&str>, Option<usize>),
    pace: Option<bool>,
) -> PyResult<Plan> {
    let file = config.map(PathBuf::as_path);
    let (mut builder, settings) =
        config::begin(file, fetchers.is_some(), pace).map_err(errors::config)?;
    for fetcher in fetchers.map(|given| given.try_iter()).transpose()?.into_iter().flatten() {
        let fetcher = fetcher?;
        let spec = match (fetcher.cast::<Fetcher>(), fetcher.cast::<PyString>()) {
            (Ok(fetcher), _) => fetcher.get().spec.clone(),
            (_, Ok(name)) => FetcherSpec::by_name(name.to_str()?),
            _ => {
                return Err(PyTypeError::new_err(
                    "invalid fetchers: expected names or Fetcher objects",
                ));
            }
        };
        builder = builder.fetcher(spec);
    }
    if let Some(days) = half_life_days {
        builder = builder.half_life_days(days);
    }
    if let Some(name) = policy_name {
        builder = builder.policy(policy::by_name(name).map_err(errors::config)?);
    }
    if max_keys.is_some() {
        builder = builder.max_keys(max_keys);
    }
    Ok((builder, settings))
}

/// Returns the given journal, or opens the journal in the given directory.
pub(crate) fn journal_of<'py>(
    given: Option<&Bound<'py, PyAny>>,
    py: Python<'py>,
) -> PyResult<(Option<Py<Journal>>, bool)> {
    let Some(given) = given else { return Ok((None, false)) };
    if let Ok(journal) = given.cast::<Journal>() {
        return Ok((Some(journal.clone().unbind()), false));
    }
    let dir: PathBuf = given.extract()?;
    Ok((Some(Py::new(py, Journal::open_in(py, &dir, JournalOptions::default())?)?), true))
}
