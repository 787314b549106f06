//! The tally of a page's cues: what was counted, its sum against a threshold, and what that says.
//!
//! Owns: the sums, the confidence that follows from them, and the names of cues.
//!
//! Invariants: a kind of cue counts once.
//!
//! Must not know: how a cue is found.

use std::sync::Arc;

use arrayvec::ArrayVec;

use crate::html::main_content::MainContent;
use crate::rules::compiled::RuleTable;
use crate::rules::word_scan::Meanings;
use fetchwise_types::attempt::verdict_reason::MAX_CUES;
use fetchwise_types::fetch_result::BlockKind;

/// Sum of weights from which cues make a block.
pub(crate) const THRESHOLD: i32 = 55;
/// Confidence by the sum above the threshold, fitted with a logistic curve:
/// `cargo run -p fetchwise-detect --features json --example calibrate --
/// crates/detect/calibration/first-sight.tsv`. Between two knots it is linear. A sum below the
/// threshold is no block, so it stays below one half.
const CONFIDENCE: [(i32, f32); 9] = [
    (-60, 0.08),
    (-40, 0.19),
    (-20, 0.39),
    (-1, 0.49),
    (0, 0.63),
    (10, 0.73),
    (20, 0.82),
    (40, 0.92),
    (60, 0.97),
];
/// The cues without words that no failure of a server has.
const OF_BLOCKS: [&str; 9] = [
    "known-words",
    "widget",
    "cookie-script",
    "leads-inside",
    "knows-visitor",
    "asked-withheld",
    "links-inside",
    "names-inside",
    "led-away",
];

/// One cue of a block or, with a negative weight, against one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Cue {
    /// The id of the concept, or the name of a cue without words.
    pub id: Arc<str>,
    /// Its weight.
    pub weight: i32,
    /// The text it was read in, at most 80 characters; empty for cues without words.
    pub text: String,
}

/// The cues of a page, and their sum.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CueSum {
    /// The cues, each kind once.
    pub cues: Vec<Cue>,
    /// The sum of their weights.
    pub sum: i32,
    /// The sum that makes a block.
    pub threshold: i32,
    /// Whether one of them is a core concept. Without one, no page is a block.
    pub core: bool,
    /// Characters of the main content that say nothing about a block.
    pub own_chars: u32,
}

impl CueSum {
    /// Returns the confidence that the page is a block, as far as its cues say; 0 without a core
    /// concept.
    pub fn confidence(&self) -> f32 {
        if self.core { confidence(self.sum - self.threshold) } else { 0.0 }
    }
}

/// Cues of one page. The memory is reused from page to page.
#[derive(Debug, Default)]
pub(crate) struct CueTally {
    pub(crate) region: MainContent,
    /// Words of the main content: position, meanings, and pattern.
    pub(crate) words: Vec<(u32, Meanings, u32)>,
    /// The meanings of the current sentence in each language.
    pub(crate) by_language: Vec<(u8, Meanings)>,
    cues: Vec<CountedCue>,
    pub(crate) sum: i32,
    pub(crate) threshold: i32,
    pub(crate) core: bool,
    pub(crate) task: bool,
    pub(crate) queue: bool,
    pub(crate) network: bool,
    /// A firewall of the site is named, and a product of networks.
    pub(crate) site: bool,
    pub(crate) product: bool,
    /// The page has a form or an element named after a captcha.
    pub(crate) has_form: bool,
    /// The weights of what only a server's failure says, and whether the title, a heading or the
    /// first sentence says it.
    pub(crate) failure: i32,
    pub(crate) failure_leads: bool,
    /// The title, a heading or the first sentence asks for a log-in.
    pub(crate) gate: bool,
    /// The title, a heading or the first sentence states a core concept.
    pub(crate) anchored: bool,
    /// A concept against a block was stated.
    pub(crate) about: bool,
    /// A sentence with the name of a host withholds something.
    pub(crate) withholds: bool,
    pub(crate) own_chars: u32,
    /// Whether the page was weighed at all.
    pub(crate) done: bool,
}

/// A cue that was counted.
#[derive(Clone, Copy, Debug)]
struct CountedCue {
    name: CueName,
    weight: i32,
    at: (u32, u32),
}

/// What kind of cue was counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CueName {
    /// A concept that the words state, by its number.
    Concept(u16),
    /// A cue of how the page is made, not of its words.
    Structural(&'static str),
}

impl CueName {
    fn id(self, table: &RuleTable) -> Arc<str> {
        match self {
            Self::Concept(index) => Arc::clone(&table.concepts.concepts[index as usize].id),
            Self::Structural(name) => name.into(),
        }
    }
}

impl CueTally {
    pub(crate) fn clear(&mut self) {
        self.cues.clear();
        self.words.clear();
        (self.sum, self.threshold, self.own_chars) = (0, 0, 0);
        (self.core, self.task, self.about, self.done) = (false, false, false, false);
        (self.queue, self.network, self.anchored, self.withholds) = (false, false, false, false);
        (self.failure, self.failure_leads, self.gate) = (0, false, false);
        (self.site, self.product, self.has_form) = (false, false, false);
    }

    /// Returns the confidence that this is a block, from 0 to 1; above 0.5 from the threshold on.
    pub(crate) fn confidence(&self) -> f32 {
        if !self.core || !self.done {
            return 0.0;
        }
        confidence(self.sum - self.threshold)
    }

    /// Returns whether the page is about blocks and is none itself: it says so, and the sum stays
    /// below the threshold.
    pub(crate) fn is_about_blocks(&self) -> bool {
        self.done && self.about && self.sum < self.threshold
    }

    /// Returns whether the page gives a place in a queue, and nothing in it refuses or demands a
    /// proof.
    pub(crate) fn is_queue(&self) -> bool {
        self.queue
    }

