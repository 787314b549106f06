//! Collection of evidence: everything in a page that may prove something, with its position, before
//! it is weighed.
//!
//! Evidence comes from headers, markers, titles, sentences and refresh targets. Rules that cannot
//! hold with the page's amount of text are not searched for.
//!
//! Owns: the first stages of a page, [`Decoded`], [`BodyRead`] and [`Found`]. Each is made from the
//! one before, so that nothing can ask for what has not been read.
//!
//! Must not know: what follows from the evidence.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;
use xxhash_rust::xxh3::xxh3_64;

use super::cues::FRAMED_TEXT;
use crate::html::charset::Charset;
use crate::html::page_facts::{HARDLY_ANY_TEXT, LITTLE_TEXT, PageFacts};
use crate::html::redirect::{self, Bases, Refresh};
use crate::html::visibility::PagePart;
use crate::html::{sniff, text};
use crate::network_signs::{NetworkSigns, host};
use crate::options::ReadContext;
use crate::rules::compiled::{Rule, RuleTable, fold_title};
use crate::rules::scan::{HitBuffer, PatternHit, PatternScan};
use crate::rules::strength::Grade;
use crate::rules::word_scan::WordHit;
use crate::scratch::{CollectedEvidence, MatchPosition, PageBytes, PageReading, WorkBuffers};
use crate::verdict::CONTENT_CHARS;
use fetchwise_types::response::{Header, Page, header, media_type};

/// Minimum noscript characters of a page that counts as content ...
const NOSCRIPT_CONTENT_CHARS: u32 = 400;
/// ... and its minimum links if it mentions scripts (Discourse, Flarum). What an application says
/// to a browser without scripts has no links to other pages.
const NOSCRIPT_CONTENT_LINKS: u32 = 3;
/// Limits of visible characters from here on mean no limit: the rule holds with any amount of text.
pub(super) const NO_LIMIT: u32 = 100_000;
/// Maximum visible characters of an article so short that all of it counts as its end.
const TEASER_CHARS: u32 = 600;
/// Bytes at the beginning of a page with little text that are searched for late markers ...
const LATE_HEAD: usize = 256 << 10;
/// ... and bytes at its end.
const LATE_TAIL: usize = 64 << 10;
/// Upper bound of a marker's length, in bytes.
const MAX_MARKER: usize = 512;
/// Bytes that are converted to lower case at once.
const LOWER_AT_ONCE: usize = 16 << 10;
/// Maximum length of a title that is read, in bytes.
const MAX_TITLE: usize = 1024;

/// Minimum size of a style element, script or comment that is cut out of a page that is longer than
/// what is read.
const LONG_RAW: usize = 32 << 10;
/// Bytes of such a script that stay at its beginning and at its end, where its markers are.
const KEPT_OF_SCRIPT: usize = 12 << 10;
/// Such a page is searched for them as far as this multiple of what is read.
const RAW_LIMIT: usize = 8;

/// A page in lower case and in a known charset.
#[derive(Clone, Copy)]
pub(super) struct Decoded<'a> {
    pub(super) context: &'a ReadContext,
    pub(super) table: &'a RuleTable,
    pub(super) page: &'a Page<'a>,
    /// The bytes that are read, as they came.
    pub(super) body: &'a [u8],
    pub(super) bytes: &'a PageBytes,
    pub(super) charset: Charset,
    pub(super) is_html: bool,
    /// The body is still compressed.
    pub(super) is_undecoded: bool,
}

/// A page whose headers and body were read and searched.
pub(super) struct BodyRead<'a> {
    page: Decoded<'a>,
    read: &'a mut PageReading,
    found: &'a mut CollectedEvidence,
    work: &'a mut WorkBuffers,
    /// The vendors that are present.
    presence: u128,
}

/// A page with all evidence in it.
pub(super) struct Found<'a> {
    pub(super) page: Decoded<'a>,
    pub(super) read: &'a PageReading,
    pub(super) evidence: &'a mut CollectedEvidence,
    pub(super) work: &'a mut WorkBuffers,
    pub(super) presence: u128,
}

