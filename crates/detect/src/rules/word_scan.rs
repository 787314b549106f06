//! Search for thousands of words and sentences in folded text, where a word begins.
//!
//! A pattern is looked up by four or eight of its bytes, its anchor. An anchor begins at a word
//! start of the text wherever the pattern stands, or one byte before one, so the search skips all
//! other places. A filter with one bit per hash of an anchor rejects most of them. It stays in the
//! nearest cache, where the tables of an automaton for thousands of words would not. The few
//! patterns without an anchor are searched for at every place.
//!
//! Invariants: every occurrence is reported, overlapping ones too, up to limits that grow with the
//! text. Time is linear in the text, whatever it contains.
//!
//! Must not know: rules, languages.

use std::collections::HashMap;

use wide::u8x16;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

use super::pattern::{Pattern, PatternTail, follows_letter};
use super::prefilter::CORE;
use super::scan::{HitBuffer, PatternClass, PatternHit, PatternScan, ScanRun};

/// Bytes of an anchor, and of that of a pattern that is long enough.
const SHORT: usize = CORE;
const LONG: usize = 2 * CORE;
/// Bits of an anchor's hash. A filter takes 8 KiB.
const HASH_BITS: u32 = 16;
const FILTER_WORDS: usize = 1 << (HASH_BITS - u64::BITS.ilog2());
/// Hashes whose entries share a bucket of the table.
const HASHES_PER_BUCKET: usize = 8;
const BUCKETS: usize = (1 << HASH_BITS) / HASHES_PER_BUCKET;
/// Bytes of text that are searched for word starts at once.
const BLOCK: usize = 64;

/// A set of meanings.
pub(crate) type Meanings = u128;

/// A word to search for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SearchedWord<'p> {
    /// The number that its hits report.
    pub(crate) number: u32,
    pub(crate) pattern: &'p Pattern,
    pub(crate) meanings: Meanings,
    /// No letter may stand before it.
    pub(crate) begins: bool,
}

/// An occurrence of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WordHit {
    /// Its start, in bytes.
    pub(crate) start: u32,
    /// Its end.
    pub(crate) end: u32,
    pub(crate) meanings: Meanings,
    /// Number of the pattern.
    pub(crate) pattern: u32,
}

/// Sentences and words, prepared for searching.
#[derive(Debug)]
pub(crate) struct WordScan {
    /// The patterns whose anchor begins just before a word start, and is short.
    marks: AnchorTable<SHORT>,
    short: AnchorTable<SHORT>,
    long: AnchorTable<LONG>,
    /// The literals of the patterns, one after another.
    literals: Vec<u8>,
    /// The patterns without an anchor.
    anywhere: PatternScan,
    /// The words among them.
    unanchored: Vec<(u32, Meanings, bool)>,
}

/// Patterns by their anchor.
#[derive(Debug)]
struct AnchorTable<const LEN: usize> {
    /// A bit for each hash that an anchor has.
    filter: Box<[u64; FILTER_WORDS]>,
    /// Where the entries of each bucket begin, and where those of the last one end.
    buckets: Box<[u32]>,
    entries: Vec<([u8; LEN], AnchorEntry)>,
}

impl<const LEN: usize> AnchorTable<LEN> {
    fn new(literals: &[u8], entries: &[AnchorEntry]) -> Self {
        let anchor = |entry: &AnchorEntry| {
            literals.get(entry.literal as usize + usize::from(entry.at)..)?.first_chunk().copied()
        };
        let mut entries: Vec<([u8; LEN], _)> =
            entries.iter().filter_map(|entry| Some((anchor(entry)?, *entry))).collect();
        entries.sort_by_cached_key(|(anchor, _)| hash(*anchor));
        let mut filter = Box::new([0; FILTER_WORDS]);
        let mut buckets = vec![0; BUCKETS + 1];
        for (anchor, _) in &entries {
            let hash = hash(*anchor);
            filter[hash / u64::BITS as usize] |= 1 << (hash % u64::BITS as usize);
            buckets[hash / HASHES_PER_BUCKET + 1] += 1;
        }
        (1..=BUCKETS).for_each(|n| buckets[n] += buckets[n - 1]);
        Self { filter, buckets: buckets.into(), entries }
    }

