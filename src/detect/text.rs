//! Visible text: counted in characters with white space collapsed, and its beginning kept, entities decoded, for the
//! sentences that rules look for. Knows bytes and charsets, not HTML elements.

use super::charset::Counting;

/// How much text is kept for sentences, in bytes.
pub(super) const KEPT: usize = 16 * 1024;

/// A running count of text, and its beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct Text {
    pub(super) chars: u32,
    pub(super) kept: Vec<u8>,
    space: bool,
}

impl Text {
    pub(super) fn clear(&mut self) {
        self.chars = 0;
        self.kept.clear();
        self.space = false;
    }

    /// A break between blocks: white space, when text follows.
    #[inline]
    pub(super) fn break_word(&mut self) {
        self.space = true;
    }

    /// Adds a run of text, entities not decoded.
    pub(super) fn push(&mut self, run: &[u8], counting: Counting) {
        let mut at = 0;
        while let Some(&byte) = run.get(at) {
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' | 0x0C => {
                    self.space = true;
                    at += 1;
                }
                b'&' => at += self.entity(&run[at..]),
                0..=0x7F => {
                    self.begin_char();
                    self.keep(&[byte]);
                    at += 1;
                }
                _ => at += self.wide(&run[at..], counting),
            }
        }
    }

    #[inline]
    fn begin_char(&mut self) {
        if self.space && self.chars > 0 {
            self.chars = self.chars.saturating_add(1);
            self.keep(b" ");
        }
        self.space = false;
        self.chars = self.chars.saturating_add(1);
    }

    #[inline]
    fn keep(&mut self, bytes: &[u8]) {
        if self.kept.len() < KEPT {
            self.kept.extend_from_slice(bytes);
        }
    }

    /// A character outside ASCII. Returns the bytes it took.
    fn wide(&mut self, run: &[u8], counting: Counting) -> usize {
        let byte = run[0];
        let len = match counting {
            Counting::Single => 1,
            Counting::Double => 2,
            Counting::ShiftJis if (0xA1..=0xDF).contains(&byte) => 1,
            Counting::ShiftJis => 2,
            Counting::Utf8 => match byte {
                // A continuation byte without its start: kept, not counted.
                0x80..=0xBF => {
                    self.keep(&[byte]);
                    return 1;
                }
                0xC0..=0xDF => 2,
                0xE0..=0xEF => 3,
                _ => 4,
            },
        };
        let mut len = len.min(run.len());
        if counting == Counting::Utf8 {
            len = 1 + run[1..len].iter().take_while(|b| (0x80..0xC0).contains(*b)).count();
            // No-break, zero-width and ideographic spaces.
            if matches!(&run[..len], [0xC2, 0xA0] | [0xE2, 0x80, 0x8B..=0x8D] | [0xE3, 0x80, 0x80] | [0xEF, 0xBB, 0xBF])
            {
                self.space = true;
                return len;
            }
        }
        self.begin_char();
        self.keep(&run[..len]);
        len
    }

    /// An entity, or a lone `&`. Returns the bytes it took.
    fn entity(&mut self, run: &[u8]) -> usize {
        match decode_entity(run) {
            Some((c, len)) if c.is_whitespace() || ('\u{200B}'..='\u{200D}').contains(&c) => {
                self.space = true;
                len
            }
            Some((c, len)) => {
                self.begin_char();
                let mut buffer = [0; 4];
                // In a single-byte charset the kept text stays in that charset: only ASCII can be put there.
                let encoded = c.encode_utf8(&mut buffer).as_bytes();
                self.keep(encoded);
                len
            }
            None => {
                self.begin_char();
                self.keep(b"&");
                1
            }
        }
    }
}

/// The character the entity at the start of `run` stands for, and its length in bytes. An entity of unknown name counts as
/// one character, U+FFFD; what is no entity gives nothing.
pub(super) fn decode_entity(run: &[u8]) -> Option<(char, usize)> {
    let body = run.strip_prefix(b"&")?;
    if let Some(number) = body.strip_prefix(b"#") {
        let (digits, radix, skip) = match number.first() {
            Some(b'x' | b'X') => (&number[1..], 16, 3),
            _ => (number, 10, 2),
        };
        let len = digits.iter().take(8).take_while(|b| (**b as char).is_digit(radix)).count();
        let value = u32::from_str_radix(std::str::from_utf8(&digits[..len]).ok()?, radix).ok()?;
        let semicolon = usize::from(digits.get(len) == Some(&b';'));
        return Some((char::from_u32(value).unwrap_or('\u{FFFD}'), skip + len + semicolon));
    }
    let len = body.iter().take(32).take_while(|b| b.is_ascii_alphanumeric()).count();
    if len == 0 || body.get(len) != Some(&b';') {
        return None;
    }
    let c = NAMED.iter().find(|(name, _)| name.as_bytes() == &body[..len]).map_or('\u{FFFD}', |(_, c)| *c);
    Some((c, len + 2))
}

