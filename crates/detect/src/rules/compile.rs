//! Compilation of rules, from the TOML form to the searched form. A rule that cannot be used is
//! rejected with its line and field.
//!
//! Must not know: any page.

use std::ops::Range;
use std::sync::Arc;

use super::pattern::{Pattern, PatternError};
use super::scan::{PatternClass, PatternScan};
use super::vocabulary::Vocabulary;
use super::word_scan::WordScan;
use crate::html::page_facts::{HARDLY_ANY_TEXT, LITTLE_TEXT};
use crate::html::text;
use crate::html::visibility::PagePart;
use crate::rules::compiled::{
    HeaderTest, PatternPart, Rule, RuleTable, TitleTests, fold_title, is_title_edge,
};
use crate::rules::concepts::Concepts;
use crate::rules::file::{PagePartSource, RuleError, RuleFile, RuleSource, value};
use crate::rules::strength::Grade;

/// Patterns for pages with little text that have fewer bytes before their first wildcard are short.
/// They occur in many places, so they are searched for only after another part of their rule was
/// found.
const SHORT: usize = 6;
/// The same limit for pages with next to no text.
const SHORT_THIN: usize = 5;

/// Maximum number of vendors in a rule table.
const MAX_VENDORS: usize = 128;

/// The scan that a pattern goes into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanSet {
    Early,
    Late,
    Thin,
    Short,
    Sentence,
    Cue,
    CueWord,
    Refresh,
    Product,
}

/// Patterns of one field of a rule, of which one has to be found.
struct PatternGroup<'a> {
    field: &'static str,
    set: ScanSet,
    /// The part of the rule that they prove.
    bit: u8,
    patterns: &'a [String],
}

/// A table under construction.
#[derive(Default)]
struct TableBuilder {
    rules: Vec<Rule>,
    vendors: Vec<Arc<str>>,
    patterns: Vec<Pattern>,
    parts: Vec<PatternPart>,
    sets: Vec<ScanSet>,
    headers: Vec<HeaderTest>,
    cookies: Vec<(u16, Box<str>)>,
    hosts: Vec<(u16, Box<str>)>,
    titles: TitleTests,
    always: Vec<u16>,
    short_always: bool,
}

/// Compiles rules, concepts and words, each with its line.
pub(crate) fn compile(written: RuleFile) -> Result<RuleTable, RuleError> {
    let mut build = TableBuilder::default();
    for (line, rule) in written.rules {
        build.add(line, rule)?;
    }
    let concepts = Concepts::compile(written.concepts, written.words, &mut build.patterns)?;
    Ok(build.finish(concepts))
}