/// Returns a page without its long style elements and comments and without the middle of its long
/// scripts, if it is longer than `max_bytes`: no reader sees them, and they may precede all text.
/// Offsets of matches then count without them.
pub(super) fn without_long_raw(body: &[u8], max_bytes: usize) -> Option<Vec<u8>> {
    if body.len() <= max_bytes {
        return None;
    }
    let body = &body[..body.len().min(max_bytes.saturating_mul(RAW_LIMIT))];
    let mut out = Vec::new();
    let mut rest = body;
    let mut is_shorter = false;
    while out.len() < max_bytes {
        let Some((from, to)) = long_raw(rest) else { break };
        out.extend_from_slice(&rest[..from]);
        rest = &rest[to..];
        is_shorter = true;
    }
    if !is_shorter {
        return None;
    }
    let room = max_bytes.saturating_sub(out.len()).min(rest.len());
    out.extend_from_slice(&rest[..room]);
    Some(out)
}

/// Returns the first range of a text that is long and that no reader sees.
fn long_raw(text: &[u8]) -> Option<(usize, usize)> {
    let mut at = 0;
    loop {
        let open = at + memchr::memchr(b'<', &text[at..])?;
        let rest = &text[open..];
        let begins = |name: &[u8]| {
            rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
        };
        let (start, len, kept) = if begins(b"<!--") {
            let start = open + b"<!--".len();
            (start, memmem::find(&text[start..], b"-->")?, 0)
        } else if begins(b"<style") {
            let start = open + memchr::memchr(b'>', rest)? + 1;
            (start, end_tag(&text[start..], b"style")?, 0)
        } else if begins(b"<script") {
            let start = open + memchr::memchr(b'>', rest)? + 1;
            (start, end_tag(&text[start..], b"script")?, KEPT_OF_SCRIPT)
        } else {
            at = open + 1;
            continue;
        };
        if len >= LONG_RAW {
            return Some((start + kept, start + len - kept));
        }
        at = start + len;
    }
}

/// Returns where the first end tag of this name begins, in any letter case.
fn end_tag(text: &[u8], name: &[u8]) -> Option<usize> {
    memmem::find_iter(text, b"</").find(|at| {
        text.get(at + 2..at + 2 + name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name))
    })
}

/// Returns whether the noscript text of a page is its content: what a reader without scripts sees.
pub(super) fn speaks_without_scripts(facts: &PageFacts) -> bool {
    let is_demand = facts.demands_scripts && facts.links < NOSCRIPT_CONTENT_LINKS;
    facts.noscript.chars >= NOSCRIPT_CONTENT_CHARS && !is_demand
}

/// Returns a vendor set with the rule's vendor.
pub(super) fn vendor_bit(rule: &Rule) -> u128 {
    rule.vendor.map_or(0, |v| 1 << v)
}

impl<'a> Decoded<'a> {
    /// Decodes the first bytes of `page`, or of `shortened` in place of its body, into `bytes`.
    pub(super) fn new(
        context: &'a ReadContext,
        table: &'a RuleTable,
        page: &'a Page<'a>,
        shortened: Option<&'a [u8]>,
        bytes: &'a mut PageBytes,
    ) -> Self {
        let whole = shortened.unwrap_or(page.body);
        let body = &whole[..whole.len().min(context.options.max_bytes)];
        let host = page.final_url.or(page.url).and_then(host);
        let charset =
            Charset::of(header(page.headers, "content-type"), body).or_guessed(body, host);
        bytes.lower_from(charset, body);
        let is_undecoded = !charset.needs_decoding() && is_undecoded(page, body);
        let is_html = sniff::is_html(media_type(page.headers), &bytes.lower) && !is_undecoded;
        Self { context, table, page, body, bytes, charset, is_html, is_undecoded }
    }

    /// Reads the headers and, of HTML, the body.
    pub(super) fn read(
        self,
        read: &'a mut PageReading,
        found: &'a mut CollectedEvidence,
        work: &'a mut WorkBuffers,
    ) -> BodyRead<'a> {
        read_headers(self.table, self.page, found);
        let mut out = BodyRead { page: self, read, found, work, presence: 0 };
        if self.is_html {
            out.read_body();
        } else {
            out.read.facts.forget();
        }
        out
    }

    /// Returns a range of the page before it was converted to lower case.
    fn original(&self, range: Range<usize>) -> &'a [u8] {
        let whole = if self.charset.needs_decoding() {
            &self.bytes.decoded
        } else {
            self.body.get(self.charset.bom..).unwrap_or_default()
        };
        whole.get(range).unwrap_or_default()
    }
}

