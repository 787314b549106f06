//! Finding many byte patterns in one pass over text that is in lower case already.
//!
//! Four bytes of text, a *gram*, are looked at every few bytes, the *stride*, and looked up in a small table of bits. The
//! table holds, for a window of each pattern, the grams at as many offsets as the stride is long, so that one of them is hit
//! wherever the pattern stands. A gram that is in the table is a candidate, and the pattern is verified around it. The cost is
//! that of a look-up for each stride, whatever the number of patterns; windows are chosen so that their grams are rare in
//! HTML. Every occurrence is reported, overlapping ones too, up to bounds that grow with the text, so that the time stays
//! linear whatever the text holds. This file knows patterns and offsets, not rules.

use super::grams;

/// Length of a gram, in bytes.
const GRAM: usize = 4;
/// The longest stride. A longer one needs more grams for each pattern and so finds more candidates.
const STRIDE_MAX: usize = 5;
/// Bits of a gram's hash by which it is looked up.
const FILTER_BITS: u32 = 17;
/// Bits of a gram's hash by which its patterns are found.
const HEAD_BITS: u32 = 12;
/// Multipliers a hash may have: odd, without a pattern in their bits. The one is taken that confuses fewest common grams
/// with those that are looked for.
const HASHES: [u32; 8] =
    [0x9E37_79B1, 0x85EB_CA6B, 0xC2B2_AE35, 0x27D4_EB2F, 0x1656_67B1, 0xA54F_F53B, 0x2C1B_3C6D, 0x297A_2D39];

/// Hits that count that any text may have, however short ...
const HITS_FREE: usize = 64;
/// ... and beyond those, one for so many bytes.
const BYTES_PER_HIT: usize = 256;
/// Candidates that any text may have, however short ...
const CANDIDATES_FREE: usize = 4096;
/// ... and beyond those, one for so many bytes.
const BYTES_PER_CANDIDATE: usize = 6;

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
            Some(Piece::Literal(first)) if first.len() >= GRAM => Ok(Self { pieces: pieces.into() }),
            Some(Piece::Literal(_)) | None => Err(PatternError::TooShort),
            Some(_) => Err(PatternError::UnknownWildcard),
        }
    }

    /// What it begins with, up to any wildcard.
    pub(super) fn first(&self) -> &[u8] {
        match self.pieces.first() {
            Some(Piece::Literal(first)) => first,
            _ => &[],
        }
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
                let after = &pieces[i + 1..];
                let begins = |n: usize| match after.first() {
                    Some(Piece::Literal(literal)) => rest.get(n) == literal.first(),
                    _ => true,
                };
                return (0..=80.min(rest.len()))
                    .take_while(|&n| n == 0 || !matches!(rest[n - 1], b'<' | b'>'))
                    .filter(|&n| begins(n))
                    .find_map(|n| end_of(after, text, at + n));
            }
        };
    }
    Some(at)
}

fn run(bytes: &[u8], of: impl Fn(u8) -> bool) -> Option<usize> {
    let len = bytes.iter().take(64).take_while(|b| of(**b)).count();
    (len > 0).then_some(len)
}

/// How often grams are met in HTML, on a scale that is linear and has no unit.
struct Weights {
    /// By `head`: grams that share a place with a common one are taken for common, which is no loss.
    common: Box<[f32; 1 << HEAD_BITS]>,
}

impl Weights {
    fn new() -> Self {
        let mut common = Box::new([1.0; 1 << HEAD_BITS]);
        for (gram, weight) in self::common() {
            common[head(gram)] = weight;
        }
        Self { common }
    }

    fn of(&self, gram: &[u8]) -> f32 {
        let sum: u8 = gram.iter().map(|b| commonness(*b)).sum();
        self.common[head(gram_at(gram, 0))] * (f32::from(sum) / 4.0).exp2()
    }
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

/// What a pattern's hits are bounded with, so that words which many scripts use do not take the place of a vendor's marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Marker,
    Word,
}

