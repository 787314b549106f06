//! The memory that reading works in, and the evidence found in one page.
//!
//! Invariants: nothing is carried from one page to the next, except what [`Scratch::title`] returns.

use arrayvec::ArrayVec;

use crate::cues::CueTally;
use crate::html::page_facts::PageFacts;
use crate::html::visibility::PagePart;
use crate::rules::scan::{HitBuffer, PatternHit};
use crate::rules::word_scan::Meanings;
use crate::simhash;

/// Memory that is reused from page to page. Use one per thread. It carries no state from one page to the next, except
/// what [`Scratch::title`] returns.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The body in lower case.
    pub(crate) lower: Vec<u8>,
    /// The decoded body, if it is in UTF-16.
    pub(crate) decoded: Vec<u8>,
    pub(crate) facts: PageFacts,
    pub(crate) found: CollectedEvidence,
    pub(crate) hits: Vec<PatternHit>,
    pub(crate) buffer: HitBuffer,
    pub(crate) offsets: Vec<u32>,
    pub(crate) kept: Vec<u8>,
    pub(crate) folded: String,
    /// See [`Verdict::text_hash`].
    pub(crate) text_hash: u64,
    pub(crate) title: String,
    /// The title, folded as titles and sentences are compared.
    pub(crate) folded_title: String,
    /// Meanings of the words of the folded text that hint at a block, and of all words if those do so together.
    pub(crate) meanings: Meanings,
    /// Meanings of all words of the folded text.
    pub(crate) all_meanings: Meanings,
    /// Where the first words of a page's frame begin in the first line of the folded text. More belong to no content.
    pub(crate) frame_words: ArrayVec<u32, 32>,
    pub(crate) weighing: CueTally,
}

impl Scratch {
    /// Forgets the last page, before one is read with this number of rules.
    pub(crate) fn forget(&mut self, rules: usize) {
        self.found.clear(rules);
        self.title.clear();
        self.folded_title.clear();
        self.folded.clear();
        self.text_hash = 0;
        (self.meanings, self.all_meanings) = (0, 0);
        self.frame_words.clear();
        self.weighing.clear();
    }

    /// Returns the SimHash of the last page, if it is HTML with little text.
    pub(crate) fn simhash(&self) -> Option<u64> {
        // The hash is 0 where there is no text, or much of it.
        let visible = self.folded.split('\n').next().filter(|_| self.text_hash != 0)?;
        Some(simhash::simhash(visible))
    }

    /// Returns the title of the last page, entities decoded, at most 1024 bytes. Empty if it has none.
    pub fn title(&self) -> &str {
        &self.title
    }
}

/// Evidence found in a page, by rule.
#[derive(Debug, Default)]
pub(crate) struct CollectedEvidence {
    /// For each rule, the parts of it that were found.
    pub(crate) bits: Vec<u8>,
    /// Rules with at least one part found, in the order of discovery.
    pub(crate) touched: Vec<u16>,
    /// The touched rules that hold on this page: all parts were found, and all conditions are met.
    pub(crate) held: Vec<u16>,
    pub(crate) pieces: Vec<EvidencePiece>,
}

/// One piece of evidence.
#[derive(Clone, Debug)]
pub(crate) struct EvidencePiece {
    pub(crate) rule: u16,
    pub(crate) place: PagePart,
    pub(crate) at: MatchPosition,
}

/// Where a piece of evidence was found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MatchPosition {
    Body(u32, u32),
    Folded(u32, u32),
    Title,
    Header(u32),
}

/// Maximum pieces of evidence that are kept for explanations.
pub(crate) const MAX_PIECES: usize = 256;

impl CollectedEvidence {
    pub(crate) fn clear(&mut self, rules: usize) {
        for rule in self.touched.drain(..) {
            if let Some(bits) = self.bits.get_mut(rule as usize) {
                *bits = 0;
            }
        }
        self.bits.resize(rules, 0);
        self.held.clear();
        self.pieces.clear();
    }

    pub(crate) fn add(&mut self, rule: u16, bit: u8, place: PagePart, at: MatchPosition) {
        let bits = &mut self.bits[rule as usize];
        if *bits == 0 {
            self.touched.push(rule);
        }
        *bits |= bit;
        if self.pieces.len() < MAX_PIECES {
            self.pieces.push(EvidencePiece { rule, place, at });
        }
    }
}
