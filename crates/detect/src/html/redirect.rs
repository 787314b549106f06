//! Redirects in a page: a declarative refresh with a URL (`<meta http-equiv=refresh>` or the header
//! `Refresh`, which are one thing in HTML), or a script that only sets the location to a literal
//! URL.
//!
//! Owns: what a declarative refresh is, and which address its target means.
//!
//! Invariants: a target is as written, with only the escapes of its language decoded, unless the
//! page names a base: then it is a whole URL. HTTP can fetch it.
//!
//! Must not know: whether the page is trustworthy.

use std::borrow::Cow;
use std::ops::Range;

use url::{Position, Url};

use super::text;

/// Maximum delay of a refresh that is a redirect, in seconds. Pages with a longer delay are for
/// reading.
const MAX_DELAY: u64 = 10;
/// Maximum length of a target, in bytes.
const MAX_TARGET: usize = 4096;
/// Maximum length of a script that is read, in bytes: a target and a little text around it.
const MAX_SCRIPT: usize = MAX_TARGET + 256;

/// A declarative refresh: the shared steps of HTML for the element and the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refresh<'a> {
    /// Seconds before it; none for a number that is too large to be one.
    delay: Option<u64>,
    /// The target as written; empty for a page that only loads again.
    target: &'a str,
}

impl<'a> Refresh<'a> {
    /// Parses a value. `None` for one that browsers ignore.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim_ascii_start();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (delay, rest) = text.split_at(digits);
        // A fraction of a second needs no digit before it. A value without any number is no
        // refresh.
        if digits == 0 && !rest.starts_with('.') {
            return None;
        }
        let delay = if digits == 0 { Some(0) } else { delay.parse().ok() };
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        if rest.is_empty() {
            return Some(Self { delay, target: "" });
        }
        let separated = rest.trim_ascii_start();
        let target = match separated.strip_prefix([';', ',']) {
            Some(target) => target.trim_ascii_start(),
            None if separated.len() < rest.len() => separated,
            None => return None,
        };
        let target = after_url(target).unwrap_or(target);
        let target = match target.chars().next() {
            Some(quote @ ('"' | '\'')) => target[1..].split(quote).next().unwrap_or_default(),
            _ => target,
        };
        Some(Self { delay, target: target.trim() })
    }

    /// Returns whether it names another page, after whatever delay.
    pub(crate) fn has_target(&self) -> bool {
        !self.target.is_empty()
    }

    /// Returns its target, if it is a redirect: a page with a longer delay is for reading.
    pub(crate) fn redirect(&self) -> Option<&'a str> {
        (self.has_target() && self.delay.is_some_and(|delay| delay <= MAX_DELAY))
            .then_some(self.target)
    }
}

/// Returns the text of an attribute, its entities decoded.
pub(crate) fn decoded(written: &str) -> Cow<'_, str> {
    if !written.contains('&') {
        return Cow::Borrowed(written);
    }
    let mut decoded = String::new();
    text::decode_entities_into(written, &mut decoded);
    Cow::Owned(decoded)
}

/// The addresses that a target in a page may be relative to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bases<'a> {
    /// The page's URL, if known.
    pub(crate) page: Option<&'a str>,
    /// The `href` of the first `<base>` before the target.
    pub(crate) element: Option<&'a str>,
}

impl Bases<'_> {
    /// Returns the target, unless it stays on the page or HTTP cannot fetch it. It is as written if
    /// no base counts.
    pub(crate) fn resolve(self, target: &str) -> Option<Box<str>> {
        let page = self.page.and_then(|url| Url::parse(url).ok());
        let Some(base) = self.element.and_then(|href| base_url(href, page.as_ref())) else {
            return fetchable(target);
        };
        if target.len() > MAX_TARGET {
            return None;
        }
        let to = base.join(target.trim()).ok()?;
        let is_same = |page: &Url| page[..Position::AfterQuery] == to[..Position::AfterQuery];
        if to.fragment().is_some() && page.as_ref().is_some_and(is_same) {
            return None;
        }
        fetchable(to.as_str())
    }
}