    /// Returns whether the network of the crawler refuses, not the site.
    pub(crate) fn is_network(&self) -> bool {
        self.network && (self.product || !self.site)
    }

    /// Returns whether the server says that it failed. Where the page also refuses or asks for a
    /// proof, what leads it decides.
    pub(crate) fn is_failure(&self) -> bool {
        let says = self.done && self.failure_leads && self.failure > 0;
        let refuses =
            self.core && self.sum >= self.threshold && (self.anchored || self.task || self.network);
        says && self.failure_sum() >= THRESHOLD
            && (!refuses || self.failure_sum() > self.sum && !self.task)
    }

    /// Returns the sum of what indicates a failure: its own weights, and the cues of any page that
    /// is not the content.
    fn failure_sum(&self) -> i32 {
        let looks = |cue: &&CountedCue| match cue.name {
            CueName::Structural(name) => !OF_BLOCKS.contains(&name),
            CueName::Concept(_) => cue.weight < 0,
        };
        self.failure + self.cues.iter().filter(looks).map(|cue| cue.weight).sum::<i32>()
    }

    /// Returns whether the page asks for a log-in before all else. Without a form to log in with,
    /// nothing else may indicate a block.
    pub(crate) fn is_gate(&self, has_form: bool) -> bool {
        let refuses = self.core && self.sum >= self.threshold && !has_form;
        self.done && self.gate && !self.task && !self.network && !refuses
    }

    /// Returns the kind of block, if it is one.
    pub(crate) fn kind(&self) -> BlockKind {
        if self.task { BlockKind::Challenge } else { BlockKind::Refusal }
    }

    /// Returns the meanings of the words between two offsets and `of_all`, and keeps them by
    /// language: a sentence is in one language, and words of others that look alike mean nothing in
    /// it. Words inside `quoted` do not count.
    pub(crate) fn meanings(
        &mut self,
        table: &RuleTable,
        (start, end): (u32, u32),
        quoted: Option<(u32, u32)>,
        of_all: Meanings,
    ) -> Meanings {
        self.by_language.clear();
        // A word may begin with the white space before the sentence.
        let from = self.words.partition_point(|(at, ..)| *at + 1 < start);
        let mut set = of_all;
        let is_quoted = |at: u32| quoted.is_some_and(|(from, to)| (from..to).contains(&at));
        let words = self.words[from..].iter().take_while(|(at, ..)| *at + 1 < end);
        for (_, meanings, pattern) in words.filter(|(at, ..)| !is_quoted(*at)) {
            set |= meanings;
            for (language, meanings) in table.concepts.readings(*pattern) {
                match self.by_language.iter_mut().find(|(its, _)| *its == language) {
                    Some((_, known)) => *known |= meanings,
                    None => self.by_language.push((language, meanings | of_all)),
                }
            }
        }
        set
    }

    pub(crate) fn add(&mut self, name: CueName, weight: i32, at: (u32, u32)) {
        if weight != 0 && !self.cues.iter().any(|cue| cue.name == name) {
            self.cues.push(CountedCue { name, weight, at });
            self.sum += weight;
        }
    }

    /// Returns whether a cue without words was counted.
    pub(crate) fn has(&self, name: &'static str) -> bool {
        self.cues.iter().any(|cue| cue.name == CueName::Structural(name))
    }

    /// Returns the strongest cues of a block, the strongest first.
    pub(crate) fn strongest(&self, table: &RuleTable) -> Vec<Arc<str>> {
        let mut cues: ArrayVec<&CountedCue, MAX_CUES> = ArrayVec::new();
        for cue in self.cues.iter().filter(|cue| cue.weight > 0) {
            let place = cues.partition_point(|stronger| stronger.weight >= cue.weight);
            if place < MAX_CUES {
                cues.truncate(MAX_CUES - 1);
                cues.insert(place, cue);
            }
        }
        cues.into_iter().map(|cue| cue.name.id(table)).collect()
    }

    /// Returns the cues for a person. `None` if the page was not weighed.
    pub(crate) fn explained(&self, table: &RuleTable) -> Option<CueSum> {
        if !self.done {
            return None;
        }
        let text = |(start, end): (u32, u32)| {
            self.region
                .text
                .get(start as usize..end as usize)
                .unwrap_or_default()
                .chars()
                .take(80)
                .collect()
        };
        let cues = self.cues.iter().map(|cue| Cue {
            id: cue.name.id(table),
            weight: cue.weight,
            text: text(cue.at),
        });
        Some(CueSum {
            cues: cues.collect(),
            sum: self.sum,
            threshold: self.threshold,
            core: self.core,
            own_chars: self.own_chars,
        })
    }
}

/// Returns the confidence for a margin above the threshold.
fn confidence(margin: i32) -> f32 {
    let above = CONFIDENCE.partition_point(|(knot, _)| *knot <= margin);
    match (above.checked_sub(1).and_then(|below| CONFIDENCE.get(below)), CONFIDENCE.get(above)) {
        (Some((low, from)), Some((high, to))) => {
            from + (to - from) * (margin - low) as f32 / (high - low) as f32
        }
        (Some((_, last)), None) => *last,
        (None, first) => first.map_or(0.0, |(_, first)| *first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_cues_raise_the_confidence_which_passes_one_half_at_the_threshold() {
        assert!(confidence(-1) < 0.5 && confidence(0) > 0.5);
        assert!((-200..200).all(|margin| confidence(margin) <= confidence(margin + 1)));
        assert!((confidence(30) - 0.87).abs() < 1e-6, "half way between two knots");
        assert!(confidence(i32::MAX) <= 0.97 && confidence(i32::MIN) >= 0.0);
    }
}
