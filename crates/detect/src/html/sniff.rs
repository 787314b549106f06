//! Recognition of HTML. The status alone decides about other bodies: they are never empty and never
//! a shell.

/// Number of bytes of a body that are sniffed.
const WINDOW: usize = 2048;

/// Tags that only HTML has and that stand near its beginning.
const HTML_TAGS: &[&[u8]] = &[
    b"<html",
    b"<!doctype html",
    b"<head",
    b"<body",
    b"<title",
    b"<meta",
    b"<script",
    b"<div",
    b"<p>",
    b"<h1",
    b"<iframe",
    b"<a ",
];

/// Beginnings of binary files, whatever the header says.
const BINARY: &[&[u8]] = &[
    b"%PDF-",
    b"\x89PNG",
    b"GIF8",
    b"\xFF\xD8\xFF",
    b"PK\x03\x04",
    b"\x1F\x8B",
    b"\x28\xB5\x2F\xFD",
    b"RIFF",
    b"OggS",
    b"ID3",
    b"\0\0\0\x18ftyp",
    b"\0\0\0\x20ftyp",
    b"\0asm",
    b"wOFF",
    b"wOF2",
];

/// Returns whether `body` begins as a known binary format.
pub(crate) fn is_binary(body: &[u8]) -> bool {
    BINARY.iter().any(|magic| body.starts_with(magic))
}

/// Returns whether `body` is HTML: by its bytes if they are clear, else by the declared media type,
/// else by its tags. `body` starts after any byte order mark and is not in UTF-16.
pub(crate) fn is_html(media_type: Option<&str>, body: &[u8]) -> bool {
    if is_binary(body) {
        return false;
    }
    let head = &body[..body.len().min(WINDOW)];
    match media_type {
        Some(e) if is(e, "text/html") || is(e, "application/xhtml+xml") => !is_data(head),
        // XML with an html root is XHTML under another name.
        Some(e) if is(e, "text/xml") || is(e, "application/xml") => has_html_root(head),
        Some(e) if is(e, "application/octet-stream") || is(e, "unknown/unknown") => {
            has_html_root(head)
        }
        Some(_) => false,
        None => body.is_empty() || (!is_data(head) && looks_like_html(head)),
    }
}

/// Beginnings of compressed bodies: gzip, Zstandard, and zlib at each level.
const COMPRESSED: [&[u8]; 6] =
    [b"\x1F\x8B\x08", b"\x28\xB5\x2F\xFD", b"\x78\x01", b"\x78\x5E", b"\x78\x9C", b"\x78\xDA"];
/// Endings of URLs whose files are compressed on purpose.
const COMPRESSED_FILES: [&str; 5] = [".gz", ".tgz", ".svgz", ".br", ".zst"];
/// Number of bytes at the beginning of a compressed body among which is a control character.
const FIRST_BYTES: usize = 64;
/// Minimum share of control characters, in percent, of a body that is no text in any encoding.
const CONTROL_PERCENT: usize = 4;

/// Returns whether a body is still compressed although its reader was promised text: what fetched
/// it has not decoded it. `encoding` is the `Content-Encoding` that is left. Text in UTF-16 must
/// not come here.
pub(crate) fn is_undecoded(
    media_type: Option<&str>,
    encoding: Option<&str>,
    url: Option<&str>,
    body: &[u8],
) -> bool {
    let encoded =
        encoding.is_some_and(|encoding| !encoding.trim().eq_ignore_ascii_case("identity"));
    let is_text = match media_type {
        Some(essence) => {
            let has = |part: &str| essence.to_ascii_lowercase().contains(part);
            has("text/") || has("json") || has("xml") || has("javascript")
        }
        None => encoded,
    };
    let path = url.and_then(|url| url.split(['?', '#']).next()).unwrap_or_default();
    if !is_text || body.is_empty() || COMPRESSED_FILES.iter().any(|ending| path.ends_with(ending)) {
        return false;
    }
    let is_control = |byte: &u8| matches!(byte, 0..=8 | 0x0B | 0x0E..=0x1A | 0x1C..=0x1F | 0x7F);
    // Text has none of them, and compressed bytes have some among the first.
    if !body.iter().take(FIRST_BYTES).any(is_control) {
        return false;
    }
    let head = &body[..body.len().min(WINDOW)];
    let controls = head.iter().filter(|byte| is_control(byte)).count();
    if COMPRESSED.iter().any(|magic| body.starts_with(magic)) {
        return controls > 0;
    }
    if BINARY.iter().any(|magic| body.starts_with(magic)) {
        return false;
    }
    // Brotli has no mark.
    let has_controls = |percent: usize| controls > 0 && controls * 100 >= head.len() * percent;
    has_controls(CONTROL_PERCENT)
        && (encoded || !looks_like_html(head) || has_controls(3 * CONTROL_PERCENT))
}

fn is(essence: &str, name: &str) -> bool {
    essence.eq_ignore_ascii_case(name)
}

/// Returns whether the body is JSON, or XML without an html root.
fn is_data(head: &[u8]) -> bool {
    let start = after_prolog(head);
    match start {
        [b'{', rest @ ..] if begins_with_key(rest) => true,
        [b'[', rest @ ..]
            if rest.trim_ascii_start().strip_prefix(b"{").is_some_and(begins_with_key) =>
        {
            true
        }
        [b'{' | b'[', rest @ ..] => {
            let next = rest.trim_ascii_start().first();
            matches!(next, None | Some(b'"' | b'{' | b'[' | b'}' | b']' | b'-' | b'0'..=b'9'))
                && !looks_like_html(head)
        }
        [b'<', ..] => {
            (starts_with(head.trim_ascii_start(), b"<?xml")
                && !has_html_root(start)
                && !looks_like_html(start))
                || [&b"<rss"[..], b"<feed", b"<urlset", b"<sitemapindex", b"<rdf:rdf", b"<svg"]
                    .iter()
                    .any(|root| starts_with(start, root))
        }
        _ => false,
    }
}

