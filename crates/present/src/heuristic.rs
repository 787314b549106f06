//! A heuristic in a result.

use std::borrow::Cow;

use serde::Serialize;

use fetchwise::heuristic::Heuristic;

/// A heuristic of a URL or a response.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Heuristic"))]
pub struct HeuristicJson<'a> {
    /// Its type.
    pub r#type: Cow<'a, str>,
    /// Its value.
    pub value: Cow<'a, str>,
}

impl<'a> From<&'a Heuristic> for HeuristicJson<'a> {
    fn from(of: &'a Heuristic) -> Self {
        Self { r#type: Cow::Borrowed(&of.kind), value: Cow::Borrowed(&of.value) }
    }
}

impl From<Heuristic> for HeuristicJson<'_> {
    fn from(of: Heuristic) -> Self {
        Self { r#type: of.kind.into_owned().into(), value: of.value.into_owned().into() }
    }
}
