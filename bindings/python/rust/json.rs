//! JSON between Rust and Python objects, by Python's own module: for output that people read, not
//! for frequent calls.

use pyo3::prelude::*;

/// Returns the object that `text` describes.
pub(crate) fn loads<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (text,))
}

/// Returns an object as text.
pub(crate) fn dumps(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<String> {
    py.import("json")?.call_method1("dumps", (object,))?.extract()
}
