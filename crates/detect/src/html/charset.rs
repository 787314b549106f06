//! The character set of a body, as far as detection needs it.
//!
//! Almost every charset on the web is ASCII-compatible: markup can be tokenized without decoding,
//! and only counting characters and comparing sentences need more. The exceptions, UTF-16 and
//! ISO-2022-JP, are converted to UTF-8 first.
//!
//! Must not know: HTML, beyond the `charset` of a `<meta>`.

use std::borrow::Cow;
use std::sync::LazyLock;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{
    BIG5, EUC_JP, EUC_KR, Encoding, GB18030, GBK, ISO_2022_JP, SHIFT_JIS, UTF_8, UTF_16BE,
    UTF_16LE, WINDOWS_1252,
};
use memchr::memmem::Finder;

/// Number of bytes of a body that are searched for a `<meta charset>`.
const META_WINDOW: usize = 1024;

/// Number of bytes from which a charset that nothing declares is guessed.
const GUESS_WINDOW: usize = 64 << 10;
/// Bytes of a character that may be cut off at the end of a body.
const CUT_CHARACTER: usize = 3;

/// The way characters are counted in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// UTF-8: continuation bytes do not count.
    Utf8,
    /// One character per byte.
    Single,
    /// A lead byte of 0x81 or more takes the next byte along.
    Double,
    /// Like `Double`, but 0xA1 to 0xDF stand alone (half-width katakana).
    ShiftJis,
}

/// A charset, with its way of counting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charset {
    pub(crate) encoding: &'static Encoding,
    pub(crate) counting: Counting,
    /// Length in bytes of the byte order mark at the beginning.
    pub(crate) bom: usize,
    /// Whether anything says that it is this one.
    is_declared: bool,
}

impl Charset {
    /// Returns the charset of `body`, from the first of: byte order mark, `Content-Type` header,
    /// zero bytes that indicate UTF-16, `<meta>`, UTF-8.
    pub(crate) fn of(content_type: Option<&str>, body: &[u8]) -> Self {
        if let Some((encoding, bom)) = Encoding::for_bom(body) {
            return Self { bom, ..Self::with(encoding) };
        }
        if let Some(encoding) = content_type.and_then(header_charset) {
            return Self::with(encoding);
        }
        if let Some(encoding) = bare_utf16(body) {
            return Self::with(encoding);
        }
        let window = &body[..body.len().min(META_WINDOW)];
        match meta_charset(window) {
            // A page that could be read this far is not in UTF-16, whatever it says.
            Some(e) if e != UTF_16LE && e != UTF_16BE => Self::with(e),
            _ => Self { is_declared: false, ..Self::with(UTF_8) },
        }
    }

    /// Returns the charset of a body that declares none and is not in UTF-8, by its bytes, as a
    /// browser guesses it. The last label of its host says which languages are likely.
    pub(crate) fn or_guessed(self, body: &[u8], host: Option<&str>) -> Self {
        if self.is_declared || Encoding::utf8_valid_up_to(body) + CUT_CHARACTER >= body.len() {
            return self;
        }
        let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
        let window = &body[..body.len().min(GUESS_WINDOW)];
        detector.feed(window, window.len() == body.len());
        let label = host.and_then(|host| host.rsplit('.').next()).map(str::to_ascii_lowercase);
        let label =
            label.as_deref().filter(|label| label.bytes().all(|byte| byte.is_ascii_lowercase()));
        Self::with(detector.guess(label.map(str::as_bytes), Utf8Detection::Allow))
    }

    fn with(encoding: &'static Encoding) -> Self {
        let counting = if encoding == UTF_8
            || encoding == UTF_16LE
            || encoding == UTF_16BE
            || encoding == ISO_2022_JP
        {
            Counting::Utf8
        } else if encoding == SHIFT_JIS {
            Counting::ShiftJis
        } else if [GBK, GB18030, BIG5, EUC_KR, EUC_JP].contains(&encoding) {
            Counting::Double
        } else {
            Counting::Single
        };
        Self { encoding, counting, bom: 0, is_declared: true }
    }

