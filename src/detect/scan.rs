//! Finding many byte patterns in one pass over text that is in lower case already.
//!
//! Each pattern is found by a *core*, four bytes of it; the rest is verified around the core. Cores are chosen together, so
//! that few of them, rare in HTML, cover all patterns: `recaptcha`, `hcaptcha` and `captcha.js` share one. They are
//! looked for with the vector search of `aho-corasick`, in groups of as many as it takes at full speed. Every occurrence
//! is reported, overlapping ones too, up to a number of hits that grows with the text, so that the time stays linear
//! whatever the text holds. This file knows patterns and offsets, not rules.

use std::collections::HashMap;

use aho_corasick::packed;
use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind, Span};

/// Length of a core, in bytes: what the vector search looks at.
const CORE: usize = 4;
/// Cores in one vector search. With more of them its filter lets too much through.
const GROUP: usize = 48;
/// Cores from which on one automaton is faster than so many vector searches.
const AUTOMATON_FROM: usize = 10 * GROUP;

type Core = [u8; CORE];
/// Hits that any text may have, however short.
const HITS_FREE: usize = 64;
/// Beyond those, one hit for so many bytes.
const BYTES_PER_HIT: usize = 256;

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
            Some(Piece::Literal(first)) if first.len() >= CORE => Ok(Self { pieces: pieces.into() }),
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

/// How often a core is met in HTML, relative to one that costs nothing to speak of.
fn weight(core: Core) -> f64 {
    let sum: u32 = core.iter().map(|b| u32::from(commonness(*b))).sum();
    let common = COMMON.iter().any(|c| c.as_bytes() == core);
    2f64.powf((f64::from(sum) - 24.0) / 3.0) * if common { 20.0 } else { 1.0 }
}

/// Stretches of markup and script that are met far more often than their letters suggest.
const COMMON: &[&str] = &[
    "scri", "crip", "ript", "java", "avas", "vasc", "asc ", "cook", "ooki", "okie", "http", "ttps", "href", "clas",
    "lass", "span", "load", "wind", "indo", "ndow", "docu", "ocum", "cume", "umen", "ment", "ents", "func", "unct",
    "ncti", "ctio", "tion", "cont", "tent", "form", "data", "head", "body", "titl", "text", "styl", "imag", "mage",
    "name", "type", "link", "rel=", "meta", "var ", "this", "that", "with", "your", "you ", " you", "from", "have",
    "html", "atio", "loca", "ocat", "cati", "ness", "able", "ing ", "the ", " the", " and", "and ", "ion ", "ions",
    "his ", "for ", " for", "not ", " not", "are ", " are", "acce", "cces", "cess", "enab", "nabl", "requ", "eque",
    "ques", "uest", "ecur", "curi", "rity", "veri", "erif", "rifi", "ific", "bloc", "lock", "brow", "rows", "owse",
    "wser", "chec", "heck", "ecki", "robo", "obot", "huma", "uman", "butt", "main", "root", "inde", "ndex", "app.",
    "app-", "modu", "odul", "dule", "vend", "endo", "ndor", "poly", "page", "view", "src=", "css/", "com/", ".com",
    "www.", "async", "id=\"", "s=\"c", "=\"co", "\"con", "ent=", "js\">",
];

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
    Vector(packed::Searcher),
    Automaton(AhoCorasick),
}

/// One search: an engine, and for each of its cores the patterns it stands for, as (index, offset of the core).
#[derive(Debug)]
struct Group {
    engine: Engine,
    by_core: Vec<Vec<(u32, u32)>>,
}

/// A set of patterns, ready to be searched for.
#[derive(Debug)]
pub(super) struct Scan {
    groups: Vec<Group>,
}

impl Scan {
    /// Prepares a search for `patterns`; a hit names a pattern by the number given with it.
    pub(super) fn new<'p>(patterns: impl IntoIterator<Item = (u32, &'p Pattern)>) -> Self {
        let patterns: Vec<_> = patterns.into_iter().collect();
        let cores = cover(&patterns);
        let per_group = if cores.len() >= AUTOMATON_FROM { cores.len() } else { GROUP };
        let groups = cores.chunks(per_group.max(1)).filter_map(Group::new).collect();
        Self { groups }
    }

    /// Reports every occurrence in `text`, group by group, up to the bound on hits. Stops when `found` returns false.
    pub(super) fn each(&self, text: &[u8], patterns: &[Pattern], mut found: impl FnMut(Hit) -> bool) {
        for group in &self.groups {
            if !group.each(text, patterns, &mut found) {
                return;
            }
        }
    }
}