impl PageBytes {
    /// Fills in the body in lower case, and decoded where that is needed.
    fn lower_from(&mut self, charset: Charset, body: &[u8]) {
        let body = &body[charset.bom..];
        self.lower.clear();
        self.decoded.clear();
        if charset.needs_decoding() {
            charset.decode_into(body, &mut self.decoded);
            self.lower.extend_from_slice(&self.decoded);
            self.lower.make_ascii_lowercase();
        } else {
            // Piece by piece, while the bytes are in the cache.
            for piece in body.chunks(LOWER_AT_ONCE) {
                let from = self.lower.len();
                self.lower.extend_from_slice(piece);
                self.lower[from..].make_ascii_lowercase();
            }
        }
    }
}

/// Returns whether the body is still compressed.
fn is_undecoded(page: &Page<'_>, body: &[u8]) -> bool {
    let encoding = header(page.headers, "content-encoding");
    sniff::is_undecoded(media_type(page.headers), encoding, page.final_url.or(page.url), body)
}

/// Compares the headers and the host with the rules.
fn read_headers(table: &RuleTable, page: &Page<'_>, found: &mut CollectedEvidence) {
    for (index, h) in page.headers.iter().enumerate() {
        let at = MatchPosition::Header(index as u32);
        let mut value = None;
        for test in table.headers_of(&h.name) {
            let name = if test.begins {
                h.name.as_bytes().get(..test.name.len())
            } else {
                Some(h.name.as_bytes())
            };
            if name.is_some_and(|name| name.eq_ignore_ascii_case(test.name.as_bytes()))
                && (test.value.is_empty()
                    || test.value.len() <= h.value.len()
                        && value
                            .get_or_insert_with(|| h.value.to_ascii_lowercase())
                            .contains(&*test.value))
            {
                found.add(test.rule, 1, PagePart::Header, at);
            }
        }
        if h.name.eq_ignore_ascii_case("set-cookie") {
            let cookie = h.value.trim_start().as_bytes();
            for (rule, prefix) in &table.cookies {
                if cookie
                    .get(..prefix.len())
                    .is_some_and(|c| c.eq_ignore_ascii_case(prefix.as_bytes()))
                {
                    found.add(*rule, 1, PagePart::Header, at);
                }
            }
        }
    }
    if !table.hosts.is_empty()
        && let Some(host) = page.final_url.or(page.url).and_then(host)
    {
        for (rule, wanted) in &table.hosts {
            let is = match wanted.strip_prefix("*.") {
                Some(suffix) => {
                    host.len() > suffix.len()
                        && host.as_bytes()[host.len() - suffix.len() - 1] == b'.'
                        && host.as_bytes()[host.len() - suffix.len()..]
                            .eq_ignore_ascii_case(suffix.as_bytes())
                }
                None => host.eq_ignore_ascii_case(wanted),
            };
            if is {
                found.add(*rule, 1, PagePart::Header, MatchPosition::Header(u32::MAX));
            }
        }
    }
}

impl<'a> BodyRead<'a> {
    /// Reads the page until it has more than `enough` visible characters.
    fn read_facts(&mut self, enough: u32) {
        let Decoded { context, bytes, charset, .. } = self.page;
        self.read.facts.read(&bytes.lower, &context.finders, charset.counting, enough);
    }

