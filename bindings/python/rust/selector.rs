//! The selector. `select` and `record` run with the interpreter's lock, because releasing it would
//! cost more; long work runs without it.

use std::path::PathBuf;
use std::sync::Arc;

use fetchwise::attempt::Attempt as CoreAttempt;
use fetchwise::backoff::LinkState;
use fetchwise::heuristic::url::{ContentKind, domain_of, identity};
use fetchwise::journal::{Tombstone, TombstoneTarget};
use fetchwise::registry::FetcherSet;
use fetchwise::selector::SelectContext;
use fetchwise::time::Timestamp;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use url::Url;

use crate::attempt::Attempt;
use crate::build_selector::{Core, Fetcher, Handle, builder, journal_of};
use crate::decision::Decision;
use crate::explain::Explanation;
use crate::journal::Journal;
use crate::visit::Visit;
use crate::{convert, errors};
use fetchwise_bindings_core::candidates::all_but;
use fetchwise_bindings_core::select_many::select_many;
use fetchwise_bindings_core::visit::VisitSettings;

/// Learns which fetcher works for which URL. All threads can share it.
///
/// `fetchers` are names or `Fetcher`s; the default is the built-in names. `journal` is a `Journal`,
/// or a directory, which it then opens. The selector replays its attempts at once and records into
/// it. `config` is a TOML file in the program's format, and replaces the other settings. Visits
/// keep a learned pace for each host unless `pace=False`; a host that would keep a visit waiting
/// for more than two minutes counts as paused. A context manager if it opened its journal itself.
///
/// >>> selector = fetchwise.Selector(fetchers=["direct_access", "playwright"])
/// >>> for n in range(10):
/// ...     selector.record(fetchwise.Attempt(f"https://wikipedia.org/wiki/{n}", "playwright").delivered())
/// >>> selector.select("https://wikipedia.org/wiki/Rust")
/// <Decision playwright (learned, confidence 1.00)>
#[pyclass(frozen, module = "fetchwise", name = "Selector")]
pub(crate) struct Selector {
    pub(crate) core: Arc<Core>,
    journal: Option<Py<Journal>>,
    owns_journal: bool,
}

/// The options of a decision.
struct DecisionOptions<'w> {
    hint: Option<&'w str>,
    prefer: Option<&'w str>,
    excluded: Option<&'w [String]>,
    attempts: Option<u32>,
}

