//! Collection of evidence: everything in a page that may prove something, with its position, before it is weighed.
//!
//! Evidence comes from headers, markers, titles, sentences and refresh targets. Rules that cannot hold with the page's
//! amount of text are not searched for.
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
use crate::html::text;
use crate::html::visibility::PagePart;
use crate::options::ReadContext;
use crate::rules::compiled::{PatternPart, Rule, RuleTable, fold_title};
use crate::rules::scan::{HitBuffer, PatternHit, PatternScan};
use crate::rules::strength::Grade;
use crate::rules::word_scan::WordHit;
use crate::scratch::{CollectedEvidence, MatchPosition, Scratch};
use crate::verdict::CONTENT_CHARS;
use fetchwise_types::response::{Header, Page, header};

/// Minimum noscript characters of a page that counts as content ...
const NOSCRIPT_CONTENT_CHARS: u32 = 400;
/// ... and its minimum links if it mentions scripts (Discourse, Flarum). What an application says to a browser without
/// scripts has no links to other pages.
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

/// Minimum size of a style element, script or comment that is cut out of a page that is longer than what is read.
const LONG_RAW: usize = 32 << 10;
/// Bytes of such a script that stay at its beginning and at its end, where its markers are.
const KEPT_OF_SCRIPT: usize = 12 << 10;
/// Such a page is searched for them as far as this multiple of what is read.
const RAW_LIMIT: usize = 8;

/// Returns a page without its long style elements and comments and without the middle of its long scripts, if it is
/// longer than `max_bytes`: no reader sees them, and they may precede all text. Offsets of matches then count without
/// them.
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
        let begins = |name: &[u8]| rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
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
    memmem::find_iter(text, b"</")
        .find(|at| text.get(at + 2..at + 2 + name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name)))
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

/// Fills `scratch.lower`, and `scratch.decoded` where decoding is needed.
pub(super) fn lower(page: &Page<'_>, body: &[u8], scratch: &mut Scratch) -> Charset {
    let host = page.final_url.or(page.url).and_then(host);
    let charset = Charset::of(header(page.headers, "content-type"), body).or_guessed(body, host);
    let body = &body[charset.bom..];
    scratch.lower.clear();
    scratch.decoded.clear();
    if charset.needs_decoding() {
        charset.decode_into(body, &mut scratch.decoded);
        scratch.lower.extend_from_slice(&scratch.decoded);
        scratch.lower.make_ascii_lowercase();
    } else {
        // Piece by piece, while the bytes are in the cache.
        for piece in body.chunks(LOWER_AT_ONCE) {
            let from = scratch.lower.len();
            scratch.lower.extend_from_slice(piece);
            scratch.lower[from..].make_ascii_lowercase();
        }
    }
    charset
}

pub(super) fn read_headers(table: &RuleTable, page: &Page<'_>, found: &mut CollectedEvidence) {
    for (index, h) in page.headers.iter().enumerate() {
        let at = MatchPosition::Header(index as u32);
        let mut value = None;
        for test in table.headers_of(&h.name) {
            let name = if test.begins { h.name.as_bytes().get(..test.name.len()) } else { Some(h.name.as_bytes()) };
            if name.is_some_and(|name| name.eq_ignore_ascii_case(test.name.as_bytes()))
                && (test.value.is_empty()
                    || test.value.len() <= h.value.len()
                        && value.get_or_insert_with(|| h.value.to_ascii_lowercase()).contains(&*test.value))
            {
                found.add(test.rule, 1, PagePart::Header, at);
            }
        }
        if h.name.eq_ignore_ascii_case("set-cookie") {
            let cookie = h.value.trim_start().as_bytes();
            for (rule, prefix) in &table.cookies {
                if cookie.get(..prefix.len()).is_some_and(|c| c.eq_ignore_ascii_case(prefix.as_bytes())) {
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
                        && host.as_bytes()[host.len() - suffix.len()..].eq_ignore_ascii_case(suffix.as_bytes())
                }
                None => host.eq_ignore_ascii_case(wanted),
            };
            if is {
                found.add(*rule, 1, PagePart::Header, MatchPosition::Header(u32::MAX));
            }
        }
    }
}