    /// Reads and searches the body.
    fn read_body(&mut self) {
        let Decoded { context, table, bytes, .. } = self.page;
        let limits =
            self.found.touched.iter().map(|rule| table.rules[*rule as usize].max_visible_chars);
        let mut enough = limits.filter(|limit| *limit < NO_LIMIT).fold(LITTLE_TEXT, u32::max);
        if context.options.count_all {
            enough = u32::MAX;
        }
        self.read_facts(enough);
        let mut wanted = enough.max(self.read_title()).max(self.title_hint());
        let little = self.read.facts.complete && self.read.facts.visible.chars <= LITTLE_TEXT;
        wanted = wanted.max(self.search(little));
        // A marker or a title may allow more text than was read so far.
        while !self.read.facts.complete && wanted > enough {
            enough = wanted;
            let untitled = self.read.facts.title.is_none();
            self.read_facts(enough);
            if untitled {
                wanted = wanted.max(self.read_title()).max(self.title_hint());
            }
        }
        if little {
            let asks_for_short = |hit: &PatternHit| {
                let part = table.parts[hit.pattern as usize];
                part.bit == 1 && table.rules[part.rule as usize].short
            };
            if table.short_always || self.work.hits.iter().any(asks_for_short) {
                let (head, tail) = ends(bytes.lower.len());
                for window in [0..head, tail..bytes.lower.len()] {
                    self.collect(&table.short, little, window);
                }
            }
            self.read_sentences();
            self.hash_text();
            self.read.signs = NetworkSigns::of(
                self.page.page,
                &self.read.facts,
                &bytes.lower,
                self.read.visible_text(),
            );
            for &rule in &table.always {
                self.found.add(rule, 1, PagePart::Code, MatchPosition::Body(0, 0));
            }
        }
        // A block page may stand in a large frame.
        let facts = &self.read.facts;
        if !little && facts.complete && facts.visible.chars <= FRAMED_TEXT && self.title_hint() > 0
        {
            self.read_sentences();
        }
        self.read_refresh();
        self.locate();
    }

    /// Searches the body for all evidence that may still count: for more of it in a page with
    /// little text. Returns the largest text limit of the rules that were hit.
    fn search(&mut self, little: bool) -> u32 {
        let table = self.page.table;
        self.work.hits.clear();
        let len = self.page.bytes.lower.len();
        if !little {
            return self.collect(&table.early, little, 0..len);
        }
        let all = if self.read.facts.visible.chars <= HARDLY_ANY_TEXT {
            &table.thin
        } else {
            &table.late
        };
        let (head, tail) = ends(len);
        let mut limit = self.collect(all, little, 0..head);
        if head < len {
            let middle = head.saturating_sub(MAX_MARKER)..len.min(tail + MAX_MARKER);
            for (scan, window) in [(&table.early, middle), (all, tail..len)] {
                limit = limit.max(self.collect(scan, little, window));
            }
        }
        limit
    }

    /// Keeps the hits of `scan` that may count with the page's amount of text, and the vendors that
    /// are present. Returns the largest text limit of the rules that were hit.
    fn collect(&mut self, scan: &PatternScan, little: bool, window: Range<usize>) -> u32 {
        let Decoded { table, bytes, .. } = self.page;
        let WorkBuffers { hits, buffer, .. } = &mut *self.work;
        let facts = &self.read.facts;
        let chars = facts.visible.chars;
        let thin = chars < CONTENT_CHARS && !speaks_without_scripts(facts);
        let from = window.start as u32;
        let (mut presence, mut limit) = (0, 0);
        scan.each(&bytes.lower[window], &table.patterns, buffer, |hit| {
            let rule = &table.rules[table.parts[hit.pattern as usize].rule as usize];
            if rule.grade == Grade::Presence {
                let before = presence;
                presence |= vendor_bit(rule);
                return before != presence;
            }
            let may_hold =
                !little || (chars <= rule.max_visible_chars && (rule.grade != Grade::Spa || thin));
            if may_hold {
                limit = limit.max(if rule.max_visible_chars < NO_LIMIT {
                    rule.max_visible_chars
                } else {
                    0
                });
                hits.push(PatternHit { start: hit.start + from, end: hit.end + from, ..hit });
            }
            may_hold
        });
        self.presence |= presence;
        limit
    }