    /// Returns the entries whose anchor may be `anchor`: all that have it, and maybe others.
    #[inline(always)]
    fn bucket(&self, anchor: [u8; LEN]) -> &[([u8; LEN], AnchorEntry)] {
        let hash = hash(anchor);
        if self.filter[hash / u64::BITS as usize] >> (hash % u64::BITS as usize) & 1 == 0 {
            return &[];
        }
        let bucket = hash / HASHES_PER_BUCKET;
        let (from, to) = (self.buckets[bucket], self.buckets[bucket + 1]);
        self.entries.get(from as usize..to as usize).unwrap_or_default()
    }
}

/// A pattern, its literal and where its anchor is in it.
#[derive(Clone, Copy, Debug)]
struct AnchorEntry {
    meanings: Meanings,
    /// The last bytes of its literal.
    last: [u8; CORE],
    pattern: u32,
    /// Where its literal begins in [`WordScan::literals`].
    literal: u32,
    /// The length of its literal, in bytes.
    len: u16,
    /// The offset of the anchor in its literal.
    at: u16,
    tail: PatternTail,
    kind: EntryKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryKind {
    Sentence,
    Word,
    /// A word that no letter may precede.
    WholeWord,
}

impl WordScan {
    /// Prepares a search for `sentences`, each with the number that its hits report, and for
    /// `words`.
    pub(crate) fn new<'p>(
        sentences: impl IntoIterator<Item = (u32, &'p Pattern)>,
        words: impl IntoIterator<Item = SearchedWord<'p>>,
    ) -> Self {
        let sentences: Vec<_> = sentences.into_iter().collect();
        let holders = holders(sentences.iter().map(|(_, pattern)| pattern.first()));
        let (mut entries, mut literals) = (Vec::new(), Vec::new());
        let (mut anywhere, mut unanchored) = (Vec::new(), Vec::new());
        for (number, pattern) in sentences {
            let anchor = rarest_anchor(pattern.first(), &holders);
            match anchor.and_then(|at| entry(number, pattern, at, &mut literals)) {
                Some(entry) => entries.push(entry),
                None => anywhere.push((number, PatternClass::Marker, pattern)),
            }
        }
        for SearchedWord { number, pattern, meanings, begins } in words {
            let anchor = if begins { Some(0) } else { anchors(pattern.first()).next() };
            match anchor.and_then(|at| entry(number, pattern, at, &mut literals)) {
                Some(entry) => {
                    let kind = if begins { EntryKind::WholeWord } else { EntryKind::Word };
                    entries.push(AnchorEntry { meanings, kind, ..entry });
                }
                None => {
                    anywhere.push((number, PatternClass::Word, pattern));
                    unanchored.push((number, meanings, begins));
                }
            }
        }
        let is_mark = |entry: &AnchorEntry| {
            literals
                .get(entry.literal as usize + usize::from(entry.at))
                .is_some_and(|byte| !is_letter(*byte))
        };
        let (marks, starts): (Vec<AnchorEntry>, Vec<AnchorEntry>) =
            entries.iter().partition(|entry| is_mark(entry));
        let (long, short): (Vec<_>, Vec<_>) =
            starts.iter().partition(|entry| usize::from(entry.len - entry.at) >= LONG);
        unanchored.sort_unstable_by_key(|(number, ..)| *number);
        Self {
            marks: AnchorTable::new(&literals, &marks),
            short: AnchorTable::new(&literals, &short),
            long: AnchorTable::new(&literals, &long),
            literals,
            anywhere: PatternScan::new(anywhere),
            unanchored,
        }
    }

