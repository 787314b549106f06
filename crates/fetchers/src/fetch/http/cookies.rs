//! The cookies of one chain of redirects: cookies that its responses set are sent with its later
//! requests, as in a freshly started browser, and are forgotten with the chain. A caller that
//! follows redirects itself, which are written in pages, keeps them between its requests. Many sites set a
//! session or consent cookie and redirect back to the same URL, where they check for it.
//!
//! Invariants: no cookie outlives a link's chain or is shared between two; a chain without cookies costs
//! nothing. `cookie_store` decides by RFC 6265 which cookie goes where (domain, host-only, path,
//! `Secure`, expiry), with later additions of browsers: public suffixes, the name prefixes, and
//! `Secure` only from a secure connection. Loopback counts as secure, as there.
//!
//! Must not know: which redirect is followed.

use std::cmp::Reverse;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use cookie_store::{Cookie, CookieDomain, CookieStore, RawCookie};
use fetchwise_public_suffix::is_public_suffix;
use fetchwise_types::response::Header;
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue};
use url::{Host, Url};

use super::set_cookie;

/// Maximum number of cookies per chain, as in browsers; further ones are ignored.
const MAX_COOKIES: usize = 180;

/// Maximum bytes of all cookies per chain: servers accept no longer request heads.
const MAX_BYTES: usize = 16 << 10;

/// Maximum bytes of one cookie, name and value, as in browsers.
const MAX_COOKIE_BYTES: usize = 4 << 10;

/// The cookies of a chain that several requests follow: see [`Request::cookies`].
///
/// [`Request::cookies`]: crate::fetch::Request::cookies
#[derive(Default)]
pub struct CookieJar(Mutex<Cookies>);

impl CookieJar {
    /// Returns the cookies of the chain so far.
    pub(super) fn get(&self) -> Cookies {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the cookies of redirects, for the next request of the chain.
    pub(super) fn keep(&self, cookies: Cookies) {
        if cookies.jar.is_some() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cookies;
        }
    }

    /// Keeps the cookies of a page at `url` that leads on.
    pub fn add(&mut self, headers: &[Header], url: &Url) {
        let lines = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("set-cookie"));
        let cookies = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        lines.for_each(|line| cookies.keep_line(line.value.as_bytes(), url));
    }
}

impl fmt::Debug for CookieJar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CookieJar").finish_non_exhaustive()
    }
}

/// The cookies that one chain of redirects has set so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Cookies {
    /// `None` until the first cookie.
    jar: Option<Box<CookieStore>>,
}

impl Cookies {
    /// Applies the cookies that a response of `url` sets and deletes. A line is ignored if it is
    /// not a cookie, if `url` may not set it, or if there is no room for it.
    pub(super) fn keep(&mut self, headers: &HeaderMap, url: &Url) {
        headers.get_all(SET_COOKIE).iter().for_each(|line| self.keep_line(line.as_bytes(), url));
    }

    fn keep_line(&mut self, line: &[u8], url: &Url) {
        if let Some(cookie) = set_cookie::readable(line).and_then(|line| read(&line, url)) {
            insert(self.jar.get_or_insert_default(), cookie, url);
        }
    }

    /// Returns the `Cookie` header of a request for `url`: the `configured` cookies and the stored
    /// ones. A configured cookie is omitted if a stored one has its name, since a server that sets
    /// a cookie means to replace it. `None` if no cookie is stored for `url`: then only the
    /// configured header applies.
    pub(super) fn header(
        &self,
        url: &Url,
        configured: Option<&HeaderValue>,
    ) -> Option<HeaderValue> {
        let mut kept = self.jar.as_ref()?.matches(url);
        if kept.is_empty() {
            return None;
        }
        // RFC 6265, 5.4: longer paths first, then the earlier cookie.
        kept.sort_by_key(|cookie| Reverse(cookie.path.len()));
        let mut pairs: Vec<&[u8]> = Vec::with_capacity(kept.len() + 1);
        for pair in
            configured.map(HeaderValue::as_bytes).unwrap_or_default().split(|&byte| byte == b';')
        {
            let pair = pair.trim_ascii();
            let name = pair.split(|&byte| byte == b'=').next().unwrap_or(pair).trim_ascii_end();
            let is_replaced = kept
                .iter()
                .any(|cookie| set_cookie::sent(cookie.name(), "") == [name, b"="].concat());
            if !pair.is_empty() && !is_replaced {
                pairs.push(pair);
            }
        }
        let set: Vec<Vec<u8>> =
            kept.iter().map(|cookie| set_cookie::sent(cookie.name(), cookie.value())).collect();
        pairs.extend(set.iter().map(Vec::as_slice));
        let mut header = HeaderValue::from_bytes(&pairs.join(&b"; "[..])).ok()?;
        // A secret: not to be printed, nor to be put into HPACK's table.
        header.set_sensitive(true);
        Some(header)
    }
}

