//! The formats that archives use for addresses and times:
//! `.../20240229120000id_/https://example.org/`, `Memento-Datetime`, `Link`. No I/O.

use std::time::{Duration, UNIX_EPOCH};

use chrono::{DateTime, Utc};
use url::Url;

use fetchwise_types::response::{Header, header};
use fetchwise_types::time::Timestamp;

/// Number of digits in an archive's timestamp: year, month, day, hour, minute, second.
const DIGITS: usize = 14;

/// Returns `at` in an archive's digits.
pub(super) fn digits_of(at: Timestamp) -> String {
    let time = DateTime::<Utc>::from_timestamp_millis(at.as_millis()).unwrap_or_default();
    time.format("%Y%m%d%H%M%S").to_string()
}

/// Returns the capture time of a response with these headers, or `None` if it is not a copy.
pub(super) fn memento_time(headers: &[Header]) -> Option<Timestamp> {
    let time = httpdate::parse_http_date(header(headers, "memento-datetime")?.trim()).ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since.as_millis()).ok()?))
}

/// Returns `at` in the format of HTTP dates (RFC 7089).
pub(super) fn http_date(at: Timestamp) -> String {
    let since = Duration::from_millis(u64::try_from(at.as_millis()).unwrap_or(0));
    httpdate::fmt_http_date(UNIX_EPOCH + since)
}

/// The parts of a copy's address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CopyAddress<'a> {
    /// Text before the digits.
    pub(super) before: &'a str,
    pub(super) digits: &'a str,
    /// Address of the page.
    pub(super) original: &'a str,
}

impl<'a> CopyAddress<'a> {
    /// Parses an address such as
    /// `https://web.archive.org/web/20240229120000id_/https://example.org/`.
    pub(super) fn read(address: &'a str) -> Option<Self> {
        let mut from = 0;
        while let Some(slash) = address[from..].find('/') {
            let start = from + slash + 1;
            from = start;
            let rest = &address[start..];
            let Some(digits) =
                rest.get(..DIGITS).filter(|text| text.bytes().all(|b| b.is_ascii_digit()))
            else {
                continue;
            };
            // Letters between the digits and the slash select the form of the copy, as `id_` does.
            let Some((form, original)) = rest[DIGITS..].split_once('/') else { continue };
            if form.len() <= 4
                && form.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
                && is_web(original)
            {
                return Some(Self { before: &address[..start], digits, original });
            }
        }
        None
    }

    /// Returns the address of the raw copy: without the archive's banner, and with its original
    /// links.
    pub(super) fn raw(&self) -> Option<Url> {
        self.raw_of(self.original)
    }

    /// Returns the address of a raw copy of another page, from about the same time.
    pub(super) fn raw_of(&self, original: &str) -> Option<Url> {
        Url::parse(&format!("{}{}id_/{original}", self.before, self.digits)).ok()
    }
}

fn is_web(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// Returns the address that a `Link` header names as the original of a copy.
pub(super) fn original_link(headers: &[Header]) -> Option<&str> {
    let links = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("link"));
    links.flat_map(|header| header.value.split('<').skip(1)).find_map(|link| {
        let (address, parameters) = link.split_once('>')?;
        let mut parameters = parameters.split([';', ',']).map(str::trim);
        let rel = parameters.find_map(|parameter| parameter.strip_prefix("rel="))?;
        rel.trim_matches('"').split(' ').any(|word| word == "original").then_some(address)
    })
}

/// Returns the captured headers of a copy, which an archive sends under its own names, and the
/// headers that identify the copy.
pub(super) fn captured_headers(headers: &[Header]) -> Vec<Header> {
    const KEPT: [&str; 2] = ["content-type", "memento-datetime"];
    // The body is decoded, and as complete as the archive sent it; a captured session has no
    // meaning today.
    const GONE: [&str; 5] =
        ["content-encoding", "transfer-encoding", "content-length", "connection", "set-cookie"];
    let prefix = "x-archive-orig-";
    let mut captured: Vec<Header> = headers
        .iter()
        .filter_map(|header| {
            let name = header.name.to_ascii_lowercase();
            let name = name.strip_prefix(prefix)?;
            (!GONE.contains(&name)).then(|| Header::from_bytes(name, header.bytes()))
        })
        .collect();
    for name in KEPT {
        if let Some(value) = header(headers, name).filter(|_| header(&captured, name).is_none()) {
            captured.push(Header::new(name, value));
        }
    }
    captured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_copy_is_read_in_every_form_that_archives_use() {
        for (address, before, digits, original) in [
            (
                "http://web.archive.org/web/20130919044612/http://example.com/",
                "http://web.archive.org/web/",
                "20130919044612",
                "http://example.com/",
            ),
            (
                "https://arquivo.pt/wayback/20240229120000mp_/https://e.org/a/20200101000000/b?c=d",
                "https://arquivo.pt/wayback/",
                "20240229120000",
                "https://e.org/a/20200101000000/b?c=d",
            ),
            ("/web/20240229120000id_/http://e.org", "/web/", "20240229120000", "http://e.org"),
        ] {
            assert_eq!(
                CopyAddress::read(address),
                Some(CopyAddress { before, digits, original }),
                "{address}"
            );
        }
        for none in [
            "https://e.org/20240229120000",
            "https://e.org/2024/http://a/",
            "",
            "/é/20240229120000id_/ftp://e",
        ] {
            assert_eq!(CopyAddress::read(none), None, "{none}");
        }
    }

    #[test]
    fn times_come_back_from_digits_and_headers() {
        let at = fetchwise_types::rfc3339::parse("2024-02-29T12:34:56Z").unwrap();
        assert_eq!(digits_of(at), "20240229123456");
        assert_eq!(http_date(at), "Thu, 29 Feb 2024 12:34:56 GMT");
        assert_eq!(memento_time(&[Header::new("Memento-Datetime", http_date(at))]), Some(at));
    }

    #[test]
    fn the_original_is_found_among_other_links() {
        let link = "<http://a.org/tg/http://e.org/>; rel=\"timegate\", <http://e.org/a,b>; rel=\"original latest-version\"";
        assert_eq!(original_link(&[Header::new("Link", link)]), Some("http://e.org/a,b"));
        assert_eq!(original_link(&[Header::new("Link", "<http://e.org/>; rel=\"memento\"")]), None);
    }

    #[test]
    fn headers_of_the_archive_are_not_headers_of_the_page() {
        let headers = [
            ("server", "archive"),
            ("content-type", "text/html"),
            ("x-archive-orig-server", "nginx"),
            ("X-Archive-Orig-Content-Length", "7"),
            ("retry-after", "9"),
        ]
        .map(|(name, value)| Header::new(name, value));
        let captured = captured_headers(&headers);
        assert_eq!(
            captured,
            [Header::new("server", "nginx"), Header::new("content-type", "text/html")]
        );
    }
}
