//! Finding many byte patterns in text that is in lower case already, with the searches of the `aho-corasick` crate.
//!
//! Searched for are not the patterns but their cores (`cores`). In long text that is done by the packed search, sixty-four cores at a
//! time: it looks at every byte of the text with vector instructions. In short text the packed searches would take longer to begin
//! and to end than to search, so one automaton looks for all cores at once there. Where a core stands, the patterns it belongs to are
//! verified around it. Every occurrence is reported, overlapping ones too, up to bounds that grow with the text, so that the time
//! stays linear whatever the text holds. This file knows patterns and offsets, not rules.

use std::collections::HashMap;
use std::ops::Range;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::dfa::DFA;
use aho_corasick::packed::{Config, MatchKind, Searcher};
use aho_corasick::{Anchored, Span};

use super::pattern::Pattern;
use crate::rules::prefilter;
use crate::rules::prefilter::CORE;

/// Cores that one packed search looks for at most: it takes no more.
const CORES_AT_ONCE: usize = 64;
/// The packed search sorts its strings into so many sets, the first into the last set, and stops wherever the bytes of one set
/// might stand. Where it has few strings, it has half as many sets.
const SETS: usize = 16;
/// Most strings for which it has half as many.
const FEW: usize = 32;

/// Bytes from which on text is long enough for the packed search ...
const LONG: usize = 2048;
/// ... and where the cores take more searches than two, each of which goes over the whole text.
const LONG_FOR_MANY: usize = 64 << 10;
/// Parts of a short text that are gone through at the same time.
const PARTS: usize = 4;

/// Hits that count that any text may have, however short ...
const HITS_FREE: usize = 64;
/// ... and beyond those, one for so many bytes.
const BYTES_PER_HIT: usize = 256;
/// Work that any text may cause, however short, counted in checks of four bytes ...
const WORK_FREE: usize = 1 << 18;
/// ... and beyond that, one check for so many bytes.
const BYTES_PER_WORK: usize = 2;
/// What finding a core costs.
const CORE_FOUND: usize = 20;
/// What verifying a pattern costs.
const VERIFIED: usize = 32;

/// An occurrence of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// Index of the pattern.
    pub(crate) pattern: u32,
    /// Where it starts, in bytes.
    pub(crate) start: u32,
    /// Where it ends.
    pub(crate) end: u32,
}

/// What a pattern's hits are bounded with, so that words which many scripts use do not take the place of a vendor's marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Marker,
    Word,
    Cue,
}

/// Memory for the hits of one search, kept from search to search.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<(Hit, Class)>);

/// A set of patterns, ready to be searched for.
#[derive(Debug)]
pub(crate) struct Scan {
    /// None without patterns.
    automaton: Option<Box<DFA>>,
    /// Empty where the processor has no vector instructions that the packed search knows.
    packed: Vec<Packed>,
    /// For each core, its entries. The automaton counts the cores so.
    cores: Vec<Range<u32>>,
    entries: Vec<Entry>,
}

/// A search for some of the cores.
#[derive(Debug)]
struct Packed {
    searcher: Searcher,
    /// The number of the first of its cores. The others follow.
    first: usize,
}

/// A pattern that has a core.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Four other bytes of the pattern, as far from the core as can be: most candidates fail by them.
    other: [u8; CORE],
    /// Where they stand, seen from the core.
    away: i32,
    pattern: u32,
    /// Offset of the core in the pattern.
    at: u32,
    class: Class,
}

