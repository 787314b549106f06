//! Search for many byte patterns in lower-case text, with the searches of the `aho-corasick` crate.
//!
//! The search looks for the cores of the patterns (`prefilter`) and verifies the patterns around
//! each core. In long text it uses packed searches, each for 64 cores: they read every byte with
//! vector instructions. In short text their setup would take longer than the search, so one
//! automaton looks for all cores at once.
//!
//! Invariants: every occurrence is reported, overlapping ones too, up to limits that grow with the
//! text. Time is linear in the text, whatever it contains.
//!
//! Must not know: rules.

use std::ops::Range;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::dfa::DFA;
use aho_corasick::packed::{Config, MatchKind, Searcher};
use aho_corasick::{Anchored, Span};

use super::pattern::Pattern;
use crate::rules::prefilter;
use crate::rules::prefilter::CORE;

/// Maximum cores of one packed search: the library takes no more.
const CORES_AT_ONCE: usize = 64;
/// Number of sets into which a packed search sorts its strings, the first string into the last set.
/// It stops wherever the bytes of one set may stand. With few strings it has half as many sets.
const SETS: usize = 16;
/// Maximum strings with which it has half as many sets.
const FEW: usize = 32;

/// Minimum bytes of text for a packed search ...
const LONG: usize = 32;
/// ... for each further one of a few ...
const LONG_EACH: usize = 256;
/// ... and for more than a few, because each one reads the whole text.
const LONG_FOR_MANY: usize = 64 << 10;
/// Number of packed searches that are a few.
const FEW_SEARCHES: usize = 4;
/// Number of parts of a short text that are searched in parallel.
const PARTS: usize = 4;

/// Minimum limit of counted hits, for texts of any length ...
const HITS_FREE: usize = 64;
/// ... which grows by one hit per this number of bytes.
const BYTES_PER_HIT: usize = 256;
/// Minimum limit of work, in comparisons of four bytes, for texts of any length ...
const WORK_FREE: usize = 1 << 18;
/// ... which grows by one comparison per this number of bytes.
const BYTES_PER_WORK: usize = 2;
/// Work for finding a core.
const CORE_FOUND: usize = 20;
/// Work for verifying a pattern.
const VERIFIED: usize = 32;

/// An occurrence of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PatternHit {
    /// Number of the pattern.
    pub(crate) pattern: u32,
    /// Its start, in bytes.
    pub(crate) start: u32,
    /// Its end.
    pub(crate) end: u32,
}

/// Classes of patterns with separate limits of hits: frequent words of scripts must not crowd out a
/// vendor's marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternClass {
    Marker,
    Word,
    Cue,
}

/// Buffer for the hits of one search, reused from search to search.
#[derive(Debug, Default)]
pub(crate) struct HitBuffer(Vec<(PatternHit, PatternClass)>);

impl HitBuffer {
    /// Reports the hits in a text of `len` bytes, in the order of the text, up to the limits.
    /// `found` returns whether a hit counts against the limit of its class.
    pub(super) fn report(
        &mut self,
        len: usize,
        mut found: impl FnMut(PatternHit, PatternClass) -> bool,
    ) {
        let mut left = [HITS_FREE + len / BYTES_PER_HIT; 3];
        self.0.sort_unstable_by_key(|(hit, _)| (hit.start, hit.pattern));
        for (hit, class) in &self.0 {
            let left = &mut left[*class as usize];
            if *left > 0 && found(*hit, *class) {
                *left -= 1;
            }
        }
    }
}

/// A set of patterns, prepared for searching.
#[derive(Debug)]
pub(crate) struct PatternScan {
    /// `None` without patterns.
    automaton: Option<Box<DFA>>,
    /// Empty if the processor lacks the vector instructions of the packed search.
    packed: Vec<PackedSearch>,
    /// The entries of each core. The automaton numbers cores in this order.
    cores: Vec<Range<u32>>,
    entries: Vec<CoreEntry>,
}

/// A search for some of the cores.
#[derive(Debug)]
struct PackedSearch {
    searcher: Searcher,
    /// The number of its first core. Its other cores follow.
    first: usize,
}

