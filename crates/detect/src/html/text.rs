//! Visible text: its length in characters with white space collapsed, and its beginning, entities
//! decoded, for the sentences of rules.
//!
//! Must not know: HTML elements, only bytes and charsets.

use std::ops::Range;

use super::charset::Counting;
use crate::html::tokenizer::TextShape;

/// Bytes of text that are kept for sentences.
const KEPT: usize = 32 * 1024;

/// Bytes that are counted before the limit is checked again.
const STEP: usize = 4096;

/// A run of text in the page.
#[derive(Clone, Copy, Debug)]
struct TextRun {
    start: u32,
    end: u32,
    /// Whether white space separates it from the run before.
    apart: bool,
    kind: RunKind,
}

/// The way a run is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunKind {
    /// ASCII without `&` and without adjacent white space: copied as is.
    Words,
    /// ASCII without `&`: white space is collapsed.
    Ascii,
    /// Any bytes.
    Other,
}

/// A count of characters, and the runs at the beginning of the text.
#[derive(Clone, Debug, Default)]
pub(crate) struct VisibleText {
    pub(crate) chars: u32,
    /// Runs of text.
    runs: Vec<TextRun>,
    kept: usize,
    space: bool,
}

impl VisibleText {
    pub(crate) fn clear(&mut self) {
        self.chars = 0;
        self.runs.clear();
        self.kept = 0;
        self.space = false;
    }

    /// Ends a word: white space, if text follows.
    #[inline]
    pub(crate) fn break_word(&mut self) {
        self.space = true;
    }

    /// Adds the run of text at `range` of `page`, entities not decoded. Stops after more than
    /// `enough` characters.
    pub(crate) fn push(
        &mut self,
        page: &[u8],
        range: Range<usize>,
        counting: Counting,
        enough: u32,
    ) {
        self.keep(&range, RunKind::Other);
        let mut rest = &page[range];
        while !rest.is_empty() && self.chars <= enough {
            // A step must not cut an entity.
            let step = if rest.len() <= STEP { rest.len() } else { step_end(rest) };
            let (now, later) = rest.split_at(step);
            self.count(now, counting);
            rest = later;
        }
    }

    /// Adds a run of known shape.
    #[inline]
    pub(crate) fn push_known(&mut self, range: Range<usize>, shape: TextShape) {
        if shape.letters == 0 {
            self.space = true;
            return;
        }
        // Text follows each white space except the last one.
        let words = range.len() as u32 == shape.letters + shape.gaps + u32::from(shape.trailing);
        self.keep(&range, if words { RunKind::Words } else { RunKind::Ascii });
        // White space at the beginning of the run, or at the end of the previous one.
        let leading = u32::from(shape.leading);
        let first = u32::from((leading > 0 || self.space) && self.chars > 0);
        self.chars = self.chars.saturating_add(shape.letters + shape.gaps - leading + first);
        self.space = shape.trailing;
    }

    #[inline]
    fn keep(&mut self, range: &Range<usize>, kind: RunKind) {
        if self.kept < KEPT {
            self.kept += range.len();
            let (start, end) = (range.start as u32, range.end as u32);
            self.runs.push(TextRun { start, end, apart: self.space, kind });
        }
    }

    fn count(&mut self, run: &[u8], counting: Counting) {
        let plain = run.iter().fold(0u8, |bits, b| bits | (*b & 0x80) | u8::from(*b == b'&'));
        if plain == 0 {
            return self.count_plain(run);
        }
        let mut counter = CharCounter { chars: self.chars, space: self.space };
        read(run, counting, |event| counter.event(event));
        (self.chars, self.space) = (counter.chars, counter.space);
    }

