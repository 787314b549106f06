//! The journal: learned evidence survives the process. A directory has one writer, in one process.
//!
//! Invariants: nothing here waits for another thread while it holds the interpreter's lock, except
//! `append` on a full queue, whose writer does not need that lock. In a forked child every use is
//! refused, and dropping does not wait.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use fetchwise::config::Config;
use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::{CompactOptions, SnapshotOptions};
use fetchwise::journal::{
    Acknowledgement, Health, Journal as Log, JournalError, JournalOptions, OpenCheck,
};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_bindings_core::journal_sink::SharedJournal;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyType};

use crate::asyncio_bridge;
use crate::asyncio_bridge::Made;
use crate::{convert, errors, fork};

/// A day in seconds.
const DAY_S: f64 = 86_400.0;

/// An open log, shared by its `Journal`, its selectors and their visits.
pub(crate) struct Shared {
    pub(crate) dir: PathBuf,
    generation: u64,
    log: RwLock<Option<Log>>,
}

/// The reason why a log cannot be used.
#[derive(Debug)]
pub(crate) enum JournalClosed {
    Closed,
    Forked,
}

impl std::fmt::Display for JournalClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Closed => "the journal is closed",
            Self::Forked => "the journal belongs to another process",
        })
    }
}

impl std::error::Error for JournalClosed {}

impl From<JournalClosed> for PyErr {
    fn from(shut: JournalClosed) -> Self {
        match shut {
            JournalClosed::Closed => errors::closed(),
            JournalClosed::Forked => errors::forked(),
        }
    }
}

impl Shared {
    pub(crate) fn is_forked(&self) -> bool {
        self.generation != fork::generation()
    }

    /// Checks that the log can be used.
    pub(crate) fn check(&self) -> Result<(), JournalClosed> {
        self.with(|_| ())
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&Log) -> T) -> Result<T, JournalClosed> {
        if self.is_forked() {
            return Err(JournalClosed::Forked);
        }
        let log = self.log.read().unwrap_or_else(PoisonError::into_inner);
        log.as_ref().map(work).ok_or(JournalClosed::Closed)
    }

    fn close(&self) -> Result<(), JournalError> {
        if self.is_forked() {
            return Ok(());
        }
        let log = self.log.write().unwrap_or_else(PoisonError::into_inner).take();
        log.map_or(Ok(()), Log::close)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.is_forked() {
            // Closing would wait for a thread that a fork does not copy.
            std::mem::forget(self.log.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

impl SharedJournal for Shared {
    type Closed = JournalClosed;

    fn with<T>(&self, work: impl FnOnce(&Log) -> T) -> Result<T, JournalClosed> {
        Self::with(self, work)
    }
}

static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Makes every open journal write and sync its records. Python calls it when the interpreter ends,
/// because module objects may never be dropped.
#[pyfunction]
fn _settle_all(py: Python<'_>) {
    let open: Vec<_> = OPEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .filter_map(Weak::upgrade)
        .collect();
    py.detach(|| {
        for shared in open {
            // A failure to write can no longer be reported here.
            let _ = shared.with(Log::flush).map(Acknowledgement::wait);
        }
    });
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module
        .py()
        .import("atexit")?
        .call_method1("register", (wrap_pyfunction!(_settle_all, module)?,))?;
    Ok(())
}

/// A directory of attempts, pauses and paces, open for writing.
///
/// Pass it to a `Selector`, which replays its attempts and records into it. A directory has one
/// writer: a second one raises `LockedError` with the holder's pid. After a fork, the child must
/// not use it (`ForkedError`). As a context manager it closes itself, and everything recorded is
/// then on disk. `durability` is `"memory"`, `"os"` (survives `kill -9`; the default),
/// `"interval:250ms"` or `"sync"`; `on_full` is `"block"`, `"error"` or `"shed"`.
///
/// >>> import tempfile
/// >>> with tempfile.TemporaryDirectory() as folder:
/// ...     with fetchwise.Journal(folder) as journal:
/// ...         selector = fetchwise.Selector(journal=journal)
/// ...         selector.record(fetchwise.Attempt("https://example.org/", "playwright").delivered())
/// ...     fetchwise.Selector(journal=folder).masses("domain", "example.org", "playwright")["attempts"]
/// 1
#[pyclass(frozen, module = "fetchwise", name = "Journal")]
pub(crate) struct Journal {
    pub(crate) shared: Arc<Shared>,
}

impl Journal {
    pub(crate) fn open_in(py: Python<'_>, dir: &Path, options: JournalOptions) -> PyResult<Self> {
        // Records that are replayed right afterwards are not checked twice. `verify` checks all of
        // them on request.
        let opened = py.detach(|| Log::open(dir, options.check(OpenCheck::Tail)));
        let (log, _) = opened.map_err(|error| errors::journal(py, &error))?;
        let log = RwLock::new(Some(log));
        let shared = Arc::new(Shared { dir: dir.to_owned(), generation: fork::generation(), log });
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|known| known.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        Ok(Self { shared })
    }

    pub(crate) fn close_now(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.shared.close()).map_err(|error| errors::journal(py, &error))
    }

    /// Waits until `asked` is acknowledged.
    fn wait(&self, py: Python<'_>, asked: impl FnOnce(&Log) -> Acknowledgement) -> PyResult<()> {
        let acknowledgement = self.shared.with(asked)?;
        py.detach(|| acknowledgement.wait()).map_err(|error| errors::wait(&error))
    }

    fn wait_async<'py>(
        &self,
        py: Python<'py>,
        asked: impl FnOnce(&Log) -> Acknowledgement,
    ) -> PyResult<Bound<'py, PyAny>> {
        let acknowledgement = self.shared.with(asked)?;
        asyncio_bridge::future(py, async move {
            let waited = acknowledgement.await;
            let made: Made = Box::new(move |py| match waited {
                Ok(()) => Ok(py.None()),
                Err(error) => Err(errors::wait(&error)),
            });
            made
        })
    }
}

