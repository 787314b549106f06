//! The importance of heuristics.

use serde::Serialize;

use fetchwise::analytics::Importance;

/// The importance of a heuristic.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Importance"))]
pub struct ImportanceJson<'a> {
    r#type: &'a str,
    value: Option<&'a str>,
    /// Whether only the response tells it.
    after: bool,
    n: u64,
    baseline: f64,
    conditional_rate: f64,
    gain: f64,
    mutual_information_bits: f64,
}

impl<'a> From<&'a Importance> for ImportanceJson<'a> {
    fn from(of: &'a Importance) -> Self {
        Self {
            r#type: &of.kind,
            value: of.value.as_deref(),
            after: of.after,
            n: of.n,
            baseline: of.baseline,
            conditional_rate: of.conditional_rate,
            gain: of.gain,
            mutual_information_bits: of.mutual_information_bits,
        }
    }
}