    /// Reports the occurrences of words in `text`, in no order, and those of sentences in the order
    /// of the text.
    pub(crate) fn each(
        &self,
        text: &[u8],
        patterns: &[Pattern],
        buffer: &mut HitBuffer,
        mut word: impl FnMut(WordHit),
        mut sentence: impl FnMut(PatternHit),
    ) {
        let mut search = ScanRun::new(text, patterns, buffer);
        self.anywhere.search(&mut search);
        self.search_anchors(&mut search, &mut word);
        buffer.report(text.len(), |hit, class| {
            if class == PatternClass::Marker {
                sentence(hit);
                return true;
            }
            if let Ok(found) =
                self.unanchored.binary_search_by_key(&hit.pattern, |(number, ..)| *number)
            {
                let (pattern, meanings, begins) = self.unanchored[found];
                if !(begins && follows_letter(text, hit.start as usize)) {
                    word(WordHit { start: hit.start, end: hit.end, meanings, pattern });
                }
            }
            // Words alone are no evidence, so they do not count against the limit.
            false
        });
    }

    fn search_anchors(&self, search: &mut ScanRun<'_>, word: &mut impl FnMut(WordHit)) {
        let text = search.text;
        let mut before = Before::default();
        for base in (0..text.len()).step_by(BLOCK) {
            let (mut starts, follow_mark) = before.starts(&text[base..]);
            while starts != 0 {
                let bit = starts.trailing_zeros();
                let at = base + bit as usize;
                starts &= starts - 1;
                if follow_mark >> bit & 1 != 0 && !self.look_up_mark(at - 1, search, word) {
                    return;
                }
                if !self.look_up(at, search, word) {
                    return;
                }
            }
        }
    }

    /// Looks up the anchor at `at`. Returns whether to continue.
    #[inline(always)]
    fn look_up(&self, at: usize, search: &mut ScanRun<'_>, word: &mut impl FnMut(WordHit)) -> bool {
        let rest = search.text.get(at..).unwrap_or_default();
        let Some(short) = rest.first_chunk() else { return true };
        let short = self.short.bucket(*short);
        let long = rest.first_chunk().map(|long| self.long.bucket(*long)).unwrap_or_default();
        (short.is_empty() || self.verify(short, at, search, word))
            && (long.is_empty() || self.verify(long, at, search, word))
    }

    /// Looks up the anchor at `at`, just before a word start. Returns whether to continue.
    #[inline(always)]
    fn look_up_mark(
        &self,
        at: usize,
        search: &mut ScanRun<'_>,
        word: &mut impl FnMut(WordHit),
    ) -> bool {
        let Some(anchor) = search.text.get(at..).and_then(|rest| rest.first_chunk()) else {
            return true;
        };
        let marks = self.marks.bucket(*anchor);
        marks.is_empty() || self.verify(marks, at, search, word)
    }

    /// Verifies the patterns of `entries` whose anchor stands at `at`. Returns whether to continue.
    #[inline(never)]
    fn verify<const LEN: usize>(
        &self,
        entries: &[([u8; LEN], AnchorEntry)],
        at: usize,
        search: &mut ScanRun<'_>,
        word: &mut impl FnMut(WordHit),
    ) -> bool {
        let Some(anchor) = search.text.get(at..).and_then(|rest| rest.first_chunk::<LEN>()) else {
            return true;
        };
        let mut verified = 0;
        for (_, entry) in entries.iter().filter(|(its, _)| its == anchor) {
            let Some((start, end)) = self.matches(entry, LEN, at, search, &mut verified) else {
                continue;
            };
            let (start, end, pattern) = (start as u32, end as u32, entry.pattern);
            match entry.kind {
                EntryKind::Sentence => {
                    search.push(PatternHit { pattern, start, end }, PatternClass::Marker);
                }
                EntryKind::WholeWord if follows_letter(search.text, start as usize) => {}
                _ => word(WordHit { start, end, meanings: entry.meanings, pattern }),
            }
        }
        search.has_work_left(entries.len(), verified)
    }