/// Parses the cookie of a `Set-Cookie` line, if `url` may set it.
fn read(line: &str, url: &Url) -> Option<Cookie<'static>> {
    let raw = RawCookie::parse(line).ok()?;
    let mut cookie = Cookie::try_from_raw_cookie(&raw, url).ok()?;
    let secure = cookie.secure().unwrap_or(false);
    let fits = cookie.name().len() + cookie.value().len() <= MAX_COOKIE_BYTES;
    if !fits || (secure && !is_secure(url)) {
        return None;
    }
    if let CookieDomain::Suffix(domain) = &cookie.domain
        && is_public_suffix(domain)
    {
        // A cookie for all of `com`, or of `github.io`, would reach other sites. A host that is a
        // public suffix keeps its own.
        if url.host_str() != Some(domain) {
            return None;
        }
        cookie.domain = CookieDomain::host_only(url).ok()?;
    }
    let has_prefix = |prefix: &str| {
        cookie.name().get(..prefix.len()).is_some_and(|s| s.eq_ignore_ascii_case(prefix))
    };
    let of_host = matches!(cookie.domain, CookieDomain::HostOnly(_)) && raw.path() == Some("/");
    let may_be_called_so = match () {
        () if has_prefix("__Secure-") => secure,
        () if has_prefix("__Host-") => secure && of_host && raw.domain().is_none(),
        () => true,
    };
    may_be_called_so.then(|| cookie.into_owned())
}

/// Inserts `cookie`, replacing the one with its domain, path and name, or removes that one if
/// `cookie` has expired.
fn insert(jar: &mut CookieStore, cookie: Cookie<'static>, url: &Url) {
    let Some(domain) = cookie.domain.as_cow() else { return };
    // A cookie from a secure connection is not changed over an insecure one.
    let guarded = |kept: &Cookie<'_>| {
        kept.secure() == Some(true)
            && kept.name() == cookie.name()
            && kept.domain.matches(url)
            && !is_secure(url)
    };
    if jar.iter_unexpired().any(guarded) {
        return;
    }
    if cookie.is_expired() {
        jar.remove(&domain, &cookie.path, cookie.name());
        return;
    }
    let old = jar.get_any(&domain, &cookie.path, cookie.name()).map(size);
    let (count, bytes) =
        jar.iter_any().fold((0, 0), |(count, bytes), kept| (count + 1, bytes + size(kept)));
    let has_room = bytes - old.unwrap_or(0) + size(&cookie) <= MAX_BYTES
        && (old.is_some() || count < MAX_COOKIES);
    if has_room {
        // Fails only for cookies that `read` has already refused.
        let _ = jar.insert(cookie, url);
    }
}

/// Returns the approximate bytes of a cookie.
fn size(cookie: &Cookie<'_>) -> usize {
    let domain = cookie.domain.as_cow().map_or(0, |domain| domain.len());
    cookie.name().len() + cookie.value().len() + cookie.path.len() + domain
}

