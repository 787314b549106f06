//! Import and export of attempts as JSON lines, in batches. The interpreter's lock is held while a
//! batch's text is copied, not while it is parsed.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use fetchwise::journal::{Journal as Log, JournalError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::attempt::Attempt;
use crate::journal::Journal;
use crate::selector::Selector;
use crate::{errors, json};
use fetchwise_bindings_core::jsonl;
use fetchwise_bindings_core::jsonl::{Import, Item};

/// Lines per batch.
const BATCH: usize = 4096;

fn read(py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<Item> {
    if let Ok(attempt) = item.cast::<Attempt>() {
        return Ok(Item::Made(Box::new(attempt.get().kept.clone())));
    }
    if let Ok(text) = item.cast::<PyString>() {
        return Ok(Item::Text(text.to_string_lossy().into_owned()));
    }
    if let Ok(bytes) = item.cast::<PyBytes>() {
        return Ok(Item::Text(String::from_utf8_lossy(bytes.as_bytes()).into_owned()));
    }
    json::dumps(py, item).map(Item::Text)
}

/// Imports attempts into a journal, each once: JSON lines (`str` or `bytes`), dicts or `Attempt`s,
/// from any iterable, such as an open file.
///
/// `selector` observes them at once; selectors made later replay them from the journal. Returns the
/// result: `lines`, `imported`, `duplicates`, `failed`, `clamped`, `unknown_fields`, and `errors`
/// as pairs of line and reason, for the first thousand of them.
///
/// >>> import tempfile
/// >>> line = {"url": "https://example.org/", "fetcher": "playwright", "success": True, "attempted_at": 1763650000123}
/// >>> with tempfile.TemporaryDirectory() as folder, fetchwise.Journal(folder) as journal:
/// ...     counts = fetchwise.import_attempts([line, line, "nonsense"], journal)
/// >>> counts["imported"], counts["duplicates"], counts["failed"]
/// (1, 1, 1)
#[pyfunction]
#[pyo3(signature = (lines, journal, *, selector=None))]
pub(crate) fn import_attempts<'py>(
    py: Python<'py>,
    lines: &Bound<'py, PyAny>,
    journal: &Journal,
    selector: Option<&Selector>,
) -> PyResult<Bound<'py, PyDict>> {
    let shared = &journal.shared;
    let settled = shared.with(Log::settled)?;
    let failed = |error: &JournalError| errors::journal(py, error);
    py.detach(|| settled.wait()).map_err(|error| errors::wait(&error))?;
    let mut import = py.detach(|| Import::begin(&shared.dir)).map_err(|error| failed(&error))?;
    let mut iterator = lines.try_iter()?;
    let selector = selector.map(|selector| &selector.core.kept);
    loop {
        let batch: Vec<Item> =
            iterator.by_ref().take(BATCH).map(|item| read(py, &item?)).collect::<PyResult<_>>()?;
        if batch.is_empty() {
            break;
        }
        let taken = py.detach(|| shared.with(|log| import.take(batch, log, selector)))?;
        taken.map_err(|error| failed(&error))?;
    }
    let summary = import.summary;
    let out = PyDict::new(py);
    out.set_item("lines", summary.lines)?;
    out.set_item("imported", summary.imported)?;
    out.set_item("duplicates", summary.duplicates)?;
    out.set_item("failed", summary.failed)?;
    out.set_item("clamped", summary.clamped)?;
    out.set_item("unknown_fields", summary.unknown_fields.into_iter().collect::<Vec<_>>())?;
    out.set_item("errors", summary.errors)?;
    Ok(out)
}

/// The destination of exported lines.
enum Out {
    /// A file, made with the first line: an export that cannot begin leaves none.
    File(PathBuf, Option<BufWriter<File>>),
    Object(Py<PyAny>),
}

impl Out {
    fn write(&mut self, text: &str) -> PyResult<()> {
        match self {
            Self::File(_, Some(file)) => file.write_all(text.as_bytes())?,
            Self::File(path, file) => {
                file.insert(BufWriter::new(File::create(path)?)).write_all(text.as_bytes())?;
            }
            Self::Object(object) => {
                Python::attach(|py| object.call_method1(py, "write", (text,)).map(drop))?
            }
        }
        Ok(())
    }

    fn finish(self) -> PyResult<()> {
        match self {
            Self::File(_, Some(mut file)) => file.flush()?,
            Self::File(path, None) => drop(File::create(path)?),
            Self::Object(_) => {}
        }
        Ok(())
    }
}

/// Exports the attempts of a journal, or of a directory, as JSON lines to a path or to anything
/// that has `write(str)`. Returns their number.
///
/// A directory needs no writer, so it can be read alongside a running crawler.
///
/// >>> import io, tempfile
/// >>> out = io.StringIO()
/// >>> with tempfile.TemporaryDirectory() as folder, fetchwise.Journal(folder) as journal:
/// ...     fetchwise.Selector(journal=journal).record(fetchwise.Attempt("https://example.org/", "playwright").delivered())
/// ...     fetchwise.export_attempts(journal, out)
/// 1
/// >>> out.getvalue().count("\n")
/// 1
#[pyfunction]
pub(crate) fn export_attempts(
    py: Python<'_>,
    journal: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
) -> PyResult<u64> {
    let dir = match journal.cast::<Journal>() {
        Ok(journal) => {
            let shared = &journal.get().shared;
            let settled = shared.with(Log::settled)?;
            py.detach(|| settled.wait()).map_err(|error| errors::wait(&error))?;
            shared.dir.clone()
        }
        Err(_) => journal.extract::<PathBuf>()?,
    };
    let mut out = match out.hasattr("write")? {
        true => Out::Object(out.clone().unbind()),
        false => Out::File(out.extract()?, None),
    };
    let exported = py.detach(|| jsonl::export(&dir, |text| out.write(text)));
    let count = exported.map_err(|error| errors::journal(py, &error))??;
    out.finish()?;
    Ok(count)
}
