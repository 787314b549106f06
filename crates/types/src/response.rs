//! A response as every stage after the fetch sees it: status, headers, body bytes. Borrowed, without the types of an
//! HTTP library.

/// One response header. Names are compared without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The name as it was received.
    pub name: String,
    /// The value, as text; bytes that are not UTF-8 are replaced.
    pub value: String,
}

impl Header {
    /// Returns a header from its two parts.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

/// Returns the value of the first header called `name` (ASCII case is ignored), if any.
pub fn header<'a>(headers: &'a [Header], name: &str) -> Option<&'a str> {
    headers.iter().find(|h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value.as_str())
}

/// A response to judge.
#[derive(Clone, Copy, Debug, Default)]
pub struct Page<'a> {
    /// The requested URL, if known.
    pub url: Option<&'a str>,
    /// The URL that responded, after redirects, if known.
    pub final_url: Option<&'a str>,
    /// The HTTP status.
    pub status: u16,
    /// The response headers.
    pub headers: &'a [Header],
    /// The body after content decoding, possibly only its beginning.
    pub body: &'a [u8],
}