    /// Returns whether the bytes must be decoded before they can be tokenized.
    pub(crate) fn needs_decoding(self) -> bool {
        !self.encoding.is_ascii_compatible()
    }

    /// Decodes `body` into `out` as UTF-8, with replacement characters for malformed bytes.
    pub(crate) fn decode_into(self, body: &[u8], out: &mut Vec<u8>) {
        out.clear();
        if self.encoding == UTF_16LE {
            utf16_into(body, u16::from_le_bytes, out);
        } else if self.encoding == UTF_16BE {
            utf16_into(body, u16::from_be_bytes, out);
        } else {
            let (text, _) = self.encoding.decode_without_bom_handling(body);
            out.extend_from_slice(text.as_bytes());
        }
    }

    /// Decodes a short range of bytes, twice if it was encoded twice.
    pub(crate) fn text(self, bytes: &[u8]) -> Cow<'_, str> {
        let encoding = if self.needs_decoding() { UTF_8 } else { self.encoding };
        let text = encoding.decode_without_bom_handling(bytes).0;
        match decoded_again(&text) {
            Some(repaired) => Cow::Owned(repaired),
            None => text,
        }
    }
}

/// Decodes text whose UTF-8 bytes were taken for characters of windows-1252: `Ã©` is an `é`.
/// Returns `None` if there is no such text.
fn decoded_again(text: &str) -> Option<String> {
    // The first byte of a sequence became a letter from U+00C2 to U+00F4.
    memchr::memchr(0xC3, text.as_bytes())?;
    let mut out = String::new();
    let mut rest = text;
    let mut is_changed = false;
    while let Some(at) = rest.find(|c| matches!(c, '\u{C2}'..='\u{F4}')) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match sequence(rest) {
            Some((c, len)) => {
                out.push(c);
                rest = &rest[len..];
                is_changed = true;
            }
            None => {
                let len = rest.chars().next().map_or(rest.len(), char::len_utf8);
                out.push_str(&rest[..len]);
                rest = &rest[len..];
            }
        }
    }
    out.push_str(rest);
    is_changed.then_some(out)
}

/// Returns the character whose UTF-8 bytes are the first characters of `text`, and their length in
/// `text`.
fn sequence(text: &str) -> Option<(char, usize)> {
    let mut bytes = [0; 4];
    let mut len = 0;
    let mut wanted = 4;
    for (n, c) in text.chars().take(4).enumerate() {
        let byte = windows_1252_byte(c)?;
        if n == 0 {
            wanted = match byte {
                0xC2..=0xDF => 2,
                0xE0..=0xEF => 3,
                _ => 4,
            };
        }
        *bytes.get_mut(n)? = byte;
        len += c.len_utf8();
        if n + 1 == wanted {
            let decoded = std::str::from_utf8(bytes.get(..wanted)?).ok()?;
            return decoded.chars().next().map(|c| (c, len));
        }
    }
    None
}

/// Returns the byte of a character above ASCII in windows-1252.
fn windows_1252_byte(c: char) -> Option<u8> {
    if let Ok(byte) = u8::try_from(u32::from(c)) {
        return (byte >= 0x80).then_some(byte);
    }
    let mut buffer = [0; 4];
    match WINDOWS_1252.encode(c.encode_utf8(&mut buffer)).0.as_ref() {
        [byte] if *byte >= 0x80 => Some(*byte),
        _ => None,
    }
}

/// Converts UTF-16 to UTF-8 in a small buffer of units, so that ASCII is converted with vector
/// instructions.
fn utf16_into(body: &[u8], unit: fn([u8; 2]) -> u16, out: &mut Vec<u8>) {
    const UNITS: usize = 2048;
    let mut units = [0u16; UNITS];
    let mut utf8 = [0u8; UNITS * 3];
    let mut rest = body;
    let mut kept = 0;
    while rest.len() >= 2 {
        let take = (rest.len() / 2).min(UNITS - kept);
        for (slot, pair) in units[kept..kept + take].iter_mut().zip(rest.chunks_exact(2)) {
            *slot = unit([pair[0], pair[1]]);
        }
        rest = &rest[take * 2..];
        let filled = kept + take;
        // A high surrogate at the end waits for its partner.
        let whole = if rest.len() >= 2 && (0xD800..0xDC00).contains(&units[filled - 1]) {
            filled - 1
        } else {
            filled
        };
        let written = encoding_rs::mem::convert_utf16_to_utf8(&units[..whole], &mut utf8);
        out.extend_from_slice(&utf8[..written]);
        kept = filled - whole;
        if kept == 1 {
            units[0] = units[filled - 1];
        }
    }
}

