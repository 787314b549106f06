//! Explanations: the object is what `fetchwise explain --json` prints, the text is for people.

use fetchwise::selector::{Explanation as Kept, Selector};
use napi_derive::napi;
use serde_json::Value;

use fetchwise_bindings_core::explain_json::{text, value};

/// Why a decision is what it is.
#[napi]
pub struct Explanation {
    value: Value,
    text: String,
}

impl Explanation {
    pub fn new(selector: &Selector, asked: &str, of: &Kept) -> Self {
        Self { value: value(selector, asked, of), text: text(selector, of) }
    }
}

#[napi]
impl Explanation {
    /// The fetcher that would be used, or null.
    #[napi(catch_unwind, getter)]
    pub fn fetcher(&self) -> Option<&str> {
        self.value["fetcher"].as_str()
    }

    /// The fields of `fetchwise explain --json` that need no program: decision, heuristics, candidates, steps, counterfactuals.
    #[napi(catch_unwind, js_name = "toJSON", ts_return_type = "Record<string, any>")]
    pub fn to_json(&self) -> Value {
        self.value.clone()
    }

    /// The same for people, in columns.
    #[napi(catch_unwind, js_name = "toString")]
    pub fn text(&self) -> &str {
        &self.text
    }
}
