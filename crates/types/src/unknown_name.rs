//! Names that people write: what is said about one that is not known.
//!
//! Every place that reads a name (modes, classes, policies, fetchers, keys of a config) answers a wrong one in the same words,
//! with the nearest name that there is.

use std::fmt;

/// Two names are alike enough to suggest one for the other from this similarity on (Jaro and Winkler, 0 to 1).
const ALIKE: f64 = 0.8;

/// A name that is not among those that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: Vec<String>,
}

impl UnknownName {
    /// `name` is no `what`; `known` are those there are.
    pub fn new<N: Into<String>>(what: &'static str, name: &str, known: impl IntoIterator<Item = N>) -> Self {
        Self { what, name: name.to_owned(), known: known.into_iter().map(N::into).collect() }
    }

    /// The name that was probably meant.
    pub fn nearest(&self) -> Option<&str> {
        nearest(&self.name, self.known.iter().map(String::as_str))
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, name, known } = self;
        write!(f, "there is no {what} {name:?}; ")?;
        if let Some(nearest) = self.nearest() {
            write!(f, "did you mean {nearest:?}? ")?;
        }
        match known.split_last() {
            None => f.write_str("none is known"),
            Some((only, [])) => write!(f, "it can be {only}"),
            Some((last, others)) => write!(f, "it can be {} or {last}", others.join(", ")),
        }
    }
}

impl std::error::Error for UnknownName {}

/// The one of `known` that is most like `name`, if any is like it at all.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let likeness = |known: &str| strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
    let scored = known.into_iter().map(|known| (likeness(known), known)).filter(|(likeness, _)| *likeness >= ALIKE);
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_understood_and_another_word_is_not() {
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
    fn the_message_names_what_there_is() {
        let text = UnknownName::new("mode", "lerning", ["learning", "legacy"]).to_string();
        assert_eq!(text, "there is no mode \"lerning\"; did you mean \"learning\"? it can be learning or legacy");
    }
}
