//! Finding many byte patterns in one pass over text that is in lower case already.
//!
//! Each pattern is found by a *core*, the four bytes or more of it that are rarest in HTML, with the vector search of
//! `aho-corasick`; the rest is verified around the core. Every occurrence is reported, overlapping ones too, up to a
//! number of hits that grows with the text, so that the time stays linear whatever the text holds. This file knows
//! patterns and offsets, not rules.

use aho_corasick::packed;
use aho_corasick::{AhoCorasick, Input, MatchKind, Span};

/// Shortest core, in bytes: what the vector search looks at.
const CORE_MIN: usize = 4;
/// Longest core, in bytes: more would only be verified twice.
const CORE_MAX: usize = 8;
/// Hits that any text may have, however short.
const HITS_FREE: usize = 64;
/// Beyond those, one hit for so many bytes.
const BYTES_PER_HIT: usize = 128;

/// Why a pattern cannot be searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternError {
    /// The first literal piece has fewer than four bytes.
    TooShort,
    /// A `{...}` that is none of the known ones.
    UnknownWildcard,
}

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(Box<[u8]>),
    /// One decimal digit or more.
    Digits,
    /// One hexadecimal digit or more.
    Hex,
    /// One of `a-z0-9_-` or more.
    Word,
    /// At most 80 bytes of anything but `<` and `>`, as few as will do.
    Gap,
}

/// A byte pattern: literal text with `{digits}`, `{hex}`, `{word}` and `{gap}` in it, in lower case.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pieces: Box<[Piece]>,
    core_at: usize,
    core_len: usize,
}

impl Pattern {
    /// Reads a pattern as it is written in a rule file. Letter case is folded.
    pub(super) fn parse(written: &str) -> Result<Self, PatternError> {
        let mut pieces = Vec::new();
        let lower = written.to_lowercase();
        let mut rest = lower.as_str();
        while !rest.is_empty() {
            let wildcard =
                [("{digits}", Piece::Digits), ("{hex}", Piece::Hex), ("{word}", Piece::Word), ("{gap}", Piece::Gap)]
                    .into_iter()
                    .find(|(name, _)| rest.starts_with(name));
            if let Some((name, piece)) = wildcard {
                pieces.push(piece);
                rest = &rest[name.len()..];
                continue;
            }
            let end = ["{digits}", "{hex}", "{word}", "{gap}"].iter().filter_map(|w| rest.find(w)).min();
            let literal = &rest[..end.unwrap_or(rest.len())];
            pieces.push(Piece::Literal(literal.as_bytes().into()));
            rest = &rest[literal.len()..];
        }
        match pieces.first() {
            Some(Piece::Literal(first)) if first.len() >= CORE_MIN => {
                let (core_at, core_len) = rarest(first);
                Ok(Self { core_at, core_len, pieces: pieces.into() })
            }
            Some(Piece::Literal(_)) | None => Err(PatternError::TooShort),
            Some(_) => Err(PatternError::UnknownWildcard),
        }
    }

    fn first(&self) -> &[u8] {
        match self.pieces.first() {
            Some(Piece::Literal(first)) => first,
            _ => &[],
        }
    }

    fn core(&self) -> &[u8] {
        &self.first()[self.core_at..self.core_at + self.core_len]
    }

    /// The end of the match that starts at `start`, if there is one.
    pub(super) fn end_at(&self, text: &[u8], start: usize) -> Option<usize> {
        end_of(&self.pieces, text, start)
    }
}

