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

use super::scan::{Pattern, PatternError, Scan};
use super::text;
use super::walk::Place;

/// The rules that are compiled in.
pub(super) const SHIPPED: &str = include_str!("rules.toml");

/// Rules whose gate is at most this many visible characters are looked for only once a page turned out to have no more.
pub(super) const LATE_GATE: u32 = 1_500;

/// Rules whose gate is at most this many visible characters, and those for shells of applications, are looked for only in
/// pages with no more.
pub(super) const THIN_GATE: u32 = 250;

/// Patterns of pages with little text that have fewer bytes than this before any wildcard are looked for only where another
/// part of their rule was found: the shortest pattern sets the pace of a search.
const SHORT: usize = 6;
/// The same for pages with next to no text.
const SHORT_THIN: usize = 5;

/// Most vendors a rule table can name.
const VENDORS_MAX: usize = 128;

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
            Self::Keyword => "keyword",
        }
    }

    /// Whether it is evidence of a block by itself.
    pub(super) const fn blocks(self) -> bool {
        matches!(self, Self::Mitigated | Self::Strong | Self::Title | Self::Sentence | Self::Weak | Self::Shell)
    }

    const fn default_gate(self) -> u32 {
        match self {
            Self::Mitigated => 5_000,
            Self::Strong => 1_500,
            Self::Title | Self::Queue => 3_000,
            Self::Sentence => 1_000,
            Self::Weak => 250,
            Self::Shell => 60,
            Self::Spa => 200,
            Self::NotFound => 600,
            Self::Paywall => 6_000,
            Self::Refusal | Self::Presence | Self::Keyword => u32::MAX,
        }
    }

    const fn default_confidence(self) -> f32 {
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
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: String,
    vendor: Option<String>,
    grade: Grade,
    #[serde(default)]
    find: Vec<String>,
    #[serde(default)]
    also: Vec<Vec<String>>,
    #[serde(default)]
    places: Vec<WrittenPlace>,
    #[serde(default)]
    title: Vec<String>,
    #[serde(default)]
    title_starts: Vec<String>,
    #[serde(default)]
    title_part: Vec<String>,
    #[serde(default)]
    text: Vec<String>,
    #[serde(default)]
    refresh: Vec<String>,
    #[serde(default)]
    header: Vec<String>,
    #[serde(default)]
    cookie: Vec<String>,
    #[serde(default)]
    host: Vec<String>,
    #[serde(default)]
    status: Vec<u16>,
    gate: Option<u32>,
    gate_200: Option<u32>,
    max_links_200: Option<u32>,
    max_links: Option<u32>,
    max_inputs: Option<u32>,
    max_images: Option<u32>,
    max_frames: Option<u32>,
    max_bytes: Option<u32>,
    #[serde(default)]
    noindex: bool,
    /// It is what a server's plain refusal looks like too: with 403 or 429 it is `blocked_403`, not a challenge.
    #[serde(default)]
    refusal: bool,
    password: Option<bool>,
    mount: Option<bool>,
    #[serde(default)]
    scripts: bool,
    #[serde(default)]
    title_absent: bool,
    #[serde(default)]
    always: bool,
    confidence: Option<f32>,
    framework: Option<String>,
    /// Where it was seen, and why it is as it is.
    note: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WrittenPlace {
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
    pub(super) whole: HashMap<Box<str>, Vec<u16>>,
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
    /// Patterns looked for in pages with little text.
    pub(super) late: Scan,
    /// Patterns looked for in pages with next to no text.
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
    headers: Vec<HeaderTest>,
    header_letters: [Range<u16>; 256],
    pub(super) cookies: Vec<(u16, Box<str>)>,
    pub(super) hosts: Vec<(u16, Box<str>)>,
    pub(super) titles: TitleTests,
    /// Rules whose conditions alone are evidence.
    pub(super) always: Vec<u16>,
}

/// Which scan a pattern goes into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Early,
    Late,
    Thin,
    Short,
    Sentence,
    Refresh,
    Nowhere,
}

