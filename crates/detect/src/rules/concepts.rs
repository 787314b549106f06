//! Concepts: what block pages say, by meaning.
//!
//! Words of many languages have meanings. Meanings that stand together in one sentence make a
//! concept.
//!
//! Owns: the words and concepts, as written and as compiled.
//!
//! Must not know: which page contains them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::html::text;
use crate::rules::file::{ConceptSource, RuleError, WordsSource, value};
use crate::rules::pattern::{Pattern, has_words};
use crate::rules::word_scan::{Meanings, SearchedWord};
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// Maximum number of meanings.
const MAX_MEANINGS: usize = 128;
/// Maximum number of languages.
pub(crate) const MAX_LANGUAGES: usize = 64;
/// Maximum absolute weight of a concept.
const MAX_WEIGHT: i32 = 100;

/// A statement that a sentence may make.
#[derive(Debug)]
pub(crate) struct Concept {
    pub(crate) id: Arc<str>,
    /// Negative weights count against a block.
    pub(crate) weight: i32,
    /// Cues count only if the page has at least one core concept.
    pub(crate) core: bool,
    /// The concept asks the visitor to do something.
    pub(crate) task: bool,
    /// The concept states a place in a queue.
    pub(crate) queue: bool,
    /// The network of the crawler refuses, not the site.
    pub(crate) network: bool,
    /// The server failed, so nothing was refused.
    pub(crate) failure: bool,
    /// The visitor has to log in first.
    pub(crate) gate: bool,
    /// A firewall of the site refuses, not the network.
    pub(crate) site: bool,
    /// It counts only in a page with a form or a captcha.
    pub(crate) form: bool,
}

/// An alternative of a concept: meanings that one sentence has.
#[derive(Clone, Copy, Debug)]
struct ConceptWhen {
    /// Meanings that the sentence must have.
    all: Meanings,
    /// Those, and meanings that it must not have.
    named: Meanings,
    /// Index of the concept.
    concept: u16,
}

/// Meanings one of which the page of a network has where the name of a product counts.
const OF_NETWORKS: [&str; 15] = [
    "refused", "unopened", "closed", "disabled", "disable", "acl", "category", "topic", "barrier",
    "proxy", "isp", "law", "internet", "terms", "keeper",
];

/// Meanings that a page must have to be read more closely. Each core concept has at least one of
/// them; all other meanings occur in most pages.
const HINTS: [&str; 30] = [
    "unopened",
    "robot",
    "captcha",
    "unusual",
    "toomany",
    "misuse",
    "refused",
    "vpn",
    "seccheck",
    "browser",
    "connection",
    "device",
    "human",
    "not",
    "closed",
    "queue",
    "law",
    "isp",
    "agent",
    "internet",
    "detect",
    "proxy",
    "acl",
    "failure",
    "maint",
    "letters",
    "automatic",
    "barrier",
    "owner",
    "topic",
];

/// The words and concepts of a rule table.
#[derive(Debug, Default)]
pub(crate) struct Concepts {
    pub(crate) concepts: Vec<Concept>,
    /// The alternatives of all concepts, in their order: one list is read faster than a list for
    /// each concept.
    when: Vec<ConceptWhen>,
    /// What the alternatives of the core concepts need.
    core_needs: Vec<Meanings>,
    /// What those of a server's failure need ...
    failure_needs: Vec<Meanings>,
    /// ... those of a network ...
    network_needs: Vec<Meanings>,
    /// ... and those of a log-in.
    gate_needs: Vec<Meanings>,
    /// Set for any page: it may have short sentences and numbers.
    in_any_page: Meanings,
    /// Meanings whose words must be of the sentence's language, in concepts against a block, too.
    one_language: Meanings,
    /// The pattern number of the first word.
    first_word: u32,
    /// The meanings of each word, by its number.
    words: Vec<Word>,
    names: HashMap<String, Meanings>,
    /// The number of each language.
    languages: HashMap<String, u8>,
    /// See [`HINTS`].
    hints: Meanings,
    /// Those that the page of a network may have where it names a product.
    of_networks: Meanings,
}

/// A compiled word.
#[derive(Clone, Debug)]
struct Word {
    /// Its meanings in any language.
    meanings: Meanings,
    /// Its meanings in the first language that has it, and in the others: most words are of one
    /// language.
    reading: (u8, Meanings),
    others: Vec<(u8, Meanings)>,
    /// It begins where a word begins: no letter may stand before it.
    begins: bool,
}

impl Word {
    fn add(&mut self, language: u8, meaning: Meanings) {
        self.meanings |= meaning;
        match std::iter::once(&mut self.reading)
            .chain(&mut self.others)
            .find(|(its, _)| *its == language)
        {
            Some((_, meanings)) => *meanings |= meaning,
            None => self.others.push((language, meaning)),
        }
    }
}