    /// Determines the page part of each hit, and keeps the hits in parts that their rules allow.
    fn locate(&mut self) {
        let Decoded { context, table, bytes, charset, .. } = self.page;
        let WorkBuffers { hits, offsets, .. } = &mut *self.work;
        if hits.is_empty() {
            return;
        }
        hits.sort_unstable_by_key(|h: &PatternHit| (h.start, h.pattern));
        // Windows of a long page overlap.
        hits.dedup();
        offsets.clear();
        offsets.extend(hits.iter().map(|h| h.start));
        let (facts, found) = (&self.read.facts, &mut *self.found);
        let total = facts.visible.chars;
        facts.locate(
            &bytes.lower,
            &context.finders,
            charset.counting,
            offsets,
            |index, place, visible_before| {
                let hit = hits[index];
                let part = table.parts[hit.pattern as usize];
                let rule = &table.rules[part.rule as usize];
                if !rule.places.contains(&place) {
                    return;
                }
                // A paywall cuts an article off; a subscription link in the header is on every
                // page.
                let early = total > TEASER_CHARS && visible_before.saturating_mul(3) < total;
                if rule.grade == Grade::Paywall && place == PagePart::Text && early {
                    return;
                }
                found.add(part.rule, part.bit, place, MatchPosition::Body(hit.start, hit.end));
            },
        );
    }

    /// Compares the title with the rules. Returns the largest text limit of the rules that matched.
    fn read_title(&mut self) -> u32 {
        let Self { page, read, found, .. } = self;
        let Some(range) = read.facts.title.clone() else { return 0 };
        let raw = page.original(range.start..range.end.min(range.start + MAX_TITLE));
        read.title.clear();
        text::decode_entities_into(page.charset.text(raw).trim(), &mut read.title);
        text::fold_into(&read.title, &mut read.folded_title);
        let title = fold_title(&read.folded_title);
        let tests = &page.table.titles;
        let mut limit = 1;
        let mut is = |rule: u16| {
            limit = limit.max(page.table.rules[rule as usize].max_visible_chars);
            found.add(rule, 1, PagePart::Title, MatchPosition::Title);
        };
        tests.whole.get(title).into_iter().flatten().for_each(|rule| is(*rule));
        // Most tests differ in one byte.
        let (first, last) = (title.as_bytes().first(), title.as_bytes().last());
        let may_start = |of: &str| of.is_empty() || of.as_bytes().first() == first;
        let may_end = |of: &str| of.is_empty() || of.as_bytes().last() == last;
        let begun = tests
            .starts
            .iter()
            .filter(|(_, start)| may_start(start) && title.starts_with(&**start));
        begun.for_each(|(rule, _)| is(*rule));
        if title.bytes().any(|b| matches!(b, b'|' | b'-' | b':' | b'/' | 0x80..)) {
            let may_be = |part: &str| (may_start(part) || may_end(part)) && is_part(title, part);
            tests.part.iter().filter(|(_, part)| may_be(part)).for_each(|(rule, _)| is(*rule));
        }
        limit
    }

    /// Returns the maximum text around a block with such a title: 0 if nothing in the title hints
    /// at one.
    fn title_hint(&mut self) -> u32 {
        let table = self.page.table;
        let mut meanings = 0;
        table.each_word(self.read.folded_title.as_bytes(), &mut self.work.buffer, |word| {
            if table.concepts.hints(word.meanings) {
                meanings |= word.meanings;
            }
        });
        if table.vocabulary.is_title(meanings) { FRAMED_TEXT } else { 0 }
    }

