//! A request as RFC 9421 sees it: components and the signature base.
//!
//! Owns: the values of components, section 2, and the base, section 2.5.
//!
//! Must not know: keys, and what a signature has to cover.

use std::fmt::{self, Write as _};

use sfv::{DictSerializer, Dictionary, ListEntry, Parser};

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) method: &'a str,
    pub(crate) scheme: &'a str,
    pub(crate) authority: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    /// Names in lower case, values without blanks around them.
    pub(crate) headers: &'a [(&'a str, &'a str)],
}

/// A covered component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Component {
    pub(crate) name: String,
    /// Member of a header that is a dictionary.
    pub(crate) key: Option<String>,
}

impl Component {
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), key: None }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.name)?;
        self.key.as_ref().map_or(Ok(()), |key| write!(f, ";key=\"{key}\""))
    }
}

/// The derived components that [`Message::value`] knows.
pub(crate) const DERIVED: [&str; 7] =
    ["@authority", "@method", "@path", "@query", "@request-target", "@scheme", "@target-uri"];

impl Message<'_> {
    /// Returns the value of a component; none if the request has none.
    pub(crate) fn value(&self, component: &Component) -> Option<String> {
        let query = self.query.map_or_else(String::new, |query| format!("?{query}"));
        Some(match (&*component.name, &component.key) {
            ("@authority", None) => self.authority.to_owned(),
            ("@method", None) => self.method.to_owned(),
            ("@path", None) => self.path.to_owned(),
            ("@query", None) => format!("?{}", self.query.unwrap_or_default()),
            ("@request-target", None) => format!("{}{query}", self.path),
            ("@scheme", None) => self.scheme.to_owned(),
            ("@target-uri", None) => {
                format!("{}://{}{}{query}", self.scheme, self.authority, self.path)
            }
            (name, _) if name.starts_with('@') => return None,
            (name, None) => self.header(name)?,
            (name, Some(key)) => {
                let all = self.header(name)?;
                let members: Dictionary = Parser::new(&all).parse().ok()?;
                let (_, member) = members.into_iter().find(|(name, _)| name.as_str() == key)?;
                value_text(member)?
            }
        })
    }

    /// Returns a header's lines as one value.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let lines: Vec<&str> = self
            .headers
            .iter()
            .filter(|(known, _)| *known == name)
            .map(|(_, value)| *value)
            .collect();
        (!lines.is_empty()).then(|| lines.join(", "))
    }
}

/// Returns a member of a dictionary in canonical form.
pub(crate) fn value_text(member: ListEntry) -> Option<String> {
    let mut one = DictSerializer::new();
    one.members([(sfv::key_ref("x"), &member)]);
    let text = one.finish()?;
    // A member that is true is written without a value.
    Some(text.strip_prefix("x=").map_or_else(|| format!("?1{}", &text[1..]), str::to_owned))
}

/// Returns the signature base; the component without a value if one has none.
pub(crate) fn base(
    message: &Message<'_>,
    components: &[Component],
    params: &str,
) -> Result<String, Component> {
    let mut base = String::with_capacity(512);
    for component in components {
        let value = message.value(component).ok_or_else(|| component.clone())?;
        // Writing to a string cannot fail.
        let _ = writeln!(base, "{component}: {value}");
    }
    let _ = write!(base, "\"@signature-params\": {params}");
    Ok(base)
}
