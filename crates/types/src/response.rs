//! A response as every stage after the fetch sees it: status, headers, body bytes. Borrowed,
//! without the types of an HTTP library.

use std::borrow::Cow;

/// One response header. Names are compared without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The name as it was received.
    pub name: String,
    /// The value, as text; bytes that are not UTF-8 are replaced.
    pub value: String,
    /// The value as it was received, if it is not UTF-8.
    received: Option<Box<[u8]>>,
}

impl Header {
    /// Returns a header from its two parts.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into(), received: None }
    }

    /// Returns a header with a value as it was received.
    ///
    /// ```
    /// use fetchwise_types::response::Header;
    ///
    /// let header = Header::from_bytes("Location", b"/caf\xe9");
    /// assert_eq!((&*header.value, header.bytes()), ("/caf\u{fffd}", &b"/caf\xe9"[..]));
    /// ```
    pub fn from_bytes(name: impl Into<String>, value: &[u8]) -> Self {
        let text = String::from_utf8_lossy(value);
        let received = matches!(text, Cow::Owned(_)).then(|| value.into());
        Self { name: name.into(), value: text.into_owned(), received }
    }

    /// Returns the value as it was received: the bytes of its text, unless some of them are not
    /// UTF-8.
    pub fn bytes(&self) -> &[u8] {
        // The text may have been exchanged since.
        let received =
            self.received.as_deref().filter(|bytes| String::from_utf8_lossy(bytes) == self.value);
        received.unwrap_or(self.value.as_bytes())
    }
}

/// Returns the value of the first header called `name` (ASCII case is ignored), if any.
pub fn header<'a>(headers: &'a [Header], name: &str) -> Option<&'a str> {
    headers.iter().find(|h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value.as_str())
}

/// Returns the media type of a response as it was sent, without parameters: the last valid one of
/// all `Content-Type` lines and of the values in a line, as in browsers. `None` if no value is a
/// media type. The bytes decide then, as they do without the header.
///
/// ```
/// use fetchwise_types::response::{Header, media_type};
///
/// let of = |value: &str| media_type(&[Header::new("Content-Type", value)]).map(str::to_owned);
/// assert_eq!(of("text/html; charset=utf-8").as_deref(), Some("text/html"));
/// assert_eq!(of("text/plain, text/html").as_deref(), Some("text/html"));
/// assert_eq!(of("text/html charset=utf-8"), None);
/// ```
pub fn media_type(headers: &[Header]) -> Option<&str> {
    let lines = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("content-type"));
    lines.flat_map(|header| header.value.split(',')).filter_map(essence).next_back()
}

/// Returns the media type at the beginning of a value, if it is a valid one other than `*/*`.
fn essence(value: &str) -> Option<&str> {
    let essence = value.split(';').next()?.trim_matches([' ', '\t', '\r', '\n']);
    let (kind, subtype) = essence.split_once('/')?;
    let is_token = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    (is_token(kind) && is_token(subtype) && essence != "*/*").then_some(essence)
}

/// Returns whether a response with status 206 has a part of its page only: its `Content-Range`
/// counts bytes, and does not name all of them.
///
/// ```
/// use fetchwise_types::response::{Header, is_part};
/// let range = |value: &str| [Header::new("Content-Range", value)];
/// assert!(is_part(206, &range("bytes 0-699/1400")) && is_part(206, &range("bytes 0-699/*")));
/// assert!(!is_part(206, &range("bytes 0-1399/1400")) && !is_part(200, &range("bytes 0-699/1400")));
/// ```
pub fn is_part(status: u16, headers: &[Header]) -> bool {
    let is_multipart = || {
        media_type(headers).is_some_and(|kind| kind.eq_ignore_ascii_case("multipart/byteranges"))
    };
    let is_partial = |range: &str| {
        let range = range.trim().to_ascii_lowercase();
        // Other units are those of an application: a page of a list is a whole page.
        let Some(bytes) = range.strip_prefix("bytes") else { return false };
        let whole = bytes.trim().split_once('/').and_then(|(sent, total)| {
            let (first, last) = sent.split_once('-')?;
            let number = |text: &str| text.trim().parse::<u64>().ok();
            Some(number(first)? == 0 && number(last)?.checked_add(1)? == number(total)?)
        });
        whole != Some(true)
    };
    status == 206 && (is_multipart() || header(headers, "content-range").is_some_and(is_partial))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_bytes_until_its_text_is_exchanged() {
        for byte in (0x20..=0xff_u8).chain([b'\t']) {
            let value = [b'a', byte, b'z'];
            let header = Header::from_bytes("x", &value);
            assert_eq!(header.bytes(), value, "{byte:#x}");
            let exchanged = Header { value: "other".to_owned(), ..header };
            assert_eq!(exchanged.bytes(), b"other", "{byte:#x}");
        }
        assert_eq!(Header::from_bytes("x", "caf\u{e9}".as_bytes()), Header::new("x", "caf\u{e9}"));
    }

    #[test]
    fn the_last_valid_media_type_counts() {
        for (lines, expected) in [
            (&["text/html"][..], Some("text/html")),
            (&[" Text/HTML ;charset=utf-8"], Some("Text/HTML")),
            (&["text/html,text/html"], Some("text/html")),
            (&["text/html;charset=utf-8, text/plain"], Some("text/plain")),
            (&["text/plain", "text/html"], Some("text/html")),
            (&["text/html, */*"], Some("text/html")),
            (&["text/html", "nonsense"], Some("text/html")),
            (&["application/ld+json"], Some("application/ld+json")),
            (&["text/html charset=utf-8"], None),
            (&["text/html: charset=utf-8"], None),
            (&["html"], None),
            (&["text/"], None),
            (&["/html"], None),
            (&["text/html/x"], None),
            (&["*/*"], None),
            (&["(null)"], None),
            (&[""], None),
            (&[], None),
        ] {
            let headers: Vec<Header> =
                lines.iter().map(|line| Header::new("Content-Type", *line)).collect();
            assert_eq!(media_type(&headers), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_part_is_told_from_a_whole_page() {
        let part = |name: &str, value: &str| is_part(206, &[Header::new(name, value)]);
        for value in [
            "bytes 0-0/2",
            "BYTES 1-1/2",
            "bytes */2",
            "bytes 0-1/*",
            "bytes",
            "bytes 0-18446744073709551615/5",
        ] {
            assert!(part("content-range", value), "{value}");
        }
        for value in ["bytes 0-1/2", " bytes  0-1/2", "Bytes 0 - 1 / 2", "items 0-24/80", ""] {
            assert!(!part("Content-Range", value), "{value}");
        }
        assert!(
            part("Content-Type", "multipart/byteranges; boundary=x")
                && !part("Content-Type", "text/html")
        );
        assert!(!is_part(206, &[]), "nothing says that anything is missing");
    }
}