#[pymethods]
impl Selector {
    #[new]
    #[pyo3(signature = (*, fetchers=None, journal=None, config=None, pace=None, half_life_days=None, policy=None, max_keys=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn new(
        py: Python<'_>,
        fetchers: Option<&Bound<'_, PyAny>>,
        journal: Option<&Bound<'_, PyAny>>,
        config: Option<PathBuf>,
        pace: Option<bool>,
        half_life_days: Option<f64>,
        policy: Option<&str>,
        max_keys: Option<usize>,
    ) -> PyResult<Self> {
        let plan = builder(config.as_ref(), fetchers, (half_life_days, policy, max_keys), pace)?;
        let (journal, owns_journal) = journal_of(journal, py)?;
        let log = journal.as_ref().map(|journal| Arc::clone(&journal.get().shared));
        Ok(Self { core: Arc::new(Core::build(py, plan, log)?), journal, owns_journal })
    }

    /// Decides about `url`. Takes about a microsecond, no lock and no system call, unless evidence
    /// that `max_keys` moved to disk has to be read.
    ///
    /// `hint` describes the last failure (`"blocked"`, `"empty"`, `"timeout"`, `"unknown"`).
    /// `prefer` names the fetcher that the caller prefers, and `excluded` those that were tried or
    /// are unavailable. `attempts` is the number of attempts so far (default: the number of
    /// excluded fetchers). `heuristics` is what the caller knows besides the URL, `link` its name
    /// for the URL, and `at` the time.
    ///
    /// >>> fetchwise.Selector().select("https://example.org/", excluded=["direct_access"], hint="empty").fetcher
    /// 'playwright'
    #[pyo3(signature = (url, *, hint=None, prefer=None, excluded=None, attempts=None, heuristics=None, link=None, at=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn select(
        &self,
        py: Python<'_>,
        url: &Bound<'_, PyAny>,
        hint: Option<&str>,
        prefer: Option<&str>,
        excluded: Option<Vec<String>>,
        attempts: Option<u32>,
        heuristics: Option<&Bound<'_, PyAny>>,
        link: Option<&str>,
        at: Option<f64>,
    ) -> PyResult<Py<Decision>> {
        let url = convert::url(url)?;
        let known = convert::known(heuristics)?;
        let wish = DecisionOptions { hint, prefer, excluded: excluded.as_deref(), attempts };
        let situation = self.situation(&url, wish, (link, at), &known)?;
        self.core.kept.bring_back(&url, &known);
        let decided =
            self.core.kept.select(&url, &situation).map_err(|error| errors::url(&error))?;
        self.core.decision(py, decided, situation.hint)
    }

    /// Decides about many URLs as `select` does about one, and returns the decisions in the same
    /// order.
    ///
    /// With many domains this takes less time, because the evidence of several URLs is requested
    /// from memory at once. The arguments apply to all URLs; each link is known by its URL. Raises
    /// `UrlError` if one of them cannot be fetched.
    ///
    /// >>> [decision.fetcher for decision in fetchwise.Selector().select_many(["https://a.example/", "https://b.example/"])]
    /// ['direct_access', 'direct_access']
    #[pyo3(signature = (urls, *, hint=None, prefer=None, excluded=None, attempts=None, heuristics=None, at=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn select_many(
        &self,
        py: Python<'_>,
        urls: &Bound<'_, PyAny>,
        hint: Option<&str>,
        prefer: Option<&str>,
        excluded: Option<Vec<String>>,
        attempts: Option<u32>,
        heuristics: Option<&Bound<'_, PyAny>>,
        at: Option<f64>,
    ) -> PyResult<Vec<Py<Decision>>> {
        if urls.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err(
                "invalid urls: expected a list of URLs, not one text",
            ));
        }
        let urls = urls.try_iter()?.map(|url| convert::url(&url?)).collect::<PyResult<Vec<_>>>()?;
        let known = convert::known(heuristics)?;
        let wish = DecisionOptions { hint, prefer, excluded: excluded.as_deref(), attempts };
        let all = self.context(LinkState::default(), wish, at, &known)?;
        let decided =
            select_many(&self.core.kept, &urls, &all).map_err(|error| errors::url(&error))?;
        decided.into_iter().map(|decided| self.core.decision(py, decided, all.hint)).collect()
    }

    /// Explains the decision that `select` would make.
    #[pyo3(signature = (url, *, hint=None, prefer=None, excluded=None, attempts=None, heuristics=None, link=None, at=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn explain(
        &self,
        url: &Bound<'_, PyAny>,
        hint: Option<&str>,
        prefer: Option<&str>,
        excluded: Option<Vec<String>>,
        attempts: Option<u32>,
        heuristics: Option<&Bound<'_, PyAny>>,
        link: Option<&str>,
        at: Option<f64>,
    ) -> PyResult<Explanation> {
        let asked = url.str()?;
        let url = convert::url(url)?;
        let known = convert::known(heuristics)?;
        let wish = DecisionOptions { hint, prefer, excluded: excluded.as_deref(), attempts };
        let situation = self.situation(&url, wish, (link, at), &known)?;
        let explained =
            self.core.kept.explain(&url, &situation).map_err(|error| errors::url(&error))?;
        Ok(Explanation::new(&self.core.kept, &asked.to_string_lossy(), &explained))
    }

    /// Records an attempt, first in memory and then in the journal. Raises `LogError` when the
    /// attempt will not survive the process (memory has it anyway), and `ForkedError` in a forked
    /// child, where nothing is recorded.
    fn record(&self, py: Python<'_>, attempt: &Attempt) -> PyResult<()> {
        self.core.check()?;
        self.learn(py, attempt.kept.clone())
    }

    /// Begins a visit of `url`: all steps from the decision to the last attempt, driven by the
    /// caller's network code.
    ///
    /// `fetchers` are those that the caller has (default: all candidates). `prefer` is the fetcher
    /// of the first attempt, `link` the caller's name for the URL, and `heuristics` what it knows
    /// besides the URL.
    ///
    /// >>> selector = fetchwise.Selector(fetchers=["direct_access", "playwright"])
    /// >>> visit = selector.visit("https://example.org/app")
    /// >>> while step := visit.next():
    /// ...     if step.wait:
    /// ...         step.block()
    /// ...     else:
    /// ...         visit.report(step, "wrong_tool" if step.fetcher == "direct_access" else "content")
    /// >>> visit.end.kind, visit.end.fetcher, visit.end.requests
    /// ('delivered', 'playwright', 2)
    #[pyo3(signature = (url, *, fetchers=None, prefer=None, link=None, heuristics=None))]
    fn visit(
        &self,
        url: &Bound<'_, PyAny>,
        fetchers: Option<Vec<String>>,
        prefer: Option<&str>,
        link: Option<&str>,
        heuristics: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Visit> {
        self.core.check()?;
        let url = convert::url(url)?;
        let without = match fetchers {
            Some(names) => all_but(&self.core.kept, &names).map_err(errors::config)?,
            None => FetcherSet::EMPTY,
        };
        if let Some(name) = prefer {
            self.core.candidate(name)?;
        }
        let settings = VisitSettings { prefer, link, without, known: convert::known(heuristics)? };
        Visit::new(Handle(Arc::clone(&self.core)), url, settings)
    }

    /// Drives a visit of `url` with coroutine functions:
    /// `async with selector.fetch(url, fetchers) as visited`. See `fetchwise.Fetching`.
    #[pyo3(signature = (url, fetchers, *, detector=None, prefer=None, link=None, heuristics=None))]
    fn fetch<'py>(
        slf: &Bound<'py, Self>,
        url: &Bound<'py, PyAny>,
        fetchers: &Bound<'py, PyAny>,
        detector: Option<&Bound<'py, PyAny>>,
        prefer: Option<&str>,
        link: Option<&str>,
        heuristics: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let kwargs = PyDict::new(py);
        kwargs.set_item("detector", detector)?;
        kwargs.set_item("prefer", prefer)?;
        kwargs.set_item("link", link)?;
        kwargs.set_item("heuristics", heuristics)?;
        py.import("fetchwise._fetching")?
            .getattr("Fetching")?
            .call((slf, url, fetchers), Some(&kwargs))
    }

    /// Returns the exact decayed weights of one heuristic and fetcher, over pages or, with `files`,
    /// over files: `success`, `total`, `blocked`, and `attempts`, which do not decay.
    ///
    /// >>> selector = fetchwise.Selector()
    /// >>> selector.record(fetchwise.Attempt("https://example.org/", "direct_access").delivered())
    /// >>> selector.masses("domain", "example.org", "direct_access")["attempts"]
    /// 1
    #[pyo3(signature = (kind, value, fetcher, *, files=false, at=None))]
    fn masses<'py>(
        &self,
        py: Python<'py>,
        kind: &str,
        value: &str,
        fetcher: &str,
        files: bool,
        at: Option<f64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let content = if files { ContentKind::File } else { ContentKind::Page };
        let weights = self.core.kept.weights((kind, value), content, fetcher, convert::time(at)?);
        let out = PyDict::new(py);
        out.set_item("success", weights.success)?;
        out.set_item("total", weights.total)?;
        out.set_item("blocked", weights.blocked)?;
        out.set_item("attempts", weights.attempts)?;
        Ok(out)
    }

    /// Returns the end of the pause of a URL's host or of a domain, in seconds since 1970; None
    /// when it is not paused.
    fn host_pause(&self, host: &str) -> Option<f64> {
        let until = self.core.kept.host_pause(&domain(host))?;
        (until > Timestamp::now()).then(|| convert::date_seconds(until))
    }

    /// Ends the pause of a host now, as if it had never been paused. Returns the time at which it
    /// would have ended, or None.
    fn unpause_host(&self, host: &str) -> PyResult<Option<f64>> {
        self.core.check()?;
        Ok(self.core.kept.unpause_host(&domain(host), Timestamp::now()).map(convert::date_seconds))
    }

    /// Ends the pause of a link now; the link stays at risk. Returns the time at which it would
    /// have ended, or None.
    fn unpause_link(&self, link: &str) -> PyResult<Option<f64>> {
        self.core.check()?;
        Ok(self.core.kept.unpause_link(link, Timestamp::now()).map(convert::date_seconds))
    }

    /// Forgets a domain or a link: at once in memory, and in the journal from the next start on.
    #[pyo3(signature = (*, domain=None, link=None))]
    fn forget(&self, py: Python<'_>, domain: Option<&str>, link: Option<&str>) -> PyResult<()> {
        self.core.check()?;
        let target = match (domain, link) {
            (Some(domain), None) => {
                self.core.kept.forget_domain(domain);
                TombstoneTarget::Domain(domain.to_owned())
            }
            (None, Some(link)) => {
                self.core.kept.forget_link(link);
                TombstoneTarget::Link(link.to_owned())
            }
            _ => return Err(PyTypeError::new_err("expected either domain= or link=")),
        };
        let Some(log) = &self.core.log else { return Ok(()) };
        let tombstone = Tombstone { target, at: Timestamp::date() };
        log.with(|log| log.append_tombstone(&tombstone))?
            .map(|_| ())
            .map_err(|error| errors::journal(py, &error))
    }

    /// Sets how much a heuristic tells about success, from 0 to 1, as computed by the analytics.
    /// Without a value it applies to the whole type. It only has an effect where the config enables
    /// it (`tuning.importance`).
    ///
    /// >>> fetchwise.Selector().importance("path_depth", None, 0.02)
    #[pyo3(signature = (kind, value, importance))]
    fn importance(&self, kind: &str, value: Option<&str>, importance: f64) {
        self.core.kept.set_importance(kind, value, importance);
    }

    /// The candidates, in order.
    #[getter]
    fn fetchers(&self) -> Vec<Fetcher> {
        self.core.kept.candidates().map(|(_, spec)| Fetcher::of(spec)).collect()
    }

    /// The journal that the selector records into, or None.
    #[getter]
    fn journal(&self, py: Python<'_>) -> Option<Py<Journal>> {
        self.journal.as_ref().map(|journal| journal.clone_ref(py))
    }

    /// Writes the learned paces to the journal, and closes the journal if the selector opened it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(pace) = self.core.kept.pace() {
            pace.close(Timestamp::now());
        }
        match &self.journal {
            Some(journal) if self.owns_journal => journal.get().close_now(py),
            _ => Ok(()),
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _exception: &Bound<'_, pyo3::types::PyTuple>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.core.kept.candidates().map(|(_, spec)| &*spec.name).collect();
        format!("<Selector of {}, {} keys known>", names.join(", "), self.core.kept.key_count())
    }
}

