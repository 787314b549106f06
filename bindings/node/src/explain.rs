//! Explanations: the object has the fields of `fetchwise explain --json`, the text is for people.

use fetchwise::selector::{Explanation as CoreExplanation, Selector};
use napi_derive::napi;
use serde_json::Value;

use fetchwise_present::ExplanationJson;

/// An explanation of a decision.
#[napi]
pub struct Explanation {
    value: Value,
    text: String,
}

impl Explanation {
    pub fn new(selector: &Selector, asked: &str, of: &CoreExplanation) -> Self {
        Self {
            value: ExplanationJson::of_selector(selector, asked, of).value(),
            text: of.text(selector, asked),
        }
    }
}

#[napi]
impl Explanation {
    /// The fetcher that `select` would choose, or null.
    #[napi(catch_unwind, getter)]
    pub fn fetcher(&self) -> Option<&str> {
        self.value["fetcher"].as_str()
    }

    /// Returns the fields of `fetchwise explain --json` that do not depend on the program:
    /// decision, heuristics, candidates, steps, counterfactuals.
    #[napi(catch_unwind, js_name = "toJSON", ts_return_type = "Record<string, any>")]
    pub fn to_json(&self) -> Value {
        self.value.clone()
    }

    /// The explanation for people, as `fetchwise explain` prints it.
    #[napi(catch_unwind, js_name = "toString")]
    pub fn text(&self) -> &str {
        &self.text
    }
}
