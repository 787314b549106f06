//! The compiled rule table: rules, with the searches and tests that find their evidence in a
//! response.
//!
//! Owns: compiled data and its lookups.
//!
//! Must not know: how the table is compiled.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3DefaultBuilder;

use super::condition::Conditions;
use super::pattern::Pattern;
use super::scan::{HitBuffer, PatternScan};
use super::vocabulary::Vocabulary;
use super::word_scan::{WordHit, WordScan};
use crate::html::visibility::PagePart;
use crate::rules::concepts::Concepts;
use crate::rules::strength::Grade;

/// A compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) id: Arc<str>,
    pub(crate) vendor: Option<u8>,
    pub(crate) grade: Grade,
    pub(crate) places: Vec<PagePart>,
    /// Maximum visible characters of a page on which it holds.
    pub(crate) max_visible_chars: u32,
    /// The same with status 200; never larger.
    pub(crate) max_visible_chars_200: u32,
    pub(crate) max_links: u32,
    pub(crate) max_links_200: u32,
    pub(crate) conditions: Conditions,
    /// It refuses and asks for nothing: if no other rule that holds asks for something, the block
    /// is `blocked_403`.
    pub(crate) refusal: bool,
    /// A product between the crawler and the site put the page in place of it.
    pub(crate) network: bool,
    /// Only applications contain it. Weak evidence that requires `mount = false` yields to it;
    /// stronger evidence does so only if this rule names a framework.
    pub(crate) application: bool,
    /// Whether one of its patterns is short.
    pub(crate) short: bool,
    pub(crate) confidence: f32,
    pub(crate) framework: Option<Arc<str>>,
    pub(crate) note: Arc<str>,
    /// The parts that must all be found: bit 0 for `find` (or a title, text, header ...), bit n for
    /// the nth `also`.
    pub(crate) needs: u8,
}

/// The part of a rule that a pattern belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatternPart {
    pub(crate) rule: u16,
    pub(crate) bit: u8,
}

/// A header that a rule looks for.
#[derive(Debug)]
pub(crate) struct HeaderTest {
    pub(crate) rule: u16,
    pub(crate) name: Box<str>,
    /// The name ends with a hyphen and matches all header names that begin with it.
    pub(crate) begins: bool,
    /// In lower case; empty if the name is enough.
    pub(crate) value: Box<str>,
}

/// Titles that rules look for, folded like [`fold_title`].
#[derive(Debug, Default)]
pub(crate) struct TitleTests {
    /// Whole titles.
    pub(crate) whole: HashMap<Box<str>, Vec<u16>, Xxh3DefaultBuilder>,
    /// Beginnings.
    pub(crate) starts: Vec<(u16, Box<str>)>,
    /// Parts before or after a separator such as ` | ` or ` - `.
    pub(crate) part: Vec<(u16, Box<str>)>,
}

/// The compiled rule table.
#[derive(Debug)]
pub(crate) struct RuleTable {
    pub(crate) rules: Vec<Rule>,
    pub(crate) vendors: Arc<[Arc<str>]>,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) parts: Vec<PatternPart>,
    /// Patterns searched for in every page.
    pub(crate) early: PatternScan,
    /// Those, and patterns for pages with little text.
    pub(crate) late: PatternScan,
    /// Those, and patterns for pages with next to no text.
    pub(crate) thin: PatternScan,
    /// Short patterns, searched for after a hit of one of their rules.
    pub(crate) short: PatternScan,
    /// Whether the main evidence of a rule is short, so that short patterns are always searched
    /// for.
    pub(crate) short_always: bool,
    /// Sentences and all words, searched for in folded text.
    pub(crate) wording: WordScan,
    /// Names of products of networks, searched for in pages whose words may be those of a network.
    pub(crate) products: PatternScan,
    /// Words that only hint at a block, searched for in folded text.
    pub(crate) cue_words: PatternScan,
    /// Patterns in the target of a refresh.
    pub(crate) refreshes: PatternScan,
    /// Ranges of `headers` by the first letter of the name, in lower case; see
    /// [`RuleTable::headers_of`].
    pub(crate) headers: Vec<HeaderTest>,
    pub(crate) header_letters: [Range<u16>; 256],
    pub(crate) cookies: Vec<(u16, Box<str>)>,
    pub(crate) hosts: Vec<(u16, Box<str>)>,
    pub(crate) titles: TitleTests,
    /// Rules whose conditions alone are evidence.
    pub(crate) always: Vec<u16>,
    /// What block pages say, by meaning.
    pub(crate) concepts: Concepts,
    pub(crate) vocabulary: Vocabulary,
}

impl HeaderTest {
    pub(crate) fn letter(&self) -> u8 {
        self.name.as_bytes().first().map_or(0, u8::to_ascii_lowercase)
    }
}

impl RuleTable {
    /// Returns the tests that a header of this name may pass.
    pub(crate) fn headers_of(&self, name: &str) -> &[HeaderTest] {
        let letter = name.as_bytes().first().map_or(0, u8::to_ascii_lowercase);
        let range = &self.header_letters[usize::from(letter)];
        self.headers.get(usize::from(range.start)..usize::from(range.end)).unwrap_or_default()
    }

    /// Reports each word in `text`, which is folded.
    pub(crate) fn each_word(
        &self,
        text: &[u8],
        buffer: &mut HitBuffer,
        found: impl FnMut(WordHit),
    ) {
        self.wording.each(text, &self.patterns, buffer, found, |_| {});
    }

    /// Returns the name of a vendor.
    pub(crate) fn vendor(&self, index: Option<u8>) -> Option<Arc<str>> {
        index.and_then(|i| self.vendors.get(i as usize)).cloned()
    }
}

/// Returns a folded title without variable characters at its ends: dots, exclamation marks, spaces.
pub(crate) fn fold_title(folded: &str) -> &str {
    folded.trim_matches(is_title_edge)
}

pub(crate) fn is_title_edge(c: char) -> bool {
    c.is_whitespace() || matches!(c, '.' | '!' | '?' | ':' | '-' | '|' | '\u{3002}' | '\u{FF01}')
}