impl Entry {
    fn new(number: u32, class: Class, pattern: &Pattern, at: usize) -> Self {
        let literal = pattern.first();
        let last = literal.len().saturating_sub(CORE);
        let other_at = if at > last - at { 0 } else { last };
        let other = literal.get(other_at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
        Self { other, away: other_at as i32 - at as i32, pattern: number, at: at as u32, class }
    }
}

impl Scan {
    /// Prepares a search for `patterns`; a hit names a pattern by the number given with it.
    pub(crate) fn new<'p>(patterns: impl IntoIterator<Item = (u32, Class, &'p Pattern)>) -> Self {
        Self::with_words(patterns, [])
    }

    /// The same for `patterns` and for `words`, of which there are thousands: choosing cores for those would take longer than they
    /// save, so that they are looked for by their beginnings.
    pub(crate) fn with_words<'p>(
        patterns: impl IntoIterator<Item = (u32, Class, &'p Pattern)>,
        words: impl IntoIterator<Item = (u32, Class, &'p Pattern)>,
    ) -> Self {
        let mut patterns: Vec<_> = patterns.into_iter().collect();
        let literals: Vec<&[u8]> = patterns.iter().map(|(_, _, pattern)| pattern.first()).collect();
        let (mut cores, mut places) = prefilter::choose(&literals);
        let mut numbers: HashMap<_, _> = cores.iter().enumerate().map(|(n, core)| (*core, n)).collect();
        for word in words {
            let Some(core) = word.2.first().first_chunk() else { continue };
            let number = *numbers.entry(*core).or_insert_with(|| {
                cores.push(*core);
                cores.len() - 1
            });
            places.push(prefilter::Place { core: number, at: 0 });
            patterns.push(word);
        }
        let mut by_core = vec![Vec::new(); cores.len()];
        for ((number, class, pattern), place) in patterns.iter().zip(places) {
            by_core[place.core].push(Entry::new(*number, *class, pattern, place.at));
        }
        // Cores that begin alike come into one search, and there into one set.
        let mut order: Vec<usize> = (0..cores.len()).collect();
        order.sort_unstable_by_key(|core| cores[*core]);
        let searches_needed = cores.len().div_ceil(CORES_AT_ONCE).max(1);
        let each = cores.len().div_ceil(searches_needed).max(1);
        let order: Vec<Vec<usize>> = order.chunks(each).map(in_sets).collect();
        let strings: Vec<Vec<_>> = order.iter().map(|of| of.iter().map(|core| cores[*core]).collect()).collect();
        let mut entries = Vec::new();
        let ranges = order.iter().flatten().map(|core| {
            let from = entries.len() as u32;
            entries.append(&mut by_core[*core]);
            from..entries.len() as u32
        });
        let packed = strings.iter().enumerate().map(|(n, cores)| Packed::new(cores, n * each));
        Self {
            cores: ranges.collect(),
            entries,
            packed: packed.collect::<Option<_>>().unwrap_or_default(),
            automaton: automaton(&strings.concat()),
        }
    }

    /// Reports every occurrence in `text`, in the order of the text, up to the bounds. `found` says whether the hit
    /// counts against the bound on hits.
    pub(crate) fn each(
        &self,
        text: &[u8],
        patterns: &[Pattern],
        Buffer(hits): &mut Buffer,
        mut found: impl FnMut(Hit) -> bool,
    ) {
        hits.clear();
        self.search(&mut Run { text, patterns, hits, work_left: WORK_FREE + text.len() / BYTES_PER_WORK });
        let mut left = [HITS_FREE + text.len() / BYTES_PER_HIT; 3];
        hits.sort_unstable_by_key(|(hit, _)| (hit.start, hit.pattern));
        for (hit, class) in hits {
            let left = &mut left[*class as usize];
            if *left > 0 && found(*hit) {
                *left -= 1;
            }
        }
    }

    fn search(&self, run: &mut Run<'_>) {
        let text = run.text;
        if text.len() < CORE {
            return;
        }
        let long = if self.packed.len() > 2 { LONG_FOR_MANY } else { LONG };
        if text.len() < long || self.packed.is_empty() {
            return self.search_at_once(run);
        }
        for Packed { searcher, first } in &self.packed {
            let mut span = Span::from(0..text.len());
            while let Some(core) = searcher.find_in(text, span) {
                if !run.candidates(self.entries_of(first + core.pattern().as_usize()), core.start()) {
                    return;
                }
                // Cores may overlap.
                span.start = core.start() + 1;
            }
        }
    }

    /// Searches for all cores at once. Each step of an automaton waits for the step before it, so that several go through parts of the
    /// text at the same time. The parts overlap by what a core has more than one byte: each core begins in exactly one of them.
    fn search_at_once(&self, run: &mut Run<'_>) {
        let Some(automaton) = &self.automaton else { return };
        let Ok(start) = automaton.start_state(Anchored::No) else { return };
        let text = run.text;
        let each = text.len() / PARTS;
        let parts: [&[u8]; PARTS] = std::array::from_fn(|part| {
            let from = part * each;
            &text[from..text.len().min(from + each + CORE - 1)]
        });
        let together = parts.iter().map(|part| part.len()).min().unwrap_or_default();
        let heads = parts.map(|part| &part[..together]);
        let mut states = [start; PARTS];
        #[allow(
            clippy::needless_range_loop,
            reason = "the four parts are gone through side by side, not one after another"
        )]
        for at in 0..together {
            for part in 0..PARTS {
                states[part] = automaton.next_state(Anchored::No, states[part], heads[part][at]);
                if automaton.is_special(states[part]) && !self.core_ends(automaton, states[part], part * each + at, run)
                {
                    return;
                }
            }
        }
        for part in 0..PARTS {
            let mut state = states[part];
            for (at, byte) in parts[part].iter().enumerate().skip(together) {
                state = automaton.next_state(Anchored::No, state, *byte);
                if automaton.is_special(state) && !self.core_ends(automaton, state, part * each + at, run) {
                    return;
                }
            }
        }
    }

    /// A core ends with the byte at `last`, unless there is something else about `state`. Returns whether to go on.
    #[inline(never)]
    fn core_ends(&self, automaton: &DFA, state: StateID, last: usize, run: &mut Run<'_>) -> bool {
        // All cores are of one length, so that one ends here at most.
        !automaton.is_match(state)
            || run.candidates(self.entries_of(automaton.match_pattern(state, 0).as_usize()), last + 1 - CORE)
    }

    fn entries_of(&self, core: usize) -> &[Entry] {
        let range = &self.cores[core];
        &self.entries[range.start as usize..range.end as usize]
    }
}

