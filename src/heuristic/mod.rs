//! Heuristics: `(type, value)` pairs that an attempt is tagged with and evidence is kept by.
//!
//! [`url`] owns what is known before the fetch; the response side is in [`crate::detect`]. Both are open: a type nobody has
//! seen before is learned from and queried from its first attempt on.

use std::borrow::Cow;

/// One observable feature of a URL or a response, e.g. `(domain, wikipedia.org)` or `(status_403, true)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Heuristic {
    /// The heuristic's type: open-ended text.
    pub kind: Cow<'static, str>,
    /// Its value; flags have the value `true`.
    pub value: Cow<'static, str>,
}

impl Heuristic {
    /// A heuristic from its two parts.
    pub fn new(kind: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: kind.into(), value: value.into() }
    }

    /// A flag: the value is `true`. Only what is true is recorded.
    pub fn flag(kind: impl Into<Cow<'static, str>>) -> Self {
        Self::new(kind, "true")
    }
}