    /// Searches the title, the visible text and the noscript text of a short page for sentences.
    fn read_sentences(&mut self) {
        let Decoded { table, bytes, charset, .. } = self.page;
        let PageReading {
            facts, folded, folded_title, meanings, all_meanings, frame_words, ..
        } = &mut *self.read;
        let WorkBuffers { kept, buffer, .. } = &mut *self.work;
        let found = &mut *self.found;
        folded.clear();
        for part in [&facts.visible, &facts.noscript] {
            part.kept_into(&bytes.lower, charset.counting, kept);
            text::append_collapsed(&charset.text(kept), folded);
            folded.push('\n');
        }
        folded.push_str(folded_title);
        let bytes = folded.as_bytes();
        let line_end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len()) as u32;
        let word = |word: WordHit| {
            *all_meanings |= word.meanings;
            if word.meanings & table.vocabulary.frame != 0 && word.end <= line_end {
                let _ = frame_words.try_push(word.start);
            }
            if table.concepts.hints(word.meanings) {
                *meanings |= word.meanings;
            }
        };
        table.wording.each(bytes, &table.patterns, buffer, word, |hit| {
            let part = table.parts[hit.pattern as usize];
            found.add(
                part.rule,
                part.bit,
                PagePart::Text,
                MatchPosition::Folded(hit.start, hit.end),
            );
        });
    }

    /// Hashes the visible text.
    fn hash_text(&mut self) {
        let visible = self.read.visible_text();
        self.read.text_hash = if visible.is_empty() { 0 } else { xxh3_64(visible.as_bytes()) };
    }

    /// Compares the targets of a refresh and of a script with the rules.
    fn read_refresh(&mut self) {
        let Decoded { table, bytes, .. } = self.page;
        let facts = &self.read.facts;
        for range in [facts.refresh.clone(), facts.sent_to.clone()].into_iter().flatten() {
            let (start, end) = (range.start as u32, range.end as u32);
            let at = |at: u32| (PagePart::Inert, MatchPosition::Body(start + at, end));
            read_refresh_target(table, &bytes.lower[range], &mut self.work.buffer, at, self.found);
        }
    }

    /// Compares the target of the header `Refresh` with the rules.
    fn read_refresh_header(&mut self) {
        let headers = self.page.page.headers;
        let is_refresh = |header: &Header| header.name.eq_ignore_ascii_case("refresh");
        let Some(index) = headers.iter().position(is_refresh) else { return };
        let target = headers[index].value.to_ascii_lowercase();
        let position = MatchPosition::Header(u32::try_from(index).unwrap_or(u32::MAX));
        let at = |_| (PagePart::Header, position);
        read_refresh_target(
            self.page.table,
            target.as_bytes(),
            &mut self.work.buffer,
            at,
            self.found,
        );
    }

    /// Searches for names of products of networks where they may count: next to words of a network,
    /// or to hardly any words.
    fn read_products(&mut self) {
        let Decoded { table, bytes, .. } = self.page;
        let facts = &self.read.facts;
        let chars = facts.visible.chars;
        let may_count =
            chars <= HARDLY_ANY_TEXT || table.concepts.may_name_product(self.read.all_meanings);
        if !facts.complete || chars > LITTLE_TEXT || !may_count {
            return;
        }
        self.work.hits.clear();
        let (head, tail) = ends(bytes.lower.len());
        for window in [0..head, tail..bytes.lower.len()] {
            self.collect(&table.products, true, window);
        }
        self.locate();
    }

    /// Reads what depends on the text of the body.
    pub(super) fn find(mut self) -> Found<'a> {
        self.read_refresh_header();
        if self.page.is_html {
            self.read_products();
        }
        let Self { page, read, found: evidence, work, presence } = self;
        // All words of a text count if some of them hint at a block.
        if page.table.concepts.hint_at_block(read.meanings) {
            read.meanings |= read.all_meanings;
        }
        Found { page, read, evidence, work, presence }
    }
}

/// Returns where the head of a page ends and where its tail begins. A long page with little text
/// has most markers there.
fn ends(len: usize) -> (usize, usize) {
    let head = len.min(LATE_HEAD);
    (head, head.max(len.saturating_sub(LATE_TAIL)))
}

/// Separators between the parts of a title.
const SEPARATORS: [&str; 6] = [" | ", " - ", ": ", " \u{B7} ", " \u{BB} ", " / "];

/// Returns whether `part` stands before the first or after the last separator of `title`.
fn is_part(title: &str, part: &str) -> bool {
    let before = title.strip_prefix(part).is_some_and(|rest| {
        let rest = rest.trim_start_matches(['.', '!', '?']);
        SEPARATORS.iter().any(|s| rest.starts_with(s))
    });
    let after =
        title.strip_suffix(part).is_some_and(|rest| SEPARATORS.iter().any(|s| rest.ends_with(s)));
    before || after
}

