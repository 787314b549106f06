//! JSON between Rust and Python's objects, through Python's own module: for what is looked at by people, not for what is done often.

use pyo3::prelude::*;

/// The object that `text` describes.
pub(crate) fn loads<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (text,))
}

/// An object as text.
pub(crate) fn dumps(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<String> {
    py.import("json")?.call_method1("dumps", (object,))?.extract()
}