impl Packed {
    fn new(cores: &[[u8; CORE]], first: usize) -> Option<Self> {
        let searcher = Config::new().match_kind(MatchKind::LeftmostFirst).builder().extend(cores).build();
        searcher.map(|searcher| Self { searcher, first })
    }
}

fn automaton(cores: &[[u8; CORE]]) -> Option<Box<DFA>> {
    if cores.is_empty() {
        return None;
    }
    // A prefilter is for `find`, and without one the state it starts in is nothing special.
    match DFA::builder().prefilter(false).build(cores) {
        Ok(automaton) => Some(Box::new(automaton)),
        Err(error) => unreachable!("{} strings of four bytes: {error}", cores.len()),
    }
}

/// `cores`, of which those that stand together are alike, in the order in which the packed search puts the ones that are alike into
/// the same set: it deals them out like cards, one to each set and then the next. It stops at fewer places so, which is what it costs.
fn in_sets(cores: &[usize]) -> Vec<usize> {
    let sets = if cores.len() <= FEW { SETS / 2 } else { SETS };
    let (rounds, longer) = (cores.len() / sets, cores.len() % sets);
    let begin = |set: usize| set * rounds + set.min(longer);
    let dealt = (0..=rounds).flat_map(|round| (0..sets).map(move |set| (round, set)));
    dealt
        .filter(|(round, set)| *round < rounds + usize::from(*set < longer))
        .map(|(round, set)| cores[begin(set) + round])
        .collect()
}

/// One search.
struct Run<'s> {
    text: &'s [u8],
    patterns: &'s [Pattern],
    hits: &'s mut Vec<(Hit, Class)>,
    work_left: usize,
}

