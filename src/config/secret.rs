//! Values that are never shown: secrets as a whole, and the user and password of a URL.
//!
//! Owns: the replacement text.
//!
//! Must not know: which settings are secrets.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;

/// Value that may hold a password or a key. No message and no dump of a config shows it.
///
/// ```
/// let secret = fetchwise::config::Secret("socks5://user:password@proxy.example".to_owned());
/// assert_eq!(format!("{secret:?}"), "(not shown)");
/// ```
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Secret<T = String>(pub T);

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

/// Returns `text` in a form that can be shown: a URL loses its user and password.
pub fn without_password(text: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = text.split_once("://") else { return Cow::Borrowed(text) };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => Cow::Owned(format!("{scheme}://(not shown){}", &rest[at..])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_user() {
        for (text, shown) in [
            ("http://u:p@h:1/a?b=c@d", "http://(not shown)@h:1/a?b=c@d"),
            ("http://h/a@b", "http://h/a@b"),
            ("socks5://me@h", "socks5://(not shown)@h"),
            ("user@example.org", "user@example.org"),
            ("http://a@b@h?x", "http://(not shown)@h?x"),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }
}
