//! The rule table: read from TOML, checked, and compiled into searches.
//!
//! One table holds everything a verdict can rest on; the code around it knows how to look, not what for. A rule file that
//! is wrong is refused as a whole, with the line and the field.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use toml::Spanned;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

use super::compile::Build;
use super::scan::{Pattern, Scan};
use super::walk::Place;

/// The rules that are compiled in.
pub(super) const SHIPPED: &str = include_str!("rules.toml");

/// Rules whose gate is at most this many visible characters are looked for only once a page turned out to have no more.
pub(super) const LATE_GATE: u32 = 1_500;

/// Rules whose gate is at most this many visible characters, and those for shells of applications, are looked for only in
/// pages with no more.
pub(super) const THIN_GATE: u32 = 250;

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

/// How much a rule proves, and so where it stands in the decision order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Grade {
    /// A header by which the vendor says that it answered instead of the site.
    Mitigated,
    /// A marker that only block pages carry.
    Strong,
    /// An exact challenge title.
    Title,
    /// A challenge sentence.
    Sentence,
    /// A widget that ordinary pages carry too; proves something on a nearly empty page only.
    Weak,
    /// A script that sets a cookie and loads the page again, or a refresh to a challenge.
    Shell,
    /// Names who refused, when the status is a refusal.
    Refusal,
    /// A waiting room.
    Queue,
    /// The vendor is there. Evidence of nothing.
    Presence,
    /// A script framework is there.
    Spa,
    /// The text goes on for subscribers only.
    Paywall,
    /// A title that says the page does not exist.
    NotFound,
    /// A hint at a wall, too weak to be one: a page with next to nothing else is not taken for all that there is.
    Cue,
    /// One of the seeds' keywords, for [`super::Detector::keywords`].
    Keyword,
}