    /// Returns the start and the end of the match of `entry` whose anchor stands at `at`, if it is
    /// one.
    #[inline(always)]
    fn matches(
        &self,
        entry: &AnchorEntry,
        anchored: usize,
        at: usize,
        search: &ScanRun<'_>,
        verified: &mut usize,
    ) -> Option<(usize, usize)> {
        let text = search.text;
        let len = usize::from(entry.len);
        let start = at.checked_sub(usize::from(entry.at))?;
        let found = text.get(start..start + len)?;
        if found.last_chunk() != Some(&entry.last) {
            return None;
        }
        *verified += 1;
        // The anchor and the last bytes are all of a short literal.
        let is_whole = entry.at == 0 && len <= anchored + CORE;
        let literal = entry.literal as usize;
        if !is_whole && self.literals.get(literal..literal + len) != Some(found) {
            return None;
        }
        let end = start + len;
        match entry.tail {
            PatternTail::Nothing => Some((start, end)),
            PatternTail::WordEnd => {
                (!super::pattern::goes_on(&text[end..])).then_some((start, end))
            }
            PatternTail::Other => search
                .patterns
                .get(entry.pattern as usize)?
                .end_at(text, start)
                .map(|end| (start, end)),
        }
    }
}

/// Returns an entry for a sentence whose anchor is at `at`. Its literal is added to `literals`.
fn entry(number: u32, pattern: &Pattern, at: usize, literals: &mut Vec<u8>) -> Option<AnchorEntry> {
    let literal = pattern.first();
    let entry = AnchorEntry {
        meanings: 0,
        last: *literal.last_chunk()?,
        pattern: number,
        literal: literals.len() as u32,
        len: literal.len().try_into().ok()?,
        at: at.try_into().ok()?,
        tail: pattern.tail(),
        kind: EntryKind::Sentence,
    };
    literals.extend_from_slice(literal);
    Some(entry)
}

/// Returns the offsets at which an anchor may begin: in any text they are word starts, or just
/// before one.
fn anchors(literal: &[u8]) -> impl Iterator<Item = usize> {
    (0..(literal.len() + 1).saturating_sub(CORE)).filter(|&at| match literal[at..] {
        // What stands before the literal decides whether a letter or a digit begins a word.
        [byte, ..] if byte.is_ascii_alphanumeric() => {
            at > 0 && !literal[at - 1].is_ascii_alphanumeric()
        }
        [byte, next, ..] if byte.is_ascii() => is_letter(next),
        [byte, ..] => is_letter(byte),
        [] => false,
    })
}

/// The number of sentences that have an anchor.
type Holders<'p> = HashMap<&'p [u8], usize, Xxh3DefaultBuilder>;

fn holders<'p>(literals: impl Iterator<Item = &'p [u8]>) -> Holders<'p> {
    let mut holders = Holders::default();
    for literal in literals {
        anchors(literal).for_each(|at| *holders.entry(anchor(literal, at)).or_default() += 1);
    }
    holders
}

/// Returns the offset of an anchor that few sentences have, a long one if possible: what sentences
/// have in common is what block pages say, and each of them would have to be verified there.
fn rarest_anchor(literal: &[u8], holders: &Holders<'_>) -> Option<usize> {
    anchors(literal).min_by_key(|&at| {
        let anchor = anchor(literal, at);
        (!is_letter(literal[at]), anchor.len() < LONG, holders.get(anchor))
    })
}

/// Returns the anchor of `literal` at `at`: a long one, unless only a short one is there.
fn anchor(literal: &[u8], at: usize) -> &[u8] {
    let rest = literal.get(at..).unwrap_or_default();
    rest.get(..LONG).or(rest.get(..SHORT)).unwrap_or_default()
}

/// Returns whether a byte is a letter or digit of ASCII, or begins another character.
fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0xC0
}

#[inline]
fn hash<const LEN: usize>(anchor: [u8; LEN]) -> usize {
    let mut bytes = [0; LONG];
    bytes[..LEN].copy_from_slice(&anchor);
    (u64::from_le_bytes(bytes).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - HASH_BITS))
        as usize
}