/// Returns the host of a URL, without user info and port.
pub(super) fn host(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, h)| h);
    Some(host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(h, _)| h))
}

/// Reads and searches the body. Returns the vendors that are present.
pub(super) fn read_body(
    context: &ReadContext,
    table: &RuleTable,
    charset: Charset,
    body: &[u8],
    scratch: &mut Scratch,
) -> u128 {
    let limits = scratch.found.touched.iter().map(|rule| table.rules[*rule as usize].max_visible_chars);
    let mut enough = limits.filter(|limit| *limit < NO_LIMIT).fold(LITTLE_TEXT, u32::max);
    if context.options.count_all {
        enough = u32::MAX;
    }
    scratch.facts.read(&scratch.lower, &context.finders, charset.counting, enough);
    let mut wanted = enough.max(read_title(table, charset, body, scratch)).max(title_hint(table, scratch));
    let little = scratch.facts.complete && scratch.facts.visible.chars <= LITTLE_TEXT;
    let (presence, limit) = search(table, little, scratch);
    wanted = wanted.max(limit);
    // A marker or a title may allow more text than was read so far.
    while !scratch.facts.complete && wanted > enough {
        enough = wanted;
        let untitled = scratch.facts.title.is_none();
        scratch.facts.read(&scratch.lower, &context.finders, charset.counting, enough);
        if untitled {
            wanted = wanted.max(read_title(table, charset, body, scratch)).max(title_hint(table, scratch));
        }
    }
    if little {
        let asks_for_short = |hit: &PatternHit| {
            let part = table.parts[hit.pattern as usize];
            part.bit == 1 && table.rules[part.rule as usize].short
        };
        if table.short_always || scratch.hits.iter().any(asks_for_short) {
            let (head, tail) = ends(scratch.lower.len());
            for from_to in [0..head, tail..scratch.lower.len()] {
                collect(&table.short, table, little, from_to, scratch);
            }
        }
        read_sentences(table, charset, scratch);
        hash_text(scratch);
        for &rule in &table.always {
            scratch.found.add(rule, 1, PagePart::Code, MatchPosition::Body(0, 0));
        }
    }
    // A block page may stand in a large frame.
    if !little && scratch.facts.complete && scratch.facts.visible.chars <= FRAMED_TEXT && title_hint(table, scratch) > 0
    {
        read_sentences(table, charset, scratch);
    }
    read_refresh(table, scratch);
    locate(context, table, charset, scratch);
    presence
}

/// Searches the body for all evidence that may still count: for more of it in a page with little text. Returns the
/// vendors that are present, and the largest text limit of the rules that were hit.
fn search(table: &RuleTable, little: bool, scratch: &mut Scratch) -> (u128, u32) {
    scratch.hits.clear();
    let len = scratch.lower.len();
    if !little {
        return collect(&table.early, table, little, 0..len, scratch);
    }
    let all = if scratch.facts.visible.chars <= HARDLY_ANY_TEXT { &table.thin } else { &table.late };
    let (head, tail) = ends(len);
    let mut found = collect(all, table, little, 0..head, scratch);
    if head < len {
        let middle = head.saturating_sub(MAX_MARKER)..len.min(tail + MAX_MARKER);
        for (scan, window) in [(&table.early, middle), (all, tail..len)] {
            let (presence, limit) = collect(scan, table, little, window, scratch);
            found = (found.0 | presence, found.1.max(limit));
        }
    }
    found
}

/// Returns where the head of a page ends and where its tail begins. A long page with little text has most markers
/// there.
fn ends(len: usize) -> (usize, usize) {
    let head = len.min(LATE_HEAD);
    (head, head.max(len.saturating_sub(LATE_TAIL)))
}