/// Returns a selector without evidence, for maintenance: it keeps every key, those beyond `max_keys`
/// on disk.
fn blank(config: Option<&Path>) -> Result<Selector, String> {
    let builder = match config {
        Some(path) => Config::load(path).map_err(|error| error.to_string())?.selector(),
        None => Selector::builder().without_pace(),
    };
    builder.build().map_err(|error| error.to_string())
}

fn snapshot(dir: &Path, config: Option<&Path>, flushed_seq: u64) -> Made {
    let mut options = SnapshotOptions::default();
    options.await_seq = flushed_seq;
    let taken = blank(config).map(|selector| {
        maintenance::snapshot_with(dir, &selector, &options, Timestamp::date(), &mut |_, _| {})
    });
    Box::new(move |py| {
        let taken = taken.map_err(errors::config)?.map_err(|error| errors::journal(py, &error))?;
        let figures = [
            ("covers_seq", taken.covers_seq),
            ("records", taken.records),
            ("bytes", taken.bytes),
            ("entries", taken.entries),
        ];
        asyncio_bridge::figures(py, &figures)
    })
}

#[pymethods]
impl Journal {
    /// Opens the journal in `dir`, and creates the directory if it is missing.
    #[new]
    #[pyo3(signature = (dir, *, durability="os", on_full="block", linger_ms=None, segment_bytes=None))]
    fn new(
        py: Python<'_>,
        dir: PathBuf,
        durability: &str,
        on_full: &str,
        linger_ms: Option<u64>,
        segment_bytes: Option<u64>,
    ) -> PyResult<Self> {
        let invalid =
            |error: fetchwise::journal::UnknownName| PyValueError::new_err(error.to_string());
        let mut options = JournalOptions::default()
            .durability(durability.parse().map_err(invalid)?)
            .on_full(on_full.parse().map_err(invalid)?);
        if let Some(ms) = linger_ms {
            options = options.linger(Duration::from_millis(ms));
        }
        if let Some(bytes) = segment_bytes {
            options = options.segment_bytes(bytes);
        }
        Self::open_in(py, &dir, options)
    }

    /// Opens a journal, like `Journal(dir)`.
    #[classmethod]
    fn open(_class: &Bound<'_, PyType>, py: Python<'_>, dir: PathBuf) -> PyResult<Self> {
        Self::open_in(py, &dir, JournalOptions::default())
    }

