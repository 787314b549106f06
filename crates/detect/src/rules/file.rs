//! Rules as they are written: the TOML of a rule file, read with the line of each rule, and what is said when it is wrong.
//!
//! Whether a rule can be used is not known here, only whether it can be read.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::condition::{Conditions, for_each_condition};
use crate::rules::strength::Grade;

/// What is wrong with a rule file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// No TOML, an unknown field, or a value of the wrong kind. The message names line, column and field.
    #[error("{0}")]
    Syntax(String),
    /// A value that cannot be used.
    #[error("line {line}: rule `{rule}`, field `{field}`: {problem}")]
    Value {
        /// Line in the file, from 1.
        line: usize,
        /// The rule's id.
        rule: String,
        /// The field.
        field: &'static str,
        /// What is wrong with it, and what would do.
        problem: String,
    },
}

/// Why a file of rules is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleFileError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It says something that cannot be used.
    #[error("{path}: {source}")]
    Rules {
        /// The file.
        path: PathBuf,
        /// What, with line and field.
        source: RuleError,
    },
}

macro_rules! written {
    ($($(#[$doc:meta])* $name:ident: $type:ty, $check:expr, $test:expr;)+) => {
        /// A rule as it is written: what it is, its evidence, its conditions.
        #[derive(Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Written {
            pub(crate) id: String,
            pub(crate) vendor: Option<String>,
            pub(crate) grade: Grade,
            #[serde(default)]
            pub(crate) find: Vec<String>,
            #[serde(default)]
            pub(crate) also: Vec<Vec<String>>,
            #[serde(default)]
            pub(crate) places: Vec<WrittenPlace>,
            #[serde(default)]
            pub(crate) title: Vec<String>,
            #[serde(default)]
            pub(crate) title_starts: Vec<String>,
            #[serde(default)]
            pub(crate) title_part: Vec<String>,
            #[serde(default)]
            pub(crate) text: Vec<String>,
            #[serde(default)]
            pub(crate) refresh: Vec<String>,
            #[serde(default)]
            pub(crate) header: Vec<String>,
            #[serde(default)]
            pub(crate) cookie: Vec<String>,
            #[serde(default)]
            pub(crate) host: Vec<String>,
            #[serde(default)]
            pub(crate) always: bool,
            pub(crate) max_visible_chars: Option<u32>,
            pub(crate) max_visible_chars_200: Option<u32>,
            pub(crate) max_links: Option<u32>,
            pub(crate) max_links_200: Option<u32>,
            $($(#[$doc])* pub(crate) $name: Option<$type>,)+
            #[serde(default)]
            pub(crate) refusal: bool,
            #[serde(default)]
            pub(crate) application: bool,
            pub(crate) confidence: Option<f32>,
            pub(crate) framework: Option<String>,
            /// Where it was seen, and why it is as it is.
            pub(crate) note: String,
        }

        impl Written {
            pub(crate) fn conditions(&self) -> Conditions {
                Conditions { $($name: self.$name.clone(),)+ }
            }
        }
    };
}

for_each_condition!(written);

/// Words of a language as they are written, by what they mean.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WrittenWords {
    pub(crate) language: String,
    #[serde(flatten)]
    pub(crate) meanings: BTreeMap<String, Vec<String>>,
}

/// A concept as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenConcept {
    pub(crate) id: String,
    pub(crate) weight: i32,
    #[serde(default)]
    pub(crate) core: bool,
    #[serde(default)]
    pub(crate) task: bool,
    pub(crate) when: Vec<String>,
    pub(crate) note: String,
}

/// A place as it is written.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WrittenPlace {
    Code,
    Text,
    Noscript,
    Hidden,
    Inert,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Ids of earlier rules to leave out.
    #[serde(default)]
    disable: Vec<String>,
    #[serde(default)]
    rule: Vec<Spanned<Written>>,
    #[serde(default)]
    concept: Vec<Spanned<WrittenConcept>>,
    #[serde(default)]
    words: Vec<Spanned<WrittenWords>>,
}

/// A file of rules.
#[derive(Clone, Default)]
pub(crate) struct Lines {
    /// Ids of earlier rules to leave out.
    pub(crate) disable: Vec<String>,
    /// The rules, each with the line it begins in.
    pub(crate) rules: Vec<(usize, Written)>,
    /// The concepts, likewise.
    pub(crate) concepts: Vec<(usize, WrittenConcept)>,
    /// The words, likewise.
    pub(crate) words: Vec<(usize, WrittenWords)>,
}

impl WrittenConcept {
    /// Makes it count for nothing. What it asks for stays known, because words name it.
    pub(crate) fn silence(&mut self) {
        (self.weight, self.core, self.task) = (0, false, false);
    }
}

impl Lines {
    /// Whether a rule or a concept has this id.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.rules.iter().any(|(_, rule)| rule.id == id) || self.concepts.iter().any(|(_, concept)| concept.id == id)
    }
}

/// Reads a file of rules.
pub(crate) fn read(toml: &str) -> Result<Lines, RuleError> {
    let file: File = toml::from_str(toml).map_err(|e| RuleError::Syntax(e.to_string()))?;
    let rules = with_lines(toml, file.rule);
    let (concepts, words) = (with_lines(toml, file.concept), with_lines(toml, file.words));
    let mut seen = HashMap::new();
    for (line, rule) in &rules {
        if let Some(first) = seen.insert(rule.id.as_str(), *line) {
            return Err(value(*line, &rule.id, "id", format!("line {first} has a rule of this id already")));
        }
    }
    Ok(Lines { disable: file.disable, rules, concepts, words })
}

/// What is written, each with the line it begins in.
fn with_lines<T>(toml: &str, written: Vec<Spanned<T>>) -> Vec<(usize, T)> {
    let mut lines = LineCounter { toml, at: 0, line: 1 };
    written.into_iter().map(|spanned| (lines.line_of(&spanned.span()), spanned.into_inner())).collect()
}

/// Turns offsets, which come in ascending order, into lines.
struct LineCounter<'t> {
    toml: &'t str,
    at: usize,
    line: usize,
}

impl LineCounter<'_> {
    fn line_of(&mut self, span: &Range<usize>) -> usize {
        let to = span.start.clamp(self.at, self.toml.len());
        self.line += memchr::memchr_iter(b'\n', &self.toml.as_bytes()[self.at..to]).count();
        self.at = to;
        self.line
    }
}

/// An error in one field of a rule.
pub(crate) fn value(line: usize, rule: &str, field: &'static str, problem: impl Into<String>) -> RuleError {
    RuleError::Value { line, rule: rule.to_owned(), field, problem: problem.into() }
}
