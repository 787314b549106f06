//! The memory that reading works in, in one group for each stage that fills it.
//!
//! Invariants: nothing is carried from one page to the next, except what [`Scratch::title`]
//! returns.
//!
//! Must not know: the order of the stages.

use arrayvec::ArrayVec;

use crate::cue_tally::CueTally;
use crate::html::page_facts::PageFacts;
use crate::html::visibility::PagePart;
use crate::network_signs::NetworkSigns;
use crate::rules::scan::{HitBuffer, PatternHit};
use crate::rules::word_scan::Meanings;
use crate::simhash;

/// Memory that is reused from page to page. Use one per thread. It carries no state from one page
/// to the next, except what [`Scratch::title`] returns.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) bytes: PageBytes,
    pub(crate) read: PageReading,
    pub(crate) found: CollectedEvidence,
    /// The touched rules that hold on the page: all parts were found, and all conditions are met.
    pub(crate) held: Vec<u16>,
    pub(crate) weighing: CueTally,
    pub(crate) work: WorkBuffers,
}

/// The bytes of a page.
#[derive(Debug, Default)]
pub(crate) struct PageBytes {
    /// The body in lower case.
    pub(crate) lower: Vec<u8>,
    /// The decoded body, if it is in UTF-16.
    pub(crate) decoded: Vec<u8>,
}

/// What was read in a page.
#[derive(Debug, Default)]
pub(crate) struct PageReading {
    pub(crate) facts: PageFacts,
    pub(crate) folded: String,
    /// See [`Verdict::text_hash`](crate::Verdict::text_hash).
    pub(crate) text_hash: u64,
    pub(crate) title: String,
    /// The title, folded as titles and sentences are compared.
    pub(crate) folded_title: String,
    /// Meanings of the words of the folded text that hint at a block, and of all words if those do
    /// so together.
    pub(crate) meanings: Meanings,
    /// Meanings of all words of the folded text.
    pub(crate) all_meanings: Meanings,
    /// The signs of a network, of a page with little text.
    pub(crate) signs: NetworkSigns,
    /// Where the first words of a page's frame begin in the first line of the folded text. More
    /// belong to no content.
    pub(crate) frame_words: ArrayVec<u32, 32>,
}

/// Memory of single searches. Nothing in it outlives a function.
#[derive(Debug, Default)]
pub(crate) struct WorkBuffers {
    pub(crate) hits: Vec<PatternHit>,
    pub(crate) buffer: HitBuffer,
    pub(crate) offsets: Vec<u32>,
    pub(crate) kept: Vec<u8>,
}

impl Scratch {
    /// Forgets the last page, before one is read with this number of rules.
    pub(crate) fn forget(&mut self, rules: usize) {
        let read = &mut self.read;
        read.title.clear();
        read.folded_title.clear();
        read.folded.clear();
        read.text_hash = 0;
        (read.meanings, read.all_meanings) = (0, 0);
        read.frame_words.clear();
        read.signs = NetworkSigns::default();
        self.found.clear(rules);
        self.held.clear();
        self.weighing.clear();
    }

    /// Returns the SimHash of the last page, if it is HTML with little text.
    pub(crate) fn simhash(&self) -> Option<u64> {
        // The hash is 0 where there is no text, or much of it.
        (self.read.text_hash != 0).then(|| simhash::simhash(self.read.visible_text()))
    }

    /// Returns the title of the last page, entities decoded, at most 1024 bytes. Empty if it has
    /// none.
    pub fn title(&self) -> &str {
        &self.read.title
    }
}

impl PageReading {
    /// Returns the visible text of a page with little text, which is the first line of the folded
    /// text.
    pub(crate) fn visible_text(&self) -> &str {
        self.folded.split('\n').next().unwrap_or_default()
    }
}

/// Evidence found in a page, by rule.
#[derive(Debug, Default)]
pub(crate) struct CollectedEvidence {
    /// For each rule, the parts of it that were found.
    pub(crate) bits: Vec<u8>,
    /// Rules with at least one part found, in the order of discovery.
    pub(crate) touched: Vec<u16>,
    pub(crate) pieces: Vec<EvidencePiece>,
    /// A rule knows the target of a refresh or redirect as a challenge or a waiting room.
    pub(crate) to_challenge: bool,
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
        self.pieces.clear();
        self.to_challenge = false;
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