/// Skips white space, processing instructions (`<?xml ..?>`) and comments.
fn after_prolog(head: &[u8]) -> &[u8] {
    let mut rest = head.trim_ascii_start();
    while let Some(end) = match rest {
        [b'<', b'?', ..] => memchr::memmem::find(rest, b"?>").map(|at| at + 2),
        [b'<', b'!', b'-', b'-', ..] => memchr::memmem::find(rest, b"-->").map(|at| at + 3),
        _ => None,
    } {
        rest = rest[end..].trim_ascii_start();
    }
    rest
}

/// Returns whether an object's first key follows. Later tags then stand in strings of the object.
fn begins_with_key(rest: &[u8]) -> bool {
    let Some(key) = rest.trim_ascii_start().strip_prefix(b"\"") else { return false };
    let Some(end) = memchr::memchr2(b'"', b'<', key) else { return false };
    key[end] == b'"' && key[end + 1..].trim_ascii_start().first() == Some(&b':')
}

fn has_html_root(head: &[u8]) -> bool {
    contains(head, b"<html") || contains(head, b"<!doctype html")
}

fn looks_like_html(head: &[u8]) -> bool {
    HTML_TAGS.iter().any(|tag| contains(head, tag))
}

fn starts_with(bytes: &[u8], lower: &[u8]) -> bool {
    bytes.get(..lower.len()).is_some_and(|b| b.eq_ignore_ascii_case(lower))
}

fn contains(bytes: &[u8], lower: &[u8]) -> bool {
    bytes.windows(lower.len()).any(|w| w.eq_ignore_ascii_case(lower))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declared_type_decides_unless_the_bytes_are_clear() {
        assert!(is_html(Some("text/html"), b"hello"));
        assert!(is_html(Some("application/xhtml+xml"), b"<?xml version='1.0'?><html>"));
        assert!(is_html(Some("application/xml"), b"<?xml version='1.0'?>\n<html xmlns='...'>"));
        assert!(!is_html(Some("application/xml"), b"<?xml version='1.0'?><rss>"));
        assert!(!is_html(Some("text/plain"), b"<html>"));
        assert!(!is_html(Some("text/html"), b"%PDF-1.7"));
        assert!(!is_html(Some("application/json"), b"{}"));
    }

    #[test]
    fn a_compressed_body_is_known_by_its_bytes() {
        let html = Some("text/html");
        assert!(is_undecoded(html, None, None, b"\x1F\x8B\x08\0\0\0\0\0\0\x03\xCBH"));
        assert!(is_undecoded(html, Some("zstd"), None, b"\x28\xB5\x2F\xFD\x04\x58\x01\0"));
        assert!(is_undecoded(html, None, None, b"\x78\x9C\xCB\x48\xCD\xC9\xC9\x07\0\x06"));
        assert!(is_undecoded(html, Some("br"), None, b"\x0B\x02\x80hello\x03"));
        assert!(is_undecoded(None, Some("gzip"), None, b"\x1F\x8B\x08\0\0\0"));
        assert!(!is_undecoded(html, Some("br"), None, b"<p>decoded already</p>"));
        assert!(!is_undecoded(html, Some("gzip"), None, "<p>d\u{e9}j\u{e0} vu</p>".as_bytes()));
        assert!(!is_undecoded(html, None, None, b"x marks the spot: x\x9C"));
        assert!(!is_undecoded(html, None, None, b"\x89PNG\r\n\x1A\n\0\0\0"));
        assert!(!is_undecoded(Some("application/gzip"), None, None, b"\x1F\x8B\x08\0"));
        assert!(!is_undecoded(
            Some("text/xml"),
            None,
            Some("https://leaf.example/map.xml.gz?v=1"),
            b"\x1F\x8B\x08\0"
        ));
    }

    #[test]
    fn json_and_feeds_with_a_wrong_type_are_not_html() {
        assert!(!is_html(Some("text/html"), b" {\"a\": 1}"));
        assert!(!is_html(Some("text/html"), b"[]"));
        assert!(!is_html(Some("text/html"), b"<?xml version=\"1.0\"?><rss version=\"2.0\">"));
        assert!(!is_html(
            Some("text/html"),
            b"<?xml version=\"1.0\"?>\n<!-- by hand --><rss><channel><title>x</title></channel></rss>"
        ));
        assert!(!is_html(Some("text/html"), b"{\"a\": \"<title>x</title><html>\"}"));
        assert!(!is_html(Some("text/html"), b"[{\"a\": \"<div>\"}]"));
        assert!(!is_html(Some("text/html"), b"[\n  {\"a\": \"<div>\"}\n]"));
        assert!(is_html(Some("text/html"), b"<!-- {\"a\": 1} --><html>"));
        assert!(is_html(Some("text/html"), b"{literal} <div>braces of a template</div>"));
        assert!(is_html(Some("text/html"), b"[\"oops\"] <body>"));
    }

    #[test]
    fn without_a_type_the_bytes_decide() {
        assert!(is_html(None, b""));
        assert!(is_html(None, b"<!-- x --><HTML>"));
        assert!(!is_html(None, b"plain words"));
        assert!(!is_html(None, b"{\"html\": \"<div>\"") || is_html(None, b"<div>"));
        assert!(!is_html(None, b"\x89PNG\r\n"));
    }
}