    /// Waits until everything recorded so far is on disk.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, Log::flush)
    }

    /// Waits until everything recorded so far is acknowledged at the journal's durability. By
    /// default it then survives `kill -9`.
    fn settled(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, Log::settled)
    }

    /// Returns an awaitable `flush`. Cancelling it loses nothing.
    fn flush_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.wait_async(py, Log::flush)
    }

    /// Returns an awaitable `settled`. Cancelling it loses nothing.
    fn settled_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.wait_async(py, Log::settled)
    }

    /// Writes a snapshot of all evidence so far, so that the next start reads less. `config` is the
    /// file of the selectors, if they use one. Returns figures: `covers_seq`, `records`, `bytes`,
    /// `entries`.
    #[pyo3(signature = (*, config=None))]
    fn snapshot(&self, py: Python<'_>, config: Option<PathBuf>) -> PyResult<Py<PyAny>> {
        self.flush(py)?;
        let flushed_seq = self.shared.with(Log::durable_seq)?;
        let dir = &self.shared.dir;
        py.detach(|| snapshot(dir, config.as_deref(), flushed_seq))(py)
    }

    /// Returns an awaitable `snapshot`, which runs in a separate thread.
    #[pyo3(signature = (*, config=None))]
    fn snapshot_async<'py>(
        &self,
        py: Python<'py>,
        config: Option<PathBuf>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (flushed, flushed_seq) =
            self.shared.with(|log| (log.flush(), log.next_seq().saturating_sub(1)))?;
        let dir = self.shared.dir.clone();
        asyncio_bridge::blocking(py, move || match flushed.wait() {
            Ok(()) => snapshot(&dir, config.as_deref(), flushed_seq),
            Err(error) => Box::new(move |_| Err(errors::wait(&error))),
        })
    }

    /// Drops attempts older than `retain_days` from the log. Their evidence stays, in a snapshot.
    /// Works alongside the writer. Returns figures: attempts and bytes before and after.
    #[pyo3(signature = (*, retain_days=None, dry_run=false, config=None))]
    fn compact<'py>(
        &self,
        py: Python<'py>,
        retain_days: Option<f64>,
        dry_run: bool,
        config: Option<PathBuf>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.flush(py)?;
        let mut options = CompactOptions::default();
        options.dry_run = dry_run;
        if let Some(days) = retain_days {
            options.retain = convert::span("retain_days", days * DAY_S)?;
        }
        let dir = &self.shared.dir;
        let compacted = py.detach(|| {
            blank(config.as_deref()).map(|selector| {
                maintenance::compact(dir, &selector, &options, Timestamp::date(), &mut |_, _| {})
            })
        });
        let done =
            compacted.map_err(errors::config)?.map_err(|error| errors::journal(py, &error))?;
        let out = PyDict::new(py);
        out.set_item("attempts", done.attempts)?;
        out.set_item("bytes", done.bytes)?;
        out.set_item("segments", done.segments)?;
        out.set_item("forgotten", done.forgotten)?;
        Ok(out)
    }

    /// Reads everything on disk and checks whether it is sound. Returns `sound` and `attempts`.
    fn verify<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.flush(py)?;
        let dir = &self.shared.dir;
        let verified = py
            .detach(|| maintenance::verify(dir, &mut |_, _| {}))
            .map_err(|error| errors::journal(py, &error))?;
        let out = PyDict::new(py);
        out.set_item("sound", verified.is_sound())?;
        out.set_item("attempts", verified.attempts)?;
        Ok(out)
    }

    /// Returns the counts and gauges of the log since it was opened, by name.
    fn metrics(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let of = self.shared.with(Log::metrics)?;
        let figures = [
            ("appended", of.appended),
            ("shed", of.shed),
            ("refused", of.refused),
            ("gone", of.gone),
            ("blocked", of.blocked),
            ("written_seq", of.written_seq),
            ("durable_seq", of.durable_seq),
            ("queued_records", of.queued_records),
            ("queued_bytes", of.queued_bytes),
            ("frames", of.frames),
            ("bytes", of.bytes),
            ("syncs", of.syncs),
            ("segments", of.segments),
            ("failures", of.failures),
            ("heals", of.heals),
        ];
        asyncio_bridge::figures(py, &figures)
    }

    /// Returns `"good"`, `"closed"`, or the reason why attempts do not reach the disk.
    #[getter]
    fn health(&self) -> PyResult<String> {
        Ok(match self.shared.with(Log::health) {
            Ok(Health::Good) => "good".to_owned(),
            Ok(Health::Degraded { reason, .. }) => reason.to_string(),
            Ok(_) | Err(JournalClosed::Closed) => "closed".to_owned(),
            Err(forked @ JournalClosed::Forked) => return Err(forked.into()),
        })
    }

    /// The directory.
    #[getter]
    fn dir(&self) -> PathBuf {
        self.shared.dir.clone()
    }

    /// Writes and syncs the remaining records, and unlocks the directory. A second call does
    /// nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.close_now(py)
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
        self.close_now(py)
    }

    fn __repr__(&self) -> String {
        format!("<Journal {}>", self.shared.dir.display())
    }
}
