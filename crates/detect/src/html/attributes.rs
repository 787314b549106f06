//! Attributes of one tag, in order. Names and values are slices of the tag, entities not decoded.

/// Iterator over `(name, value)`; the value is empty if the attribute has none.
pub(crate) struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Reads `attrs`: the lower-case text between a tag's name and its `>`.
    pub(crate) fn new(attrs: &'a [u8]) -> Self {
        Self { rest: attrs }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let from = self.rest.iter().position(|b| !(b.is_ascii_whitespace() || *b == b'/'))?;
        let rest = &self.rest[from..];
        // A leading `=` belongs to the name.
        let name_len = 1 + rest[1..]
            .iter()
            .position(|b| matches!(b, b'=' | b'/' | b' ' | b'\t' | b'\n' | b'\r' | 0x0C))
            .unwrap_or(rest.len() - 1);
        let (name, rest) = rest.split_at(name_len);
        let Some(after) = rest.trim_ascii_start().strip_prefix(b"=") else {
            self.rest = rest;
            return Some((name, &[]));
        };
        let after = after.trim_ascii_start();
        let (value, rest) = match after.first() {
            Some(quote @ (b'"' | b'\'')) => {
                let inner = &after[1..];
                match memchr::memchr(*quote, inner) {
                    Some(end) => (&inner[..end], &inner[end + 1..]),
                    None => (inner, &[][..]),
                }
            }
            _ => after
                .split_at(after.iter().position(u8::is_ascii_whitespace).unwrap_or(after.len())),
        };
        self.rest = rest;
        Some((name, value))
    }
}

/// Returns the value of the attribute `name`.
pub(crate) fn value<'a>(attrs: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    Attributes::new(attrs).find(|(n, _)| *n == name).map(|(_, v)| v)
}

/// Returns whether the attributes hide their element: `hidden`, or a style with `display: none` or
/// `visibility: hidden`.
pub(crate) fn hide(attrs: &[u8]) -> bool {
    Attributes::new(attrs).any(|(name, value)| match name {
        b"hidden" => true,
        b"style" => value.split(|b| *b == b';').any(hides),
        _ => false,
    })
}

/// Returns whether a style declaration hides its element.
fn hides(declaration: &[u8]) -> bool {
    let Some(colon) = declaration.iter().position(|b| *b == b':') else { return false };
    let (property, value) =
        (declaration[..colon].trim_ascii(), declaration[colon + 1..].trim_ascii_start());
    match property {
        b"display" => value.starts_with(b"none"),
        b"visibility" => value.starts_with(b"hidden"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(attrs: &str) -> Vec<(String, String)> {
        Attributes::new(attrs.as_bytes())
            .map(|(n, v)| {
                (String::from_utf8_lossy(n).into_owned(), String::from_utf8_lossy(v).into_owned())
            })
            .collect()
    }

    #[test]
    fn quoted_bare_and_missing_values_are_read() {
        let got = read(" a=\"x > y\" b='q\"q' c=bare/d e f = g /");
        let want = [("a", "x > y"), ("b", "q\"q"), ("c", "bare/d"), ("e", ""), ("f", "g")];
        assert_eq!(got, want.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }

    #[test]
    fn truncated_and_odd_attributes_do_not_panic() {
        for attrs in
            ["", " ", "=", "==", " a=", " a=\"", "a='x", "/////", "\"", " \"x\"", "= =", "a = = b"]
        {
            let _ = read(attrs);
        }
    }

    #[test]
    fn only_hidden_and_two_styles_hide_an_element() {
        for attrs in [
            " hidden",
            " id=x hidden",
            " hidden=\"\"",
            " style=\"color:red; display : none\"",
            " style='visibility:hidden'",
        ] {
            assert!(hide(attrs.as_bytes()), "{attrs}");
        }
        for attrs in [
            " aria-hidden=\"true\"",
            " class=\"hidden\"",
            " style=\"overflow:hidden\"",
            " type=hidden",
            " data-hidden=1",
            " style=\"display:block\" title=\"none\"",
            " style=\"float:none\"",
        ] {
            assert!(!hide(attrs.as_bytes()), "{attrs}");
        }
    }
}