/// The place of each word.
type KnownWords = HashMap<String, usize, Xxh3DefaultBuilder>;

impl Concepts {
    /// Compiles what was read, each item with its line. Adds the words' patterns to `patterns`.
    pub(crate) fn compile(
        concepts: Vec<(usize, ConceptSource)>,
        words: Vec<(usize, Arc<WordsSource>)>,
        patterns: &mut Vec<Pattern>,
    ) -> Result<Self, RuleError> {
        let mut made = Self { first_word: patterns.len() as u32, ..Self::default() };
        for (line, concept) in concepts {
            made.add_concept(line, concept)?;
        }
        let count = words.iter().flat_map(|(_, words)| words.meanings.values()).map(Vec::len).sum();
        let mut known = KnownWords::with_capacity_and_hasher(count, Xxh3DefaultBuilder);
        made.words.reserve(count);
        patterns.reserve(count);
        for (line, words) in words {
            made.add_words(line, &words, patterns, &mut known)?;
        }
        made.hints = made.named(&HINTS);
        made.of_networks = made.named(&OF_NETWORKS);
        made.one_language = made.named(&["manual"]);
        made.in_any_page = made.named(&["short", "digits", "mailed", "linked"]);
        Ok(made)
    }

    fn add_concept(&mut self, line: usize, written: ConceptSource) -> Result<(), RuleError> {
        let err = |field, problem: String| Err(value(line, &written.id, field, problem));
        if written.id.is_empty() || written.note.trim().is_empty() {
            return err(
                "note",
                "missing id or note: say which sentences state the concept".to_owned(),
            );
        }
        if written.weight.abs() > MAX_WEIGHT {
            return err("weight", format!("must be from -{MAX_WEIGHT} to {MAX_WEIGHT}"));
        }
        let index = u16::try_from(self.concepts.len());
        let Ok(index) = index else { return err("id", "too many concepts".to_owned()) };
        for combination in &written.when {
            let (mut all, mut none) = (0, 0);
            for name in combination.split_whitespace() {
                let (name, set) = match name.strip_prefix('-') {
                    Some(name) => (name, &mut none),
                    None => (name, &mut all),
                };
                let next = self.names.len();
                if next == MAX_MEANINGS && !self.names.contains_key(name) {
                    return err("when", format!("at most {MAX_MEANINGS} meanings"));
                }
                *set |= *self.names.entry(name.to_owned()).or_insert(1 << next);
            }
            if all == 0 {
                return err(
                    "when",
                    format!("`{combination}` names no meaning that the sentence must have"),
                );
            }
            if written.core || written.failure {
                self.core_needs.push(all);
            }
            if written.failure {
                self.failure_needs.push(all);
            }
            if written.network {
                self.network_needs.push(all);
            }
            if written.gate {
                self.gate_needs.push(all);
            }
            // No sentence both has a meaning and lacks it.
            if all & none == 0 {
                self.when.push(ConceptWhen { all, named: all | none, concept: index });
            }
        }
        let ConceptSource {
            id, weight, core, task, queue, network, failure, gate, site, form, ..
        } = written;
        self.concepts.push(Concept {
            id: id.into(),
            weight,
            core,
            task,
            queue,
            network,
            failure,
            gate,
            site,
            form,
        });
        Ok(())
    }

    fn add_words(
        &mut self,
        line: usize,
        written: &WordsSource,
        patterns: &mut Vec<Pattern>,
        known: &mut KnownWords,
    ) -> Result<(), RuleError> {
        let mut folded = String::new();
        let next = self.languages.len();
        if next == MAX_LANGUAGES && !self.languages.contains_key(&written.language) {
            let problem = format!("at most {MAX_LANGUAGES} languages");
            return Err(value(line, &written.language, "language", problem));
        }
        let language = *self.languages.entry(written.language.clone()).or_insert(next as u8);
        for (name, words) in &written.meanings {
            let Some(&meaning) = self.names.get(name) else {
                return Err(value(
                    line,
                    &written.language,
                    "words",
                    format!("unknown meaning `{name}`: no concept uses it"),
                ));
            };
            for word in words {
                text::fold_into(word, &mut folded);
                // White space at the end of a word is part of it.
                if word.ends_with(' ') {
                    folded.push(' ');
                }
                for pattern in searchable(&folded) {
                    let new = match known.entry(pattern) {
                        Entry::Occupied(at) => {
                            self.words[*at.get()].add(language, meaning);
                            continue;
                        }
                        Entry::Vacant(new) => new,
                    };
                    let pattern = new.key();
                    let Ok(parsed) = Pattern::parse(pattern) else {
                        return Err(value(
                            line,
                            &written.language,
                            "words",
                            format!("`{word}` is not a searchable word"),
                        ));
                    };
                    // A pattern that begins with a separator begins a word by itself.
                    let begins = pattern.chars().next().is_some_and(has_words);
                    new.insert(self.words.len());
                    self.words.push(Word {
                        meanings: meaning,
                        reading: (language, meaning),
                        others: Vec::new(),
                        begins,
                    });
                    patterns.push(parsed);
                }
            }
        }
        Ok(())
    }

