//! The URL that a redirect leads to, and the end of a chain of redirects. Pure: no I/O, no clock.
//!
//! A redirect to an address that was asked before is followed like any other: the server may know
//! the client by its address or its session. The number of redirects ends a loop.

use http::StatusCode;
use url::Url;

/// The URLs of one chain of redirects.
#[derive(Debug)]
pub(super) struct RedirectChain {
    current: Url,
    /// URLs before the current one, in order.
    before: Vec<Url>,
    left: u32,
    max: u32,
}

/// A redirect that is not followed. All of these count as `redirect_loop`: "too many redirects, or
/// one with an invalid target".
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RedirectError {
    #[error("redirect to an invalid URL: {0}")]
    BadLocation(url::ParseError),
    #[error("redirect to the invalid scheme '{0}': expected http or https")]
    BadScheme(String),
    #[error("more than {0} redirects")]
    TooMany(u32),
}

impl RedirectChain {
    pub(super) fn new(start: Url, max_redirects: u32) -> Self {
        Self {
            before: Vec::new(),
            current: without_user_info(start),
            left: max_redirects,
            max: max_redirects,
        }
    }

    /// Returns whether no redirect has been followed yet.
    pub(super) fn is_at_start(&self) -> bool {
        self.before.is_empty()
    }

    /// Returns the URL to request now.
    pub(super) fn current(&self) -> &Url {
        &self.current
    }

    /// Follows the redirect of [`RedirectChain::current`]. Returns `false` if it names no target:
    /// then the response is the final one (RFC 9110, section 15.4).
    pub(super) fn follow(&mut self, location: Option<&[u8]>) -> Result<bool, RedirectError> {
        let Some(location) =
            location.map(<[u8]>::trim_ascii).filter(|location| !location.is_empty())
        else {
            return Ok(false);
        };
        let next = self.resolve(location)?;
        self.left = self.left.checked_sub(1).ok_or(RedirectError::TooMany(self.max))?;
        self.before.push(std::mem::replace(&mut self.current, next));
        Ok(true)
    }

    /// Returns the final URL, and those that redirected to it.
    pub(super) fn into_urls(self) -> (Url, Vec<Url>) {
        (self.current, self.before)
    }

    fn resolve(&self, location: &[u8]) -> Result<Url, RedirectError> {
        // Servers send UTF-8 although they must not. Other bytes are escaped one by one, as in
        // browsers: the server knows the address by them.
        let text = std::str::from_utf8(location).map_or_else(|_| escaped(location), str::to_owned);
        let mut next = self.current.join(text.trim()).map_err(RedirectError::BadLocation)?;
        if !matches!(next.scheme(), "http" | "https") {
            return Err(RedirectError::BadScheme(next.scheme().chars().take(32).collect()));
        }
        // RFC 9110, 10.2.2: the fragment is kept unless the new URL has one.
        if next.fragment().is_none() {
            next.set_fragment(self.current.fragment());
        }
        Ok(without_user_info(next))
    }
}

/// Escapes all bytes above ASCII.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            0..=0x7f => text.push(char::from(*byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Returns whether `status` redirects a GET.
pub(super) fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn without_user_info(mut url: Url) -> Url {
    // These fail only for URLs without a host, which have no user info either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_location_resolves_to_an_http_url_without_user_info_or_fails(
            location in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..60),
                "(https?:|ftp:)?//(\\PC{0,5}@)?\\PC{1,20}".prop_map(String::into_bytes),
            ],
        ) {
            let mut chain = chain("http://me:secret@a.example/dir/page");
            if chain.follow(Some(&location)).is_ok_and(|followed| followed) {
                let next = chain.current();
                prop_assert!(matches!(next.scheme(), "http" | "https") && next.has_host());
                prop_assert!(next.username().is_empty() && next.password().is_none());
            } else {
                prop_assert_eq!(chain.current().as_str(), "http://a.example/dir/page");
            }
        }
    }

    fn chain(start: &str) -> RedirectChain {
        RedirectChain::new(start.parse().unwrap(), 3)
    }

    fn follow(start: &str, location: &[u8]) -> Result<String, RedirectError> {
        let mut chain = chain(start);
        chain.follow(Some(location)).map(|_| chain.current().as_str().to_owned())
    }

    #[test]
    fn a_location_is_resolved_against_the_url_that_sent_it() {
        for (location, expected) in [
            ("http://b.example/x", "http://b.example/x"),
            ("https://a.example/dir/page?q", "https://a.example/dir/page?q"),
            ("//b.example/x", "http://b.example/x"),
            ("/x", "http://a.example/x"),
            ("x", "http://a.example/dir/x"),
            ("../x?y=1", "http://a.example/x?y=1"),
            ("?y=1", "http://a.example/dir/page?y=1"),
            (" /x\t", "http://a.example/x"),
            ("/gr\u{fc}n", "http://a.example/gr%C3%BCn"),
            ("http://2130706433/", "http://127.0.0.1/"),
        ] {
            let found = follow("http://a.example/dir/page?q", location.as_bytes()).unwrap();
            assert_eq!(found, expected, "{location}");
        }
        assert_eq!(
            follow("http://a.example/", b"/gr\xfcn?\xe9=a").unwrap(),
            "http://a.example/gr%FCn?%E9=a"
        );
    }

    #[test]
    fn fragments_are_kept_and_user_info_is_dropped() {
        assert_eq!(follow("http://a.example/#top", b"/x").unwrap(), "http://a.example/x#top");
        assert_eq!(follow("http://a.example/#top", b"/x#end").unwrap(), "http://a.example/x#end");
        assert_eq!(
            follow("http://a.example/", b"http://me:secret@b.example/").unwrap(),
            "http://b.example/"
        );
        assert_eq!(chain("http://me:secret@a.example/").current().as_str(), "http://a.example/");
    }

    #[test]
    fn a_redirect_without_a_valid_target_is_not_followed() {
        let start = "http://a.example/";
        assert!(matches!(follow(start, b"http://[::1/"), Err(RedirectError::BadLocation(_))));
        for foreign in [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "data:text/html,x",
            "mailto:a@b",
            "ftp://a.example/",
        ] {
            assert!(
                matches!(follow(start, foreign.as_bytes()), Err(RedirectError::BadScheme(_))),
                "{foreign}"
            );
        }
    }

    #[test]
    fn a_response_without_a_location_is_final() {
        for location in [None, Some(&b""[..]), Some(b" \t")] {
            let mut chain = chain("http://a.example/x");
            assert_eq!(chain.follow(location), Ok(false));
            assert!(chain.is_at_start() && chain.current().path() == "/x");
        }
    }

    #[test]
    fn a_chain_may_come_back_and_ends_when_it_gets_too_long() {
        for path in ["/0", "/0#y", "0"] {
            let mut to_itself = chain("http://a.example/0");
            for _ in 0..3 {
                assert_eq!(to_itself.follow(Some(path.as_bytes())), Ok(true), "{path}");
            }
            assert_eq!(
                to_itself.follow(Some(path.as_bytes())),
                Err(RedirectError::TooMany(3)),
                "{path}"
            );
        }
        let mut there_and_back = chain("http://a.example/0");
        for step in ["/1", "/0", "/1"] {
            assert_eq!(there_and_back.follow(Some(step.as_bytes())), Ok(true));
        }
        assert_eq!(there_and_back.follow(Some(b"/4")), Err(RedirectError::TooMany(3)));
        assert_eq!(there_and_back.current().path(), "/1");
        assert_eq!(there_and_back.into_urls().1.len(), 3);
    }
}
