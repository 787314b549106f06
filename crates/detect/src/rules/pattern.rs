//! Byte patterns with wildcards: their syntax in rule files, and their match at one offset.
//!
//! Must not know: how candidate offsets are found (see `scan`).

/// Minimum bytes of literal text at the beginning of a pattern: a search needs them.
pub(crate) const MIN_FIRST: usize = 4;

/// The reason why a pattern cannot be searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternError {
    /// The literal text at its beginning has fewer than four bytes.
    TooShort,
    /// A wildcard stands at its beginning.
    UnknownWildcard,
}

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPiece {
    Literal(Box<[u8]>),
    /// One or more decimal digits.
    Digits,
    /// One or more hexadecimal digits.
    Hex,
    /// One or more of `a-z0-9_-`.
    Word,
    /// At most 80 bytes except `<` and `>`, as few as possible.
    Gap,
    /// The end of a word: the end of the text, or a byte other than `a-z0-9_-`.
    End,
}

/// What follows the literal text at the beginning of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternTail {
    Nothing,
    /// The end of a word.
    WordEnd,
    /// Any other pieces.
    Other,
}

/// The wildcards in rule files.
const WILDCARDS: [(&str, PatternPiece); 5] = [
    ("{digits}", PatternPiece::Digits),
    ("{hex}", PatternPiece::Hex),
    ("{word}", PatternPiece::Word),
    ("{gap}", PatternPiece::Gap),
    ("{end}", PatternPiece::End),
];

/// Maximum bytes of a gap.
const MAX_GAP: usize = 80;

/// A byte pattern: lower-case text with the wildcards `{digits}`, `{hex}`, `{word}`, `{gap}` and
/// `{end}`.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pieces: Box<[PatternPiece]>,
}

impl Pattern {
    /// Parses a pattern of a rule file. Letter case is folded.
    pub(crate) fn parse(written: &str) -> Result<Self, PatternError> {
        // Most patterns are one literal.
        let mut pieces = Vec::with_capacity(1);
        let lower = written.to_lowercase();
        let mut rest = lower.as_str();
        while !rest.is_empty() {
            if let Some((name, piece)) = wildcard_at(rest) {
                pieces.push(piece);
                rest = &rest[name.len()..];
                continue;
            }
            let end = memchr::memchr_iter(b'{', rest.as_bytes())
                .find(|at| wildcard_at(&rest[*at..]).is_some());
            let (literal, later) = rest.split_at(end.unwrap_or(rest.len()));
            pieces.push(PatternPiece::Literal(literal.as_bytes().into()));
            rest = later;
        }
        match pieces.first() {
            Some(PatternPiece::Literal(first)) if first.len() >= MIN_FIRST => {
                Ok(Self { pieces: pieces.into() })
            }
            Some(PatternPiece::Literal(_)) | None => Err(PatternError::TooShort),
            Some(_) => Err(PatternError::UnknownWildcard),
        }
    }

    /// Returns the literal text at its beginning.
    pub(crate) fn first(&self) -> &[u8] {
        match self.pieces.first() {
            Some(PatternPiece::Literal(first)) => first,
            _ => &[],
        }
    }

    /// Returns what follows the literal text at its beginning.
    pub(super) fn tail(&self) -> PatternTail {
        match self.pieces.get(1..) {
            None | Some([]) => PatternTail::Nothing,
            Some([PatternPiece::End]) => PatternTail::WordEnd,
            Some(_) => PatternTail::Other,
        }
    }

    /// Returns the end of the match that starts at `start`, if there is one.
    pub(crate) fn end_at(&self, text: &[u8], start: usize) -> Option<usize> {
        match_end(&self.pieces, text, start)
    }
}

/// Returns the wildcard at the beginning of `written`, with its name.
fn wildcard_at(written: &str) -> Option<(&'static str, PatternPiece)> {
    if !written.starts_with('{') {
        return None;
    }
    WILDCARDS.into_iter().find(|(name, _)| written.starts_with(name))
}