impl Run<'_> {
    /// Verifies the patterns whose core stands at `at`. Returns whether to go on.
    fn candidates(&mut self, entries: &[Entry], at: usize) -> bool {
        let mut work = CORE_FOUND + entries.len();
        for entry in entries {
            let other_at = at.wrapping_add_signed(entry.away as isize);
            if self.text.get(other_at..).and_then(|rest| rest.first_chunk()) != Some(&entry.other) {
                continue;
            }
            let Some(begin) = at.checked_sub(entry.at as usize) else { continue };
            work += VERIFIED;
            if let Some(end) = self.patterns[entry.pattern as usize].end_at(self.text, begin) {
                self.hits.push((Hit { pattern: entry.pattern, start: begin as u32, end: end as u32 }, entry.class));
            }
        }
        self.work_left = self.work_left.saturating_sub(work);
        self.work_left > 0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn hits(patterns: &[&str], text: &str) -> Vec<(u32, u32)> {
        let patterns: Vec<_> = patterns.iter().map(|p| Pattern::parse(p).unwrap()).collect();
        let scan = Scan::new(patterns.iter().enumerate().map(|(i, p)| (i as u32, Class::Marker, p)));
        let mut out = Vec::new();
        scan.each(text.as_bytes(), &patterns, &mut Buffer::default(), |h| {
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
    fn more_patterns_than_the_vector_search_takes_are_still_found() {
        let many: Vec<String> = (0..400).map(|i| format!("marker-{i:04}!")).collect();
        let refs: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(hits(&refs, "a marker-0399! b marker-0000!"), [(0, 17), (399, 2)]);
    }

    /// Patterns of all kinds, found by looking at every place.
    fn naive(patterns: &[Pattern], text: &[u8]) -> Vec<(u32, u32)> {
        let at = |n: u32, pattern: &Pattern| {
            (0..text.len()).filter(|&from| pattern.end_at(text, from).is_some()).map(|from| (n, from as u32)).collect()
        };
        patterns.iter().enumerate().flat_map(|(n, pattern)| -> Vec<_> { at(n as u32, pattern) }).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_looking_at_every_place_finds_is_found(
            patterns in prop::collection::vec("[abc]{4,9}(\\{(hex|word|digits|gap)\\}[abc]{1,3})?|[a-e/=_ ]{4,12}", 1..150),
            text in prop::collection::vec(prop_oneof!["[abc]{1,40}", "[a-e/=_ 0-9<>]{1,40}", "x{1,70}"], 0..12),
            planted in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let parsed: Vec<_> = patterns.iter().map(|p| Pattern::parse(p).unwrap()).collect();
            let mut text = text;
            for index in planted {
                let pattern = index.get(&patterns).replace("{hex}", "a1").replace("{word}", "b").replace("{digits}", "7").replace("{gap}", " ");
                text.insert(index.index(text.len() + 1), pattern);
            }
            let text = text.concat();
            let mut wanted = naive(&parsed, text.as_bytes());
            wanted.sort_unstable();
            let scan = Scan::new(parsed.iter().enumerate().map(|(i, p)| (i as u32, Class::Marker, p)));
            let run = |scan: &Scan| {
                let mut found = Vec::new();
                scan.each(text.as_bytes(), &parsed, &mut Buffer::default(), |h| {
                    found.push((h.pattern, h.start));
                    false
                });
                found.sort_unstable();
                found
            };
            prop_assert_eq!(run(&scan), wanted);
        }
    }

    #[test]
    fn without_vector_instructions_the_same_is_found() {
        let patterns: Vec<_> = ["abcd", "bcde", "cdef{hex}z"].map(|p| Pattern::parse(p).unwrap()).into();
        let mut scan = Scan::new(patterns.iter().enumerate().map(|(i, p)| (i as u32, Class::Marker, p)));
        // Long enough for the packed search.
        let text = [b"abcdef12z abcde cdef bcdef9z".repeat(5), vec![b' '; 8 << 10], b"abcdef12z".to_vec()].concat();
        let run = |scan: &Scan| {
            let mut found = Vec::new();
            scan.each(&text, &patterns, &mut Buffer::default(), |h| {
                found.push((h.pattern, h.start));
                true
            });
            found.sort_unstable();
            found
        };
        let packed = run(&scan);
        scan.packed.clear();
        assert_eq!(run(&scan), packed);
        assert_eq!(packed, naive(&patterns, &text));
    }

    #[test]
    fn cores_that_are_alike_are_dealt_into_the_same_set() {
        for count in 1..=64 {
            let cores: Vec<usize> = (0..count).collect();
            let dealt = in_sets(&cores);
            let sets = if count <= FEW { SETS / 2 } else { SETS };
            // Set by set, the cores come back in the order in which they were alike.
            let back: Vec<usize> = (0..sets).flat_map(|set| dealt.iter().skip(set).step_by(sets).copied()).collect();
            assert_eq!(back, cores, "{count}");
        }
    }

    #[test]
    fn a_flood_of_hits_is_cut_off() {
        let text = "_cf_chl_opt".repeat(100_000);
        assert!(hits(&["_cf_chl_opt"], &text).len() <= HITS_FREE + text.len() / BYTES_PER_HIT);
    }
}
