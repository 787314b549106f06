//! Attempts as JSON lines, in and out, in batches: the interpreter's lock is held for a batch's text, not for its meaning.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use fetchwise::attempt::json::{LINE_MAX_BYTES, Notes, from_json_line, to_json_line};
use fetchwise::attempt::{Attempt as Kept, json::ImportError};
use fetchwise::journal::{Entry, Journal as Log, JournalError, ids, maintain, replay};
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use uuid::Uuid;

use crate::attempt::Attempt;
use crate::journal::Journal;
use crate::selector::Selector;
use crate::{errors, json};

/// Lines that are read at a time.
const BATCH: usize = 4096;
/// Text that is written at a time, in bytes.
const CHUNK: usize = 1 << 20;
/// Lines that cannot be used are named up to this many, then counted.
const NAMED_MAX: usize = 1000;

#[derive(Default)]
struct Summary {
    lines: u64,
    imported: u64,
    duplicates: u64,
    failed: u64,
    clamped: u64,
    unknown_fields: BTreeSet<String>,
    errors: Vec<(u64, String)>,
}

impl Summary {
    fn fail(&mut self, line: u64, error: String) {
        self.failed += 1;
        if self.errors.len() < NAMED_MAX {
            self.errors.push((line, error));
        }
    }
}

/// One item of the input.
enum Item {
    Text(String),
    Made(Box<Kept>),
}

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

/// Where imported attempts go.
struct Target<'j> {
    log: &'j Log,
    selector: Option<&'j fetchwise::selector::Selector>,
    known: HashSet<Uuid>,
    cutoff: Option<Timestamp>,
    now: Timestamp,
}

impl Target<'_> {
    fn take(&mut self, number: u64, item: Item, summary: &mut Summary) -> Result<(), JournalError> {
        let read: Result<(Kept, Notes), ImportError> = match item {
            Item::Made(attempt) => Ok((*attempt, Notes::default())),
            Item::Text(text) if text.trim().is_empty() => return Ok(()),
            Item::Text(text) if text.len() > LINE_MAX_BYTES => {
                summary.lines += 1;
                summary.fail(number, format!("longer than {LINE_MAX_BYTES} bytes"));
                return Ok(());
            }
            Item::Text(text) => from_json_line(&text, self.now),
        };
        summary.lines += 1;
        let (attempt, notes) = match read {
            Ok(read) => read,
            Err(error) => {
                summary.fail(number, error.to_string());
                return Ok(());
            }
        };
        summary.unknown_fields.extend(notes.unknown_fields);
        if self.known.contains(&attempt.id) {
            summary.duplicates += 1;
            return Ok(());
        }
        if let Some(cutoff) = self.cutoff.filter(|cutoff| attempt.attempted_at < *cutoff) {
            let cutoff = rfc3339::format(cutoff);
            let why =
                format!("made before {cutoff}, up to where attempts were compacted: a snapshot may have it already");
            summary.fail(number, why);
            return Ok(());
        }
        self.known.insert(attempt.id);
        self.log.append_attempt(&attempt)?;
        if let Some(selector) = self.selector {
            selector.observe(&attempt);
        }
        summary.imported += 1;
        summary.clamped += u64::from(notes.clamped);
        Ok(())
    }
}

/// Takes attempts into a journal, each once: JSON lines (`str` or `bytes`), dicts or `Attempt`s, from any iterable, such as an open file.
///
/// With `selector`, it learns from them at once, too; others do when they are made. Returns what became of the lines: `lines`, `imported`,
/// `duplicates`, `failed`, `clamped`, `unknown_fields`, and `errors` as pairs of line and reason, the first thousand of them.
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
    let mut known = HashSet::new();
    py.detach(|| {
        ids(&shared.dir, |id| {
            known.insert(id);
        })
    })
    .map_err(|error| failed(&error))?;
    let cutoff = py.detach(|| maintain::cutoff(&shared.dir)).map_err(|error| failed(&error))?;
    let mut summary = Summary::default();
    let mut iterator = lines.try_iter()?;
    let mut number = 0;
    let selector = selector.map(|selector| &selector.core.kept);
    loop {
        let mut batch = Vec::with_capacity(BATCH);
        for item in iterator.by_ref().take(BATCH) {
            number += 1;
            batch.push((number, read(py, &item?)?));
        }
        if batch.is_empty() {
            break;
        }
        let ids = std::mem::take(&mut known);
        let done = py.detach(|| {
            shared.with(|log| {
                let mut target = Target { log, selector, known: ids, cutoff, now: Timestamp::now() };
                let done = batch.into_iter().try_for_each(|(number, item)| target.take(number, item, &mut summary));
                done.map(|()| target.known)
            })
        });
        known = done?.map_err(|error| failed(&error))?;
    }
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

/// Where exported lines go.
enum Out {
    File(BufWriter<File>),
    Object(Py<PyAny>),
}

impl Out {
    fn write(&mut self, text: &mut String) -> PyResult<()> {
        match self {
            Self::File(file) => file.write_all(text.as_bytes())?,
            Self::Object(object) => Python::attach(|py| object.call_method1(py, "write", (text.as_str(),)).map(drop))?,
        }
        text.clear();
        Ok(())
    }
}

/// Writes the attempts of a journal, or of a directory, as JSON lines to a path or to anything that has `write(str)`. Returns how many.
///
/// A directory needs no writer: it can be read beside a running crawler.
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
pub(crate) fn export_attempts(py: Python<'_>, journal: &Bound<'_, PyAny>, out: &Bound<'_, PyAny>) -> PyResult<u64> {
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
        false => Out::File(BufWriter::new(File::create(out.extract::<PathBuf>()?)?)),
    };
    let (mut text, mut count, mut failed) = (String::new(), 0, None);
    let replayed = py.detach(|| {
        let replayed = replay(&dir, |_, entry| {
            let (Entry::Attempt(attempt), None) = (entry, &failed) else { return };
            count += 1;
            text.push_str(&to_json_line(&attempt));
            text.push('\n');
            if text.len() >= CHUNK {
                failed = out.write(&mut text).err();
            }
        });
        if failed.is_none() {
            failed = out.write(&mut text).err();
        }
        replayed
    });
    if let Some(error) = failed {
        return Err(error);
    }
    replayed.map_err(|error| errors::journal(py, &error))?;
    if let Out::File(mut file) = out {
        file.flush()?;
    }
    Ok(count)
}