fn match_end(pieces: &[PatternPiece], text: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    for (i, piece) in pieces.iter().enumerate() {
        let rest = text.get(at..)?;
        at += match piece {
            PatternPiece::Literal(literal) => rest.starts_with(literal).then_some(literal.len())?,
            PatternPiece::Digits => run_len(rest, |b| b.is_ascii_digit())?,
            PatternPiece::Hex => run_len(rest, |b| b.is_ascii_hexdigit())?,
            PatternPiece::Word => run_len(rest, is_of_word)?,
            PatternPiece::End => (!goes_on(rest)).then_some(0)?,
            PatternPiece::Gap => {
                let after = &pieces[i + 1..];
                let reach = &rest[..rest.len().min(MAX_GAP)];
                let reach = memchr::memchr2(b'<', b'>', reach).unwrap_or(reach.len());
                return match after.first().map(|next| (next, rest.get(..=reach).unwrap_or(rest))) {
                    // Only where the next literal may begin.
                    Some((PatternPiece::Literal(literal), starts)) => {
                        memchr::memchr_iter(*literal.first()?, starts)
                            .find_map(|n| match_end(after, text, at + n))
                    }
                    _ => (0..=reach).find_map(|n| match_end(after, text, at + n)),
                };
            }
        };
    }
    Some(at)
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Returns whether a letter of a script with separate words stands before `at`.
pub(super) fn follows_letter(text: &[u8], at: usize) -> bool {
    let Some(before) = text.get(..at) else { return false };
    match before.last() {
        None => false,
        Some(byte) if byte.is_ascii() => byte.is_ascii_alphanumeric(),
        Some(_) => {
            let from = before.iter().rposition(|byte| byte & 0xC0 != 0x80).unwrap_or(0);
            let last =
                std::str::from_utf8(&before[from..]).ok().and_then(|last| last.chars().next());
            last.is_some_and(|c| c.is_alphabetic() && has_words(c))
        }
    }
}

/// Returns whether a word continues in `rest`, also with a letter of another script.
pub(super) fn goes_on(rest: &[u8]) -> bool {
    match rest {
        [] => false,
        [byte, ..] if byte.is_ascii() => is_of_word(*byte),
        _ => {
            let len =
                (2..=4.min(rest.len())).find(|len| std::str::from_utf8(&rest[..*len]).is_ok());
            let next = len.and_then(|len| std::str::from_utf8(&rest[..len]).ok()?.chars().next());
            // Devanagari separates words, too. Its vowel signs are no letters.
            next.is_some_and(|c| {
                c.is_alphabetic() && has_words(c) || matches!(c, '\u{900}'..='\u{963}')
            })
        }
    }
}

/// Returns whether the script of `c` separates words, and words begin with their stem. In other
/// scripts a word may begin anywhere: Chinese, Japanese, Korean and Thai write no spaces; Arabic
/// and Hebrew join articles and prepositions to the word.
pub(crate) fn has_words(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '\u{C0}'..='\u{58F}' | '\u{1E00}'..='\u{1FFF}')
}

fn run_len(bytes: &[u8], of: impl Fn(u8) -> bool) -> Option<usize> {
    let len = bytes.iter().take(64).take_while(|b| of(**b)).count();
    (len > 0).then_some(len)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_vowel_sign_continues_a_word() {
        let pattern = Pattern::parse("\u{932}\u{947}\u{916}{end}").unwrap();
        let found = |text: &str| pattern.end_at(text.as_bytes(), 0).is_some();
        assert!(
            found("\u{932}\u{947}\u{916} \u{92A}\u{922}") && found("\u{932}\u{947}\u{916}\u{964}")
        );
        assert!(!found("\u{932}\u{947}\u{916}\u{947}\u{930}"));
    }

    #[test]
    fn patterns_that_cannot_be_searched_are_rejected() {
        assert_eq!(Pattern::parse("abc").err(), Some(PatternError::TooShort));
        assert_eq!(Pattern::parse("{hex}abcd").err(), Some(PatternError::UnknownWildcard));
        assert_eq!(Pattern::parse("").err(), Some(PatternError::TooShort));
    }

    #[test]
    fn end_matches_at_the_end_of_a_word_only() {
        let pattern = Pattern::parse("/verify{end}").unwrap();
        for ends in ["/verify", "/verify/", "/verify?x", "/verify.php", "/verify'"] {
            assert_eq!(pattern.end_at(ends.as_bytes(), 0), Some(7), "{ends}");
        }
        for goes_on in ["/verify-your-work", "/verify_x", "/verifying", "/verify2", "/verif"] {
            assert_eq!(pattern.end_at(goes_on.as_bytes(), 0), None, "{goes_on}");
        }
        // Letters of other scripts continue a word; punctuation and invalid bytes end it. Chinese
        // does not separate words.
        let pattern = Pattern::parse("a bot{end}").unwrap();
        for ends in ["a bot", "a bot\u{a0}", "a bot…", "a bot机"] {
            assert_eq!(pattern.end_at(ends.as_bytes(), 0), Some(5), "{ends}");
        }
        assert_eq!(pattern.end_at(b"a bot\xff", 0), Some(5));
        for goes_on in ["a botânica", "a botботаник"] {
            assert_eq!(pattern.end_at(goes_on.as_bytes(), 0), None, "{goes_on}");
        }
    }
}
