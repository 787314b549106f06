//! Rule files: their TOML form, read with the line of each rule, and their errors.
//!
//! Must not know: whether a rule can be used, only whether it can be read.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::condition::{Conditions, for_each_condition};
use crate::rules::strength::Grade;

/// An error in a rule file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// Invalid TOML, an unknown field, or a value of the wrong type. The message names line, column
    /// and field.
    #[error("{0}")]
    Syntax(String),
    /// An invalid value.
    #[error("line {line}: rule `{rule}`, field `{field}`: {problem}")]
    Value {
        /// The line in the file, from 1.
        line: usize,
        /// The rule's id.
        rule: String,
        /// The field.
        field: &'static str,
        /// The problem, and what is valid.
        problem: String,
    },
}

/// The reason why a rule file is rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleFileError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file has an invalid rule.
    #[error("{path}: {source}")]
    Rules {
        /// The file.
        path: PathBuf,
        /// The error, with line and field.
        source: RuleError,
    },
}

macro_rules! written {
    ($($(#[$doc:meta])* $name:ident: $type:ty, $check:expr, $test:expr;)+) => {
        /// A rule in its TOML form: identity, evidence, conditions.
        #[derive(Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct RuleSource {
            pub(crate) id: String,
            pub(crate) vendor: Option<String>,
            pub(crate) grade: Grade,
            #[serde(default)]
            pub(crate) find: Vec<String>,
            #[serde(default)]
            pub(crate) also: Vec<Vec<String>>,
            #[serde(default)]
            pub(crate) places: Vec<PagePartSource>,
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
            pub(crate) network: bool,
            #[serde(default)]
            pub(crate) application: bool,
            pub(crate) confidence: Option<f32>,
            pub(crate) framework: Option<String>,
            /// Its source, and the reasons for its limits.
            pub(crate) note: String,
        }

        impl RuleSource {
            pub(crate) fn conditions(&self) -> Conditions {
                Conditions { $($name: self.$name.clone(),)+ }
            }
        }
    };
}

for_each_condition!(written);

/// The words of a language in their TOML form, by meaning.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WordsSource {
    pub(crate) language: String,
    #[serde(flatten)]
    pub(crate) meanings: BTreeMap<String, Vec<String>>,
}

/// A concept in its TOML form.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConceptSource {
    pub(crate) id: String,
    pub(crate) weight: i32,
    #[serde(default)]
    pub(crate) core: bool,
    #[serde(default)]
    pub(crate) task: bool,
    #[serde(default)]
    pub(crate) queue: bool,
    #[serde(default)]
    pub(crate) network: bool,
    #[serde(default)]
    pub(crate) failure: bool,
    #[serde(default)]
    pub(crate) gate: bool,
    #[serde(default)]
    pub(crate) site: bool,
    #[serde(default)]
    pub(crate) form: bool,
    pub(crate) when: Vec<String>,
    pub(crate) note: String,
}

/// A page part in its TOML form.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PagePartSource {
    Code,
    Text,
    Noscript,
    Hidden,
    Inert,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFileToml {
    /// Ids of earlier rules to remove.
    #[serde(default)]
    disable: Vec<String>,
    #[serde(default)]
    rule: Vec<Spanned<RuleSource>>,
    #[serde(default)]
    concept: Vec<Spanned<ConceptSource>>,
    #[serde(default)]
    words: Vec<Spanned<WordsSource>>,
}

/// The contents of a rule file.
#[derive(Clone, Default)]
pub(crate) struct RuleFile {
    /// Ids of earlier rules to remove.
    pub(crate) disable: Vec<String>,
    /// The rules, each with the line that it begins in.
    pub(crate) rules: Vec<(usize, RuleSource)>,
    /// The concepts, each with its line.
    pub(crate) concepts: Vec<(usize, ConceptSource)>,
    /// The words, each with their line.
    pub(crate) words: Vec<(usize, Arc<WordsSource>)>,
}

impl ConceptSource {
    /// Removes its weight. Its meanings stay known, because words name them.
    pub(crate) fn silence(&mut self) {
        (self.weight, self.core, self.task) = (0, false, false);
        (self.queue, self.network) = (false, false);
        (self.failure, self.gate, self.site) = (false, false, false);
    }
}

impl RuleFile {
    /// Returns whether a rule or a concept has this id.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.rules.iter().any(|(_, rule)| rule.id == id)
            || self.concepts.iter().any(|(_, concept)| concept.id == id)
    }
}

/// Reads a rule file.
pub(crate) fn read(toml: &str) -> Result<RuleFile, RuleError> {
    let file: RuleFileToml = toml::from_str(toml).map_err(|e| RuleError::Syntax(e.to_string()))?;
    let rules = with_lines(toml, file.rule);
    let (concepts, words) = (with_lines(toml, file.concept), with_lines(toml, file.words));
    let mut seen = HashMap::new();
    for (line, rule) in &rules {
        if let Some(first) = seen.insert(rule.id.as_str(), *line) {
            return Err(value(
                *line,
                &rule.id,
                "id",
                format!("duplicate id: line {first} has it already"),
            ));
        }
    }
    let words = words.into_iter().map(|(line, words)| (line, Arc::new(words))).collect();
    Ok(RuleFile { disable: file.disable, rules, concepts, words })
}

/// Pairs each item with the line that it begins in.
fn with_lines<T>(toml: &str, written: Vec<Spanned<T>>) -> Vec<(usize, T)> {
    let mut lines = LineCounter { toml, at: 0, line: 1 };
    written
        .into_iter()
        .map(|spanned| (lines.line_of(&spanned.span()), spanned.into_inner()))
        .collect()
}

/// Conversion of ascending offsets to lines.
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

/// Returns an error in one field of a rule.
pub(crate) fn value(
    line: usize,
    rule: &str,
    field: &'static str,
    problem: impl Into<String>,
) -> RuleError {
    RuleError::Value { line, rule: rule.to_owned(), field, problem: problem.into() }
}