/// A pattern and its core.
#[derive(Clone, Copy, Debug)]
struct CoreEntry {
    /// Four other bytes of the pattern, as far from the core as possible. They reject most
    /// candidates.
    other: [u8; CORE],
    /// Their offset from the core.
    away: i32,
    pattern: u32,
    /// The offset of the core in the pattern.
    at: u32,
    class: PatternClass,
}

impl CoreEntry {
    fn new(number: u32, class: PatternClass, pattern: &Pattern, at: usize) -> Self {
        let literal = pattern.first();
        let last = literal.len().saturating_sub(CORE);
        let other_at = if at > last - at { 0 } else { last };
        let other = literal
            .get(other_at..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .unwrap_or_default();
        Self { other, away: other_at as i32 - at as i32, pattern: number, at: at as u32, class }
    }
}

impl PatternScan {
    /// Prepares a search for `patterns`, each with the number that its hits report.
    pub(crate) fn new<'p>(
        patterns: impl IntoIterator<Item = (u32, PatternClass, &'p Pattern)>,
    ) -> Self {
        let patterns: Vec<_> = patterns.into_iter().collect();
        let literals: Vec<&[u8]> = patterns.iter().map(|(_, _, pattern)| pattern.first()).collect();
        let (cores, places) = prefilter::choose(&literals);
        let mut by_core = vec![Vec::new(); cores.len()];
        for ((number, class, pattern), place) in patterns.iter().zip(places) {
            by_core[place.core].push(CoreEntry::new(*number, *class, pattern, place.at));
        }
        // Cores with the same beginning go into one search, and into one set of it.
        let mut order: Vec<usize> = (0..cores.len()).collect();
        order.sort_unstable_by_key(|core| cores[*core]);
        let searches_needed = cores.len().div_ceil(CORES_AT_ONCE).max(1);
        let each = cores.len().div_ceil(searches_needed).max(1);
        let order: Vec<Vec<usize>> = order.chunks(each).map(in_sets).collect();
        let strings: Vec<Vec<_>> =
            order.iter().map(|of| of.iter().map(|core| cores[*core]).collect()).collect();
        let mut entries = Vec::new();
        let ranges = order.iter().flatten().map(|core| {
            let from = entries.len() as u32;
            entries.append(&mut by_core[*core]);
            from..entries.len() as u32
        });
        let packed =
            strings.iter().enumerate().map(|(n, cores)| PackedSearch::new(cores, n * each));
        Self {
            cores: ranges.collect(),
            entries,
            packed: packed.collect::<Option<_>>().unwrap_or_default(),
            automaton: automaton(&strings.concat()),
        }
    }

    /// Reports occurrences in `text`, in the order of the text, up to the limits. `found` returns
    /// whether a hit counts against the limit of hits.
    pub(crate) fn each(
        &self,
        text: &[u8],
        patterns: &[Pattern],
        buffer: &mut HitBuffer,
        mut found: impl FnMut(PatternHit) -> bool,
    ) {
        self.search(&mut ScanRun::new(text, patterns, buffer));
        buffer.report(text.len(), |hit, _| found(hit));
    }

    pub(super) fn search(&self, scan_run: &mut ScanRun<'_>) {
        let text = scan_run.text;
        if text.len() < CORE {
            return;
        }
        let long = match self.packed.len() {
            0 => usize::MAX,
            few @ 1..=FEW_SEARCHES => LONG + (few - 1) * LONG_EACH,
            _ => LONG_FOR_MANY,
        };
        if text.len() < long {
            return self.search_at_once(scan_run);
        }
        for PackedSearch { searcher, first } in &self.packed {
            let mut span = Span::from(0..text.len());
            while let Some(core) = searcher.find_in(text, span) {
                if !scan_run
                    .candidates(self.entries_of(first + core.pattern().as_usize()), core.start())
                {
                    return;
                }
                // Cores may overlap.
                span.start = core.start() + 1;
            }
        }
    }