impl Grade {
    /// Its name in rule files and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mitigated => "mitigated",
            Self::Strong => "strong",
            Self::Title => "title",
            Self::Sentence => "sentence",
            Self::Weak => "weak",
            Self::Shell => "shell",
            Self::Refusal => "refusal",
            Self::Queue => "queue",
            Self::Presence => "presence",
            Self::Spa => "spa",
            Self::Paywall => "paywall",
            Self::NotFound => "not_found",
            Self::Cue => "cue",
            Self::Keyword => "keyword",
        }
    }

    /// Whether it is evidence of a block by itself.
    pub(super) const fn blocks(self) -> bool {
        matches!(self, Self::Mitigated | Self::Strong | Self::Title | Self::Sentence | Self::Weak | Self::Shell)
    }

    /// Whether a page where it is seen may be a wall or a waiting room.
    pub(super) const fn is_of_walls(self) -> bool {
        self.blocks() || matches!(self, Self::Queue | Self::Cue)
    }

    pub(super) const fn default_gate(self) -> u32 {
        match self {
            Self::Mitigated => 5_000,
            Self::Strong => 1_500,
            Self::Title | Self::Queue => 3_000,
            Self::Sentence => 1_000,
            Self::Weak => 250,
            Self::Shell => 60,
            Self::Spa | Self::Cue => 200,
            Self::NotFound => 600,
            Self::Paywall => 6_000,
            Self::Refusal | Self::Presence | Self::Keyword => u32::MAX,
        }
    }

    pub(super) const fn default_confidence(self) -> f32 {
        match self {
            Self::Mitigated => 0.99,
            Self::Strong => 0.98,
            Self::Title => 0.95,
            Self::Refusal | Self::Queue => 0.95,
            Self::Sentence => 0.9,
            Self::Shell => 0.85,
            Self::Weak => 0.75,
            _ => 0.5,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Ids of earlier rules to leave out.
    #[serde(default)]
    disable: Vec<String>,
    #[serde(default)]
    rule: Vec<Spanned<Written>>,
}

/// A rule as it is written.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) id: String,
    pub(super) vendor: Option<String>,
    pub(super) grade: Grade,
    #[serde(default)]
    pub(super) find: Vec<String>,
    #[serde(default)]
    pub(super) also: Vec<Vec<String>>,
    #[serde(default)]
    pub(super) places: Vec<WrittenPlace>,
    #[serde(default)]
    pub(super) title: Vec<String>,
    #[serde(default)]
    pub(super) title_starts: Vec<String>,
    #[serde(default)]
    pub(super) title_part: Vec<String>,
    #[serde(default)]
    pub(super) text: Vec<String>,
    #[serde(default)]
    pub(super) refresh: Vec<String>,
    #[serde(default)]
    pub(super) header: Vec<String>,
    #[serde(default)]
    pub(super) cookie: Vec<String>,
    #[serde(default)]
    pub(super) host: Vec<String>,
    #[serde(default)]
    pub(super) status: Vec<u16>,
    pub(super) gate: Option<u32>,
    pub(super) gate_200: Option<u32>,
    pub(super) max_links_200: Option<u32>,
    pub(super) max_links: Option<u32>,
    pub(super) max_inputs: Option<u32>,
    pub(super) max_images: Option<u32>,
    pub(super) max_frames: Option<u32>,
    pub(super) max_bytes: Option<u32>,
    #[serde(default)]
    pub(super) noindex: bool,
    /// It refuses and asks for nothing: where no rule holds that asks for something, the block is `blocked_403`.
    #[serde(default)]
    pub(super) refusal: bool,
    pub(super) password: Option<bool>,
    pub(super) mount: Option<bool>,
    #[serde(default)]
    pub(super) scripts: bool,
    #[serde(default)]
    pub(super) title_absent: bool,
    #[serde(default)]
    pub(super) component: bool,
    #[serde(default)]
    pub(super) application: bool,
    #[serde(default)]
    pub(super) always: bool,
    pub(super) confidence: Option<f32>,
    pub(super) framework: Option<String>,
    /// Where it was seen, and why it is as it is.
    pub(super) note: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WrittenPlace {
    Code,
    Text,
    Noscript,
    Hidden,
    Inert,
}

/// A rule, ready to be judged by.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) id: Arc<str>,
    pub(super) vendor: Option<u8>,
    pub(super) grade: Grade,
    pub(super) places: Vec<Place>,
    pub(super) status: Vec<u16>,
    pub(super) gate: u32,
    /// The gate with status 200, at most the other one.
    pub(super) gate_200: u32,
    pub(super) max_links_200: u32,
    pub(super) max_links: u32,
    pub(super) max_inputs: u32,
    pub(super) max_images: u32,
    pub(super) max_frames: u32,
    pub(super) max_bytes: u32,
    pub(super) noindex: bool,
    pub(super) refusal: bool,
    pub(super) password: Option<bool>,
    pub(super) mount: Option<bool>,
    pub(super) scripts: bool,
    pub(super) title_absent: bool,
    pub(super) component: bool,
    /// Only applications carry it: weak evidence that wants `mount` to be false gives way to it, other such evidence where
    /// it names a framework.
    pub(super) application: bool,
    /// Whether one of its patterns is among the short ones.
    pub(super) short: bool,
    pub(super) confidence: f32,
    pub(super) framework: Option<Arc<str>>,
    pub(super) note: Arc<str>,
    /// What must all be seen: bit 0 for `find` (or a title, text, header ...), bit n for the nth `also`.
    pub(super) needs: u8,
}

/// What a pattern is a part of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) rule: u16,
    pub(super) bit: u8,
}

/// A header that a rule looks for.
#[derive(Debug)]
pub(super) struct HeaderTest {
    pub(super) rule: u16,
    pub(super) name: Box<str>,
    /// In lower case; empty when the name is enough.
    pub(super) value: Box<str>,
}

/// Titles that rules look for, folded as [`fold_title`] does.
#[derive(Debug, Default)]
pub(super) struct TitleTests {
    /// Titles that are compared as a whole.
    pub(super) whole: HashMap<Box<str>, Vec<u16>, Xxh3DefaultBuilder>,
    /// Beginnings.
    pub(super) starts: Vec<(u16, Box<str>)>,
    /// What may stand before or after a separator such as ` | ` or ` - `.
    pub(super) part: Vec<(u16, Box<str>)>,
}