/// A gram of a pattern's window, and the next one whose hash has the same head.
#[derive(Clone, Copy, Debug)]
struct Entry {
    gram: u32,
    pattern: u32,
    /// Offset of the gram in the pattern.
    at: u32,
    /// Another gram of the pattern, as far from the first one as can be: most candidates fail by it.
    other: u32,
    other_at: u32,
    class: Class,
    /// Index of the next entry, plus one; 0 at the end.
    next: u32,
}

/// A set of patterns, ready to be searched for.
#[derive(Debug)]
pub(super) struct Scan {
    stride: usize,
    hash: u32,
    filter: Box<[u64; 1 << (FILTER_BITS - 6)]>,
    /// Index of the first entry for each head, plus one; 0 without one.
    heads: Box<[u32; 1 << HEAD_BITS]>,
    entries: Vec<Entry>,
}

impl Scan {
    /// Prepares a search for `patterns`; a hit names a pattern by the number given with it.
    pub(super) fn new<'p>(patterns: impl IntoIterator<Item = (u32, Class, &'p Pattern)>) -> Self {
        let patterns: Vec<_> = patterns.into_iter().collect();
        let shortest = patterns.iter().map(|(_, _, p)| p.first().len()).min().unwrap_or(GRAM);
        let stride = (shortest + 1 - GRAM).clamp(1, STRIDE_MAX);
        let weights = Weights::new();
        let entries: Vec<Entry> =
            patterns.iter().flat_map(|(n, class, p)| window(*n, *class, p.first(), stride, &weights)).collect();
        let scans = HASHES.map(|hash| {
            let mut filter = Box::new([0u64; 1 << (FILTER_BITS - 6)]);
            for entry in &entries {
                let (word, bit) = slot(entry.gram, hash);
                filter[word] |= 1 << bit;
            }
            Self { stride, hash, filter, heads: Box::new([0; 1 << HEAD_BITS]), entries: Vec::new() }
        });
        let confused =
            |scan: &Self| common().filter(|(gram, _)| scan.may_hold(*gram)).map(|(_, w)| w as u64).sum::<u64>();
        let Some(mut scan) = scans.into_iter().min_by_key(confused) else { unreachable!("there are multipliers") };
        for (n, entry) in entries.iter().enumerate() {
            let head = &mut scan.heads[head(entry.gram)];
            scan.entries.push(Entry { next: *head, ..*entry });
            *head = n as u32 + 1;
        }
        scan
    }

    /// Whether there is nothing to look for.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reports every occurrence in `text`, in the order of their ends, up to the bounds. `found` says whether the hit counts
    /// against the bound on hits.
    pub(super) fn each(&self, text: &[u8], patterns: &[Pattern], found: impl FnMut(Hit) -> bool) {
        if self.is_empty() {
            return;
        }
        let run = Run {
            scan: self,
            text,
            patterns,
            hits_left: [HITS_FREE + text.len() / BYTES_PER_HIT; 2],
            candidates_left: CANDIDATES_FREE + text.len() / BYTES_PER_CANDIDATE,
            found,
        };
        match self.stride {
            1 => run.each::<1>(),
            2 => run.each::<2>(),
            3 => run.each::<3>(),
            4 => run.each::<4>(),
            _ => run.each::<STRIDE_MAX>(),
        }
    }

    #[inline]
    fn may_hold(&self, gram: u32) -> bool {
        let (word, bit) = slot(gram, self.hash);
        self.filter[word] >> bit & 1 != 0
    }
}

/// The grams of the window of `literal` whose grams are met least often.
fn window(pattern: u32, class: Class, literal: &[u8], stride: usize, weights: &Weights) -> Vec<Entry> {
    let costs: Vec<f32> = literal.windows(GRAM).map(|g| weights.of(g)).collect();
    let windows = costs.windows(stride).map(|w| w.iter().sum::<f32>()).enumerate();
    let Some((from, _)) = windows.min_by(|a, b| a.1.total_cmp(&b.1)) else { return Vec::new() };
    let last = literal.len() - GRAM;
    let entry = |at: usize| {
        let other_at = if at > last - at { 0 } else { last };
        let (gram, other) = (gram_at(literal, at), gram_at(literal, other_at));
        Entry { gram, pattern, at: at as u32, other, other_at: other_at as u32, class, next: 0 }
    };
    (from..from + stride).map(entry).collect()
}