/// Keeps the hits of `scan` that may count with the page's amount of text. Returns the vendors that are present, and
/// the largest text limit of the rules that were hit.
fn collect(
    scan: &PatternScan,
    table: &RuleTable,
    little: bool,
    window: Range<usize>,
    scratch: &mut Scratch,
) -> (u128, u32) {
    let Scratch { hits, lower, facts, buffer, .. } = scratch;
    let chars = facts.visible.chars;
    let thin = chars < CONTENT_CHARS && !speaks_without_scripts(facts);
    let from = window.start as u32;
    let (mut presence, mut limit) = (0, 0);
    scan.each(&lower[window], &table.patterns, buffer, |hit| {
        let rule = &table.rules[table.parts[hit.pattern as usize].rule as usize];
        if rule.grade == Grade::Presence {
            let before = presence;
            presence |= vendor_bit(rule);
            return before != presence;
        }
        let may_hold = !little || (chars <= rule.max_visible_chars && (rule.grade != Grade::Spa || thin));
        if may_hold {
            limit = limit.max(if rule.max_visible_chars < NO_LIMIT { rule.max_visible_chars } else { 0 });
            hits.push(PatternHit { start: hit.start + from, end: hit.end + from, ..hit });
        }
        may_hold
    });
    (presence, limit)
}

/// Determines the page part of each hit, and keeps the hits in parts that their rules allow.
fn locate(context: &ReadContext, table: &RuleTable, charset: Charset, scratch: &mut Scratch) {
    let Scratch { hits, offsets, lower, found, facts, .. } = scratch;
    if hits.is_empty() {
        return;
    }
    hits.sort_unstable_by_key(|h: &PatternHit| (h.start, h.pattern));
    // Windows of a long page overlap.
    hits.dedup();
    offsets.clear();
    offsets.extend(hits.iter().map(|h| h.start));
    let total = facts.visible.chars;
    facts.locate(lower, &context.finders, charset.counting, offsets, |index, place, visible_before| {
        let hit = hits[index];
        let part = table.parts[hit.pattern as usize];
        let rule = &table.rules[part.rule as usize];
        if !rule.places.contains(&place) {
            return;
        }
        // A paywall cuts an article off; a subscription link in the header is on every page.
        let early = total > TEASER_CHARS && visible_before.saturating_mul(3) < total;
        if rule.grade == Grade::Paywall && place == PagePart::Text && early {
            return;
        }
        found.add(part.rule, part.bit, place, MatchPosition::Body(hit.start, hit.end));
    });
}

/// Compares the title with the rules. Returns the largest text limit of the rules that matched.
fn read_title(table: &RuleTable, charset: Charset, body: &[u8], scratch: &mut Scratch) -> u32 {
    let Some(range) = scratch.facts.title.clone() else { return 0 };
    let range = range.start..range.end.min(range.start + MAX_TITLE);
    let raw = original(charset, body, &scratch.decoded, range);
    scratch.title.clear();
    text::decode_entities_into(charset.text(raw).trim(), &mut scratch.title);
    text::fold_into(&scratch.title, &mut scratch.folded_title);
    let title = fold_title(&scratch.folded_title);
    let tests = &table.titles;
    let mut limit = 1;
    let mut is = |rule: u16| {
        limit = limit.max(table.rules[rule as usize].max_visible_chars);
        scratch.found.add(rule, 1, PagePart::Title, MatchPosition::Title);
    };
    tests.whole.get(title).into_iter().flatten().for_each(|rule| is(*rule));
    // Most tests differ in one byte.
    let (first, last) = (title.as_bytes().first(), title.as_bytes().last());
    let may_start = |of: &str| of.is_empty() || of.as_bytes().first() == first;
    let may_end = |of: &str| of.is_empty() || of.as_bytes().last() == last;
    let begun = tests.starts.iter().filter(|(_, start)| may_start(start) && title.starts_with(&**start));
    begun.for_each(|(rule, _)| is(*rule));
    if title.bytes().any(|b| matches!(b, b'|' | b'-' | b':' | b'/' | 0x80..)) {
        let parts = tests.part.iter().filter(|(_, part)| (may_start(part) || may_end(part)) && is_part(title, part));
        parts.for_each(|(rule, _)| is(*rule));
    }
    limit
}