/// The byte before a block.
#[derive(Default)]
struct Before {
    /// 1 if it is a letter or digit of ASCII.
    alphanumeric: u64,
    /// 1 if it is another byte of ASCII.
    mark: u64,
}

impl Before {
    /// Returns the word starts in the first [`BLOCK`] bytes of `text`, and those of them that
    /// follow a byte of ASCII that is no letter and no digit. Every character outside ASCII is a
    /// word start.
    #[inline]
    fn starts(&mut self, text: &[u8]) -> (u64, u64) {
        let mut filled = [0; BLOCK];
        let block = text.first_chunk().unwrap_or_else(|| {
            filled.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
            &filled
        });
        let (mut alphanumeric, mut wide, mut lead) = (0, 0, 0);
        for (n, part) in block.as_chunks::<16>().0.iter().enumerate() {
            let bytes = u8x16::new(*part);
            // The number of a letter in the alphabet is its distance from `a`, which wraps around
            // for what is below.
            let letter = (bytes | u8x16::splat(0x20)) - u8x16::splat(b'a');
            let digit = bytes - u8x16::splat(b'0');
            let is_alphanumeric = letter.min(u8x16::splat(25)).simd_eq(letter)
                | digit.min(u8x16::splat(9)).simd_eq(digit);
            let is_lead = bytes.max(u8x16::splat(0xC0)).simd_eq(bytes);
            alphanumeric |= u64::from(is_alphanumeric.to_bitmask()) << (16 * n);
            wide |= u64::from(bytes.to_bitmask()) << (16 * n);
            lead |= u64::from(is_lead.to_bitmask()) << (16 * n);
        }
        let mark = !(alphanumeric | wide);
        let starts = alphanumeric & !(alphanumeric << 1 | self.alphanumeric) | lead;
        let follow_mark = mark << 1 | self.mark;
        (self.alphanumeric, self.mark) = (alphanumeric >> (BLOCK - 1), mark >> (BLOCK - 1));
        (starts, follow_mark)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::rules::pattern::has_words;

    /// The patterns that a search and a naive search found: each with its start.
    type Found = Vec<(u32, u32)>;

    fn search(sentences: &[Pattern], words: &[(Pattern, bool)], text: &str) -> (Found, Found) {
        let all: Vec<Pattern> =
            sentences.iter().chain(words.iter().map(|(word, _)| word)).cloned().collect();
        let first = sentences.len() as u32;
        let searched = (first..).zip(words).map(|(number, (pattern, begins))| SearchedWord {
            number,
            pattern,
            meanings: 1 << (number % 64),
            begins: *begins,
        });
        let scan = WordScan::new((0..).zip(sentences), searched);
        let (mut found_words, mut found_sentences) = (Vec::new(), Vec::new());
        let word = |hit: WordHit| {
            assert_eq!(hit.meanings, 1 << (hit.pattern % 64));
            let end = all[hit.pattern as usize].end_at(text.as_bytes(), hit.start as usize);
            assert_eq!(end, Some(hit.end as usize));
            found_words.push((hit.pattern, hit.start));
        };
        scan.each(text.as_bytes(), &all, &mut HitBuffer::default(), word, |hit| {
            found_sentences.push((hit.start, hit.pattern));
        });
        assert!(found_sentences.is_sorted(), "in the order of the text");
        let mut found_sentences: Found =
            found_sentences.into_iter().map(|(start, pattern)| (pattern, start)).collect();
        found_words.sort_unstable();
        found_sentences.sort_unstable();
        (found_sentences, found_words)
    }

    /// Finds patterns by trying every offset.
    fn naive(sentences: &[Pattern], words: &[(Pattern, bool)], text: &str) -> (Found, Found) {
        let text = text.as_bytes();
        let at = |pattern: &Pattern, number: u32| -> Found {
            (0..text.len())
                .filter(|at| pattern.end_at(text, *at).is_some())
                .map(|at| (number, at as u32))
                .collect()
        };
        let found_sentences =
            (0..).zip(sentences).flat_map(|(number, pattern)| at(pattern, number)).collect();
        let found_words =
            (sentences.len() as u32..).zip(words).flat_map(|(number, (pattern, begins))| {
                let mut found = at(pattern, number);
                found.retain(|(_, start)| !begins || !follows_letter(text, *start as usize));
                found
            });
        (found_sentences, found_words.collect())
    }

    fn parsed(patterns: &[String]) -> Vec<Pattern> {
        patterns.iter().filter_map(|pattern| Pattern::parse(pattern).ok()).collect()
    }

    fn parsed_words(patterns: &[String]) -> Vec<(Pattern, bool)> {
        let begins = |pattern: &String| pattern.chars().next().is_some_and(has_words);
        patterns
            .iter()
            .filter_map(|word| Some((Pattern::parse(word).ok()?, begins(word))))
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_search_finds_what_a_naive_search_finds(
            sentences in prop::collection::vec("[ab -]{4,9}(\\{(hex|word|digits|gap|end)\\})?[ab]{0,2}|[abé的 .1]{4,12}", 1..40),
            words in prop::collection::vec("[ab]{4,9}(\\{end\\})?|[ab]{1,3}é[ab ]{1,6}|[ -(]{1,2}[ab]{2,4}|[ébм的]{2,5}| a[ab的] ", 1..60),
            text in prop::collection::vec(prop_oneof!["[ab]{1,30}", "[ab -]{1,40}", "[abé的м .1(-]{1,40}", "x{1,70}"], 0..12),
            planted in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut text = text;
            for index in planted {
                let pattern = index.get(if index.index(2) == 0 { &words } else { &sentences });
                let pattern = pattern.replace("{hex}", "a1").replace("{word}", "b").replace("{digits}", "7");
                text.insert(index.index(text.len() + 1), pattern.replace("{gap}", " ").replace("{end}", ""));
            }
            let (text, sentences, words) = (text.concat(), parsed(&sentences), parsed_words(&words));
            // Equal patterns are one pattern in a table of rules.
            let (mut wanted_sentences, mut wanted_words) = naive(&sentences, &words, &text);
            wanted_sentences.sort_unstable();
            wanted_words.sort_unstable();
            prop_assert_eq!(search(&sentences, &words, &text), (wanted_sentences, wanted_words));
        }
    }

    #[test]
    fn word_starts_are_the_same_in_blocks_of_any_offset() {
        let text = "a word, état-major (的士) 12 _x 'quoted'\u{a0}end ".repeat(9);
        let bytes = text.as_bytes();
        for from in 0..BLOCK {
            let text = &bytes[from..];
            let mut before = Before::default();
            for base in (0..text.len()).step_by(BLOCK) {
                let (starts, follow_mark) = before.starts(&text[base..]);
                for at in base..text.len().min(base + BLOCK) {
                    let previous = at.checked_sub(1).map(|at| text[at]);
                    let is_mark = previous
                        .is_some_and(|byte| byte.is_ascii() && !byte.is_ascii_alphanumeric());
                    let is_start = match text[at] {
                        byte if byte.is_ascii_alphanumeric() => {
                            previous.is_none_or(|byte| !byte.is_ascii_alphanumeric())
                        }
                        byte => byte >= 0xC0,
                    };
                    assert_eq!(starts >> (at - base) & 1 == 1, is_start, "{from} {at}");
                    assert_eq!(follow_mark >> (at - base) & 1 == 1, is_mark, "{from} {at}");
                }
            }
        }
    }

    #[test]
    fn sentences_are_found_inside_words_too() {
        let sentences = parsed(&["forbidden".to_owned(), "you are a robot".to_owned()]);
        assert_eq!(
            search(&sentences, &[], "unforbidden: hayyou are a robots").0,
            [(0, 2), (1, 16)]
        );
    }

    #[test]
    fn work_is_limited() {
        let sentences: Vec<String> = (0..300).map(|n| format!("abcd {{gap}}{n:03}x")).collect();
        let text = "abcd ".repeat(200_000);
        assert_eq!(search(&parsed(&sentences), &[], &text).0, []);
    }
}