/// The place of a gram in the filter.
#[inline]
fn slot(gram: u32, hash: u32) -> (usize, u32) {
    let hash = gram.wrapping_mul(hash) >> (32 - FILTER_BITS);
    ((hash >> 6) as usize, hash & 63)
}

#[inline]
fn head(gram: u32) -> usize {
    (gram.wrapping_mul(HASHES[0]) >> (32 - HEAD_BITS)) as usize
}

/// The grams that are met often, and how often, roughly.
fn common() -> impl Iterator<Item = (u32, f32)> {
    let grams = |list: &'static [&'static str]| list.iter().flat_map(|l| l.as_bytes().chunks_exact(GRAM));
    let of = |weight: f32| move |gram: &[u8]| (gram_at(gram, 0), weight);
    let walls = grams::WALLS.iter().flat_map(|word| word.as_bytes().windows(GRAM));
    walls.map(of(10.0)).chain(grams(grams::COMMON).map(of(20.0))).chain(grams(grams::VERY_COMMON).map(of(100.0)))
}

/// One search.
struct Run<'s, F> {
    scan: &'s Scan,
    text: &'s [u8],
    patterns: &'s [Pattern],
    /// By class.
    hits_left: [usize; 2],
    candidates_left: usize,
    found: F,
}

impl<F: FnMut(Hit) -> bool> Run<'_, F> {
    fn each<const STRIDE: usize>(mut self) {
        /// Grams that are looked up before it is decided whether one of them needs a closer look.
        const AT_ONCE: usize = 4;
        let text = self.text;
        let mut at = 0;
        while let Some(window) = text.get(at..at + (AT_ONCE - 1) * STRIDE + GRAM) {
            let gram = |n: usize| gram_at(window, n * STRIDE);
            let scan = self.scan;
            if scan.may_hold(gram(0)) | scan.may_hold(gram(1)) | scan.may_hold(gram(2)) | scan.may_hold(gram(3)) {
                for n in 0..AT_ONCE {
                    if !self.candidate(gram(n), at + n * STRIDE) {
                        return;
                    }
                }
            }
            at += AT_ONCE * STRIDE;
        }
        while let Some(window) = text.get(at..at + GRAM) {
            if !self.candidate(gram_at(window, 0), at) {
                return;
            }
            at += STRIDE;
        }
    }

    /// Looks closer at the gram at `at`. Returns whether to go on.
    fn candidate(&mut self, gram: u32, at: usize) -> bool {
        if !self.scan.may_hold(gram) {
            return true;
        }
        let mut next = self.scan.heads[head(gram)];
        while let Some(entry) = self.scan.entries.get((next as usize).wrapping_sub(1)) {
            next = entry.next;
            if entry.gram != gram || self.hits_left[entry.class as usize] == 0 {
                continue;
            }
            if self.candidates_left == 0 {
                return false;
            }
            self.candidates_left -= 1;
            let Some(begin) = at.checked_sub(entry.at as usize) else { continue };
            if gram_at(self.text, begin + entry.other_at as usize) != entry.other {
                continue;
            }
            if self.patterns[entry.pattern as usize].end_at(self.text, begin).is_none() {
                continue;
            }
            if (self.found)(Hit { pattern: entry.pattern, start: begin as u32 }) {
                self.hits_left[entry.class as usize] -= 1;
            }
        }
        true
    }
}

#[inline]
fn gram_at(window: &[u8], at: usize) -> u32 {
    match window.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(gram) => u32::from_le_bytes(*gram),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hits(patterns: &[&str], text: &str) -> Vec<(u32, u32)> {
        let patterns: Vec<_> = patterns.iter().map(|p| Pattern::parse(p).unwrap()).collect();
        let scan = Scan::new(patterns.iter().enumerate().map(|(i, p)| (i as u32, Class::Marker, p)));
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
