//! Explanations: the object has the fields of `fetchwise explain --json`, the text is for people.

use fetchwise::selector::{Explanation as CoreExplanation, Selector};
use pyo3::prelude::*;
use serde_json::Value;

use fetchwise_present::{ExplanationJson, explanation_html};

/// An explanation of a decision. `str()` is for people and says what `fetchwise explain` prints;
/// `to_dict()` is for programs. A notebook shows the candidates, too.
///
/// >>> explanation = fetchwise.Selector().explain("https://example.org/a.pdf")
/// >>> explanation.fetcher, explanation.to_dict()["heuristics"][0]
/// ('direct_access', {'type': 'domain', 'value': 'example.org'})
#[pyclass(frozen, module = "fetchwise", name = "Explanation")]
pub(crate) struct Explanation {
    value: Value,
    text: String,
    html: String,
}

impl Explanation {
    pub(crate) fn new(selector: &Selector, asked: &str, of: &CoreExplanation) -> Self {
        let value = ExplanationJson::of_selector(selector, asked, of).value();
        Self { value, text: of.text(selector, asked), html: explanation_html(selector, asked, of) }
    }
}

#[pymethods]
impl Explanation {
    /// The fetcher that `select` would choose, or None.
    #[getter]
    fn fetcher(&self) -> Option<&str> {
        self.value["fetcher"].as_str()
    }

    /// Returns the fields of `fetchwise explain --json` that do not depend on the program:
    /// decision, heuristics, candidates, steps, counterfactuals.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        crate::json::loads(py, &self.value.to_string())
    }

    /// Returns the explanation for a notebook, with the candidates.
    fn _repr_html_(&self) -> &str {
        &self.html
    }

    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<Explanation of {}>", self.value["url"])
    }
}