/// Returns the maximum text around a block with such a title: 0 if nothing in the title hints at one.
fn title_hint(table: &RuleTable, scratch: &mut Scratch) -> u32 {
    let Scratch { folded_title, buffer, .. } = scratch;
    let bytes = folded_title.as_bytes();
    let mut meanings = 0;
    table.each_word(bytes, buffer, |word| {
        if table.concepts.hints(word.meanings) {
            meanings |= word.meanings;
        }
    });
    if table.vocabulary.is_title(meanings) { FRAMED_TEXT } else { 0 }
}

/// Separators between the parts of a title.
const SEPARATORS: [&str; 6] = [" | ", " - ", ": ", " \u{B7} ", " \u{BB} ", " / "];

/// Returns whether `part` stands before the first or after the last separator of `title`.
fn is_part(title: &str, part: &str) -> bool {
    let before = title.strip_prefix(part).is_some_and(|rest| {
        let rest = rest.trim_start_matches(['.', '!', '?']);
        SEPARATORS.iter().any(|s| rest.starts_with(s))
    });
    let after = title.strip_suffix(part).is_some_and(|rest| SEPARATORS.iter().any(|s| rest.ends_with(s)));
    before || after
}

/// Searches the title, the visible text and the noscript text of a short page for sentences.
fn read_sentences(table: &RuleTable, charset: Charset, scratch: &mut Scratch) {
    let Scratch {
        facts, folded, folded_title, found, lower, kept, buffer, meanings, all_meanings, frame_words, ..
    } = scratch;
    folded.clear();
    for part in [&facts.visible, &facts.noscript] {
        part.kept_into(lower, charset.counting, kept);
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
        found.add(part.rule, part.bit, PagePart::Text, MatchPosition::Folded(hit.start, hit.end));
    });
}

/// Counts all words of the folded text if some of them hint at a block.
pub(super) fn read_words(table: &RuleTable, scratch: &mut Scratch) {
    if table.concepts.hint_at_block(scratch.meanings) {
        scratch.meanings |= scratch.all_meanings;
    }
}

/// Hashes the visible text, which is the first line of the folded text.
fn hash_text(scratch: &mut Scratch) {
    let visible = scratch.folded.split('\n').next().unwrap_or_default();
    scratch.text_hash = if visible.is_empty() { 0 } else { xxh3_64(visible.as_bytes()) };
}

/// Searches for names of products of networks where they may count: next to words of a network, or to hardly any words.
/// Must run after [`read_body`].
pub(super) fn read_products(context: &ReadContext, table: &RuleTable, charset: Charset, scratch: &mut Scratch) {
    let chars = scratch.facts.visible.chars;
    let may_count = chars <= HARDLY_ANY_TEXT || table.concepts.may_name_product(scratch.all_meanings);
    if !scratch.facts.complete || chars > LITTLE_TEXT || !may_count {
        return;
    }
    scratch.hits.clear();
    let (head, tail) = ends(scratch.lower.len());
    for window in [0..head, tail..scratch.lower.len()] {
        collect(&table.products, table, true, window, scratch);
    }
    locate(context, table, charset, scratch);
}

/// Searches a page with next to no text for words that only hint at a block. Must run after [`read_body`].
pub(super) fn read_cue_words(table: &RuleTable, scratch: &mut Scratch) {
    let Scratch { folded, found, buffer, .. } = scratch;
    table.cue_words.each(folded.as_bytes(), &table.patterns, buffer, |hit| {
        let part = table.parts[hit.pattern as usize];
        found.add(part.rule, part.bit, PagePart::Text, MatchPosition::Folded(hit.start, hit.end));
        true
    });
}

/// Compares the targets of a refresh and of a script with the rules.
fn read_refresh(table: &RuleTable, scratch: &mut Scratch) {
    let Scratch { facts, found, lower, buffer, .. } = scratch;
    for range in [facts.refresh.clone(), facts.sent_to.clone()].into_iter().flatten() {
        let start = range.start as u32;
        let target = &lower[range];
        facts.to_challenge |= each_refresh(table, target, buffer, |part, at| {
            let position = MatchPosition::Body(start + at, start + target.len() as u32);
            found.add(part.rule, part.bit, PagePart::Inert, position);
        });
    }
}

