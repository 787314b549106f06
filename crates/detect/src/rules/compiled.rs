//! The compiled rule table: rules, and the searches and tests that find their evidence in a response. Holds data and looks things
//! up in it; how it is made is not known here.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use xxhash_rust::xxh3::Xxh3DefaultBuilder;

use super::condition::Conditions;
use super::pattern::Pattern;
use super::scan::{Buffer, Class, Scan};
use super::vocabulary::Vocabulary;
use crate::concepts::{Concepts, Meanings};
use crate::html::visibility::Place;
use crate::rules::strength::Grade;

/// A rule, ready to be judged by.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) id: Arc<str>,
    pub(crate) vendor: Option<u8>,
    pub(crate) grade: Grade,
    pub(crate) places: Vec<Place>,
    /// The most visible characters beside which it holds.
    pub(crate) max_visible_chars: u32,
    /// The same with status 200, at most the other one.
    pub(crate) max_visible_chars_200: u32,
    pub(crate) max_links: u32,
    pub(crate) max_links_200: u32,
    pub(crate) conditions: Conditions,
    /// It refuses and asks for nothing: where no rule holds that asks for something, the block is `blocked_403`.
    pub(crate) refusal: bool,
    /// Only applications carry it: weak evidence that wants `mount` to be false gives way to it, other such evidence where
    /// it names a framework.
    pub(crate) application: bool,
    /// Whether one of its patterns is among the short ones.
    pub(crate) short: bool,
    pub(crate) confidence: f32,
    pub(crate) framework: Option<Arc<str>>,
    pub(crate) note: Arc<str>,
    /// What must all be seen: bit 0 for `find` (or a title, text, header ...), bit n for the nth `also`.
    pub(crate) needs: u8,
}

/// What a pattern is a part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) rule: u16,
    pub(crate) bit: u8,
}

/// A header that a rule looks for.
#[derive(Debug)]
pub(crate) struct HeaderTest {
    pub(crate) rule: u16,
    pub(crate) name: Box<str>,
    /// In lower case; empty when the name is enough.
    pub(crate) value: Box<str>,
}

/// Titles that rules look for, folded as [`fold_title`] does.
#[derive(Debug, Default)]
pub(crate) struct TitleTests {
    /// Titles that are compared as a whole.
    pub(crate) whole: HashMap<Box<str>, Vec<u16>, Xxh3DefaultBuilder>,
    /// Beginnings.
    pub(crate) starts: Vec<(u16, Box<str>)>,
    /// What may stand before or after a separator such as ` | ` or ` - `.
    pub(crate) part: Vec<(u16, Box<str>)>,
}

/// The compiled table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) rules: Vec<Rule>,
    pub(crate) vendors: Arc<[Arc<str>]>,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) parts: Vec<Part>,
    /// Patterns looked for in every page.
    pub(crate) early: Scan,
    /// Those, and patterns looked for in pages with little text.
    pub(crate) late: Scan,
    /// Those, and patterns looked for in pages with next to no text.
    pub(crate) thin: Scan,
    /// Short ones, looked for after those when one of their rules was hit.
    pub(crate) short: Scan,
    /// Whether a rule's evidence itself is short, so that those are always looked for.
    pub(crate) short_always: bool,
    /// Sentences, and the words that hint at a wall, looked for in folded text.
    pub(crate) sentences: Scan,
    /// Words that only hint at a wall, looked for in folded text.
    pub(crate) cue_words: Scan,
    /// Targets of a refresh.
    pub(crate) refreshes: Scan,
    /// By the first letter of the name, in lower case; see [`Table::headers_of`].
    pub(crate) headers: Vec<HeaderTest>,
    pub(crate) header_letters: [Range<u16>; 256],
    pub(crate) cookies: Vec<(u16, Box<str>)>,
    pub(crate) hosts: Vec<(u16, Box<str>)>,
    pub(crate) titles: TitleTests,
    /// Rules whose conditions alone are evidence.
    pub(crate) always: Vec<u16>,
    /// What walls say, by meaning.
    pub(crate) concepts: Concepts,
    pub(crate) vocabulary: Vocabulary,
    /// All words, looked for where some hint at a wall; made when the first page does.
    pub(crate) words: OnceLock<Scan>,
}

impl HeaderTest {
    pub(crate) fn letter(&self) -> u8 {
        self.name.as_bytes().first().map_or(0, u8::to_ascii_lowercase)
    }
}

impl Table {
    /// The tests that a header of this name may pass.
    pub(crate) fn headers_of(&self, name: &str) -> &[HeaderTest] {
        let letter = name.as_bytes().first().map_or(0, u8::to_ascii_lowercase);
        let range = &self.header_letters[usize::from(letter)];
        self.headers.get(usize::from(range.start)..usize::from(range.end)).unwrap_or_default()
    }

    /// Reports where each word begins in `text`, which is folded, and what it means.
    pub(crate) fn each_word(&self, text: &[u8], buffer: &mut Buffer, mut found: impl FnMut(u32, Meanings)) {
        let words = self.words.get_or_init(|| {
            let words = self.concepts.patterns().map(|word| (word, Class::Word, &self.patterns[word as usize]));
            Scan::with_words([], words)
        });
        words.each(text, &self.patterns, buffer, |hit| {
            if let Some(meanings) = self.concepts.meanings_at(hit.pattern, text, hit.start as usize) {
                found(hit.start, meanings);
            }
            // Words are no evidence by themselves: none is too many.
            false
        });
    }

    /// The name of a vendor.
    pub(crate) fn vendor(&self, index: Option<u8>) -> Option<Arc<str>> {
        index.and_then(|i| self.vendors.get(i as usize)).cloned()
    }
}

/// A folded title without what varies at its ends: dots, exclamation marks, spaces.
pub(crate) fn fold_title(folded: &str) -> &str {
    folded.trim_matches(is_title_edge)
}

pub(crate) fn is_title_edge(c: char) -> bool {
    c.is_whitespace() || matches!(c, '.' | '!' | '?' | ':' | '-' | '|' | '\u{3002}' | '\u{FF01}')
}