impl Selector {
    fn situation<'k>(
        &self,
        url: &Url,
        wish: DecisionOptions<'_>,
        (link, at): (Option<&str>, Option<f64>),
        heuristics: &'k [fetchwise::heuristic::Heuristic],
    ) -> PyResult<SelectContext<'k>> {
        let state = self.core.kept.link_state(link.unwrap_or_else(|| identity(url)));
        self.context(state, wish, at, heuristics)
    }

    fn context<'k>(
        &self,
        link: LinkState,
        DecisionOptions { hint, prefer, excluded, attempts }: DecisionOptions<'_>,
        at: Option<f64>,
        heuristics: &'k [fetchwise::heuristic::Heuristic],
    ) -> PyResult<SelectContext<'k>> {
        let excluded = excluded.map_or(Ok(FetcherSet::EMPTY), |names| self.core.set(names))?;
        Ok(SelectContext {
            now: convert::time(at)?,
            link,
            hint: convert::hint(hint)?,
            excluded,
            attempts: attempts.unwrap_or(excluded.len() as u32),
            prefer: prefer.map(|name| self.core.candidate(name)).transpose()?,
            host_trial: false,
            heuristics,
        })
    }

    /// Records without a check of the process.
    pub(crate) fn learn(&self, py: Python<'_>, attempt: CoreAttempt) -> PyResult<()> {
        self.core.kept.record(attempt, Timestamp::now()).map_err(|error| errors::sink(py, &error))
    }
}

/// Returns the domain under which evidence stores a host, or the host of a URL.
fn domain(host: &str) -> String {
    let name = Url::parse(host).ok().and_then(|url| url.host_str().map(str::to_owned));
    domain_of(&name.unwrap_or_else(|| host.to_ascii_lowercase())).to_owned()
}
