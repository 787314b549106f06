//! Decisions as Python objects: frozen, usable in `match` by their kind, with the fetcher's name as
//! a shared `str`.

use fetchwise::attempt::Hint;
use fetchwise::decision::{Decision as Decided, Rule, Source};
use fetchwise::time::Timestamp;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::convert;

/// The decision of a selector: the fetcher to use, or the reason why there is none.
///
/// Each kind of it has a class: `Take`, `Paused`, `GiveUp` and `NoViableFetcher`. `kind` names it.
/// Truthy when there is a fetcher to use.
///
/// >>> decision = fetchwise.Selector().select("https://example.org/")
/// >>> decision.fetcher, decision.source, bool(decision)
/// ('direct_access', 'probe', True)
/// >>> match decision:
/// ...     case fetchwise.Take(fetcher):
/// ...         print(fetcher)
/// ...     case fetchwise.Paused(until):
/// ...         print("paused until", until)
/// direct_access
#[pyclass(frozen, subclass, module = "fetchwise", name = "Decision")]
pub(crate) struct Decision {
    pub(crate) decided: Decided,
    pub(crate) name: Option<Py<PyString>>,
    /// Whether the fetcher runs scripts.
    pub(crate) renders: bool,
    pub(crate) hint: Option<Hint>,
}

/// A decision for a fetcher.
///
/// >>> decision = fetchwise.Selector().select("https://example.org/")
/// >>> isinstance(decision, fetchwise.Take), decision.kind
/// (True, 'take')
#[pyclass(frozen, extends = Decision, module = "fetchwise", name = "Take")]
pub(crate) struct TakeDecision;

#[pymethods]
impl TakeDecision {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    fn match_args(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, ["fetcher"])
    }
}

/// A decision against a request for now: the link or its host is paused until `paused_until`.
///
/// >>> fetchwise.Paused.__match_args__
/// ('paused_until',)
#[pyclass(frozen, extends = Decision, module = "fetchwise", name = "Paused")]
pub(crate) struct Paused;

#[pymethods]
impl Paused {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    fn match_args(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, ["paused_until"])
    }
}

/// A decision against any further attempt: none is worth its cost.
///
/// >>> selector = fetchwise.Selector(fetchers=["direct_access"])
/// >>> isinstance(selector.select("https://example.org/", excluded=["direct_access"]), fetchwise.GiveUp)
/// True
#[pyclass(frozen, extends = Decision, module = "fetchwise", name = "GiveUp")]
pub(crate) struct GiveUp;

/// A decision against any attempt: no fetcher gets past the vendor of the host.
///
/// >>> issubclass(fetchwise.NoViableFetcher, fetchwise.Decision)
/// True
#[pyclass(frozen, extends = Decision, module = "fetchwise", name = "NoViableFetcher")]
pub(crate) struct NoViableFetcher;

/// Returns the object of a decision, of the class of its kind.
pub(crate) fn object(py: Python<'_>, of: Decision) -> PyResult<Py<Decision>> {
    let kind = of.decided;
    let base = PyClassInitializer::from(of);
    Ok(match kind {
        Decided::Selected(_) => {
            Bound::new(py, base.add_subclass(TakeDecision))?.into_super().unbind()
        }
        Decided::Paused { .. } => Bound::new(py, base.add_subclass(Paused))?.into_super().unbind(),
        Decided::GiveUp => Bound::new(py, base.add_subclass(GiveUp))?.into_super().unbind(),
        Decided::NoViableFetcher => {
            Bound::new(py, base.add_subclass(NoViableFetcher))?.into_super().unbind()
        }
    })
}

impl Decision {
    pub(crate) fn take(&self) -> Option<&fetchwise::decision::Selection> {
        match &self.decided {
            Decided::Selected(take) => Some(take),
            _ => None,
        }
    }

    fn until(&self) -> Option<Timestamp> {
        match self.decided {
            Decided::Paused { until, .. } => Some(until),
            _ => None,
        }
    }
}

#[pymethods]
impl Decision {
    #[classattr]
    #[pyo3(name = "__match_args__")]
    fn match_args(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, ["kind", "fetcher"])
    }

    /// `"take"`, `"paused"`, `"give_up"` or `"no_viable_fetcher"`.
    #[getter]
    pub(crate) fn kind(&self) -> &'static str {
        match self.decided {
            Decided::Selected(_) => "take",
            Decided::Paused { .. } => "paused",
            Decided::GiveUp => "give_up",
            Decided::NoViableFetcher => "no_viable_fetcher",
        }
    }

    /// The fetcher to use, or None.
    #[getter]
    fn fetcher(&self, py: Python<'_>) -> Option<Py<PyString>> {
        self.name.as_ref().map(|name| name.clone_ref(py))
    }

    /// The label of the decision: `"learned"`, `"inferred"`, `"explore"`, `"probe"`, `"hinted"`,
    /// `"paused"`, or `"none"`.
    #[getter]
    fn source(&self) -> &'static str {
        match (&self.decided, self.take()) {
            (_, Some(take)) => take.source.name(),
            (Decided::Paused { .. }, _) => Source::Paused.name(),
            _ => "none",
        }
    }

    /// The rule of the policy that made the choice, or `"none"`.
    #[getter]
    fn rule(&self) -> &'static str {
        match (&self.decided, self.take()) {
            (_, Some(take)) => take.rule.name(),
            (Decided::Paused { .. }, _) => Rule::Paused.name(),
            (Decided::NoViableFetcher, _) => "no_viable_fetcher",
            _ => "none",
        }
    }

    /// The fetcher's confidence for this URL, from 0 to 1; None without a fetcher.
    #[getter]
    fn confidence(&self) -> Option<f64> {
        self.take().map(|take| take.confidence)
    }

    /// The decayed number of attempts behind the confidence; None without a fetcher.
    #[getter]
    fn sample_size(&self) -> Option<f64> {
        self.take().map(|take| take.sample_size)
    }

    /// The probability with which the policy made this choice; None without a fetcher.
    #[getter]
    fn propensity(&self) -> Option<f64> {
        self.take().map(|take| take.propensity)
    }

    /// Whether the fetcher's breaker on this domain is open and was ignored.
    #[getter]
    fn breaker_ignored(&self) -> bool {
        self.take().is_some_and(|take| take.breaker_ignored)
    }

    /// The end of the pause, in seconds since 1970; None when there is no pause.
    #[getter]
    fn paused_until(&self) -> Option<f64> {
        self.until().map(convert::date_seconds)
    }

    /// Whether the whole host is paused.
    #[getter]
    fn is_host_paused(&self) -> bool {
        matches!(self.decided, Decided::Paused { host: true, .. })
    }

    fn __bool__(&self) -> bool {
        self.take().is_some()
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.decided == other.decided && self.hint == other.hint
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(match (self.take(), self.until()) {
            (Some(take), _) => {
                let name = self.name.as_ref().map_or("", |name| name.to_str(py).unwrap_or(""));
                format!("<Decision {name} ({}, confidence {:.2})>", take.source, take.confidence)
            }
            (None, Some(until)) => {
                format!("<Decision paused until {}>", convert::date_seconds(until))
            }
            _ => format!("<Decision {}>", self.kind()),
        })
    }
}