/// Returns whether the connection is private, by the same rule by which the store sends `Secure`
/// cookies.
fn is_secure(url: &Url) -> bool {
    match url.host() {
        _ if url.scheme() == "https" => true,
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    /// Applies `lines` as a response of `from`.
    fn set(cookies: &mut Cookies, from: &str, lines: &[&str]) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(SET_COOKIE, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        cookies.keep(&headers, &url(from));
    }

    fn after(from: &str, lines: &[&str]) -> Cookies {
        let mut cookies = Cookies::default();
        set(&mut cookies, from, lines);
        cookies
    }

    fn sent(cookies: &Cookies, to: &str) -> String {
        let header = cookies.header(&url(to), None);
        header
            .map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap())
            .unwrap_or_default()
    }

    /// Returns the cookies sent to `to` after `from` has set one by `line`.
    fn from_to(from: &str, line: &str, to: &str) -> String {
        sent(&after(from, &[line]), to)
    }

    #[test]
    fn there_is_no_jar_until_a_cookie_is_set() {
        for lines in [&[][..], &[""], &["="], &["a=b; Domain=b.example"]] {
            let cookies = after("http://a.example/", lines);
            assert!(cookies.jar.is_none(), "{lines:?}");
            assert_eq!(
                cookies.header(&url("http://a.example/"), Some(&HeaderValue::from_static("x=y"))),
                None
            );
        }
    }

    #[test]
    fn a_cookie_goes_back_to_its_host_and_with_a_domain_to_the_names_below() {
        let from = "http://www.shop.example/";
        for (line, to, expected) in [
            ("a=b", "http://www.shop.example/x", "a=b"),
            ("a=b", "https://www.shop.example:8443/", "a=b"),
            ("a=b", "http://shop.example/", ""),
            ("a=b", "http://de.www.shop.example/", ""),
            ("a=b; Domain=shop.example", "http://shop.example/", "a=b"),
            ("a=b; Domain=.SHOP.example", "http://cdn.shop.example/", "a=b"),
            ("a=b; Domain=shop.example", "http://myshop.example/", ""),
            ("a=b; Domain=cdn.shop.example", "http://cdn.shop.example/", ""),
            ("a=b; Domain=other.example", "http://other.example/", ""),
            ("a=b; Domain=", "http://shop.example/", ""),
            ("a=\"b c\"; HttpOnly; SameSite=Strict", from, "a=\"b c\""),
            ("gr\u{fc}n=\u{e4}", from, "gr\u{fc}n=\u{e4}"),
            ("empty=", from, "empty="),
            ("no name", from, "no name"),
            ("=x", from, "x"),
        ] {
            assert_eq!(from_to(from, line, to), expected, "{line} to {to}");
        }
        assert_eq!(
            from_to("http://10.0.0.1/", "a=b; Domain=10.0.0.1", "http://10.0.0.1:81/"),
            "a=b"
        );
        assert_eq!(from_to("http://10.0.0.1/", "a=b; Domain=0.0.1", "http://10.0.0.1/"), "");
        assert_eq!(from_to("http://[2001:db8::1]/", "a=b", "http://[2001:db8::1]/"), "a=b");
    }

    #[test]
    fn a_cookie_goes_back_with_the_bytes_with_which_it_came() {
        let mut headers = HeaderMap::new();
        headers.append(SET_COOKIE, HeaderValue::from_bytes(b"s=\xe4\xf6; Path=/").unwrap());
        let mut cookies = Cookies::default();
        cookies.keep(&headers, &url("http://a.example/"));
        assert_eq!(
            cookies.header(&url("http://a.example/x"), None).unwrap().as_bytes(),
            b"s=\xe4\xf6"
        );
    }

    #[test]
    fn a_cookie_for_a_public_suffix_stays_with_the_host_that_is_one_or_is_refused() {
        for (from, domain, to) in [
            ("http://a.example.com/", "com", "http://b.example.com/"),
            ("http://a.example.com/", "com.", "http://a.example.com/"),
            ("http://a.co.uk/", "co.uk", "http://a.co.uk/"),
            ("http://me.github.io/", ".GitHub.io", "http://me.github.io/"),
            ("http://a.intranet/", "intranet", "http://a.intranet/"),
        ] {
            assert_eq!(from_to(from, &format!("a=b; Domain={domain}"), to), "", "{from} {domain}");
        }
        assert_eq!(
            from_to("http://github.io/", "a=b; Domain=github.io", "http://github.io/"),
            "a=b"
        );
        assert_eq!(
            from_to("http://github.io/", "a=b; Domain=github.io", "http://me.github.io/"),
            ""
        );
        assert_eq!(
            from_to("http://localhost/", "a=b; Domain=localhost", "http://localhost/"),
            "a=b"
        );
    }

    #[test]
    fn a_cookie_goes_to_its_path_and_below() {
        let from = "http://a.example/shop/cart?x";
        for (line, to, expected) in [
            ("a=b", "http://a.example/shop", "a=b"),
            ("a=b", "http://a.example/shop/x/y", "a=b"),
            ("a=b", "http://a.example/shopping", ""),
            ("a=b", "http://a.example/", ""),
            ("a=b; Path=/", "http://a.example/", "a=b"),
            ("a=b; Path=/x", "http://a.example/x?y", "a=b"),
            ("a=b; Path=/x", "http://a.example/shop/cart", ""),
            ("a=b; Path=x", "http://a.example/shop/", "a=b"),
        ] {
            assert_eq!(from_to(from, line, to), expected, "{line} to {to}");
        }
        let several = after(from, &["root=1; Path=/", "deep=2; Path=/shop/cart", "b=3", "a=4"]);
        assert_eq!(
            sent(&several, from),
            "deep=2; b=3; a=4; root=1",
            "longer paths first, then what was set first"
        );
    }

    #[test]
    fn secure_cookies_are_set_and_sent_over_secure_connections_only() {
        for (from, line, to, expected) in [
            ("https://a.example/", "a=b; Secure", "https://a.example/", "a=b"),
            ("https://a.example/", "a=b; Secure", "http://a.example/", ""),
            ("https://a.example/", "a=b", "http://a.example/", "a=b"),
            ("http://a.example/", "a=b; Secure", "https://a.example/", ""),
            ("http://127.0.0.1/", "a=b; Secure", "http://127.0.0.1/", "a=b"),
            ("http://localhost/", "a=b; Secure", "http://localhost/", "a=b"),
            ("https://a.example/", "__Secure-a=b; Secure", "https://a.example/", "__Secure-a=b"),
            ("https://a.example/", "__Secure-a=b", "https://a.example/", ""),
            (
                "https://a.example/",
                "__Host-a=b; Secure; Path=/",
                "https://a.example/",
                "__Host-a=b",
            ),
            ("https://a.example/", "__host-a=b; Secure", "https://a.example/", ""),
            (
                "https://a.example/",
                "__Host-a=b; Secure; Path=/; Domain=a.example",
                "https://a.example/",
                "",
            ),
        ] {
            assert_eq!(from_to(from, line, to), expected, "{from} {line} to {to}");
        }
        let mut cookies = after("https://a.example/", &["a=safe; Secure; Path=/"]);
        set(
            &mut cookies,
            "http://a.example/",
            &["a=forged; Path=/", "a=; Path=/; Max-Age=0", "b=1"],
        );
        assert_eq!(sent(&cookies, "https://a.example/"), "a=safe; b=1");
    }

    #[test]
    fn a_cookie_is_replaced_and_deleted_under_its_domain_path_and_name() {
        let from = "http://a.example/";
        let mut cookies = after(from, &["a=1", "b=2", "a=3"]);
        assert_eq!(sent(&cookies, from), "a=3; b=2");
        set(&mut cookies, from, &["a=gone; Path=/x; Max-Age=0", "c=gone; Max-Age=0"]);
        assert_eq!(sent(&cookies, from), "a=3; b=2", "these are other cookies");
        set(
            &mut cookies,
            from,
            &["a=gone; Max-Age=0", "b=gone; Expires=Thu, 01 Jan 1970 00:00:00 GMT"],
        );
        assert_eq!(sent(&cookies, from), "");
        for past in [
            "Max-Age=-1",
            "Max-Age=0; Expires=Fri, 01 Jan 2100 00:00:00 GMT",
            "Expires=Thu, 01-Jan-70 00:00:00 GMT",
            "Expires=Thu, 1 Jan 1970 00:00:00 UTC",
            "Expires=Tue, 01 January 1980 1:00:00",
        ] {
            assert_eq!(from_to(from, &format!("a=b; {past}"), from), "", "{past}");
        }
        for lasting in [
            "Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            "Max-Age=99999999999999999999",
            "Expires=soon",
        ] {
            assert_eq!(from_to(from, &format!("a=b; {lasting}"), from), "a=b", "{lasting}");
        }
    }

    #[test]
    fn configured_cookies_go_first_unless_they_are_replaced() {
        let cookies = after("http://a.example/", &["a=1", "b=2"]);
        let header = |configured: &'static str, to: &str| {
            cookies.header(&url(to), Some(&HeaderValue::from_static(configured)))
        };
        assert_eq!(header("mine=0", "http://a.example/").unwrap(), "mine=0; a=1; b=2");
        assert_eq!(
            header("b=old;mine=0; a = old; x", "http://a.example/").unwrap(),
            "mine=0; x; a=1; b=2"
        );
        assert_eq!(header(" ;", "http://a.example/").unwrap(), "a=1; b=2");
        assert!(header("", "http://a.example/").unwrap().is_sensitive());
        assert_eq!(header("mine=0", "http://b.example/"), None);
    }

    #[test]
    fn cookies_over_the_limits_are_ignored_and_stored_ones_can_change() {
        let from = "http://a.example/";
        let many: Vec<String> = (0..500).map(|n| format!("c{n}=x")).collect();
        let mut cookies = after(from, &many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(sent(&cookies, from).split("; ").count(), MAX_COOKIES);
        set(&mut cookies, from, &["c0=new", "c499=late"]);
        assert!(sent(&cookies, from).starts_with("c0=new; c1=x;"));
        set(&mut cookies, from, &["c0=; Max-Age=0", "c499=now"]);
        let after_one_is_gone = sent(&cookies, from);
        assert!(!after_one_is_gone.contains("c0=") && after_one_is_gone.ends_with("c499=now"));

        let long = "x".repeat(MAX_COOKIE_BYTES - 1);
        let mut cookies = after(from, &[&format!("a={long}"), &format!("b={long}y")]);
        assert_eq!(sent(&cookies, from).len(), MAX_COOKIE_BYTES + 1, "b is too long");
        let longer: Vec<String> = (0..9).map(|n| format!("{n}={long}")).collect();
        set(&mut cookies, from, &longer.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(sent(&cookies, from).len() <= MAX_BYTES);
        set(&mut cookies, from, &[&format!("a={}", long.replace('x', "y"))]);
        assert!(sent(&cookies, from).starts_with("a=y"), "a replacement needs no more room");
        set(&mut cookies, from, &[&format!("small=1; Path=/{}", "x".repeat(MAX_BYTES))]);
        assert!(cookies.jar.unwrap().iter_any().map(size).sum::<usize>() <= MAX_BYTES);
    }

    proptest! {
        #[test]
        fn any_line_leaves_a_header_that_can_be_sent(
            lines in proptest::collection::vec(
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..60),
                    "[ab]=\\PC{0,5}; ?(Domain=\\PC{0,9}|Path=/?\\PC{0,9}|Max-Age=-?[0-9]{0,25}|Expires=\\PC{0,30}|Secure;)?"
                        .prop_map(String::into_bytes),
                ],
                0..8,
            ),
        ) {
            let mut headers = HeaderMap::new();
            for line in lines.iter().filter_map(|line| HeaderValue::from_bytes(line).ok()) {
                headers.append(SET_COOKIE, line);
            }
            let url = url("http://a.example/dir/page");
            let mut cookies = Cookies::default();
            cookies.keep(&headers, &url);
            let header = cookies.header(&url, Some(&HeaderValue::from_static("x=y")));
            prop_assert_eq!(header.is_some(), cookies.jar.is_some_and(|jar| !jar.matches(&url).is_empty()));
        }
    }
}