/// Returns the base URL that an element names. `None` if it is unusable: then the page's own URL is
/// the base.
fn base_url(href: &str, page: Option<&Url>) -> Option<Url> {
    let base = match page {
        Some(page) => page.join(href.trim()),
        None => Url::parse(href.trim()),
    };
    base.ok()
        .filter(|base| !matches!(base.scheme(), "data" | "javascript") && !base.cannot_be_a_base())
}

/// Returns the text after `url=`, if `text` begins with it.
fn after_url(text: &str) -> Option<&str> {
    let name = text.get(..3).filter(|name| name.eq_ignore_ascii_case("url"))?;
    Some(text[name.len()..].trim_ascii_start().strip_prefix('=')?.trim_ascii_start())
}

/// Returns the range of the literal, without quotes, to which `script` sets the location, if it
/// does nothing else.
pub(crate) fn literal_in(script: &[u8]) -> Option<Range<usize>> {
    if script.len() > MAX_SCRIPT {
        return None;
    }
    let mut rest = past_comment(script);
    for _ in 0..3 {
        let owner = [&b"window"[..], b"document", b"self", b"top", b"parent"]
            .iter()
            .find_map(|o| rest.strip_prefix(*o));
        let Some(owned) = owner else { break };
        rest = owned.trim_ascii_start().strip_prefix(b".")?.trim_ascii_start();
    }
    rest = rest.strip_prefix(b"location")?.trim_ascii_start();
    let mut called = false;
    if let Some(member) = rest.strip_prefix(b".") {
        let member = member.trim_ascii_start();
        let call = member.strip_prefix(b"replace").or_else(|| member.strip_prefix(b"assign"));
        called = call.is_some();
        rest = call.or_else(|| member.strip_prefix(b"href"))?.trim_ascii_start();
    }
    let rest = rest.strip_prefix(if called { &b"("[..] } else { b"=" })?.trim_ascii_start();
    let (&quote, inner) =
        rest.split_first().filter(|(quote, _)| matches!(quote, b'"' | b'\'' | b'`'))?;
    let len = literal_len(inner, quote)?;
    let mut after = inner[len + 1..].trim_ascii_start();
    if called {
        after = after.strip_prefix(b")")?.trim_ascii_start();
    }
    after = after.strip_prefix(b";").unwrap_or(after).trim_ascii();
    // Endings of comments that hide the script from very old browsers and XML parsers.
    if !matches!(after, b"" | b"-->" | b"//-->" | b"// -->" | b"//]]>" | b"// ]]>") {
        return None;
    }
    let start = script.len() - inner.len();
    Some(start..start + len)
}

/// Returns the script after a line that hides it from very old browsers or XML parsers.
fn past_comment(script: &[u8]) -> &[u8] {
    let script = script.trim_ascii_start();
    let hides = [&b"<!--"[..], b"//<![cdata[", b"//<![CDATA[", b"// <![cdata[", b"// <![CDATA["];
    if !hides.iter().any(|line| script.starts_with(line)) {
        return script;
    }
    memchr::memchr(b'\n', script).map_or(&[], |end| script[end + 1..].trim_ascii_start())
}

/// Returns the number of bytes before the closing quote of a literal.
fn literal_len(inner: &[u8], quote: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        match inner.get(at)? {
            b'\n' | b'\r' => return None,
            // A template with placeholders is no literal.
            b'$' if quote == b'`' && inner.get(at + 1) == Some(&b'{') => return None,
            b'\\' => at += 2,
            byte if *byte == quote => return Some(at),
            _ => at += 1,
        }
    }
}