    /// Counts ASCII without entities: characters, plus one per stretch of white space before text.
    fn count_plain(&mut self, run: &[u8]) {
        let (Some(&first), Some(&last)) = (run.first(), run.last()) else { return };
        let letters: usize = run.iter().map(|b| usize::from(!is_blank(*b))).sum();
        if letters == 0 {
            self.space = true;
            return;
        }
        // A word begins where white space ends.
        let words: usize =
            run.iter().zip(&run[1..]).map(|(a, b)| usize::from(is_blank(*a) & !is_blank(*b))).sum();
        let leading = is_blank(first);
        // If the run begins with white space, `words` includes its first word.
        let gaps =
            words - usize::from(leading) + usize::from((leading || self.space) && self.chars > 0);
        self.chars = self.chars.saturating_add((letters + gaps) as u32);
        self.space = is_blank(last);
    }

    /// Copies the kept text, entities decoded and white space collapsed, in the page's charset
    /// (entities in UTF-8).
    pub(crate) fn kept_into(&self, page: &[u8], counting: Counting, out: &mut Vec<u8>) {
        out.clear();
        let mut space = false;
        for run in &self.runs {
            space |= run.apart;
            let bytes = page.get(run.start as usize..run.end as usize).unwrap_or_default();
            match run.kind {
                RunKind::Words => space = append_words(bytes, space, out),
                RunKind::Ascii => space = append_ascii(bytes, space, out),
                RunKind::Other => read(bytes, counting, |event| match event {
                    TextEvent::Space => space = true,
                    TextEvent::Chars(bytes, _) => {
                        if space && !out.is_empty() {
                            out.push(b' ');
                        }
                        space = false;
                        out.extend_from_slice(bytes);
                    }
                }),
            }
            if out.len() > KEPT {
                break;
            }
        }
        out.iter_mut().for_each(|byte| *byte = if is_blank(*byte) { b' ' } else { *byte });
    }
}

/// Returns whether a byte is white space of HTML.
#[inline]
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x0C)
}

/// Appends a run without adjacent white space of any kind. `space` is whether white space precedes
/// it. Returns whether white space follows it.
fn append_words(run: &[u8], space: bool, out: &mut Vec<u8>) -> bool {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return space };
    let (leading, trailing) = (usize::from(is_blank(*first)), usize::from(is_blank(*last)));
    if (space || leading == 1) && !out.is_empty() {
        out.push(b' ');
    }
    out.extend_from_slice(run.get(leading..run.len() - trailing).unwrap_or_default());
    trailing == 1
}

/// Appends a run of ASCII without entities and collapses its white space. `space` is whether white
/// space precedes it. Returns whether white space follows it.
fn append_ascii(run: &[u8], space: bool, out: &mut Vec<u8>) -> bool {
    let from = out.len();
    // Each byte is written; adjacent white space is overwritten.
    out.resize(from + run.len() + 1, b' ');
    let mut blank = space || from == 0;
    let mut at = from + usize::from(space && from > 0);
    for &byte in run {
        let now = is_blank(byte);
        out[at] = if now { b' ' } else { byte };
        at += usize::from(!(now && blank));
        blank = now;
    }
    // White space at the end is written only if text follows.
    let trailing = at > from && out[at - 1] == b' ';
    out.truncate(at - usize::from(trailing));
    trailing
}

/// Returns the end of a step of at most [`STEP`] bytes: after white space, or before a possible
/// entity that continues.
fn step_end(rest: &[u8]) -> usize {
    let from = STEP - 64;
    let tail = &rest[from..STEP];
    match tail.iter().rposition(|b| *b == b'&' || is_blank(*b)) {
        Some(n) if tail[n] == b'&' => from + n,
        Some(n) => from + n + 1,
        None => STEP,
    }
}

struct CharCounter {
    chars: u32,
    space: bool,
}

impl CharCounter {
    #[inline]
    fn event(&mut self, event: TextEvent<'_>) {
        match event {
            TextEvent::Space => self.space = true,
            // Bytes that are no character neither count nor end white space.
            TextEvent::Chars(_, 0) => {}
            TextEvent::Chars(_, count) => {
                self.chars =
                    self.chars.saturating_add(count + u32::from(self.space && self.chars > 0));
                self.space = false;
            }
        }
    }
}

/// The next event in a run of text.
enum TextEvent<'a> {
    Space,
    /// Bytes and their number of characters; 0 for bytes that are no character.
    Chars(&'a [u8], u32),
}

