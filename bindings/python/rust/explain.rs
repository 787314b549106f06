//! Explanations: the object has the fields of `fetchwise explain --json`, the text is for people.

use fetchwise::selector::{Explanation as CoreExplanation, Selector};
use pyo3::prelude::*;
use serde_json::Value;

use fetchwise_bindings_core::explain_json::{text, value};

/// An explanation of a decision. `str()` is for people, `to_dict()` for programs.
///
/// >>> explanation = fetchwise.Selector().explain("https://example.org/a.pdf")
/// >>> explanation.fetcher, explanation.to_dict()["heuristics"][0]
/// ('direct_access', {'type': 'domain', 'value': 'example.org'})
#[pyclass(frozen, module = "fetchwise", name = "Explanation")]
pub(crate) struct Explanation {
    value: Value,
    text: String,
}

impl Explanation {
    pub(crate) fn new(selector: &Selector, asked: &str, of: &CoreExplanation) -> Self {
        let value = value(selector, asked, of);
        Self { text: text(selector, of), value }
    }
}

#[pymethods]
impl Explanation {
    /// The fetcher that `select` would choose, or None.
    #[getter]
    fn fetcher(&self) -> Option<&str> {
        self.value["fetcher"].as_str()
    }

    /// Returns the fields of `fetchwise explain --json` that do not depend on the program: decision, heuristics,
    /// candidates, steps, counterfactuals.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        crate::json::loads(py, &self.value.to_string())
    }

    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<Explanation of {}>", self.value["url"])
    }
}