impl HeaderTest {
    fn letter(&self) -> u8 {
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
        let mut written = read(SHIPPED)?;
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
        let written = read(SHIPPED)?;
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

fn value(line: usize, rule: &str, field: &'static str, problem: impl Into<String>) -> RuleError {
    RuleError::Value { line, rule: rule.to_owned(), field, problem: problem.into() }
}

#[derive(Default)]
struct Build {
    rules: Vec<Rule>,
    vendors: Vec<Arc<str>>,
    patterns: Vec<Pattern>,
    parts: Vec<Part>,
    places: Vec<Where>,
    headers: Vec<HeaderTest>,
    cookies: Vec<(u16, Box<str>)>,
    hosts: Vec<(u16, Box<str>)>,
    titles: TitleTests,
    always: Vec<u16>,
    short_always: bool,
}

impl Build {
    fn add(&mut self, line: usize, w: Written) -> Result<(), RuleError> {
        let index = u16::try_from(self.rules.len()).map_err(|_| value(line, &w.id, "id", "too many rules"))?;
        check(line, &w)?;
        let vendor = w.vendor.as_deref().map(|v| self.vendor(line, &w.id, v)).transpose()?;
        let gate = w.gate.unwrap_or(w.grade.default_gate());
        let set = match w.grade {
            Grade::Keyword => Where::Nowhere,
            Grade::Presence | Grade::Paywall => Where::Early,
            Grade::Spa => Where::Thin,
            _ if gate > LATE_GATE => Where::Early,
            _ if gate <= THIN_GATE => Where::Thin,
            _ => Where::Late,
        };
        let first_pattern = self.places.len();
        self.add_patterns(line, &w, index, ("find", set), 1, &w.find)?;
        for (n, group) in w.also.iter().enumerate() {
            self.add_patterns(line, &w, index, ("also", set), 2 << n, group)?;
        }
        self.add_patterns(line, &w, index, ("text", Where::Sentence), 1, &w.text)?;
        self.add_patterns(line, &w, index, ("refresh", Where::Refresh), 1, &w.refresh)?;
        self.add_tests(&w, index);
        self.rules.push(Rule {
            needs: (0..=w.also.len()).fold(0, |bits, n| bits | (1 << n)),
            id: w.id.into(),
            vendor,
            grade: w.grade,
            places: places(&w.places),
            status: w.status,
            gate,
            gate_200: w.gate_200.unwrap_or(gate).min(gate),
            max_links_200: w.max_links_200.unwrap_or(u32::MAX),
            max_links: w.max_links.unwrap_or(u32::MAX),
            max_inputs: w.max_inputs.unwrap_or(u32::MAX),
            max_images: w.max_images.unwrap_or(u32::MAX),
            max_frames: w.max_frames.unwrap_or(u32::MAX),
            max_bytes: w.max_bytes.unwrap_or(u32::MAX),
            noindex: w.noindex,
            refusal: w.refusal,
            password: w.password,
            mount: w.mount,
            scripts: w.scripts,
            short: self.places[first_pattern..].contains(&Where::Short),
            title_absent: w.title_absent,
            confidence: w.confidence.unwrap_or(w.grade.default_confidence()),
            framework: w.framework.map(Into::into),
            note: w.note.into(),
        });
        Ok(())
    }

    fn vendor(&mut self, line: usize, rule: &str, name: &str) -> Result<u8, RuleError> {
        if let Some(known) = self.vendors.iter().position(|v| &**v == name) {
            return Ok(known as u8);
        }
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') {
            return Err(value(
                line,
                rule,
                "vendor",
                "write it with a-z, 0-9 and _: it becomes part of a heuristic's name",
            ));
        }
        if self.vendors.len() == VENDORS_MAX {
            return Err(value(line, rule, "vendor", format!("at most {VENDORS_MAX} vendors")));
        }
        self.vendors.push(name.into());
        Ok((self.vendors.len() - 1) as u8)
    }

    fn add_patterns(
        &mut self,
        line: usize,
        w: &Written,
        rule: u16,
        (field, set): (&'static str, Where),
        bit: u8,
        written: &[String],
    ) -> Result<(), RuleError> {
        for pattern in written {
            let parsed = Pattern::parse(pattern).map_err(|e| {
                let problem = match e {
                    PatternError::TooShort => "needs at least four bytes before any wildcard",
                    PatternError::UnknownWildcard => "cannot begin with a wildcard",
                };
                value(line, &w.id, field, format!("`{pattern}` {problem}"))
            })?;
            let len = parsed.first().len();
            let short = (set == Where::Late && len < SHORT) || (set == Where::Thin && len < SHORT_THIN);
            let set = if short { Where::Short } else { set };
            // Evidence outside the body may ask for a short pattern, too.
            let elsewhere =
                [&w.title, &w.title_starts, &w.title_part, &w.text, &w.refresh, &w.header, &w.cookie, &w.host];
            self.short_always |= set == Where::Short && (bit == 1 || elsewhere.iter().any(|e| !e.is_empty()));
            self.patterns.push(parsed);
            self.parts.push(Part { rule, bit });
            self.places.push(set);
        }
        Ok(())
    }

    fn add_tests(&mut self, w: &Written, rule: u16) {
        if w.always {
            self.always.push(rule);
        }
        for test in &w.header {
            let (name, value) = test.split_once(':').unwrap_or((test, ""));
            self.headers.push(HeaderTest { rule, name: name.trim().into(), value: value.trim().to_lowercase().into() });
        }
        self.cookies.extend(w.cookie.iter().map(|c| (rule, c.to_lowercase().into())));
        self.hosts.extend(w.host.iter().map(|h| (rule, h.to_lowercase().into())));
        let mut folded = String::new();
        let mut fold = |title: &str| -> Box<str> {
            text::fold_into(title, &mut folded);
            fold_title(&folded).into()
        };
        for title in w.title.iter().chain(&w.title_part) {
            let rules = self.titles.whole.entry(fold(title)).or_default();
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        self.titles.part.extend(w.title_part.iter().map(|t| (rule, fold(t))));
        // What a beginning ends with is part of it, other than what a whole title ends with.
        self.titles.starts.extend(w.title_starts.iter().map(|t| {
            text::fold_into(t, &mut folded);
            (rule, folded.trim_start_matches(is_title_edge).into())
        }));
    }

    fn finish(self) -> Table {
        let scan = |sets: &[Where]| {
            Scan::new(
                self.patterns
                    .iter()
                    .zip(&self.places)
                    .enumerate()
                    .filter(|(_, (_, place))| sets.contains(place))
                    .map(|(i, (pattern, _))| (i as u32, pattern)),
            )
        };
        let mut headers = self.headers;
        headers.sort_by_key(HeaderTest::letter);
        let mut header_letters = [const { 0..0 }; 256];
        for (n, test) in headers.iter().enumerate() {
            let range: &mut Range<u16> = &mut header_letters[usize::from(test.letter())];
            *range = if range.start == range.end { n as u16..n as u16 + 1 } else { range.start..n as u16 + 1 };
        }
        Table {
            early: scan(&[Where::Early]),
            late: scan(&[Where::Late]),
            // A page with next to no text has little text, too: one search for both.
            thin: scan(&[Where::Late, Where::Thin]),
            short: scan(&[Where::Short]),
            short_always: self.short_always,
            sentences: scan(&[Where::Sentence]),
            refreshes: scan(&[Where::Refresh]),
            rules: self.rules,
            vendors: self.vendors.into(),
            patterns: self.patterns,
            parts: self.parts,
            headers,
            header_letters,
            cookies: self.cookies,
            hosts: self.hosts,
            titles: self.titles,
            always: self.always,
        }
    }
}

fn check(line: usize, w: &Written) -> Result<(), RuleError> {
    let err = |field, problem: &str| Err(value(line, &w.id, field, problem));
    if w.id.is_empty() {
        return err("id", "is empty");
    }
    if w.note.trim().is_empty() {
        return err("note", "say where it was seen");
    }
    if w.also.len() > 6 {
        return err("also", "at most six groups");
    }
    if w.also.iter().any(Vec::is_empty) {
        return err("also", "a group is empty");
    }
    if w.confidence.is_some_and(|c| !(0.0..=1.0).contains(&c)) {
        return err("confidence", "must be from 0 to 1");
    }
    if w.status.iter().any(|s| !(100..=999).contains(s)) {
        return err("status", "must be from 100 to 999");
    }
    let evidence =
        [&w.find, &w.title, &w.title_starts, &w.title_part, &w.text, &w.refresh, &w.header, &w.cookie, &w.host];
    if !w.always && evidence.iter().all(|e| e.is_empty()) {
        return err(
            "find",
            "a rule needs one of find, title, title_starts, title_part, text, refresh, header, cookie, host",
        );
    }
    if evidence.iter().any(|e| e.iter().any(|p| p.trim().is_empty())) {
        return err("find", "an empty pattern matches everything");
    }
    Ok(())
}

fn places(written: &[WrittenPlace]) -> Vec<Place> {
    if written.is_empty() {
        return vec![Place::Code];
    }
    written
        .iter()
        .map(|p| match p {
            WrittenPlace::Code => Place::Code,
            WrittenPlace::Text => Place::Text,
            WrittenPlace::Noscript => Place::Noscript,
            WrittenPlace::Hidden => Place::Hidden,
            WrittenPlace::Inert => Place::Inert,
        })
        .collect()
}

/// A folded title without what varies at its ends: dots, exclamation marks, spaces.
pub(super) fn fold_title(folded: &str) -> &str {
    folded.trim_matches(is_title_edge)
}

fn is_title_edge(c: char) -> bool {
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
