//! Query strings of URLs, with hashes in place of their values: for files that name links and must
//! not have the secrets in them.
//!
//! Invariants: the same URL and key give the same text, so a link keeps its identity. A text that
//! is hashed already stays as it is. What remains is a URL wherever the URL was one.
//!
//! Must not know: where the key is kept.

use std::borrow::Cow;
use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;

/// The length of a key in bytes.
pub const KEY_BYTES: usize = 16;
/// The beginning of a hashed value. URLs need not escape it.
const MARK: char = '~';
/// The number of hex digits of a hash.
const DIGITS: usize = 16;

/// Replaces the values of queries by keyed hashes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QueryHash {
    key: [u8; KEY_BYTES],
}

impl fmt::Debug for QueryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryHash").finish_non_exhaustive()
    }
}

impl QueryHash {
    /// Returns one with this key. A reader of the key can test guesses of a value, and no more.
    pub const fn new(key: [u8; KEY_BYTES]) -> Self {
        Self { key }
    }

    /// Returns an http or https URL with hashes in place of the values of its query. A part without
    /// `=` is a value. All other texts stay, and so do path and fragment.
    ///
    /// ```
    /// use fetchwise_types::query_hash::QueryHash;
    ///
    /// let hash = QueryHash::new([7; 16]);
    /// let url = hash.url("https://example.org/a?token=SECRET&page=");
    /// assert!(url.starts_with("https://example.org/a?token=~") && url.ends_with("&page="));
    /// assert_eq!(hash.url(&url), url);
    /// assert_eq!(hash.url("why?"), "why?");
    /// ```
    pub fn url<'u>(&self, text: &'u str) -> Cow<'u, str> {
        let (page, fragment) = text.split_at(text.find('#').unwrap_or(text.len()));
        let Some(begin) = page.find('?').filter(|_| is_web(page)) else {
            return Cow::Borrowed(text);
        };
        let (before, query) = page.split_at(begin + 1);
        if query.split('&').all(|part| is_hashed(value_of(part).1)) {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len() + DIGITS);
        out.push_str(before);
        for (n, part) in query.split('&').enumerate() {
            let (name, value) = value_of(part);
            out.push_str(if n == 0 { "" } else { "&" });
            out.push_str(name);
            match is_hashed(value) {
                true => out.push_str(value),
                false => out.push_str(&format!("{MARK}{:0DIGITS$x}", self.value(value))),
            }
        }
        out.push_str(fragment);
        Cow::Owned(out)
    }

    fn value(&self, value: &str) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(value.as_bytes());
        hasher.finish()
    }
}

/// Returns a part of a query as its name with `=`, and its value.
fn value_of(part: &str) -> (&str, &str) {
    part.split_at(part.find('=').map_or(0, |at| at + 1))
}

/// Returns whether a value says nothing, or is a hash.
fn is_hashed(value: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let digits = value.strip_prefix(MARK);
    value.is_empty()
        || digits.is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(is_digit))
}

fn is_web(text: &str) -> bool {
    let begins = |scheme: &str| {
        text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    begins("http://") || begins("https://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HASH: QueryHash = QueryHash::new([1; KEY_BYTES]);

    #[test]
    fn values_are_hashed_and_names_stay() {
        let url = HASH.url("http://e.org/p;x=1?a=SECRET&b=SECRET&SECRET&c=&d=S=SECRET#f?SECRETS");
        let parts: Vec<&str> = url.split(['?', '&', '#']).collect();
        assert_eq!((parts[0], parts[4], parts[6]), ("http://e.org/p;x=1", "c=", "f"));
        assert_eq!(
            parts[1].strip_prefix("a="),
            parts[2].strip_prefix("b="),
            "equal values have equal hashes"
        );
        assert_eq!(parts[3], &parts[1][2..], "a part without a name is a value");
        assert!(parts[5].starts_with("d=~") && parts[5].len() == 19, "{url}");
        assert_ne!(
            QueryHash::new([2; KEY_BYTES]).url("http://e.org/?a=1"),
            HASH.url("http://e.org/?a=1")
        );
        assert_ne!(HASH.url("http://e.org/?a=1"), HASH.url("http://e.org/?a=2"));
    }

    #[test]
    fn texts_without_a_query_of_the_web_stay() {
        for text in [
            "http://e.org/",
            "http://e.org/?",
            "article 17?a=b",
            "",
            "ftp://e.org/?a=b",
            "é",
            "HTTP://e.org/#?a",
        ] {
            assert_eq!(HASH.url(text), text);
        }
        assert!(HASH.url("HTTPS://e.org/?a=b").contains('~'));
        assert!(!HASH.url("http://e.org/?a=~0123456789ABCDEF").contains("ABC"), "that is no hash");
    }

    proptest! {
        #[test]
        fn any_url_keeps_its_identity_and_stays_a_url(query in "[ -~é]{0,40}", other in "[ -~é]{0,40}") {
            let of = |query: &str| url::Url::parse(&format!("https://e.org/p?{query}")).unwrap();
            let (one, two) = (of(&query), of(&other));
            let hashed = HASH.url(one.as_str());
            prop_assert_eq!(&HASH.url(&hashed), &hashed);
            let parsed = url::Url::parse(&hashed).unwrap();
            prop_assert_eq!(parsed.as_str(), &*hashed);
            prop_assert_eq!(one == two, hashed == HASH.url(two.as_str()));
        }
    }
}