/// Compares the target of the header `Refresh` with the rules. Must run after the body was read.
pub(super) fn read_refresh_header(table: &RuleTable, page: &Page<'_>, scratch: &mut Scratch) {
    let is_refresh = |header: &Header| header.name.eq_ignore_ascii_case("refresh");
    let Some(index) = page.headers.iter().position(is_refresh) else { return };
    let Scratch { facts, found, buffer, .. } = scratch;
    let target = page.headers[index].value.to_ascii_lowercase();
    let position = MatchPosition::Header(u32::try_from(index).unwrap_or(u32::MAX));
    facts.to_challenge |= each_refresh(table, target.as_bytes(), buffer, |part, _| {
        found.add(part.rule, part.bit, PagePart::Header, position);
    });
}

/// Reports each pattern in the target of a refresh, with its offset. Returns whether a rule knows it as a challenge.
fn each_refresh(
    table: &RuleTable,
    target: &[u8],
    buffer: &mut HitBuffer,
    mut found: impl FnMut(PatternPart, u32),
) -> bool {
    let mut is_challenge = false;
    // A bare delay has no target.
    if memchr::memchr2(b'/', b'?', target).is_none() {
        return false;
    }
    table.refreshes.each(target, &table.patterns, buffer, |hit| {
        let at = hit.start as usize;
        if target[at] == b'/' && begins_host(&target[..at]) {
            return true;
        }
        let part = table.parts[hit.pattern as usize];
        is_challenge |= table.rules[part.rule as usize].grade.concerns_blocks();
        found(part, hit.start);
        true
    });
    is_challenge
}

/// Returns whether the next slash after `before` is the second one in front of a host (`https://`, or `//` at the
/// beginning of the target). A pattern that begins with a slash is a path segment, and the name of a host is no
/// evidence.
fn begins_host(before: &[u8]) -> bool {
    matches!(before, [b'/'] | [.., b':' | b'=' | b' ' | b'\'' | b'"', b'/'])
}

/// Returns the target of the page's redirect.
pub(super) fn read_redirect(page: &Page<'_>, (charset, body): (Charset, &[u8]), scratch: &Scratch) -> Option<Box<str>> {
    let facts = &scratch.facts;
    let written = |range: &Range<usize>| charset.text(original(charset, body, &scratch.decoded, range.clone()));
    let url = page.final_url.or(page.url);
    // What stands before the base is not relative to it.
    let base_before = |at: usize| facts.base.as_ref().filter(|base| base.start <= at).map(&written);
    // A script runs before a refresh does, and the header comes before the page.
    if let Some(range) = &facts.sent_to
        && let Some(literal) = redirect::of_literal(&written(range))
    {
        let base = base_before(range.start);
        let base = base.as_deref().map(redirect::decoded);
        if let Some(target) = (Bases { page: url, element: base.as_deref() }).resolve(&literal) {
            return Some(target);
        }
    }
    if let Some(value) = refresh_header(page.headers)
        && let Some(refresh) = Refresh::parse(&value)
    {
        return Bases { page: url, element: None }.resolve(refresh.redirect()?);
    }
    let range = facts.refresh.as_ref().filter(|_| facts.moved)?;
    let (content, base) = (written(range), base_before(range.start));
    let (content, base) = (redirect::decoded(&content), base.as_deref().map(redirect::decoded));
    Bases { page: url, element: base.as_deref() }.resolve(Refresh::parse(&content)?.redirect()?)
}

/// Returns the value of the header `Refresh`. Each byte of one that is not UTF-8 is a character.
fn refresh_header(headers: &[Header]) -> Option<Cow<'_, str>> {
    let bytes = headers.iter().find(|header| header.name.eq_ignore_ascii_case("refresh"))?.bytes();
    let of_bytes = |_| Cow::Owned(bytes.iter().copied().map(char::from).collect());
    Some(std::str::from_utf8(bytes).map_or_else(of_bytes, Cow::Borrowed))
}

/// Returns a range of the page before it was converted to lower case.
fn original<'a>(charset: Charset, body: &'a [u8], decoded: &'a [u8], range: Range<usize>) -> &'a [u8] {
    let whole = if charset.needs_decoding() { decoded } else { body.get(charset.bom..).unwrap_or_default() };
    whole.get(range).unwrap_or_default()
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
