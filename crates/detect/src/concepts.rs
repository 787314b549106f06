//! What walls say, by meaning: words of many languages with the meanings they have, and the concepts that meanings make when they
//! stand in one sentence. Holds what is written and what is compiled of it; which page says what is not known here.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::html::text;
use crate::rules::file::{RuleError, WrittenConcept, WrittenWords, value};
use crate::rules::pattern::{Pattern, has_words};

/// Most meanings that there can be.
const MEANINGS_MAX: usize = 64;
/// Heaviest concept, for or against a wall.
const WEIGHT_MAX: i32 = 100;

/// A set of meanings.
pub(super) type Meanings = u64;

/// Something that a sentence may say.
#[derive(Debug)]
pub(super) struct Concept {
    pub(super) id: Arc<str>,
    /// Below nothing, it speaks against a wall.
    pub(super) weight: i32,
    /// Without one of these on the page, nothing else counts.
    pub(super) core: bool,
    /// It asks something of the visitor.
    pub(super) task: bool,
    /// Meanings that a sentence has together, and meanings that it must not have.
    when: Vec<(Meanings, Meanings)>,
}

impl Concept {
    /// Whether a sentence with these meanings says it.
    pub(super) fn is_said_by(&self, meanings: Meanings) -> bool {
        self.when.iter().any(|(all, none)| meanings & all == *all && meanings & none == 0)
    }

    /// Whether a page with these meanings, wherever they stand, may say it.
    fn may_be_said_by(&self, meanings: Meanings) -> bool {
        self.when.iter().any(|(all, _)| meanings & all == *all)
    }
}

/// What a page must speak of to be looked at more closely. Each core concept has one of these; the others are in most pages.
const HINTS: [&str; 13] = [
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
];

/// The words and concepts of a rule table.
#[derive(Debug, Default)]
pub(super) struct Concepts {
    pub(super) concepts: Vec<Concept>,
    /// The number of the first pattern that is a word.
    first_word: u32,
    /// What each word means, by its number.
    words: Vec<Word>,
    names: HashMap<String, Meanings>,
    /// See [`HINTS`].
    hints: Meanings,
}

/// A word.
#[derive(Clone, Copy, Debug)]
struct Word {
    meanings: Meanings,
    /// It begins where a word does: nothing that letters stand before.
    begins: bool,
}

impl Concepts {
    /// Compiles what is written, each with its line. The words' patterns are added to `patterns`.
    pub(super) fn compile(
        concepts: Vec<(usize, WrittenConcept)>,
        words: Vec<(usize, WrittenWords)>,
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

    fn add_concept(&mut self, line: usize, written: WrittenConcept) -> Result<(), RuleError> {
        let err = |field, problem: String| Err(value(line, &written.id, field, problem));
        if written.id.is_empty() || written.note.trim().is_empty() {
            return err("note", "a concept needs an id, and a note on what says it".to_owned());
        }
        if written.weight.abs() > WEIGHT_MAX {
            return err("weight", format!("must be from -{WEIGHT_MAX} to {WEIGHT_MAX}"));
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
                if next == MEANINGS_MAX && !self.names.contains_key(name) {
                    return err("when", format!("at most {MEANINGS_MAX} meanings"));
                }
                *set |= *self.names.entry(name.to_owned()).or_insert(1 << next);
            }
            if all == 0 {
                return err("when", format!("`{combination}` names no meaning that must be there"));
            }
            when.push((all, none));
        }
        let WrittenConcept { id, weight, core, task, .. } = written;
        self.concepts.push(Concept { id: id.into(), weight, core, task, when });
        Ok(())
    }

    fn add_words(
        &mut self,
        line: usize,
        written: &WrittenWords,
        patterns: &mut Vec<Pattern>,
        known: &mut HashMap<String, usize>,
    ) -> Result<(), RuleError> {
        let mut folded = String::new();
        for (name, words) in &written.meanings {
            let Some(&meaning) = self.names.get(name) else {
                return Err(value(line, &written.language, "words", format!("no concept asks for `{name}`")));
            };
            for word in words {
                text::fold_into(word, &mut folded);
                // What white space a word begins and ends with is part of it.
                let ends = if word.ends_with(' ') { " " } else { "" };
                for pattern in searchable(&format!("{folded}{ends}")) {
                    if let Some(at) = known.get(&pattern) {
                        self.words[*at].meanings |= meaning;
                        continue;
                    }
                    let Ok(parsed) = Pattern::parse(&pattern) else {
                        return Err(value(
                            line,
                            &written.language,
                            "words",
                            format!("`{word}` cannot be searched for"),
                        ));
                    };
                    // A pattern that begins with what stands between words begins a word by itself.
                    let begins = pattern.chars().next().is_some_and(has_words);
                    known.insert(pattern, self.words.len());
                    self.words.push(Word { meanings: meaning, begins });
                    patterns.push(parsed);
                }
            }
        }
        Ok(())
    }

    /// The words' numbers as patterns.
    pub(super) fn patterns(&self) -> Range<u32> {
        self.first_word..self.first_word + self.words.len() as u32
    }

    /// The numbers of the words that hint at a wall.
    pub(super) fn hinting(&self) -> impl Iterator<Item = u32> {
        self.patterns().zip(&self.words).filter(|(_, word)| word.meanings & self.hints != 0).map(|(number, _)| number)
    }

    /// What the word means that `pattern` is, if it is one and stands for itself at `at` in `text`.
    pub(super) fn meanings_at(&self, pattern: u32, text: &[u8], at: usize) -> Option<Meanings> {
        let word = self.words.get(pattern.checked_sub(self.first_word)? as usize)?;
        (!word.begins || !follows_letter(text, at)).then_some(word.meanings)
    }

    /// The meanings with these names.
    pub(super) fn named(&self, names: &[&str]) -> Meanings {
        names.iter().filter_map(|name| self.names.get(*name)).fold(0, |set, meaning| set | meaning)
    }

    /// Whether a page in which these meanings were seen among those that hint at a wall is to be read for all of them.
    pub(super) fn hint_at_wall(&self, meanings: Meanings) -> bool {
        meanings != 0
            && self.concepts.iter().filter(|concept| concept.core).flat_map(|concept| &concept.when).any(|(all, _)| {
                // A concept that asks for nothing that hints is always possible.
                all & self.hints & !meanings == 0
            })
    }

    /// Whether a page with these meanings, wherever they stand, may say what a wall must say.
    pub(super) fn may_be_wall(&self, meanings: Meanings) -> bool {
        // Any page may have short sentences.
        let meanings = meanings | self.named(&["short"]);
        self.concepts.iter().any(|concept| concept.core && concept.may_be_said_by(meanings))
    }
}

/// A word as it can be searched for: short ones together with what may stand around them.
fn searchable(word: &str) -> Vec<String> {
    let literal = word.split('{').next().unwrap_or_default();
    match literal.len() {
        0..=2 => vec![format!(" {literal} ")],
        3 => [' ', '-', '(', '"', '/'].iter().map(|before| format!("{before}{word}")).collect(),
        _ => vec![word.to_owned()],
    }
}

/// Whether a letter of a script with words stands before `at`.
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
