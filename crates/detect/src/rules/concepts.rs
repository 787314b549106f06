//! Concepts: what block pages say, by meaning.
//!
//! Words of many languages have meanings. Meanings that stand together in one sentence make a concept.
//!
//! Owns: the words and concepts, as written and as compiled.
//!
//! Must not know: which page contains them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::html::text;
use crate::rules::file::{ConceptSource, RuleError, WordsSource, value};
use crate::rules::pattern::{Pattern, has_words};

/// Maximum number of meanings.
const MAX_MEANINGS: usize = 64;
/// Maximum number of languages.
pub(crate) const MAX_LANGUAGES: usize = 64;
/// Maximum absolute weight of a concept.
const MAX_WEIGHT: i32 = 100;

/// A set of meanings.
pub(crate) type Meanings = u64;

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
    /// Alternatives: meanings that the sentence must have, and meanings that it must not have.
    when: Vec<(Meanings, Meanings)>,
}

impl Concept {
    /// Returns whether a sentence states the concept. It has `meanings` in any language, and in single languages the
    /// sets `by_language`. One language must have all that the concept needs, and none what it excludes. What speaks
    /// against a block may be in any language.
    pub(crate) fn is_said_by(&self, meanings: Meanings, by_language: &[(u8, Meanings)]) -> bool {
        let needs = |all: Meanings| self.weight < 0 || by_language.iter().any(|(_, its)| its & all == all);
        self.when.iter().any(|(all, none)| meanings & none == 0 && meanings & all == *all && needs(*all))
    }

    /// Returns whether a page with these meanings, in any sentences, may state it.
    fn may_be_said_by(&self, meanings: Meanings) -> bool {
        self.when.iter().any(|(all, _)| meanings & all == *all)
    }
}

/// Meanings that a page must have to be read more closely. Each core concept has at least one of them; all other
/// meanings occur in most pages.
const HINTS: [&str; 20] = [
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
];

/// The words and concepts of a rule table.
#[derive(Debug, Default)]
pub(crate) struct Concepts {
    pub(crate) concepts: Vec<Concept>,
    /// The pattern number of the first word.
    first_word: u32,
    /// The meanings of each word, by its number.
    words: Vec<Word>,
    names: HashMap<String, Meanings>,
    /// The number of each language.
    languages: HashMap<String, u8>,
    /// See [`HINTS`].
    hints: Meanings,
}

/// A compiled word.
#[derive(Clone, Debug)]
struct Word {
    /// Its meanings in any language.
    meanings: Meanings,
    /// Its meanings in each language that has it.
    readings: Vec<(u8, Meanings)>,
    /// It begins where a word begins: no letter may stand before it.
    begins: bool,
}

impl Word {
    fn add(&mut self, language: u8, meaning: Meanings) {
        self.meanings |= meaning;
        match self.readings.iter_mut().find(|(its, _)| *its == language) {
            Some((_, meanings)) => *meanings |= meaning,
            None => self.readings.push((language, meaning)),
        }
    }
}

impl Concepts {
    /// Compiles what was read, each item with its line. Adds the words' patterns to `patterns`.
    pub(crate) fn compile(
        concepts: Vec<(usize, ConceptSource)>,
        words: Vec<(usize, WordsSource)>,
        patterns: &mut Vec<Pattern>,
    ) -> Result<Self, RuleError> {
        let mut made = Self { first_word: patterns.len() as u32, ..Self::default() };
        for (line, concept) in concepts {
            made.add_concept(line, concept)?;
        }
        let mut known: HashMap<String, usize> = HashMap::new();
        for (line, words) in words {
            made.add_words(line, &words, patterns, &mut known)?;
        }
        made.hints = made.named(&HINTS);
        Ok(made)
    }