fn end_of(pieces: &[Piece], text: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    for (i, piece) in pieces.iter().enumerate() {
        let rest = text.get(at..)?;
        at += match piece {
            Piece::Literal(literal) => rest.starts_with(literal).then_some(literal.len())?,
            Piece::Digits => run(rest, |b| b.is_ascii_digit())?,
            Piece::Hex => run(rest, |b| b.is_ascii_hexdigit())?,
            Piece::Word => run(rest, |b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')?,
            Piece::Gap => {
                return (0..=80.min(rest.len()))
                    .take_while(|&n| n == 0 || !matches!(rest[n - 1], b'<' | b'>'))
                    .find_map(|n| end_of(&pieces[i + 1..], text, at + n));
            }
        };
    }
    Some(at)
}

fn run(bytes: &[u8], of: impl Fn(u8) -> bool) -> Option<usize> {
    let len = bytes.iter().take(64).take_while(|b| of(**b)).count();
    (len > 0).then_some(len)
}

/// Where the rarest stretch of `literal` starts, and how long it is.
fn rarest(literal: &[u8]) -> (usize, usize) {
    let cost = |window: &[u8]| window.iter().map(|b| u32::from(commonness(*b))).sum::<u32>();
    let start = (0..=literal.len() - CORE_MIN).min_by_key(|&at| cost(&literal[at..at + CORE_MIN])).unwrap_or(0);
    (start, (literal.len() - start).min(CORE_MAX))
}

/// How common a byte is in lower-case HTML, on a rough logarithmic scale.
fn commonness(byte: u8) -> u8 {
    match byte {
        b' ' | b'e' | b't' | b'a' | b's' | b'i' | b'n' | b'r' | b'o' | b'l' => 10,
        b'c' | b'd' | b'p' | b'm' | b'h' | b'u' | b'"' | b'<' | b'>' | b'/' | b'=' => 9,
        b'-' | b'f' | b'g' | b'b' | b'v' | b'y' | b'.' | b'0'..=b'9' => 8,
        b'w' | b'k' | b'x' | b';' | b':' | b',' | b'\n' => 7,
        b'(' | b')' | b'\'' | b'&' | b'{' | b'}' => 6,
        b'j' | b'q' | b'z' | b'#' | b'_' => 4,
        b'[' | b']' | b'+' | b'?' | b'!' | b'%' | b'$' => 3,
        _ => 1,
    }
}

/// An occurrence of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    /// Index of the pattern.
    pub(super) pattern: u32,
    /// Where it starts, in bytes.
    pub(super) start: u32,
}

#[derive(Debug)]
enum Engine {
    Nothing,
    Vector(packed::Searcher),
    Automaton(AhoCorasick),
}

/// A set of patterns, ready to be searched for.
#[derive(Debug)]
pub(super) struct Scan {
    engine: Engine,
    /// For each core the engine knows: the patterns whose core begins as it does, as (index, offset of the core).
    by_core: Vec<Vec<(u32, u32)>>,
}

impl Scan {
    /// Prepares a search for `patterns`; a hit names a pattern by the number given with it.
    pub(super) fn new<'p>(patterns: impl IntoIterator<Item = (u32, &'p Pattern)>) -> Self {
        let mut patterns: Vec<_> = patterns.into_iter().collect();
        patterns.sort_by(|(_, a), (_, b)| a.core().cmp(b.core()));
        // In this order a core follows the one it begins with, and is found by it.
        let mut cores: Vec<&[u8]> = Vec::new();
        let mut by_core: Vec<Vec<(u32, u32)>> = Vec::new();
        for (index, pattern) in patterns {
            if !cores.last().is_some_and(|core| pattern.core().starts_with(core)) {
                cores.push(pattern.core());
                by_core.push(Vec::new());
            }
            if let Some(group) = by_core.last_mut() {
                group.push((index, pattern.core_at as u32));
            }
        }
        Self { engine: engine(&cores), by_core }
    }

    /// Reports every occurrence in `text[from..]` in the order of their cores, up to the bound on hits. Stops when `found`
    /// returns false.
    pub(super) fn each(&self, text: &[u8], patterns: &[Pattern], mut found: impl FnMut(Hit) -> bool) {
        let mut budget = HITS_FREE + text.len() / BYTES_PER_HIT;
        let mut at = 0;
        while let Some((core, start)) = self.next(text, at) {
            at = start + 1;
            for &(index, core_at) in &self.by_core[core] {
                let Some(begin) = start.checked_sub(core_at as usize) else { continue };
                let hit = Hit { pattern: index, start: begin as u32 };
                if patterns[index as usize].end_at(text, begin).is_some() && !found(hit) {
                    return;
                }
            }
            budget -= 1;
            if budget == 0 {
                return;
            }
        }
    }

    fn next(&self, text: &[u8], at: usize) -> Option<(usize, usize)> {
        match &self.engine {
            Engine::Nothing => None,
            Engine::Vector(searcher) => {
                searcher.find_in(text, Span { start: at, end: text.len() }).map(|m| (m.pattern().as_usize(), m.start()))
            }
            Engine::Automaton(searcher) => {
                searcher.find(Input::new(text).range(at..)).map(|m| (m.pattern().as_usize(), m.start()))
            }
        }
    }
}