/// Returns the charset in a `Content-Type` value.
fn header_charset(content_type: &str) -> Option<&'static Encoding> {
    let at = find_ascii(content_type.as_bytes(), b"charset")?;
    label_after(&content_type.as_bytes()[at + 7..])
}

/// Returns the charset that a `<meta>` in `window` names, by the prescan of the HTML standard: not
/// one in a comment, and not one of another element, such as a script's.
fn meta_charset(window: &[u8]) -> Option<&'static Encoding> {
    if !names_a_charset(window) {
        return None;
    }
    let mut rest = window;
    while let Some(at) = memchr::memchr(b'<', rest) {
        rest = &rest[at + 1..];
        match rest {
            // The two dashes that begin a comment may be those that end it.
            [b'!', b'-', b'-', ..] => rest = &rest[memchr::memmem::find(&rest[1..], b"-->")? + 4..],
            [b'!' | b'?', ..] => rest = &rest[memchr::memchr(b'>', rest)? + 1..],
            [b'/', letter, ..] | [letter, ..] if letter.is_ascii_alphabetic() => {
                let is_meta = rest.get(..4).is_some_and(|name| name.eq_ignore_ascii_case(b"meta"))
                    && rest.get(4).is_some_and(|byte| byte.is_ascii_whitespace() || *byte == b'/');
                let ends_name = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'>';
                rest =
                    if is_meta { &rest[4..] } else { &rest[rest.iter().position(ends_name)?..] };
                let found = if is_meta { declared(&mut rest) } else { skip_attributes(&mut rest) };
                if found.is_some() {
                    return found;
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns whether a charset is named anywhere, which vector instructions tell.
fn names_a_charset(window: &[u8]) -> bool {
    static CHARSET: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"charset"));
    let mut lower = [0; META_WINDOW];
    let Some(lower) = lower.get_mut(..window.len()) else { return false };
    lower.copy_from_slice(window);
    lower.make_ascii_lowercase();
    CHARSET.find(lower).is_some()
}

/// Reads the attributes of a `<meta>`, and returns the charset that they declare.
fn declared(rest: &mut &[u8]) -> Option<&'static Encoding> {
    let (mut charset, mut of_content, mut is_pragma) = (None, None, false);
    while let Some((name, value)) = attribute(rest) {
        if name.eq_ignore_ascii_case(b"http-equiv") {
            is_pragma |= value.eq_ignore_ascii_case(b"content-type");
        } else if name.eq_ignore_ascii_case(b"charset") {
            charset = charset.or_else(|| Encoding::for_label(value));
        } else if name.eq_ignore_ascii_case(b"content") {
            of_content = of_content.or_else(|| charset_in(value));
        }
    }
    charset.or(of_content.filter(|_| is_pragma))
}

/// Skips the attributes of another element, whose quoted values may hold tags.
fn skip_attributes(rest: &mut &[u8]) -> Option<&'static Encoding> {
    while attribute(rest).is_some() {}
    None
}