    /// Searches for all cores with the automaton. Each step of an automaton waits for the one
    /// before, so it runs through several parts of the text in turns. The parts overlap by one byte
    /// less than a core, so each core begins in exactly one part.
    fn search_at_once(&self, scan_run: &mut ScanRun<'_>) {
        let Some(automaton) = &self.automaton else { return };
        let Ok(start) = automaton.start_state(Anchored::No) else { return };
        let text = scan_run.text;
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
            reason = "the four parts are read in turns, not one after another"
        )]
        for at in 0..together {
            for part in 0..PARTS {
                states[part] = automaton.next_state(Anchored::No, states[part], heads[part][at]);
                if automaton.is_special(states[part])
                    && !self.core_ends(automaton, states[part], part * each + at, scan_run)
                {
                    return;
                }
            }
        }
        for part in 0..PARTS {
            let mut state = states[part];
            for (at, byte) in parts[part].iter().enumerate().skip(together) {
                state = automaton.next_state(Anchored::No, state, *byte);
                if automaton.is_special(state)
                    && !self.core_ends(automaton, state, part * each + at, scan_run)
                {
                    return;
                }
            }
        }
    }

    /// Handles a core that ends with the byte at `last`, if `state` is a match. Returns whether to
    /// continue.
    #[inline(never)]
    fn core_ends(
        &self,
        automaton: &DFA,
        state: StateID,
        last: usize,
        scan_run: &mut ScanRun<'_>,
    ) -> bool {
        // All cores have the same length, so at most one ends here.
        !automaton.is_match(state)
            || scan_run.candidates(
                self.entries_of(automaton.match_pattern(state, 0).as_usize()),
                last + 1 - CORE,
            )
    }

    fn entries_of(&self, core: usize) -> &[CoreEntry] {
        let range = &self.cores[core];
        &self.entries[range.start as usize..range.end as usize]
    }
}

impl PackedSearch {
    fn new(cores: &[[u8; CORE]], first: usize) -> Option<Self> {
        let searcher =
            Config::new().match_kind(MatchKind::LeftmostFirst).builder().extend(cores).build();
        searcher.map(|searcher| Self { searcher, first })
    }
}

fn automaton(cores: &[[u8; CORE]]) -> Option<Box<DFA>> {
    if cores.is_empty() {
        return None;
    }
    // Prefilters only help `find`. Without one, the start state is not special.
    match DFA::builder().prefilter(false).build(cores) {
        Ok(automaton) => Some(Box::new(automaton)),
        Err(error) => unreachable!("{} strings of four bytes: {error}", cores.len()),
    }
}

/// Orders `cores`, where neighbours are similar, so that the packed search puts similar ones into
/// the same set. It assigns them to its sets round-robin. With similar cores per set it stops at
/// fewer candidates, which dominate its cost.
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
pub(super) struct ScanRun<'s> {
    pub(super) text: &'s [u8],
    pub(super) patterns: &'s [Pattern],
    hits: &'s mut Vec<(PatternHit, PatternClass)>,
    work_left: usize,
}

impl<'s> ScanRun<'s> {
    /// Starts a search that adds its hits to `buffer`, which is emptied.
    pub(super) fn new(
        text: &'s [u8],
        patterns: &'s [Pattern],
        HitBuffer(hits): &'s mut HitBuffer,
    ) -> Self {
        hits.clear();
        Self { text, patterns, hits, work_left: WORK_FREE + text.len() / BYTES_PER_WORK }
    }

    pub(super) fn push(&mut self, hit: PatternHit, class: PatternClass) {
        self.hits.push((hit, class));
    }

    /// Counts the work of one candidate offset. Returns whether to continue.
    pub(super) fn has_work_left(&mut self, compared: usize, verified: usize) -> bool {
        self.work_left = self.work_left.saturating_sub(CORE_FOUND + compared + VERIFIED * verified);
        self.work_left > 0
    }