impl Group {
    fn new(cores: &[(Core, Vec<(u32, u32)>)]) -> Option<Self> {
        let bytes = cores.iter().map(|(core, _)| core);
        let mut config = packed::Config::new();
        config.match_kind(packed::MatchKind::LeftmostFirst).heuristic_pattern_limits(false);
        let vector = (cores.len() <= GROUP).then(|| config.builder().extend(bytes.clone()).build()).flatten();
        let engine = match vector {
            Some(searcher) => Engine::Vector(searcher),
            // Too many cores, or a processor without vectors.
            None => AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .kind(Some(AhoCorasickKind::DFA))
                .build(bytes)
                .map(Engine::Automaton)
                .ok()?,
        };
        Some(Self { engine, by_core: cores.iter().map(|(_, patterns)| patterns.clone()).collect() })
    }

    fn each(&self, text: &[u8], patterns: &[Pattern], found: &mut impl FnMut(Hit) -> bool) -> bool {
        let mut budget = HITS_FREE + text.len() / BYTES_PER_HIT;
        let mut at = 0;
        while let Some((core, start)) = self.next(text, at) {
            // Cores are of one length, so no other one starts here; one may start at the next byte.
            at = start + 1;
            for &(index, core_at) in &self.by_core[core] {
                let Some(begin) = start.checked_sub(core_at as usize) else { continue };
                let hit = Hit { pattern: index, start: begin as u32 };
                if patterns[index as usize].end_at(text, begin).is_some() && !found(hit) {
                    return false;
                }
            }
            budget -= 1;
            if budget == 0 {
                break;
            }
        }
        true
    }

    #[inline]
    fn next(&self, text: &[u8], at: usize) -> Option<(usize, usize)> {
        match &self.engine {
            Engine::Vector(searcher) => {
                searcher.find_in(text, Span { start: at, end: text.len() }).map(|m| (m.pattern().as_usize(), m.start()))
            }
            Engine::Automaton(searcher) => {
                searcher.find(Input::new(text).range(at..)).map(|m| (m.pattern().as_usize(), m.start()))
            }
        }
    }
}

/// Cores that cover all patterns: again and again the one that covers most for how often it is met.
fn cover(patterns: &[(u32, &Pattern)]) -> Vec<(Core, Vec<(u32, u32)>)> {
    let mut by_core: HashMap<Core, Vec<(usize, u32)>> = HashMap::new();
    for (n, (_, pattern)) in patterns.iter().enumerate() {
        for (at, window) in pattern.first().windows(CORE).enumerate() {
            let Ok(core) = Core::try_from(window) else { continue };
            let places = by_core.entry(core).or_default();
            if places.last().is_none_or(|(last, _)| *last != n) {
                places.push((n, at as u32));
            }
        }
    }
    let mut candidates: Vec<Candidate> =
        by_core.into_iter().map(|(core, places)| Candidate { core, cost: 1.0 + weight(core), places }).collect();
    // The table must come out the same every time.
    candidates.sort_unstable_by_key(|c| c.core);
    let mut covered = vec![false; patterns.len()];
    let mut chosen = Vec::new();
    while let Some(best) = (0..candidates.len()).max_by(|a, b| candidates[*a].gain().total_cmp(&candidates[*b].gain()))
    {
        let Candidate { core, places, .. } = candidates.swap_remove(best);
        for (n, _) in &places {
            covered[*n] = true;
        }
        chosen.push((core, places.into_iter().map(|(n, at)| (patterns[n].0, at)).collect()));
        for candidate in &mut candidates {
            candidate.places.retain(|(n, _)| !covered[*n]);
        }
        candidates.retain(|c| !c.places.is_empty());
    }
    chosen
}

/// A core that might be chosen: what it costs, and the patterns that have it, with its offset in them.
struct Candidate {
    core: Core,
    cost: f64,
    places: Vec<(usize, u32)>,
}

impl Candidate {
    fn gain(&self) -> f64 {
        self.places.len() as f64 / self.cost
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