fn engine(cores: &[&[u8]]) -> Engine {
    if cores.is_empty() {
        return Engine::Nothing;
    }
    let mut config = packed::Config::new();
    config.match_kind(packed::MatchKind::LeftmostFirst).heuristic_pattern_limits(false);
    if let Some(searcher) = config.builder().extend(cores).build() {
        return Engine::Vector(searcher);
    }
    // Too many patterns for the vector search, or a processor without it.
    match AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(cores) {
        Ok(searcher) => Engine::Automaton(searcher),
        Err(_) => Engine::Nothing,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hits(patterns: &[&str], text: &str) -> Vec<(u32, u32)> {
        let patterns: Vec<_> = patterns.iter().map(|p| Pattern::parse(p).unwrap()).collect();
        let scan = Scan::new(patterns.iter().enumerate().map(|(i, p)| (i as u32, p)));
        let mut out = Vec::new();
        scan.each(text.as_bytes(), &patterns, |h| {
            out.push((h.pattern, h.start));
            true
        });
        out.sort_unstable();
        out
    }

    #[test]
    fn overlapping_and_nested_patterns_are_all_found() {
        assert_eq!(hits(&["_cf_chl_opt", "window._cf_chl_opt"], "x window._cf_chl_opt={"), [(0, 9), (1, 2)]);
        assert_eq!(hits(&["abcd", "bcde", "abcdef"], "zabcdef"), [(0, 1), (1, 2), (2, 1)]);
        assert_eq!(hits(&["aaaa"], "aaaaaa"), [(0, 0), (0, 1), (0, 2)]);
    }

    #[test]
    fn wildcards_match_at_least_one_byte_and_nothing_else() {
        let p = ["/challenge-platform/h/{word}/orchestrate", "reference #{digits}.{hex}."];
        assert_eq!(hits(&p, "src=/challenge-platform/h/g/orchestrate/x").len(), 1);
        assert_eq!(hits(&p, "src=/challenge-platform/h//orchestrate/x").len(), 0);
        assert_eq!(hits(&p, "reference #18.deb00f17.1777").len(), 1);
        assert_eq!(hits(&p, "reference #18.xyz.1777").len(), 0);
    }

    #[test]
    fn a_gap_stays_inside_a_tag_and_is_bounded() {
        assert_eq!(hits(&["content=\"{gap}url=/x"], "<meta content=\"0; url=/x\">").len(), 1);
        assert_eq!(hits(&["content=\"{gap}url=/x"], "<meta content=\"0\"><a url=/x>").len(), 0);
        assert_eq!(hits(&["content=\"{gap}url=/x"], &format!("content=\"{}url=/x", " ".repeat(100))).len(), 0);
    }

    #[test]
    fn patterns_that_cannot_be_searched_are_refused() {
        assert_eq!(Pattern::parse("abc").err(), Some(PatternError::TooShort));
        assert_eq!(Pattern::parse("{hex}abcd").err(), Some(PatternError::UnknownWildcard));
        assert_eq!(Pattern::parse("").err(), Some(PatternError::TooShort));
    }

    #[test]
    fn more_patterns_than_the_vector_search_takes_are_still_found() {
        let many: Vec<String> = (0..400).map(|i| format!("marker-{i:04}!")).collect();
        let refs: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(hits(&refs, "a marker-0399! b marker-0000!"), [(0, 17), (399, 2)]);
    }

    #[test]
    fn a_flood_of_hits_is_cut_off() {
        let text = "_cf_chl_opt".repeat(100_000);
        assert!(hits(&["_cf_chl_opt"], &text).len() <= HITS_FREE + text.len() / BYTES_PER_HIT);
    }
}