impl TableBuilder {
    fn add(&mut self, line: usize, w: RuleSource) -> Result<(), RuleError> {
        let index = u16::try_from(self.rules.len())
            .map_err(|_| value(line, &w.id, "id", "too many rules"))?;
        check(line, &w)?;
        let conditions = w.conditions();
        if let Some((field, problem)) = conditions.problem() {
            return Err(value(line, &w.id, field, problem));
        }
        let vendor = w.vendor.as_deref().map(|v| self.vendor(line, &w.id, v)).transpose()?;
        let max_visible_chars = w.max_visible_chars.unwrap_or(w.grade.default_max_visible_chars());
        let set = match w.grade {
            Grade::Presence | Grade::Paywall => ScanSet::Early,
            Grade::Spa => ScanSet::Thin,
            Grade::Cue => ScanSet::Cue,
            Grade::Network if max_visible_chars <= LITTLE_TEXT => ScanSet::Product,
            _ if max_visible_chars > LITTLE_TEXT => ScanSet::Early,
            _ if max_visible_chars <= HARDLY_ANY_TEXT => ScanSet::Thin,
            _ => ScanSet::Late,
        };
        let first_pattern = self.sets.len();
        self.add_patterns(
            (line, &w),
            index,
            PatternGroup { field: "find", set, bit: 1, patterns: &w.find },
        )?;
        for (n, group) in w.also.iter().enumerate() {
            self.add_patterns(
                (line, &w),
                index,
                PatternGroup { field: "also", set, bit: 2 << n, patterns: group },
            )?;
        }
        let set = if w.grade == Grade::Cue { ScanSet::CueWord } else { ScanSet::Sentence };
        self.add_patterns(
            (line, &w),
            index,
            PatternGroup { field: "text", set, bit: 1, patterns: &w.text },
        )?;
        let refresh =
            PatternGroup { field: "refresh", set: ScanSet::Refresh, bit: 1, patterns: &w.refresh };
        self.add_patterns((line, &w), index, refresh)?;
        self.add_tests(&w, index);
        self.rules.push(Rule {
            needs: (0..=w.also.len()).fold(0, |bits, n| bits | (1 << n)),
            id: w.id.into(),
            vendor,
            grade: w.grade,
            places: page_parts(&w.places),
            max_visible_chars,
            max_visible_chars_200: w
                .max_visible_chars_200
                .unwrap_or(max_visible_chars)
                .min(max_visible_chars),
            max_links: w.max_links.unwrap_or(u32::MAX),
            max_links_200: w.max_links_200.unwrap_or(u32::MAX),
            conditions,
            refusal: w.refusal,
            network: w.network,
            short: self.sets[first_pattern..].contains(&ScanSet::Short),
            application: w.application,
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
        if name.is_empty()
            || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        {
            return Err(value(
                line,
                rule,
                "vendor",
                "is not a valid vendor: use a-z, 0-9 and _, as in names of heuristics",
            ));
        }
        if self.vendors.len() == MAX_VENDORS {
            return Err(value(
                line,
                rule,
                "vendor",
                format!("too many vendors: at most {MAX_VENDORS}"),
            ));
        }
        self.vendors.push(name.into());
        Ok((self.vendors.len() - 1) as u8)
    }

    fn add_patterns(
        &mut self,
        (line, w): (usize, &RuleSource),
        rule: u16,
        PatternGroup { field, set, bit, patterns }: PatternGroup<'_>,
    ) -> Result<(), RuleError> {
        for pattern in patterns {
            let parsed = Pattern::parse(pattern).map_err(|e| {
                let problem = match e {
                    PatternError::TooShort => "needs at least four bytes before any wildcard",
                    PatternError::UnknownWildcard => "cannot begin with a wildcard",
                };
                value(line, &w.id, field, format!("`{pattern}` {problem}"))
            })?;
            let len = parsed.first().len();
            let short =
                (set == ScanSet::Late && len < SHORT) || (set == ScanSet::Thin && len < SHORT_THIN);
            let set = if short { ScanSet::Short } else { set };
            // Evidence outside the body may need a short pattern, too.
            let elsewhere = [
                &w.title,
                &w.title_starts,
                &w.title_part,
                &w.text,
                &w.refresh,
                &w.header,
                &w.cookie,
                &w.host,
            ];
            self.short_always |=
                set == ScanSet::Short && (bit == 1 || elsewhere.iter().any(|e| !e.is_empty()));
            self.patterns.push(parsed);
            self.parts.push(PatternPart { rule, bit });
            self.sets.push(set);
        }
        Ok(())
    }

    fn add_tests(&mut self, w: &RuleSource, rule: u16) {
        if w.always {
            self.always.push(rule);
        }
        for test in &w.header {
            let (name, value) = test.split_once(':').unwrap_or((test, ""));
            let (name, value) = (name.trim(), value.trim().to_lowercase());
            self.headers.push(HeaderTest {
                rule,
                name: name.into(),
                begins: name.ends_with('-'),
                value: value.into(),
            });
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
        // The end of a title's beginning belongs to it, unlike the end of a whole title.
        self.titles.starts.extend(w.title_starts.iter().map(|t| {
            text::fold_into(t, &mut folded);
            (rule, folded.trim_start_matches(is_title_edge).into())
        }));
    }

    fn finish(self, concepts: Concepts) -> RuleTable {
        let of = |sets: &'static [ScanSet]| {
            let placed = self.patterns.iter().zip(&self.sets).enumerate();
            placed.filter(move |(_, (_, place))| sets.contains(place)).map(
                |(i, (pattern, place))| {
                    let class = match place {
                        ScanSet::Late | ScanSet::Thin | ScanSet::Product => PatternClass::Word,
                        ScanSet::Cue => PatternClass::Cue,
                        _ => PatternClass::Marker,
                    };
                    (i as u32, class, pattern)
                },
            )
        };
        let scan = |sets| PatternScan::new(of(sets));
        let mut headers = self.headers;
        headers.sort_by_key(HeaderTest::letter);
        let mut header_letters = [const { 0..0 }; 256];
        for (n, test) in headers.iter().enumerate() {
            let range: &mut Range<u16> = &mut header_letters[usize::from(test.letter())];
            *range = if range.start == range.end {
                n as u16..n as u16 + 1
            } else {
                range.start..n as u16 + 1
            };
        }
        RuleTable {
            early: scan(&[ScanSet::Early]),
            // One search for all patterns that a page may contain.
            late: scan(&[ScanSet::Early, ScanSet::Late]),
            thin: scan(&[ScanSet::Early, ScanSet::Late, ScanSet::Thin, ScanSet::Cue]),
            short: scan(&[ScanSet::Short]),
            short_always: self.short_always,
            wording: WordScan::new(
                of(&[ScanSet::Sentence]).map(|(number, _, pattern)| (number, pattern)),
                concepts.searched(&self.patterns),
            ),
            products: scan(&[ScanSet::Product]),
            cue_words: scan(&[ScanSet::CueWord]),
            refreshes: scan(&[ScanSet::Refresh]),
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
            vocabulary: Vocabulary::of(&concepts),
            concepts,
        }
    }
}

fn check(line: usize, w: &RuleSource) -> Result<(), RuleError> {
    let err = |field, problem: &str| Err(value(line, &w.id, field, problem));
    if w.id.is_empty() {
        return err("id", "missing id");
    }
    if w.note.trim().is_empty() {
        return err("note", "missing note: say where the evidence comes from");
    }
    if w.also.len() > 6 {
        return err("also", "too many groups: at most six");
    }
    if w.also.iter().any(Vec::is_empty) {
        return err("also", "empty group");
    }
    if w.confidence.is_some_and(|c| !(0.0..=1.0).contains(&c)) {
        return err("confidence", "must be from 0 to 1");
    }
    let evidence = [
        &w.find,
        &w.title,
        &w.title_starts,
        &w.title_part,
        &w.text,
        &w.refresh,
        &w.header,
        &w.cookie,
        &w.host,
    ];
    if !w.always && evidence.iter().all(|e| e.is_empty()) {
        return err(
            "find",
            "missing evidence: a rule needs one of find, title, title_starts, title_part, text, refresh, header, cookie, host",
        );
    }
    if evidence.iter().any(|e| e.iter().any(|p| p.trim().is_empty())) {
        return err("find", "empty pattern: it matches everything");
    }
    Ok(())
}

fn page_parts(written: &[PagePartSource]) -> Vec<PagePart> {
    if written.is_empty() {
        return vec![PagePart::Code];
    }
    written
        .iter()
        .map(|p| match p {
            PagePartSource::Code => PagePart::Code,
            PagePartSource::Text => PagePart::Text,
            PagePartSource::Noscript => PagePart::Noscript,
            PagePartSource::Hidden => PagePart::Hidden,
            PagePartSource::Inert => PagePart::Inert,
        })
        .collect()
}