/// Returns the target in a literal of a script.
pub(crate) fn of_literal(literal: &str) -> Option<String> {
    let mut target = String::with_capacity(literal.len());
    let mut rest = literal;
    while let Some((before, escaped)) = rest.split_once('\\') {
        target.push_str(before);
        let kind = escaped.chars().next()?;
        rest = &escaped[kind.len_utf8()..];
        let digits = match kind {
            'x' => 2,
            'u' => 4,
            '0'..='9' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' => return None,
            _ => {
                target.push(kind);
                continue;
            }
        };
        target.push(char::from_u32(u32::from_str_radix(rest.get(..digits)?, 16).ok()?)?);
        rest = &rest[digits..];
    }
    target.push_str(rest);
    Some(target)
}

/// Returns the target, unless it stays on the page or HTTP cannot fetch it.
fn fetchable(target: &str) -> Option<Box<str>> {
    let target = target.trim();
    let elsewhere = !target.is_empty() && !target.starts_with('#') && target.len() <= MAX_TARGET;
    let scheme = target
        .split(['/', '?', '#'])
        .next()
        .and_then(|start| start.split_once(':'))
        .map(|(scheme, _)| scheme);
    let by_http =
        scheme.is_none_or(|s| s.eq_ignore_ascii_case("http") || s.eq_ignore_ascii_case("https"));
    (elsewhere && by_http).then(|| target.into())
}