/// Reads the next attribute of a tag: its name and its value, which may be empty. `None` at the end
/// of the tag.
fn attribute<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'/';
    let bytes = *rest;
    let start = bytes.iter().position(|byte| !is_space(byte)).unwrap_or(bytes.len());
    let bytes = &bytes[start..];
    if bytes.first().is_none_or(|byte| *byte == b'>') {
        *rest = bytes;
        return None;
    }
    // An equals sign at the beginning belongs to the name.
    let ends_name = |byte: &u8| is_space(byte) || *byte == b'=' || *byte == b'>';
    let end = bytes[1..].iter().position(ends_name).map_or(bytes.len(), |at| at + 1);
    let (name, after) = bytes.split_at(end);
    let Some(value) = after.trim_ascii_start().strip_prefix(b"=") else {
        *rest = after;
        return Some((name, b""));
    };
    let value = value.trim_ascii_start();
    let (value, after) = match value {
        [quote @ (b'"' | b'\''), quoted @ ..] => {
            let end = memchr::memchr(*quote, quoted).unwrap_or(quoted.len());
            (&quoted[..end], quoted.get(end + 1..).unwrap_or_default())
        }
        _ => {
            let end = value.iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'>');
            value.split_at(end.unwrap_or(value.len()))
        }
    };
    *rest = after;
    Some((name, value))
}

/// Returns the charset in the value of a `<meta http-equiv="content-type">`.
fn charset_in(content: &[u8]) -> Option<&'static Encoding> {
    let mut rest = content;
    while let Some(at) = find_ascii(rest, b"charset") {
        rest = &rest[at + 7..];
        if let Some(encoding) = label_after(rest) {
            return Some(encoding);
        }
    }
    None
}

/// Reads `= "label"` with optional spaces and quotes.
fn label_after(bytes: &[u8]) -> Option<&'static Encoding> {
    let rest = bytes.trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"").or_else(|| rest.strip_prefix(b"'")).unwrap_or(rest);
    let end = rest
        .iter()
        .position(|b| !(b.is_ascii_alphanumeric() || b"-_:.".contains(b)))
        .unwrap_or(rest.len());
    Encoding::for_label(&rest[..end])
}

/// Recognises UTF-16 without a byte order mark: markup in which every other byte is zero.
fn bare_utf16(body: &[u8]) -> Option<&'static Encoding> {
    match body {
        [b'<', 0, _, 0, ..] => Some(UTF_16LE),
        [0, b'<', 0, _, ..] => Some(UTF_16BE),
        _ => None,
    }
}