/// The compiled table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) rules: Vec<Rule>,
    pub(super) vendors: Arc<[Arc<str>]>,
    pub(super) patterns: Vec<Pattern>,
    pub(super) parts: Vec<Part>,
    /// Patterns looked for in every page.
    pub(super) early: Scan,
    /// Those, and patterns looked for in pages with little text.
    pub(super) late: Scan,
    /// Those, and patterns looked for in pages with next to no text.
    pub(super) thin: Scan,
    /// Short ones, looked for after those when one of their rules was hit.
    pub(super) short: Scan,
    /// Whether a rule's evidence itself is short, so that those are always looked for.
    pub(super) short_always: bool,
    /// Sentences, looked for in folded text.
    pub(super) sentences: Scan,
    /// Targets of a refresh.
    pub(super) refreshes: Scan,
    /// By the first letter of the name, in lower case; see [`Table::headers_of`].
    pub(super) headers: Vec<HeaderTest>,
    pub(super) header_letters: [Range<u16>; 256],
    pub(super) cookies: Vec<(u16, Box<str>)>,
    pub(super) hosts: Vec<(u16, Box<str>)>,
    pub(super) titles: TitleTests,
    /// Rules whose conditions alone are evidence.
    pub(super) always: Vec<u16>,
}

impl HeaderTest {
    pub(super) fn letter(&self) -> u8 {
        self.name.as_bytes().first().map_or(0, u8::to_ascii_lowercase)
    }
}

impl Table {
    /// The tests that a header of this name may pass.
    pub(super) fn headers_of(&self, name: &str) -> &[HeaderTest] {
        let letter = name.as_bytes().first().map_or(0, u8::to_ascii_lowercase);
        let range = &self.header_letters[usize::from(letter)];
        self.headers.get(usize::from(range.start)..usize::from(range.end)).unwrap_or_default()
    }

    /// The shipped rules. Compiled once.
    pub(super) fn shipped() -> Arc<Self> {
        static TABLE: LazyLock<Arc<Table>> = LazyLock::new(|| compiled_in(Table::new(None)));
        Arc::clone(&TABLE)
    }

    /// The shipped rules that name no vendor. Compiled once.
    pub(super) fn shipped_generic() -> Arc<Self> {
        static TABLE: LazyLock<Arc<Table>> = LazyLock::new(|| compiled_in(Table::generic()));
        Arc::clone(&TABLE)
    }

    /// The name of a vendor.
    pub(super) fn vendor(&self, index: Option<u8>) -> Option<Arc<str>> {
        index.and_then(|i| self.vendors.get(i as usize)).cloned()
    }

    /// The shipped rules, and a user's on top: a rule with a known id takes the other's place.
    pub(super) fn new(user: Option<&str>) -> Result<Self, RuleError> {
        let mut written = shipped()?;
        if let Some(user) = user {
            let mut more = read(user)?;
            let disabled = std::mem::take(&mut more.disable);
            if let Some(unknown) = disabled.iter().find(|id| !written.rules.iter().any(|(_, w)| w.id == **id)) {
                return Err(value(1, unknown, "disable", "no shipped rule has this id"));
            }
            written.rules.retain(|(_, w)| !disabled.contains(&w.id) && !more.rules.iter().any(|(_, m)| m.id == w.id));
            written.rules.append(&mut more.rules);
        }
        Self::compile(written.rules)
    }

    fn generic() -> Result<Self, RuleError> {
        let written = shipped()?;
        Self::compile(written.rules.into_iter().filter(|(_, w)| w.vendor.is_none()).collect())
    }

    /// No rules at all.
    pub(super) fn empty() -> Self {
        Build::default().finish()
    }

    fn compile(written: Vec<(usize, Written)>) -> Result<Self, RuleError> {
        let mut build = Build::default();
        for (line, rule) in written {
            build.add(line, rule)?;
        }
        Ok(build.finish())
    }
}

/// A table that is compiled in: it compiles, or no test of this crate passes.
fn compiled_in(table: Result<Table, RuleError>) -> Arc<Table> {
    match table {
        Ok(table) => Arc::new(table),
        Err(error) => unreachable!("the rules that are compiled in: {error}"),
    }
}

