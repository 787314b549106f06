//! Redirects that are written in HTML: a `<meta http-equiv=refresh>` that names a URL, or a script that does nothing but set the
//! location to a literal URL.
//!
//! What comes out is the target as it was written, with the escapes of its language decoded and nothing else done to it. Only
//! targets that HTTP can fetch come out. This file knows the two languages, not whether a page is to be believed.

use std::ops::Range;

use url::Url;

use super::text;

/// Longest delay of a refresh that is a redirect, in seconds. Pages that refresh later are there to be read.
const DELAY_MAX: u64 = 10;
/// Longest target, in bytes.
const TARGET_MAX: usize = 4096;
/// Longest script that is looked at, in bytes: a target and the little that stands around it.
const SCRIPT_MAX: usize = TARGET_MAX + 256;

/// The target in the `content` of a refresh, whose entities are not decoded yet. None when it has no target, waits too long or
/// leads to what cannot be fetched.
pub(crate) fn of_refresh(content: &str) -> Option<Box<str>> {
    let mut decoded = String::new();
    text::decode_entities_into(content, &mut decoded);
    let content = decoded.trim_ascii_start();
    let digits = content.bytes().take_while(u8::is_ascii_digit).count();
    let (delay, rest) = content.split_at(digits);
    // A fraction of a second may come without any digit before it; without a number at all it is no refresh.
    if digits == 0 && !rest.starts_with('.') || delay.parse().map_or(digits > 0, |delay: u64| delay > DELAY_MAX) {
        return None;
    }
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
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
    fetchable(target)
}

/// What stands behind `url=`, if `text` begins with it.
fn after_url(text: &str) -> Option<&str> {
    let name = text.get(..3).filter(|name| name.eq_ignore_ascii_case("url"))?;
    Some(text[name.len()..].trim_ascii_start().strip_prefix('=')?.trim_ascii_start())
}

/// Where in `script` the literal stands that the location is set to, without its quotes, when the script does nothing else.
pub(crate) fn literal_in(script: &[u8]) -> Option<Range<usize>> {
    if script.len() > SCRIPT_MAX {
        return None;
    }
    let mut rest = past_comment(script);
    for _ in 0..3 {
        let owner =
            [&b"window"[..], b"document", b"self", b"top", b"parent"].iter().find_map(|o| rest.strip_prefix(*o));
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
    let (&quote, inner) = rest.split_first().filter(|(quote, _)| matches!(quote, b'"' | b'\'' | b'`'))?;
    let len = literal_len(inner, quote)?;
    let mut after = inner[len + 1..].trim_ascii_start();
    if called {
        after = after.strip_prefix(b")")?.trim_ascii_start();
    }
    after = after.strip_prefix(b";").unwrap_or(after).trim_ascii();
    // What hides the script from very old browsers, and from parsers of XML.
    if !matches!(after, b"" | b"-->" | b"//-->" | b"// -->" | b"//]]>" | b"// ]]>") {
        return None;
    }
    let start = script.len() - inner.len();
    Some(start..start + len)
}

/// What follows the line that hides a script from very old browsers, or from parsers of XML.
fn past_comment(script: &[u8]) -> &[u8] {
    let script = script.trim_ascii_start();
    let hides = [&b"<!--"[..], b"//<![cdata[", b"//<![CDATA[", b"// <![cdata[", b"// <![CDATA["];
    if !hides.iter().any(|line| script.starts_with(line)) {
        return script;
    }
    memchr::memchr(b'\n', script).map_or(&[], |end| script[end + 1..].trim_ascii_start())
}

/// How many bytes stand before the quote that ends a literal.
fn literal_len(inner: &[u8], quote: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        match inner.get(at)? {
            b'\n' | b'\r' => return None,
            // What is put together while the script runs is no literal.
            b'$' if quote == b'`' && inner.get(at + 1) == Some(&b'{') => return None,
            b'\\' => at += 2,
            byte if *byte == quote => return Some(at),
            _ => at += 1,
        }
    }
}

/// The target in a literal of a script. None when it leads to what cannot be fetched.
pub(crate) fn of_literal(literal: &str) -> Option<Box<str>> {
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
    fetchable(&target)
}

/// The target, unless it leads nowhere else or to what HTTP cannot fetch.
fn fetchable(target: &str) -> Option<Box<str>> {
    let target = target.trim();
    let elsewhere = !target.is_empty() && !target.starts_with('#') && target.len() <= TARGET_MAX;
    let scheme = target.split(['/', '?', '#']).next().and_then(|start| start.split_once(':')).map(|(scheme, _)| scheme);
    let by_http = scheme.is_none_or(|s| s.eq_ignore_ascii_case("http") || s.eq_ignore_ascii_case("https"));
    (elsewhere && by_http).then(|| target.into())
}

/// Whether `target` leads back to the page itself, at `url`, whatever query it adds.
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
        literal_in(text.as_bytes()).and_then(|range| of_literal(&text[range]))
    }

    #[test]
    fn a_refresh_names_its_target_in_every_way_that_html_knows() {
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
    fn what_only_waits_or_waits_long_or_leads_nowhere_is_no_target() {
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
        assert_eq!(script(&format!("location='/{}'", "a".repeat(SCRIPT_MAX))), None);
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