    fn add_concept(&mut self, line: usize, written: ConceptSource) -> Result<(), RuleError> {
        let err = |field, problem: String| Err(value(line, &written.id, field, problem));
        if written.id.is_empty() || written.note.trim().is_empty() {
            return err("note", "missing id or note: say which sentences state the concept".to_owned());
        }
        if written.weight.abs() > MAX_WEIGHT {
            return err("weight", format!("must be from -{MAX_WEIGHT} to {MAX_WEIGHT}"));
        }
        let mut when = Vec::new();
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
                return err("when", format!("`{combination}` names no meaning that the sentence must have"));
            }
            when.push((all, none));
        }
        let ConceptSource { id, weight, core, task, queue, network, .. } = written;
        self.concepts.push(Concept { id: id.into(), weight, core, task, queue, network, when });
        Ok(())
    }

    fn add_words(
        &mut self,
        line: usize,
        written: &WordsSource,
        patterns: &mut Vec<Pattern>,
        known: &mut HashMap<String, usize>,
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
                let ends = if word.ends_with(' ') { " " } else { "" };
                for pattern in searchable(&format!("{folded}{ends}")) {
                    if let Some(at) = known.get(&pattern) {
                        self.words[*at].add(language, meaning);
                        continue;
                    }
                    let Ok(parsed) = Pattern::parse(&pattern) else {
                        return Err(value(
                            line,
                            &written.language,
                            "words",
                            format!("`{word}` is not a searchable word"),
                        ));
                    };
                    // A pattern that begins with a separator begins a word by itself.
                    let begins = pattern.chars().next().is_some_and(has_words);
                    known.insert(pattern, self.words.len());
                    self.words.push(Word { meanings: meaning, readings: vec![(language, meaning)], begins });
                    patterns.push(parsed);
                }
            }
        }
        Ok(())
    }

    /// Returns the pattern numbers of the words.
    pub(crate) fn patterns(&self) -> Range<u32> {
        self.first_word..self.first_word + self.words.len() as u32
    }

    /// Returns the pattern numbers of the words that hint at a block.
    pub(crate) fn hinting(&self) -> impl Iterator<Item = u32> {
        self.patterns().zip(&self.words).filter(|(_, word)| word.meanings & self.hints != 0).map(|(number, _)| number)
    }

    /// Returns the meanings of the word `pattern` at `at` in `text`, if it is a word and begins one there.
    pub(crate) fn meanings_at(&self, pattern: u32, text: &[u8], at: usize) -> Option<Meanings> {
        let word = self.words.get(pattern.checked_sub(self.first_word)? as usize)?;
        (!word.begins || !follows_letter(text, at)).then_some(word.meanings)
    }

    /// Returns the meanings of the word `pattern` in each language that has it.
    pub(crate) fn readings(&self, pattern: u32) -> &[(u8, Meanings)] {
        let word = pattern.checked_sub(self.first_word).and_then(|number| self.words.get(number as usize));
        word.map_or(&[], |word| &word.readings)
    }

    /// Returns the meanings with these names.
    pub(crate) fn named(&self, names: &[&str]) -> Meanings {
        names.iter().filter_map(|name| self.names.get(*name)).fold(0, |set, meaning| set | meaning)
    }

    /// Returns whether a page with these hinting meanings must be read for all meanings.
    pub(crate) fn hint_at_block(&self, meanings: Meanings) -> bool {
        meanings != 0
            && self.concepts.iter().filter(|concept| concept.core).flat_map(|concept| &concept.when).any(|(all, _)| {
                // A concept without hinting meanings is always possible.
                all & self.hints & !meanings == 0
            })
    }

    /// Returns whether a page with these meanings, in any sentences, may state a core concept.
    pub(crate) fn may_be_block(&self, meanings: Meanings) -> bool {
        // Any page may have short sentences and numbers.
        let meanings = meanings | self.named(&["short", "digits"]);
        self.concepts.iter().any(|concept| concept.core && concept.may_be_said_by(meanings))
    }
}

/// Returns the searchable patterns of a word: short words together with the characters that may surround them.
fn searchable(word: &str) -> Vec<String> {
    let literal = word.split('{').next().unwrap_or_default();
    match literal.len() {
        0..=2 => vec![format!(" {literal} ")],
        3 => [' ', '-', '(', '"', '/'].iter().map(|before| format!("{before}{word}")).collect(),
        _ => vec![word.to_owned()],
    }
}

/// Returns whether a letter of a script with separate words stands before `at`.
fn follows_letter(text: &[u8], at: usize) -> bool {
    let Some(before) = text.get(..at) else { return false };
    match before.last() {
        None => false,
        Some(byte) if byte.is_ascii() => byte.is_ascii_alphanumeric(),
        Some(_) => {
            let from = before.iter().rposition(|byte| byte & 0xC0 != 0x80).unwrap_or(0);
            let last = std::str::from_utf8(&before[from..]).ok().and_then(|last| last.chars().next());
            last.is_some_and(|c| c.is_alphabetic() && has_words(c))
        }
    }
}