    /// Returns the words for a search, with their patterns in `patterns`.
    pub(crate) fn searched<'p>(
        &self,
        patterns: &'p [Pattern],
    ) -> impl Iterator<Item = SearchedWord<'p>> {
        let numbered =
            (self.first_word..).zip(patterns.get(self.first_word as usize..).unwrap_or_default());
        numbered.zip(&self.words).map(|((number, pattern), word)| {
            let Word { meanings, begins, .. } = *word;
            SearchedWord { number, pattern, meanings, begins }
        })
    }

    /// Returns whether a word with these meanings hints at a block.
    pub(crate) fn hints(&self, meanings: Meanings) -> bool {
        meanings & self.hints != 0
    }

    /// Returns the meanings of the word `pattern` in each language that has it.
    pub(crate) fn readings(&self, pattern: u32) -> impl Iterator<Item = (u8, Meanings)> {
        let word =
            pattern.checked_sub(self.first_word).and_then(|index| self.words.get(index as usize));
        word.into_iter()
            .flat_map(|word| std::iter::once(word.reading).chain(word.others.iter().copied()))
    }

    /// Returns the meanings with these names.
    pub(crate) fn named(&self, names: &[&str]) -> Meanings {
        names.iter().filter_map(|name| self.names.get(*name)).fold(0, |set, meaning| set | meaning)
    }

    /// Returns whether a page with these hinting meanings must be read for all meanings.
    pub(crate) fn hint_at_block(&self, meanings: Meanings) -> bool {
        // A concept without hinting meanings is always possible.
        meanings != 0 && self.core_needs.iter().any(|all| all & self.hints & !meanings == 0)
    }

    /// Returns whether a page with these meanings, in any sentences, may say that its server
    /// failed.
    pub(crate) fn may_have_failed(&self, meanings: Meanings) -> bool {
        let meanings = meanings | self.in_any_page;
        self.failure_needs.iter().any(|all| meanings & all == *all)
    }

    /// Returns whether a page with a word of these meanings may name a product of networks that
    /// counts.
    pub(crate) fn may_name_product(&self, meanings: Meanings) -> bool {
        meanings & self.of_networks != 0
    }

    /// Returns whether a page with these meanings, in any sentences, may be of a network.
    pub(crate) fn may_be_of_network(&self, meanings: Meanings) -> bool {
        let meanings = meanings | self.in_any_page;
        self.network_needs.iter().any(|all| meanings & all == *all)
    }

    /// Returns whether a page with these meanings, in any sentences, may ask for a log-in.
    pub(crate) fn may_ask_for_login(&self, meanings: Meanings) -> bool {
        let meanings = meanings | self.in_any_page;
        self.gate_needs.iter().any(|all| meanings & all == *all)
    }

    /// Returns whether a page with these meanings, in any sentences, may state a core concept.
    pub(crate) fn may_be_block(&self, meanings: Meanings) -> bool {
        let meanings = meanings | self.in_any_page;
        self.core_needs.iter().any(|all| meanings & all == *all)
    }

    /// Calls `said` with the index of each concept that a sentence states, maybe more than once.
    /// The sentence has `meanings` in any language, and in single languages the sets `by_language`.
    /// One language must have all that the concept needs, and none what it excludes. What speaks
    /// against a block may be in any language.
    pub(crate) fn each_said_by(
        &self,
        meanings: Meanings,
        by_language: &[(u8, Meanings)],
        mut said: impl FnMut(u16, &Concept),
    ) {
        for ConceptWhen { all, concept, .. } in
            self.when.iter().filter(|when| meanings & when.named == when.all)
        {
            let Some(its) = self.concepts.get(usize::from(*concept)) else { continue };
            if its.weight < 0 && all & self.one_language == 0
                || by_language.iter().any(|(_, one)| one & all == *all)
            {
                said(*concept, its);
            }
        }
    }
}

/// Returns the searchable patterns of a word: short words together with the characters that may
/// surround them.
fn searchable(word: &str) -> Vec<String> {
    let literal = word.split('{').next().unwrap_or_default();
    match literal.len() {
        0..=2 => vec![format!(" {literal} ")],
        3 => [' ', '-', '(', '"', '/'].iter().map(|before| format!("{before}{word}")).collect(),
        _ => vec![word.to_owned()],
    }
}