/// Returns whether `target` leads back to the page at `url`, with any query.
pub(crate) fn leads_back(target: &str, url: Option<&str>) -> bool {
    let path = |target: &str| target.split(['?', '#']).next().unwrap_or_default().to_owned();
    if path(target).is_empty() {
        return true;
    }
    let Some(base) = url.and_then(|url| Url::parse(url).ok()) else { return false };
    base.join(target).is_ok_and(|to| to.origin() == base.origin() && to.path() == base.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Option<Box<str>> {
        let literal = literal_in(text.as_bytes()).and_then(|range| of_literal(&text[range]))?;
        Bases::default().resolve(&literal)
    }

    fn of_refresh(content: &str) -> Option<Box<str>> {
        Bases::default().resolve(Refresh::parse(&decoded(content))?.redirect()?)
    }

    #[test]
    fn a_refresh_may_write_its_target_in_every_way_of_html() {
        for content in [
            "0;url=/next",
            "0; URL=/next",
            " 3 ; url = /next",
            "0;url='/next'",
            "0; url=\"/next\"",
            "0;url=&quot;/next&quot;",
            "0;url=&#x2f;next",
            "0, url=/next",
            "0 url=/next",
            "0; /next",
            "10;url=/next",
            "0.5;url=/next",
            ".1;url=/next",
            "0;url='/next",
        ] {
            assert_eq!(of_refresh(content).as_deref(), Some("/next"), "{content}");
        }
        assert_eq!(of_refresh("0;url=/a?b=1&amp;c=2").as_deref(), Some("/a?b=1&c=2"));
        assert_eq!(of_refresh("0;url=/A?Url=x;y").as_deref(), Some("/A?Url=x;y"));
    }

    #[test]
    fn a_refresh_without_target_or_with_a_long_delay_is_no_redirect() {
        for content in [
            "",
            "5",
            "5;",
            "5; url=",
            "11;url=/next",
            "99999999999999999999999;url=/next",
            "url=/next",
            "0url=/next",
            "x;url=/next",
            "0;url=#top",
            "0;url=javascript:void(0)",
            "0;url=about:blank",
            "0;url=app://open",
            "0;url=mailto:a@b.example",
        ] {
            assert_eq!(of_refresh(content), None, "{content}");
        }
    }

    #[test]
    fn a_refresh_without_a_target_is_one_and_a_value_that_browsers_ignore_is_none() {
        for reloads in ["5", " 0;", ".5", "3, url=", "0;url=''", "99999999999999999999999"] {
            assert!(
                Refresh::parse(reloads).is_some_and(|refresh| !refresh.has_target()),
                "{reloads}"
            );
        }
        assert!(Refresh::parse("11;url=/next").is_some_and(|refresh| refresh.has_target()));
        for ignored in ["", " ", "url=/next", "-1;url=/next", "0url=/next", "0x", "next"] {
            assert_eq!(Refresh::parse(ignored), None, "{ignored}");
        }
    }

    #[test]
    fn a_target_is_relative_to_the_base_of_the_page() {
        let page = Some("https://a.example/old/x?y=1");
        for (element, target, expected) in [
            ("/docs/new/", "start.html", Some("https://a.example/docs/new/start.html")),
            ("../docs/", "?p=1", Some("https://a.example/docs/?p=1")),
            ("https://b.example/d/e", "f", Some("https://b.example/d/f")),
            ("//b.example/", "/f", Some("https://b.example/f")),
            ("/docs/", "https://c.example/", Some("https://c.example/")),
            ("/docs/", "#top", Some("https://a.example/docs/#top")),
            ("", "z", Some("https://a.example/old/z")),
            // Unusable ones.
            ("https://[", "z", Some("z")),
            ("data:text/html,x", "z", Some("z")),
            ("javascript:void(0)", "z", Some("z")),
            // Nowhere else, and nothing for HTTP.
            ("?y=1", "#top", None),
            ("ftp://a.example/", "z", None),
            ("/docs/", "mailto:a@b.example", None),
        ] {
            let found = Bases { page, element: Some(element) }.resolve(target);
            assert_eq!(found.as_deref(), expected, "{element} {target}");
        }
        let nowhere = |element| Bases { page: None, element: Some(element) }.resolve("z");
        assert_eq!(nowhere("https://b.example/d/").as_deref(), Some("https://b.example/d/z"));
        assert_eq!(nowhere("/d/").as_deref(), Some("z"), "the page's address is not known");
    }

    #[test]
    fn a_script_that_only_sets_the_location_names_its_target() {
        for text in [
            "location='/next'",
            "location = \"/next\";",
            "window.location = '/next';",
            "window.location.href=\"/next\"",
            "document.location.href = '/next' ;",
            "self.location.replace('/next');",
            "top.location.assign( \"/next\" ) ;",
            "window.top.location='/next'",
            "\n  location.replace(`/next`);\n",
            "<!--\nlocation='/next'\n//-->",
            "//<![CDATA[\nlocation.href='/next';\n//]]>",
            "location='\\/next'",
            "location='\\x2fnext'",
            "location='\\u002Fnext'",
        ] {
            assert_eq!(script(text).as_deref(), Some("/next"), "{text}");
        }
        assert_eq!(
            script("location='https:\\/\\/b.example\\/?a=\\'x\\''").as_deref(),
            Some("https://b.example/?a='x'")
        );
    }

    #[test]
    fn a_script_that_does_anything_else_names_none() {
        for text in [
            "location='/next' + location.search",
            "location.replace('/next' + location.hash)",
            "if (x) location='/next'",
            "document.cookie='a=1';location='/next'",
            "location='/next';track()",
            "setTimeout(function(){location='/next'},1)",
            "location.href",
            "location.reload()",
            "location.hash='/next'",
            "location=next",
            "location=`/${next}`",
            "mylocation='/next'",
            "window.open('/next')",
            "location='/next",
            "location='#next'",
            "location='javascript:next()'",
            "location='\\",
            "location='\\u00'",
            "",
            "<!--",
        ] {
            assert_eq!(script(text), None, "{text}");
        }
        assert_eq!(script(&format!("location='/{}'", "a".repeat(MAX_SCRIPT))), None);
    }

    #[test]
    fn a_target_leads_back_when_only_its_query_is_new() {
        let url = Some("https://a.example/x/y?z=1");
        for target in ["", "?w=2", "y", "/x/y?w=2", "https://a.example/x/y#w", "./y"] {
            assert!(leads_back(target, url), "{target}");
        }
        for target in ["z", "/", "https://b.example/x/y", "http://a.example/x/y", "y/"] {
            assert!(!leads_back(target, url), "{target}");
        }
        assert!(leads_back("?x", None) && !leads_back("/x", None));
    }
}