/// Keeps each pattern in the target of a refresh, `at` the part and position of its offset, and
/// whether a rule knows the target as a challenge.
fn read_refresh_target(
    table: &RuleTable,
    target: &[u8],
    buffer: &mut HitBuffer,
    at: impl Fn(u32) -> (PagePart, MatchPosition),
    found: &mut CollectedEvidence,
) {
    // A bare delay has no target.
    if memchr::memchr2(b'/', b'?', target).is_none() {
        return;
    }
    table.refreshes.each(target, &table.patterns, buffer, |hit| {
        let start = hit.start as usize;
        if target[start] == b'/' && begins_host(&target[..start]) {
            return true;
        }
        let part = table.parts[hit.pattern as usize];
        found.to_challenge |= table.rules[part.rule as usize].grade.concerns_blocks();
        let (place, position) = at(hit.start);
        found.add(part.rule, part.bit, place, position);
        true
    });
}

/// Returns whether the next slash after `before` is the second one in front of a host (`https://`,
/// or `//` at the beginning of the target). A pattern that begins with a slash is a path segment,
/// and the name of a host is no evidence.
fn begins_host(before: &[u8]) -> bool {
    matches!(before, [b'/'] | [.., b':' | b'=' | b' ' | b'\'' | b'"', b'/'])
}

impl Found<'_> {
    /// Searches a page with next to no text for words that only hint at a block.
    pub(super) fn read_cue_words(&mut self) {
        let table = self.page.table;
        let found = &mut *self.evidence;
        table.cue_words.each(
            self.read.folded.as_bytes(),
            &table.patterns,
            &mut self.work.buffer,
            |hit| {
                let part = table.parts[hit.pattern as usize];
                found.add(
                    part.rule,
                    part.bit,
                    PagePart::Text,
                    MatchPosition::Folded(hit.start, hit.end),
                );
                true
            },
        );
    }

    /// Returns the target of the page's redirect.
    pub(super) fn redirect(&self) -> Option<Box<str>> {
        let (page, facts) = (&self.page, &self.read.facts);
        let written = |range: &Range<usize>| page.charset.text(page.original(range.clone()));
        let url = page.page.final_url.or(page.page.url);
        // What stands before the base is not relative to it.
        let base_before =
            |at: usize| facts.base.as_ref().filter(|base| base.start <= at).map(&written);
        // A script runs before a refresh does, and the header comes before the page.
        if let Some(range) = &facts.sent_to
            && let Some(literal) = redirect::of_literal(&written(range))
        {
            let base = base_before(range.start);
            let base = base.as_deref().map(redirect::decoded);
            if let Some(target) = (Bases { page: url, element: base.as_deref() }).resolve(&literal)
            {
                return Some(target);
            }
        }
        if let Some(value) = refresh_header(page.page.headers)
            && let Some(refresh) = Refresh::parse(&value)
        {
            return Bases { page: url, element: None }.resolve(refresh.redirect()?);
        }
        let range = facts.refresh.as_ref().filter(|_| facts.moved)?;
        let (content, base) = (written(range), base_before(range.start));
        let (content, base) = (redirect::decoded(&content), base.as_deref().map(redirect::decoded));
        Bases { page: url, element: base.as_deref() }.resolve(Refresh::parse(&content)?.redirect()?)
    }
}

/// Returns the value of the header `Refresh`. Each byte of one that is not UTF-8 is a character.
fn refresh_header(headers: &[Header]) -> Option<Cow<'_, str>> {
    let bytes = headers.iter().find(|header| header.name.eq_ignore_ascii_case("refresh"))?.bytes();
    let of_bytes = |_| Cow::Owned(bytes.iter().copied().map(char::from).collect());
    Some(std::str::from_utf8(bytes).map_or_else(of_bytes, Cow::Borrowed))
}

/// Returns the number of bytes between `<script` and `</script`, anywhere.
pub(super) fn script_bytes(context: &ReadContext, lower: &[u8]) -> usize {
    let mut sum = 0;
    let mut rest = lower;
    while let Some(at) = context.finders.script_open.find(rest) {
        let from = &rest[at..];
        let Some(begin) = memchr::memchr(b'>', from) else { break };
        let inner = &from[begin + 1..];
        let len = context.finders.script.find(inner).unwrap_or(inner.len());
        sum += len;
        rest = &inner[len..];
    }
    sum
}
