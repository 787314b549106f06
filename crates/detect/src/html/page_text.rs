//! The text of a body, for programs that keep pages as text.
//!
//! Must not know: whether the page is content.

use std::borrow::Cow;

use super::charset::Charset;
use super::sniff;

/// Returns the text of `body` in Unicode, decoded with the charset by which the
/// [`Detector`](crate::Detector) reads it; `None` if it is no text.
///
/// Text is what `content_type` declares as such (`text/*`, JSON, XML, JavaScript), and a body
/// without a clear type that looks like HTML. A body that begins as a known binary format is none,
/// whatever is declared. `host` is the host of the page: its last label helps to guess a charset
/// that nothing declares.
///
/// ```
/// use fetchwise_detect::page_text;
///
/// let text = page_text(Some("text/html; charset=windows-1252"), b"caf\xE9", None);
/// assert_eq!(text.as_deref(), Some("café"));
/// assert_eq!(page_text(Some("image/png"), b"\x89PNG", None), None);
/// ```
pub fn page_text<'b>(
    content_type: Option<&str>,
    body: &'b [u8],
    host: Option<&str>,
) -> Option<Cow<'b, str>> {
    let essence = content_type.map(|value| value.split(';').next().unwrap_or_default().trim());
    let charset = Charset::of(content_type, body).or_guessed(body, host);
    let bytes = body.get(charset.bom..).unwrap_or_default();
    if sniff::is_binary(bytes) {
        return None;
    }
    let (text, _) = charset.encoding.decode_without_bom_handling(bytes);
    (essence.is_some_and(is_text) || sniff::is_html(essence, text.as_bytes())).then_some(text)
}

/// Returns whether a media type stands for text.
fn is_text(essence: &str) -> bool {
    let essence = essence.to_ascii_lowercase();
    let Some((kind, subtype)) = essence.split_once('/') else { return false };
    let is_syntax = |name: &str| {
        subtype == name || subtype.strip_suffix(name).is_some_and(|rest| rest.ends_with('+'))
    };
    let is_script = subtype.ends_with("javascript") || subtype.ends_with("ecmascript");
    kind == "text" || is_script || is_syntax("json") || is_syntax("xml") || subtype == "x-ndjson"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content_type: &str, body: &[u8]) -> Option<String> {
        page_text(Some(content_type), body, None).map(Cow::into_owned)
    }

    #[test]
    fn text_is_decoded_by_its_charset() {
        assert_eq!(
            of("text/html", b"<meta charset=koi8-r><p>\xF0\xD2").as_deref(),
            Some("<meta charset=koi8-r><p>Пр")
        );
        assert_eq!(of("text/plain", b"\xEF\xBB\xBFna\xC3\xAFve").as_deref(), Some("naïve"));
        assert_eq!(of("text/html", b"\xFF\xFE<\0p\0>\0").as_deref(), Some("<p>"));
        assert_eq!(
            of("application/json; charset=shift_jis", b"\"\x93\xFA\"").as_deref(),
            Some("\"日\"")
        );
        assert_eq!(of("text/plain", b"").as_deref(), Some(""));
    }

    #[test]
    fn the_media_type_tells_text_from_other_bodies_unless_the_bytes_are_clear() {
        for text in [
            "application/ld+json",
            "image/svg+xml",
            "TEXT/CSV",
            "application/xhtml+xml",
            "text/javascript",
        ] {
            assert!(of(text, b"x").is_some(), "{text}");
        }
        let office = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
        for other in
            [office, "application/pdf", "video/mp4", "application/octet-stream", "nonsense", ""]
        {
            assert_eq!(of(other, b"x"), None, "{other}");
        }
        assert_eq!(of("text/html", b"%PDF-1.7"), None);
        assert!(page_text(None, b"<!doctype html><title>A</title>", None).is_some());
        assert!(of("application/octet-stream", b"<!doctype html><html><title>A</title>").is_some());
    }
}
