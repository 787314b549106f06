//! Headers that requests to some hosts carry: those that a host's owner has issued for the crawler.
//!
//! Owns: their parsing, and which requests get them.
//!
//! Invariants: a host's headers go to that host, over https. No message and no dump has a value.
//!
//! Must not know: where the text comes from.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use url::Url;

/// Headers by host. Clones share them.
#[derive(Clone, Default)]
pub struct HostHeaders {
    hosts: Arc<HashMap<Box<str>, HeaderMap>>,
}

/// The reason why a text has no usable headers. It quotes nothing of the text but names that the
/// transport sets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadHeaders {
    /// There is no header.
    #[error("it is empty; expected lines such as \"Name: value\"")]
    Empty,
    /// A line is not a header.
    #[error("line {0} is not a header; expected \"Name: value\" in ASCII")]
    Line(usize),
    /// The transport sets a header.
    #[error("line {line}: the transport sets {name}")]
    OfTransport {
        /// Number of the line, from 1.
        line: usize,
        /// Name of the header.
        name: HeaderName,
    },
}

impl fmt::Debug for HostHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.hosts.keys()).finish()
    }
}

impl HostHeaders {
    /// Sets the headers of requests to `host`, a name or address as URLs have it. `text` has one on
    /// each line, as `Name: value`; empty lines are skipped.
    ///
    /// # Errors
    /// [`BadHeaders`] if a line cannot be sent. The headers then stay as they are.
    ///
    /// ```
    /// use fetchwise_fetchers::fetch::host_headers::{BadHeaders, HostHeaders};
    /// let mut headers = HostHeaders::default();
    /// headers.set("shop.example", "X-Token: 1\nX-Other: 2")?;
    /// assert_eq!(headers.set("shop.example", "secret"), Err(BadHeaders::Line(1)));
    /// # Ok::<(), BadHeaders>(())
    /// ```
    pub fn set(&mut self, host: &str, text: &str) -> Result<(), BadHeaders> {
        let headers = parse(text)?;
        Arc::make_mut(&mut self.hosts).insert(host.to_ascii_lowercase().into(), headers);
        Ok(())
    }

    /// Returns whether no host has any.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Returns the hosts, in no order.
    #[cfg(feature = "browser")]
    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.keys().map(|host| &**host)
    }

    /// Returns the headers of a request to `url`.
    pub(super) fn for_url(&self, url: &Url) -> Option<&HeaderMap> {
        if self.hosts.is_empty() || url.scheme() != "https" {
            return None;
        }
        self.hosts.get(url.host_str()?)
    }
}

/// Puts headers in the place of those with the same names.
pub(super) fn replace(headers: &mut HeaderMap, given: &HeaderMap) {
    given.keys().for_each(|name| drop(headers.remove(name)));
    headers.extend(given.clone());
}

/// Returns whether the transport sets a header itself.
pub(super) fn is_of_transport(name: &HeaderName) -> bool {
    [
        HOST,
        CONNECTION,
        CONTENT_LENGTH,
        TRANSFER_ENCODING,
        TE,
        UPGRADE,
        ACCEPT_ENCODING,
        PROXY_AUTHORIZATION,
    ]
    .contains(name)
}

fn parse(text: &str) -> Result<HeaderMap, BadHeaders> {
    let mut headers = HeaderMap::new();
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        let (name, value) = text.split_once(':').ok_or(BadHeaders::Line(line))?;
        let (name, value) =
            (HeaderName::try_from(name.trim()), HeaderValue::from_str(value.trim()));
        let (Ok(name), Ok(mut value)) = (name, value) else { return Err(BadHeaders::Line(line)) };
        if value.is_empty() || !value.as_bytes().is_ascii() {
            return Err(BadHeaders::Line(line));
        }
        if is_of_transport(&name) {
            return Err(BadHeaders::OfTransport { line, name });
        }
        value.set_sensitive(true);
        headers.append(name, value);
    }
    if headers.is_empty() { Err(BadHeaders::Empty) } else { Ok(headers) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_to_their_host_over_https_only() {
        let mut headers = HostHeaders::default();
        headers.set("Shop.example", "Signature: a:b\r\n\r\nX-Two: 1\nX-Two: 2\n").unwrap();
        let sent = |url: &str| headers.for_url(&url.parse().unwrap()).map(HeaderMap::len);
        for url in ["https://shop.example/a?b#c", "https://SHOP.example:8443/"] {
            assert_eq!(sent(url), Some(3), "{url}");
        }
        for url in [
            "http://shop.example/",
            "https://www.shop.example/",
            "https://shop.example.evil.example/",
            "ftp://shop.example/",
        ] {
            assert_eq!(sent(url), None, "{url}");
        }
        let given = headers.for_url(&"https://shop.example/".parse().unwrap()).unwrap();
        assert_eq!(given["signature"], "a:b");
        let mut all: HeaderMap = [("signature", "own"), ("accept", "*/*")]
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .into_iter()
            .collect();
        replace(&mut all, given);
        assert_eq!((all.len(), all["signature"].to_str().unwrap()), (4, "a:b"));
    }

    #[test]
    fn a_text_without_headers_is_refused_and_not_quoted() {
        let mut headers = HostHeaders::default();
        for (text, error) in [
            ("", BadHeaders::Empty),
            ("\n \n", BadHeaders::Empty),
            ("hunter2", BadHeaders::Line(1)),
            ("A: 1\nhunter2 x: 1", BadHeaders::Line(2)),
            ("A: 1\n\nB:", BadHeaders::Line(3)),
            ("A: hunter2\u{e4}", BadHeaders::Line(1)),
            (": hunter2", BadHeaders::Line(1)),
        ] {
            let got = headers.set("shop.example", text).unwrap_err();
            assert_eq!(got, error, "{text:?}");
            assert!(!format!("{got} {got:?} {headers:?}").contains("hunter2"));
        }
        let error = headers.set("shop.example", "A: 1\nHost: hunter2").unwrap_err().to_string();
        assert_eq!(error, "line 2: the transport sets host");
        assert!(headers.is_empty());
        headers.set("shop.example", "A: hunter2").unwrap();
        assert_eq!(format!("{headers:?}"), "{\"shop.example\"}");
    }
}