/// The shipped rules, read once: a reload compiles them anew, together with a user's.
fn shipped() -> Result<Lines, RuleError> {
    static LINES: LazyLock<Result<Lines, RuleError>> = LazyLock::new(|| read(SHIPPED));
    LINES.clone()
}

#[derive(Clone)]
struct Lines {
    disable: Vec<String>,
    rules: Vec<(usize, Written)>,
}

fn read(toml: &str) -> Result<Lines, RuleError> {
    let file: File = toml::from_str(toml).map_err(|e| RuleError::Syntax(e.to_string()))?;
    let mut lines = LineCounter { toml, at: 0, line: 1 };
    let rules: Vec<_> =
        file.rule.into_iter().map(|spanned| (lines.line_of(&spanned.span()), spanned.into_inner())).collect();
    let mut seen = HashMap::new();
    for (line, rule) in &rules {
        if let Some(first) = seen.insert(rule.id.as_str(), *line) {
            return Err(value(*line, &rule.id, "id", format!("line {first} has a rule of this id already")));
        }
    }
    Ok(Lines { disable: file.disable, rules })
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

pub(super) fn value(line: usize, rule: &str, field: &'static str, problem: impl Into<String>) -> RuleError {
    RuleError::Value { line, rule: rule.to_owned(), field, problem: problem.into() }
}

/// A folded title without what varies at its ends: dots, exclamation marks, spaces.
pub(super) fn fold_title(folded: &str) -> &str {
    folded.trim_matches(is_title_edge)
}

pub(super) fn is_title_edge(c: char) -> bool {
    c.is_whitespace() || matches!(c, '.' | '!' | '?' | ':' | '-' | '|' | '\u{3002}' | '\u{FF01}')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn error(toml: &str) -> String {
        Table::new(Some(toml)).unwrap_err().to_string()
    }

    #[test]
    fn the_shipped_table_compiles() {
        let table = Table::new(None).unwrap_or_else(|e| panic!("{e}"));
        assert!(table.rules.len() > 100);
        assert!(Table::generic().unwrap().rules.iter().all(|r| r.vendor.is_none()));
    }

    #[test]
    fn an_error_names_line_rule_and_field() {
        let short = "\n\n[[rule]]\nid = 'mine'\ngrade = 'strong'\nfind = ['abc']\nnote = 'x'\n";
        assert_eq!(
            error(short),
            "line 3: rule `mine`, field `find`: `abc` needs at least four bytes before any wildcard"
        );
        let unknown = error("[[rule]]\nid = 'mine'\ngrade = 'strong'\nfinds = ['abcd']\nnote = 'x'\n");
        assert!(unknown.contains("line 4") && unknown.contains("finds"), "{unknown}");
        let grade = error("[[rule]]\nid = 'mine'\ngrade = 'sure'\nfind = ['abcd']\nnote = 'x'\n");
        assert!(grade.contains("line 3") && grade.contains("sure"), "{grade}");
        assert!(error("[[rule]]\nid='a'\ngrade='weak'\nnote='x'\n").contains("field `find`: a rule needs one of"));
        assert!(error("[[rule]]\nid='a'\ngrade='weak'\nfind=['abcd']\nnote=' '\n").contains("field `note`"));
        assert!(
            error("[[rule]]\nid='a'\nvendor='A B'\ngrade='weak'\nfind=['abcd']\nnote='x'\n").contains("field `vendor`")
        );
        assert!(error("disable = ['nobody']\n").contains("nobody"));
        let twice = "[[rule]]\nid='a'\ngrade='weak'\nfind=['abcd']\nnote='x'\n".repeat(2);
        assert!(error(&twice).contains("line 6") && error(&twice).contains("line 1 has"), "{}", error(&twice));
    }

    #[test]
    fn a_users_rule_takes_the_place_of_a_shipped_one() {
        let shipped = Table::new(None).unwrap().rules.len();
        let same = "[[rule]]\nid='cloudflare-title'\ngrade='title'\ntitle=['Mine']\nnote='x'\n";
        assert_eq!(Table::new(Some(same)).unwrap().rules.len(), shipped);
        assert_eq!(Table::new(Some("disable=['cloudflare-title']")).unwrap().rules.len(), shipped - 1);
    }
}