/// The named entities that challenge pages and titles in Western languages use; names in lower case, as the text is.
const NAMED: &[(&str, char)] = &[
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
    ("nbsp", ' '),
    ("ensp", ' '),
    ("emsp", ' '),
    ("thinsp", ' '),
    ("shy", '\u{200B}'),
    ("zwnj", '\u{200C}'),
    ("zwj", '\u{200D}'),
    ("rsquo", '\u{2019}'),
    ("lsquo", '\u{2018}'),
    ("ldquo", '\u{201C}'),
    ("rdquo", '\u{201D}'),
    ("hellip", '\u{2026}'),
    ("mdash", '\u{2014}'),
    ("ndash", '\u{2013}'),
    ("middot", '\u{B7}'),
    ("bull", '\u{2022}'),
    ("raquo", '\u{BB}'),
    ("laquo", '\u{AB}'),
    ("copy", '\u{A9}'),
    ("reg", '\u{AE}'),
    ("agrave", 'à'),
    ("aacute", 'á'),
    ("acirc", 'â'),
    ("atilde", 'ã'),
    ("auml", 'ä'),
    ("ccedil", 'ç'),
    ("egrave", 'è'),
    ("eacute", 'é'),
    ("ecirc", 'ê'),
    ("euml", 'ë'),
    ("iacute", 'í'),
    ("icirc", 'î'),
    ("iuml", 'ï'),
    ("ntilde", 'ñ'),
    ("ograve", 'ò'),
    ("oacute", 'ó'),
    ("ocirc", 'ô'),
    ("otilde", 'õ'),
    ("ouml", 'ö'),
    ("ugrave", 'ù'),
    ("uacute", 'ú'),
    ("ucirc", 'û'),
    ("uuml", 'ü'),
    ("szlig", 'ß'),
    ("iquest", '¿'),
    ("iexcl", '¡'),
    ("ordm", 'º'),
    ("ordf", 'ª'),
];

/// Text as sentences are compared: lower case, entities decoded already, curly quotes straight, white space collapsed.
pub(super) fn fold_into(text: &str, out: &mut String) {
    out.clear();
    let mut space = false;
    for c in text.chars() {
        match c {
            c if c.is_whitespace() => space = true,
            '\u{2018}' | '\u{2019}' | '\u{02BC}' | '`' | '\u{B4}' => push(out, &mut space, '\''),
            '\u{201C}' | '\u{201D}' | '\u{AB}' | '\u{BB}' => push(out, &mut space, '"'),
            '\u{2010}'..='\u{2015}' => push(out, &mut space, '-'),
            '\u{2026}' => {
                push(out, &mut space, '.');
                out.push_str("..");
            }
            c if c.is_ascii() => push(out, &mut space, c.to_ascii_lowercase()),
            c => {
                for low in c.to_lowercase() {
                    push(out, &mut space, low);
                }
            }
        }
    }
}

fn push(out: &mut String, space: &mut bool, c: char) {
    if *space && !out.is_empty() {
        out.push(' ');
    }
    *space = false;
    out.push(c);
}

/// Decodes the entities of a title.
pub(super) fn decode_entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        let tail = &rest[at..];
        let lower = tail.as_bytes()[..tail.len().min(40)].to_ascii_lowercase();
        match decode_entity(&lower) {
            Some((c, len)) => {
                out.push(c);
                rest = &tail[len..];
            }
            None => {
                out.push('&');
                rest = &tail[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(run: &str) -> (u32, String) {
        let mut text = Text::default();
        text.push(run.as_bytes(), Counting::Utf8);
        (text.chars, String::from_utf8_lossy(&text.kept).into_owned())
    }

    #[test]
    fn white_space_collapses_and_entities_count_once() {
        assert_eq!(count("  a \n\t b  "), (3, "a b".into()));
        assert_eq!(count("a&nbsp;b&#32;c&#x20;d"), (7, "a b c d".into()));
        assert_eq!(count("&amp;&#58;&eacute;&unknown;&"), (5, "&:é\u{FFFD}&".into()));
        assert_eq!(count("日本語 é"), (5, "日本語 é".into()));
    }

    #[test]
    fn entities_that_are_cut_or_out_of_range_do_not_panic() {
        for run in ["&", "&#", "&#x", "&#;", "&#99999999999;", "&#xD800;", "&a", "&;", "&#x110000;"] {
            let _ = count(run);
            let _ = decode_entities(run);
        }
        assert_eq!(decode_entity(b"&#xd800;").map(|e| e.0), Some('\u{FFFD}'));
    }

    #[test]
    fn legacy_charsets_count_characters_not_bytes() {
        let mut text = Text::default();
        text.push(b"\x93\xFA\x96\x7B\xB1", Counting::ShiftJis);
        assert_eq!(text.chars, 3);
        text.clear();
        text.push(b"\xEF\xF0\xE8", Counting::Single);
        assert_eq!(text.chars, 3);
    }

    #[test]
    fn folding_makes_typography_comparable() {
        let mut out = String::new();
        fold_into("Let\u{2019}s\u{A0}CHECK\u{2026}  «ДА»", &mut out);
        assert_eq!(out, "let's check... \"да\"");
    }

    #[test]
    fn titles_decode_multibyte_neighbours_safely() {
        assert_eq!(decode_entities("Tom &amp; J&eacute;r\u{F4}me &\u{1F600}"), "Tom & Jérôme &\u{1F600}");
    }
}