fn find_ascii(haystack: &[u8], lower_needle: &[u8]) -> Option<usize> {
    haystack.windows(lower_needle.len()).position(|w| w.eq_ignore_ascii_case(lower_needle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charset_that_nothing_declares_is_guessed() {
        let russian = "<p>\u{43f}\u{440}\u{438}\u{432}\u{435}\u{442}, \u{434}\u{43e}\u{441}\u{442}\u{443}\u{43f} \u{437}\u{430}\u{43f}\u{440}\u{435}\u{449}\u{435}\u{43d}</p>";
        let (bytes, ..) = encoding_rs::WINDOWS_1251.encode(russian);
        let guessed =
            |host| Charset::of(Some("text/html"), &bytes).or_guessed(&bytes, host).encoding.name();
        assert_eq!(guessed(Some("list.example.ru")), "windows-1251");
        // No label of a host makes the guess fail.
        for host in [
            None,
            Some("203.0.113.7"),
            Some("LIST.EXAMPLE.RU"),
            Some(""),
            Some("xn--p1ai"),
            Some("b\u{fc}cher"),
        ] {
            assert_ne!(guessed(host), "UTF-8", "{host:?}");
        }
        let declared = b"<meta charset=koi8-r>\xCF\xCF\xCF\xCF";
        assert_eq!(
            Charset::of(None, declared).or_guessed(declared, None).encoding.name(),
            "KOI8-R"
        );
        let cut = "<p>caf\u{e9}".as_bytes();
        assert_eq!(
            Charset::of(None, &cut[..cut.len() - 1])
                .or_guessed(&cut[..cut.len() - 1], None)
                .encoding
                .name(),
            "UTF-8"
        );
    }

    #[test]
    fn text_that_was_encoded_twice_is_decoded_twice() {
        for text in ["accès refusé", "请稍候", "доступ запрещён", "a – b “c”"]
        {
            let twice = WINDOWS_1252.decode_without_bom_handling(text.as_bytes()).0.into_owned();
            assert_eq!(Charset::of(None, b"").text(twice.as_bytes()), text);
            assert_eq!(Charset::of(None, b"").text(text.as_bytes()), text);
        }
        assert_eq!(decoded_again("São Paulo, Ärger, Œuvre, â, Ã"), None);
    }

    #[test]
    fn a_byte_order_mark_beats_the_header_and_the_header_beats_the_meta() {
        let bom = Charset::of(Some("text/html; charset=windows-1251"), b"\xEF\xBB\xBF<p>");
        assert_eq!((bom.encoding.name(), bom.bom), ("UTF-8", 3));
        let header =
            Charset::of(Some("text/html; Charset=\"windows-1251\""), b"<meta charset=koi8-r>");
        assert_eq!(header.encoding.name(), "windows-1251");
        let meta = Charset::of(
            Some("text/html"),
            b"<meta http-equiv='Content-Type' content='text/html; charset=Shift_JIS'>",
        );
        assert_eq!((meta.encoding.name(), meta.counting), ("Shift_JIS", Counting::ShiftJis));
        assert_eq!(Charset::of(None, b"<p>").encoding.name(), "UTF-8");
        assert_eq!(
            Charset::of(Some("text/html; charset=klingon"), b"<p>").encoding.name(),
            "UTF-8"
        );
    }

    /// A script's charset was taken for the page's: a block page in windows-1251 was read as UTF-8,
    /// so that no word of it was known.
    #[test]
    fn only_a_meta_outside_of_comments_declares_the_page() {
        let meta = "<meta charset=windows-1251>";
        for before in [
            r#"<script charset="utf-8" src=a.js></script>"#,
            r#"<link rel=stylesheet charset='utf-8' href="b.css"/>"#,
            "<!-- <meta charset=utf-8> -->",
            "<!--><!---><!DOCTYPE html>",
            r#"<!-- charset="utf-8" --><?xml version="1.0" encoding="utf-8"?>"#,
            r#"<a title="<meta charset=utf-8>">"#,
            r#"<meta name=a content="text/html; charset=utf-8">"#,
            "<meta charset=klingon>",
            r#"<meta data-charset="utf-8" name="charset" content="utf-8">"#,
            "1 < 2 <3 < /<>",
            "</script charset=utf-8>",
            "<metadata charset=utf-8>",
            "charset=utf-8",
        ] {
            let page = format!("{before}{meta}");
            assert_eq!(
                Charset::of(Some("text/html"), page.as_bytes()).encoding.name(),
                "windows-1251",
                "{page}"
            );
        }
        for declaration in [
            "<META CHARSET = 'windows-1251' />",
            "<meta/charset=windows-1251 />",
            "<meta\ncharset=\"windows-1251\"",
            "<meta content='text/html; charset=windows-1251' http-equiv=Content-Type>",
            "<meta http-equiv='content-type' content='charset; charset = \"windows-1251\"'>",
            "<meta name=a content=b charset=windows-1251>",
        ] {
            assert_eq!(
                Charset::of(None, declaration.as_bytes()).encoding.name(),
                "windows-1251",
                "{declaration}"
            );
        }
        for none in [
            "<meta",
            "<meta charset",
            "<meta charset=",
            "<!-- <meta charset=koi8-r>",
            "<a href='<meta charset=koi8-r>",
            "<",
        ] {
            assert_eq!(Charset::of(None, none.as_bytes()).encoding.name(), "UTF-8", "{none}");
        }
    }

    #[test]
    fn utf16_is_decoded_with_and_without_a_mark_across_chunks() {
        let text: String = "<p>\u{1F600}é".repeat(3000);
        let le: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let charset = Charset::of(None, &le);
        let mut out = Vec::new();
        charset.decode_into(&le, &mut out);
        assert!(out == text.as_bytes());
        let be: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        Charset::of(Some("text/html; charset=utf-16be"), &be).decode_into(&be, &mut out);
        assert!(out == text.as_bytes());
    }

    #[test]
    fn truncated_utf16_is_decoded_up_to_the_cut() {
        let mut cut: Vec<u8> = "<p>ab\u{1F600}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        cut.truncate(cut.len() - 1);
        let mut out = Vec::new();
        Charset::of(None, &cut).decode_into(&cut, &mut out);
        assert!(out.starts_with(b"<p>ab"));
    }
}