/// Reads a run of text, word by word where it is ASCII.
fn read(run: &[u8], counting: Counting, mut event: impl FnMut(TextEvent<'_>)) {
    let mut at = 0;
    while let Some(&byte) = run.get(at) {
        at += match byte {
            b' ' | b'\n' | b'\r' | b'\t' | 0x0C => {
                event(TextEvent::Space);
                1
            }
            b'&' => entity(&run[at..], &mut event),
            0..=0x7F => {
                let plain = |b: &u8| !(is_blank(*b) || matches!(b, b'&' | 0x80..));
                let word = &run[at..];
                let word = &word[..word.iter().position(|b| !plain(b)).unwrap_or(word.len())];
                event(TextEvent::Chars(word, word.len() as u32));
                word.len()
            }
            _ => wide(&run[at..], counting, &mut event),
        };
    }
}

/// Reads a character outside ASCII. Returns its length in bytes.
fn wide(run: &[u8], counting: Counting, event: &mut impl FnMut(TextEvent<'_>)) -> usize {
    let byte = run[0];
    let len = match counting {
        Counting::Single => 1,
        Counting::Double => 2,
        Counting::ShiftJis if (0xA1..=0xDF).contains(&byte) => 1,
        Counting::ShiftJis => 2,
        Counting::Utf8 => match byte {
            // A continuation byte without its lead byte.
            0x80..=0xBF => {
                event(TextEvent::Chars(&run[..1], 0));
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
        if matches!(
            &run[..len],
            [0xC2, 0xA0] | [0xE2, 0x80, 0x8B..=0x8D] | [0xE3, 0x80, 0x80] | [0xEF, 0xBB, 0xBF]
        ) {
            event(TextEvent::Space);
            return len;
        }
    }
    event(TextEvent::Chars(&run[..len], 1));
    len
}

/// Reads an entity, or a lone `&`. Returns its length in bytes.
fn entity(run: &[u8], event: &mut impl FnMut(TextEvent<'_>)) -> usize {
    match decode_entity(run) {
        Some((c, len)) if c.is_whitespace() || ('\u{200B}'..='\u{200D}').contains(&c) => {
            event(TextEvent::Space);
            len
        }
        Some((c, len)) => {
            event(TextEvent::Chars(c.encode_utf8(&mut [0; 4]).as_bytes(), 1));
            len
        }
        None => {
            event(TextEvent::Chars(b"&", 1));
            1
        }
    }
}

/// Returns the character of the entity at the start of `run`, and its length in bytes. An entity
/// with an unknown name counts as one character, U+FFFD. `None` if there is no entity.
pub(crate) fn decode_entity(run: &[u8]) -> Option<(char, usize)> {
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
    let c = named(&body[..len]).unwrap_or('\u{FFFD}');
    Some((c, len + 2))
}

/// Returns the character of a named entity of challenge pages and titles in Western languages;
/// names are in lower case, like the text.
fn named(name: &[u8]) -> Option<char> {
    Some(match name {
        b"amp" => '&',
        b"lt" => '<',
        b"gt" => '>',
        b"quot" => '"',
        b"apos" => '\'',
        b"nbsp" => ' ',
        b"ensp" => ' ',
        b"emsp" => ' ',
        b"thinsp" => ' ',
        b"shy" => '\u{200B}',
        b"zwnj" => '\u{200C}',
        b"zwj" => '\u{200D}',
        b"rsquo" => '\u{2019}',
        b"lsquo" => '\u{2018}',
        b"ldquo" => '\u{201C}',
        b"rdquo" => '\u{201D}',
        b"hellip" => '\u{2026}',
        b"mdash" => '\u{2014}',
        b"ndash" => '\u{2013}',
        b"middot" => '\u{B7}',
        b"bull" => '\u{2022}',
        b"raquo" => '\u{BB}',
        b"laquo" => '\u{AB}',
        b"copy" => '\u{A9}',
        b"reg" => '\u{AE}',
        b"agrave" => 'à',
        b"aacute" => 'á',
        b"acirc" => 'â',
        b"atilde" => 'ã',
        b"auml" => 'ä',
        b"ccedil" => 'ç',
        b"egrave" => 'è',
        b"eacute" => 'é',
        b"ecirc" => 'ê',
        b"euml" => 'ë',
        b"iacute" => 'í',
        b"icirc" => 'î',
        b"iuml" => 'ï',
        b"ntilde" => 'ñ',
        b"ograve" => 'ò',
        b"oacute" => 'ó',
        b"ocirc" => 'ô',
        b"otilde" => 'õ',
        b"ouml" => 'ö',
        b"ugrave" => 'ù',
        b"uacute" => 'ú',
        b"ucirc" => 'û',
        b"uuml" => 'ü',
        b"szlig" => 'ß',
        b"iquest" => '¿',
        b"iexcl" => '¡',
        b"ordm" => 'º',
        b"ordf" => 'ª',
        _ => return None,
    })
}

/// Folds text for the comparison of sentences: lower case, straight quotes, collapsed white space.
/// Entities are already decoded.
pub(crate) fn fold_into(text: &str, out: &mut String) {
    out.clear();
    if text.bytes().all(|byte| byte < 0x80 && byte != b'`') {
        for word in text.split(char::is_whitespace).filter(|word| !word.is_empty()) {
            if !out.is_empty() {
                out.push(' ');
            }
            out.push_str(word);
        }
        return out.make_ascii_lowercase();
    }
    let mut space = false;
    for c in text.chars() {
        fold(c, 0, &mut space, out);
    }
}

/// Appends the folded form of `text`, whose ASCII is in lower case and whose white space is
/// collapsed.
pub(crate) fn append_collapsed(text: &str, out: &mut String) {
    let from = out.len();
    let mut space = false;
    let mut rest = text;
    while !rest.is_empty() {
        let (stretch, later) = rest.split_at(already_folded_len(rest.as_bytes()));
        let words = trim_spaces(stretch);
        space |= stretch.starts_with(' ');
        if !words.is_empty() {
            if space && out.len() > from {
                out.push(' ');
            }
            out.push_str(words);
            space = stretch.ends_with(' ');
        }
        let Some(c) = later.chars().next() else { return };
        fold(c, from, &mut space, out);
        rest = &later[c.len_utf8()..];
    }
}

/// Returns `text` without spaces at its ends.
fn trim_spaces(text: &str) -> &str {
    let bytes = text.as_bytes();
    let from = bytes.iter().position(|byte| *byte != b' ').unwrap_or(bytes.len());
    let to = bytes.iter().rposition(|byte| *byte != b' ').map_or(from, |last| last + 1);
    text.get(from..to).unwrap_or_default()
}

/// Returns the number of leading ASCII bytes that folding does not change.
fn already_folded_len(bytes: &[u8]) -> usize {
    let folds = |b: &u8| *b >= 0x80 || *b == b'`';
    let chunks = bytes.as_chunks::<16>().0;
    let whole = 16
        * chunks
            .iter()
            .take_while(|chunk| !chunk.iter().fold(false, |any, b| any | folds(b)))
            .count();
    whole + bytes[whole..].iter().position(folds).unwrap_or(bytes.len() - whole)
}

/// Appends the folded form of one character; `space` is whether white space precedes it.
fn fold(c: char, from: usize, space: &mut bool, out: &mut String) {
    match c {
        '!'..='_' | 'a'..='~' => push(out, from, space, c.to_ascii_lowercase()),
        c if c.is_whitespace() => *space = true,
        '\u{2018}' | '\u{2019}' | '\u{02BC}' | '`' | '\u{B4}' => push(out, from, space, '\''),
        '\u{201C}' | '\u{201D}' | '\u{AB}' | '\u{BB}' => push(out, from, space, '"'),
        '\u{2010}'..='\u{2015}' => push(out, from, space, '-'),
        '\u{2026}' => {
            push(out, from, space, '.');
            out.push_str("..");
        }
        c if c.is_ascii() => push(out, from, space, c.to_ascii_lowercase()),
        // The capital I with a dot of Turkish becomes an i with a dot above it.
        c => c
            .to_lowercase()
            .filter(|low| *low != '\u{307}')
            .for_each(|low| push(out, from, space, low)),
    }
}

fn push(out: &mut String, from: usize, space: &mut bool, c: char) {
    if *space && out.len() > from {
        out.push(' ');
    }
    *space = false;
    out.push(c);
}

/// Appends a title with its entities decoded.
pub(crate) fn decode_entities_into(text: &str, out: &mut String) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(run: &str) -> (u32, String) {
        let mut text = VisibleText::default();
        text.push(run.as_bytes(), 0..run.len(), Counting::Utf8, u32::MAX);
        let mut kept = Vec::new();
        text.kept_into(run.as_bytes(), Counting::Utf8, &mut kept);
        (text.chars, String::from_utf8_lossy(&kept).into_owned())
    }

    #[test]
    fn white_space_collapses_and_entities_count_once() {
        assert_eq!(count("  a \n\t b  "), (3, "a b".into()));
        assert_eq!(count("a&nbsp;b&#32;c&#x20;d"), (7, "a b c d".into()));
        assert_eq!(count("&amp;&#58;&eacute;&unknown;&"), (5, "&:é\u{FFFD}&".into()));
        assert_eq!(count("日本語 é"), (5, "日本語 é".into()));
    }

    #[test]
    fn truncated_and_invalid_entities_do_not_panic() {
        for run in ["&", "&#", "&#x", "&#;", "&#99999999999;", "&#xD800;", "&a", "&;", "&#x110000;"]
        {
            let _ = count(run);
            decode_entities_into(run, &mut String::new());
        }
        assert_eq!(decode_entity(b"&#xd800;").map(|e| e.0), Some('\u{FFFD}'));
    }

    #[test]
    fn legacy_charsets_count_characters_not_bytes() {
        let mut text = VisibleText::default();
        text.push(b"\x93\xFA\x96\x7B\xB1", 0..5, Counting::ShiftJis, u32::MAX);
        assert_eq!(text.chars, 3);
        text.clear();
        text.push(b"\xEF\xF0\xE8", 0..3, Counting::Single, u32::MAX);
        assert_eq!(text.chars, 3);
    }

    #[test]
    fn plain_runs_count_like_a_naive_count() {
        let runs = ["a", " a", "a ", "  a  b ", "   ", "", "\n\tx y\r\n z", "ab cd", "é a", "& b"];
        for first in runs {
            for second in runs {
                let page = format!("{first}{second}");
                let mut text = VisibleText::default();
                text.push(page.as_bytes(), 0..first.len(), Counting::Utf8, u32::MAX);
                text.push(page.as_bytes(), first.len()..page.len(), Counting::Utf8, u32::MAX);
                let words: Vec<_> = page.split_whitespace().collect();
                assert_eq!(
                    text.chars as usize,
                    words.join(" ").chars().count(),
                    "{first:?} {second:?}"
                );
            }
        }
    }

    #[test]
    fn counting_stops_soon_after_the_limit() {
        let page = "ab ".repeat(100_000);
        let mut text = VisibleText::default();
        text.push(page.as_bytes(), 0..page.len(), Counting::Utf8, 1_500);
        assert!(text.chars > 1_500 && text.chars < 10_000);
    }

    #[test]
    fn an_entity_across_a_step_counts_once() {
        for before in STEP - 10..STEP + 2 {
            let page = format!("{}&#65;{}", "x".repeat(before), "y".repeat(100));
            assert_eq!(count(&page).0 as usize, before + 101, "{before}");
        }
    }

    #[test]
    fn folding_makes_typography_comparable() {
        let mut out = String::new();
        fold_into("Let\u{2019}s\u{A0}CHECK\u{2026}  «ДА»", &mut out);
        assert_eq!(out, "let's check... \"да\"");
    }

    #[test]
    fn entities_next_to_multibyte_characters_are_decoded() {
        let mut out = String::new();
        decode_entities_into("Tom &amp; J&eacute;r\u{F4}me &\u{1F600}", &mut out);
        assert_eq!(out, "Tom & Jérôme &\u{1F600}");
    }
}
