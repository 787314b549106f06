//! The error for a name that is not known, with the nearest known name.
//!
//! All readers of names (modes, classes, policies, fetchers, config keys) report an unknown one in
//! the same words.

use std::fmt;

/// Minimum similarity (Jaro-Winkler, 0 to 1) of two names to suggest one for the other.
const ALIKE: f64 = 0.8;

/// A name that is not among the known ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: Vec<String>,
}

impl UnknownName {
    /// Returns the error for `name`, which is not a valid `what`; `known` are the valid names.
    pub fn new<N: Into<String>>(
        what: &'static str,
        name: &str,
        known: impl IntoIterator<Item = N>,
    ) -> Self {
        Self { what, name: name.to_owned(), known: known.into_iter().map(N::into).collect() }
    }

    /// Returns the name that was probably meant.
    pub fn nearest(&self) -> Option<&str> {
        nearest(&self.name, self.known.iter().map(String::as_str))
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, name, known } = self;
        write!(f, "unknown {what} {name:?}; ")?;
        if let Some(nearest) = self.nearest() {
            write!(f, "did you mean {nearest:?}? ")?;
        }
        match known.split_last() {
            None => f.write_str("none is known"),
            Some((only, [])) => write!(f, "expected {only}"),
            Some((last, others)) => write!(f, "expected {} or {last}", others.join(", ")),
        }
    }
}

impl std::error::Error for UnknownName {}

/// The one of `known` that is most like `name`, if any is like it at all.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let likeness = |known: &str| strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
    let scored = known
        .into_iter()
        .map(|known| (likeness(known), known))
        .filter(|(likeness, _)| *likeness >= ALIKE);
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_recognised_and_another_word_is_not() {
        let known = ["playwright", "playwright_stealth", "direct_access", "archive_proxy"];
        for (slip, meant) in [
            ("playwrite", Some("playwright")),
            ("Direct-Access", Some("direct_access")),
            ("playwright_stelth", Some("playwright_stealth")),
            ("curl", None),
            ("", None),
        ] {
            assert_eq!(nearest(slip, known), meant, "{slip}");
        }
    }

    #[test]
    fn the_message_names_the_known_names() {
        let text = UnknownName::new("mode", "lerning", ["learning", "legacy"]).to_string();
        assert_eq!(
            text,
            "unknown mode \"lerning\"; did you mean \"learning\"? expected learning or legacy"
        );
    }
}
