//! Rust errors as the exceptions of `fetchwise._errors`: one mapping, so that one failure always
//! has one class.

use std::fmt::Display;

use fetchwise::heuristic::url::UrlError as BadUrl;
use fetchwise::journal::{AppendError, JournalError, LogError as BadLog, WaitError};
use fetchwise::selector::SinkError;
use pyo3::prelude::*;

mod classes {
    pyo3::import_exception!(fetchwise._errors, Error);
    pyo3::import_exception!(fetchwise._errors, UrlError);
    pyo3::import_exception!(fetchwise._errors, ConfigError);
    pyo3::import_exception!(fetchwise._errors, LogError);
    pyo3::import_exception!(fetchwise._errors, LockedError);
    pyo3::import_exception!(fetchwise._errors, ForkedError);
}

/// Returns the error of a misuse that has no class.
pub(crate) fn misuse(what: impl Display) -> PyErr {
    classes::Error::new_err(what.to_string())
}

/// Returns the error of unusable settings, names, rules or tables.
pub(crate) fn config(what: impl Display) -> PyErr {
    classes::ConfigError::new_err(what.to_string())
}

/// Returns the error of a URL that cannot be fetched.
pub(crate) fn url(error: &BadUrl) -> PyErr {
    classes::UrlError::new_err(error.to_string())
}

/// Returns the error of a log that refuses without being asked to do anything.
pub(crate) fn log(what: impl Display) -> PyErr {
    classes::LogError::new_err(what.to_string())
}

/// Returns the error of a journal that belongs to the parent process.
pub(crate) fn forked() -> PyErr {
    classes::ForkedError::new_err(
        "this journal belongs to the process that this one was forked from; open it after the fork, in one process, or start \
         processes with multiprocessing's \"spawn\"",
    )
}

/// Returns the error of a closed journal.
pub(crate) fn closed() -> PyErr {
    log("the journal is closed")
}

/// Returns the journal's errors: [`LockedError`](classes::LockedError) with the holder's pid, or
/// `LogError` with `is_refusal`.
pub(crate) fn journal(py: Python<'_>, error: &JournalError) -> PyErr {
    if let JournalError::Log(BadLog::Locked { .. }) = error {
        let exception = classes::LockedError::new_err(format!(
            "{error}; close the other one, give both this journal, or ask a shared `fetchwise serve`"
        ));
        return with(py, exception, "pid", error.holder_pid());
    }
    let exception = log(error);
    if error.is_refusal() { with(py, exception, "is_refusal", true) } else { exception }
}

/// Returns the error of waiting for an acknowledgement.
pub(crate) fn wait(error: &WaitError) -> PyErr {
    log(error)
}

/// Returns the error of a sink that did not accept an attempt.
pub(crate) fn sink(py: Python<'_>, error: &SinkError) -> PyErr {
    match error.0.downcast_ref::<JournalError>() {
        Some(JournalError::Append(AppendError::Closed)) => closed(),
        Some(inner) => journal(py, inner),
        None => log(&error.0),
    }
}

/// Returns the exception for the crate's error type.
pub(crate) fn any(py: Python<'_>, error: &fetchwise::Error) -> PyErr {
    match error {
        fetchwise::Error::Url(error) => url(error),
        fetchwise::Error::Journal(source) | fetchwise::Error::Locked { source, .. } => {
            match source.downcast_ref::<JournalError>() {
                Some(inner) => journal(py, inner),
                None => log(source),
            }
        }
        other => config(other),
    }
}

/// Sets an attribute of an exception, which is returned unchanged when that fails.
fn with<'py>(
    py: Python<'py>,
    exception: PyErr,
    name: &str,
    value: impl IntoPyObject<'py>,
) -> PyErr {
    match exception.value(py).setattr(name, value) {
        Ok(()) => exception,
        Err(other) => other,
    }
}