    /// Verifies the patterns whose core stands at `at`. Returns whether to continue.
    fn candidates(&mut self, entries: &[CoreEntry], at: usize) -> bool {
        let mut verified = 0;
        for entry in entries {
            let other_at = at.wrapping_add_signed(entry.away as isize);
            if self.text.get(other_at..).and_then(|rest| rest.first_chunk()) != Some(&entry.other) {
                continue;
            }
            let Some(begin) = at.checked_sub(entry.at as usize) else { continue };
            verified += 1;
            if let Some(end) = self.patterns[entry.pattern as usize].end_at(self.text, begin) {
                self.push(
                    PatternHit { pattern: entry.pattern, start: begin as u32, end: end as u32 },
                    entry.class,
                );
            }
        }
        self.has_work_left(entries.len(), verified)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn hits(patterns: &[&str], text: &str) -> Vec<(u32, u32)> {
        let patterns: Vec<_> = patterns.iter().map(|p| Pattern::parse(p).unwrap()).collect();
        let scan = PatternScan::new(
            patterns.iter().enumerate().map(|(i, p)| (i as u32, PatternClass::Marker, p)),
        );
        let mut out = Vec::new();
        scan.each(text.as_bytes(), &patterns, &mut HitBuffer::default(), |h| {
            out.push((h.pattern, h.start));
            true
        });
        out.sort_unstable();
        out
    }

    #[test]
    fn overlapping_and_nested_patterns_are_all_found() {
        assert_eq!(
            hits(&["_cf_chl_opt", "window._cf_chl_opt"], "x window._cf_chl_opt={"),
            [(0, 9), (1, 2)]
        );
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
        assert_eq!(
            hits(&["content=\"{gap}url=/x"], &format!("content=\"{}url=/x", " ".repeat(100))).len(),
            0
        );
    }

    #[test]
    fn more_patterns_than_the_vector_search_takes_are_still_found() {
        let many: Vec<String> = (0..400).map(|i| format!("marker-{i:04}!")).collect();
        let refs: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(hits(&refs, "a marker-0399! b marker-0000!"), [(0, 17), (399, 2)]);
    }

    /// Finds patterns of all kinds by trying every offset.
    fn naive(patterns: &[Pattern], text: &[u8]) -> Vec<(u32, u32)> {
        let at = |n: u32, pattern: &Pattern| {
            (0..text.len())
                .filter(|&from| pattern.end_at(text, from).is_some())
                .map(|from| (n, from as u32))
                .collect()
        };
        patterns
            .iter()
            .enumerate()
            .flat_map(|(n, pattern)| -> Vec<_> { at(n as u32, pattern) })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_search_finds_what_a_naive_search_finds(
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
            let scan = PatternScan::new(parsed.iter().enumerate().map(|(i, p)| (i as u32, PatternClass::Marker, p)));
            let run = |scan: &PatternScan| {
                let mut found = Vec::new();
                scan.each(text.as_bytes(), &parsed, &mut HitBuffer::default(), |h| {
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
    fn the_result_is_the_same_without_vector_instructions() {
        let patterns: Vec<_> =
            ["abcd", "bcde", "cdef{hex}z"].map(|p| Pattern::parse(p).unwrap()).into();
        let mut scan = PatternScan::new(
            patterns.iter().enumerate().map(|(i, p)| (i as u32, PatternClass::Marker, p)),
        );
        // Long enough for the packed search.
        let text =
            [b"abcdef12z abcde cdef bcdef9z".repeat(5), vec![b' '; 8 << 10], b"abcdef12z".to_vec()]
                .concat();
        let run = |scan: &PatternScan| {
            let mut found = Vec::new();
            scan.each(&text, &patterns, &mut HitBuffer::default(), |h| {
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
    fn similar_cores_go_into_the_same_set() {
        for count in 1..=64 {
            let cores: Vec<usize> = (0..count).collect();
            let dealt = in_sets(&cores);
            let sets = if count <= FEW { SETS / 2 } else { SETS };
            // Set by set, the cores come back in the given order.
            let back: Vec<usize> =
                (0..sets).flat_map(|set| dealt.iter().skip(set).step_by(sets).copied()).collect();
            assert_eq!(back, cores, "{count}");
        }
    }

    #[test]
    fn the_number_of_hits_is_limited() {
        let text = "_cf_chl_opt".repeat(100_000);
        assert!(hits(&["_cf_chl_opt"], &text).len() <= HITS_FREE + text.len() / BYTES_PER_HIT);
    }
}
