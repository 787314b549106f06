//! The decision: what was found in a page, weighed in one fixed order.
//!
//! Headers by which a vendor says that it answered, then markers, titles, sentences, widgets and shells, then the status,
//! then shells of applications and emptiness. Every rule has a gate: with more visible text than that, it proves nothing.

use std::ops::Range;
use std::sync::Arc;

use super::charset::Charset;
use super::rules::{Grade, LATE_GATE, Rule, THIN_GATE, Table, fold_title};
use super::scan::{Hit, Scan};
use super::verdict::{Match, Vendors, Verdict};
use super::walk::Place;
use super::{At, CONTENT_CHARS, Detector, Found, Scratch, sniff, text};
use crate::response::{Page, header};

/// Noscript characters from which a page without visible text is content all the same (Discourse, Flarum).
const NOSCRIPT_CONTENT_CHARS: u32 = 400;
/// Visible characters under which a page with a password field may be a log-in wall.
const LOGIN_WALL_CHARS: u32 = 600;
/// How much of a page with little text is searched for late markers: so many bytes from its beginning ...
const LATE_HEAD: usize = 256 << 10;
/// ... and so many before its end.
const LATE_TAIL: usize = 64 << 10;
/// More bytes than a marker can have.
const MARKER_MAX: usize = 512;
/// Visible characters up to which an article is so short that all of it is near its end.
const TEASER_CHARS: u32 = 600;
/// Bytes that are turned into lower case at once.
const LOWER_AT_ONCE: usize = 16 << 10;
/// A gate from here on is none: the rule holds whatever text there is.
const NO_GATE: u32 = 100_000;
/// A page with status 200 that is furnished as a site's pages are is a wall only with so little to read ...
const FURNISHED_GATE: u32 = 250;
/// ... and so few links, as far as words are the evidence.
const FURNISHED_LINKS: u32 = 4;
/// Words with a gate up to this are no evidence where something else explains them: a form that asks who one is, a status 404.
const VAGUE_GATE: u32 = 500;
/// Longest title that is read, in bytes.
const TITLE_MAX: usize = 1024;

/// Reads one page with the rules of `detector`.
pub(super) fn inspect(detector: &Detector, table: &Table, page: &Page<'_>, scratch: &mut Scratch) -> Verdict {
    scratch.found.clear(table.rules.len());
    scratch.title.clear();
    scratch.folded_title.clear();
    scratch.folded.clear();
    let content_type = header(page.headers, "content-type");
    let body = &page.body[..page.body.len().min(detector.options.max_bytes)];
    let charset = lower(content_type, body, scratch);

    let mut verdict = Verdict {
        is_html: sniff::is_html(content_type, &scratch.lower),
        bytes: u32::try_from(body.len()).unwrap_or(u32::MAX),
        text_complete: true,
        ..Verdict::default()
    };
    read_headers(table, page, &mut scratch.found);
    let mut presence = 0;
    if verdict.is_html {
        presence = read_body(detector, table, charset, body, scratch);
        verdict.text_chars = scratch.facts.visible.chars;
        verdict.text_complete = scratch.facts.complete;
        verdict.noscript_chars = scratch.facts.noscript.chars;
        let facts = &scratch.facts;
        let rest = scratch.lower.get(facts.end..).unwrap_or_default();
        verdict.high_script_ratio = (facts.script_bytes + script_bytes(detector, rest)) * 2 > scratch.lower.len();
    } else {
        scratch.facts.forget();
    }
    weigh(table, page, scratch, &mut verdict);
    for &index in &scratch.found.touched {
        let rule = &table.rules[index as usize];
        if rule.grade == Grade::Presence || holds(rule, scratch.found.bits[index as usize], page, scratch) {
            presence |= vendor_bit(rule);
        }
    }
    if presence != 0 {
        verdict.waf = Vendors { names: Some(Arc::clone(&table.vendors)), bits: presence };
    }
    verdict
}

fn vendor_bit(rule: &Rule) -> u128 {
    rule.vendor.map_or(0, |v| 1 << v)
}

/// Fills `scratch.lower`, and `scratch.decoded` where decoding is needed.
fn lower(content_type: Option<&str>, body: &[u8], scratch: &mut Scratch) -> Charset {
    let charset = Charset::of(content_type, body);
    let body = &body[charset.bom..];
    scratch.lower.clear();
    scratch.decoded.clear();
    if charset.needs_decoding() {
        charset.decode_into(body, &mut scratch.decoded);
        scratch.lower.extend_from_slice(&scratch.decoded);
        scratch.lower.make_ascii_lowercase();
    } else {
        // A piece at a time, while it is in the cache.
        for piece in body.chunks(LOWER_AT_ONCE) {
            let from = scratch.lower.len();
            scratch.lower.extend_from_slice(piece);
            scratch.lower[from..].make_ascii_lowercase();
        }
    }
    charset
}

fn read_headers(table: &Table, page: &Page<'_>, found: &mut Found) {
    for (index, h) in page.headers.iter().enumerate() {
        let at = At::Header(index as u32);
        let mut value = None;
        for test in table.headers_of(&h.name) {
            // A name that ends with a hyphen stands for all that begin so.
            let named = match test.name.strip_suffix('-') {
                Some(stem) => {
                    h.name.len() > stem.len()
                        && h.name.as_bytes()[..stem.len()].eq_ignore_ascii_case(stem.as_bytes())
                        && h.name.as_bytes()[stem.len()] == b'-'
                }
                None => h.name.eq_ignore_ascii_case(&test.name),
            };
            if named
                && (test.value.is_empty()
                    || value.get_or_insert_with(|| h.value.to_ascii_lowercase()).contains(&*test.value))
            {
                found.add(test.rule, 1, Place::Header, at);
            }
        }
        if h.name.eq_ignore_ascii_case("set-cookie") {
            let cookie = h.value.trim_start().as_bytes();
            for (rule, prefix) in &table.cookies {
                if cookie.get(..prefix.len()).is_some_and(|c| c.eq_ignore_ascii_case(prefix.as_bytes())) {
                    found.add(*rule, 1, Place::Header, at);
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
                found.add(*rule, 1, Place::Header, At::Header(u32::MAX));
            }
        }
    }
}

/// The host of a URL, without user info and port.
fn host(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, h)| h);
    Some(host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(h, _)| h))
}

/// Walks and searches the body. Returns the vendors that are present.
fn read_body(detector: &Detector, table: &Table, charset: Charset, body: &[u8], scratch: &mut Scratch) -> u128 {
    let gates = scratch.found.touched.iter().map(|rule| table.rules[*rule as usize].gate);
    let mut enough = gates.filter(|gate| *gate < NO_GATE).fold(LATE_GATE, u32::max);
    if detector.options.count_all {
        enough = u32::MAX;
    }
    scratch.facts.read(&scratch.lower, &detector.finders, charset.counting, enough);
    let mut wanted = enough.max(read_title(table, charset, body, scratch));
    let little = scratch.facts.complete && scratch.facts.visible.chars <= LATE_GATE;
    let (presence, gate) = search(table, little, scratch);
    wanted = wanted.max(gate);
    // A marker or a title may prove more than the text seen so far rules out.
    while !scratch.facts.complete && wanted > enough {
        enough = wanted;
        let untitled = scratch.facts.title.is_none();
        scratch.facts.read(&scratch.lower, &detector.finders, charset.counting, enough);
        if untitled {
            wanted = wanted.max(read_title(table, charset, body, scratch));
        }
    }
    if little {
        let asks_for_short = |hit: &Hit| {
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
        for &rule in &table.always {
            scratch.found.add(rule, 1, Place::Code, At::Body(0, 0));
        }
    }
    read_refresh(table, scratch);
    locate(detector, table, charset, scratch);
    presence
}

/// Searches the body for all that may still prove something: in a page with little text, for more. Returns the vendors that
/// are present, and the largest gate of what was found.
fn search(table: &Table, little: bool, scratch: &mut Scratch) -> (u128, u32) {
    scratch.hits.clear();
    let len = scratch.lower.len();
    if !little {
        return collect(&table.early, table, little, 0..len, scratch);
    }
    let all = if scratch.facts.visible.chars <= THIN_GATE { &table.thin } else { &table.late };
    let (head, tail) = ends(len);
    let mut found = collect(all, table, little, 0..head, scratch);
    if head < len {
        let middle = head.saturating_sub(MARKER_MAX)..len.min(tail + MARKER_MAX);
        for (scan, window) in [(&table.early, middle), (all, tail..len)] {
            let (presence, gate) = collect(scan, table, little, window, scratch);
            found = (found.0 | presence, found.1.max(gate));
        }
    }
    found
}

/// A page with little text and a long body keeps most markers near the ends: where its head ends, where its tail begins.
fn ends(len: usize) -> (usize, usize) {
    let head = len.min(LATE_HEAD);
    (head, head.max(len.saturating_sub(LATE_TAIL)))
}

/// Keeps the hits of `scan` that may prove something with as much text as the page has. Returns the vendors that are present,
/// and the largest gate.
fn collect(scan: &Scan, table: &Table, little: bool, window: Range<usize>, scratch: &mut Scratch) -> (u128, u32) {
    let Scratch { hits, lower, facts, .. } = scratch;
    let chars = facts.visible.chars;
    let thin = chars < CONTENT_CHARS && facts.noscript.chars < NOSCRIPT_CONTENT_CHARS;
    let from = window.start as u32;
    let (mut presence, mut gate) = (0, 0);
    scan.each(&lower[window], &table.patterns, |hit| {
        let rule = &table.rules[table.parts[hit.pattern as usize].rule as usize];
        if rule.grade == Grade::Presence {
            let before = presence;
            presence |= vendor_bit(rule);
            return before != presence;
        }
        let may_hold = !little || (chars <= rule.gate && (rule.grade != Grade::Spa || thin));
        if may_hold {
            gate = gate.max(if rule.gate < NO_GATE { rule.gate } else { 0 });
            hits.push(Hit { start: hit.start + from, ..hit });
        }
        may_hold
    });
    (presence, gate)
}

/// Finds out where the hits stand and keeps those that stand where their rules want them.
fn locate(detector: &Detector, table: &Table, charset: Charset, scratch: &mut Scratch) {
    let Scratch { hits, offsets, lower, found, facts, .. } = scratch;
    if hits.is_empty() {
        return;
    }
    hits.sort_unstable_by_key(|h: &Hit| (h.start, h.pattern));
    // Windows of a long page overlap.
    hits.dedup();
    offsets.clear();
    offsets.extend(hits.iter().map(|h| h.start));
    let total = facts.visible.chars;
    facts.locate(lower, &detector.finders, charset.counting, offsets, |index, place, visible_before| {
        let hit = hits[index];
        let part = table.parts[hit.pattern as usize];
        let rule = &table.rules[part.rule as usize];
        if !rule.places.contains(&place) {
            return;
        }
        // A paywall cuts an article off; what its header says about subscriptions is on every page.
        let early = total > TEASER_CHARS && visible_before.saturating_mul(3) < total;
        if rule.grade == Grade::Paywall && place == Place::Text && early {
            return;
        }
        let end = table.patterns[hit.pattern as usize].end_at(lower, hit.start as usize).unwrap_or(hit.start as usize);
        found.add(part.rule, part.bit, place, At::Body(hit.start, end as u32));
    });
}

/// Compares the title. Returns the largest gate of the rules it belongs to.
fn read_title(table: &Table, charset: Charset, body: &[u8], scratch: &mut Scratch) -> u32 {
    let Some(range) = scratch.facts.title.clone() else { return 0 };
    let range = range.start..range.end.min(range.start + TITLE_MAX);
    let raw = if charset.needs_decoding() { &scratch.decoded[range] } else { &body[charset.bom..][range] };
    scratch.title.clear();
    text::decode_entities_into(charset.text(raw).trim(), &mut scratch.title);
    text::fold_into(&scratch.title, &mut scratch.folded_title);
    let title = fold_title(&scratch.folded_title);
    let tests = &table.titles;
    let mut gate = 1;
    let mut is = |rule: u16| {
        gate = gate.max(table.rules[rule as usize].gate);
        scratch.found.add(rule, 1, Place::Title, At::Title);
    };
    tests.whole.get(title).into_iter().flatten().for_each(|rule| is(*rule));
    tests.starts.iter().filter(|(_, start)| title.starts_with(&**start)).for_each(|(rule, _)| is(*rule));
    if title.bytes().any(|b| matches!(b, b'|' | b'-' | b':' | b'/' | 0x80..)) {
        tests.part.iter().filter(|(_, part)| is_part(title, part)).for_each(|(rule, _)| is(*rule));
    }
    gate
}

/// What stands between the parts of a title.
const SEPARATORS: [&str; 6] = [" | ", " - ", ": ", " \u{B7} ", " \u{BB} ", " / "];

/// Whether `part` is what stands before the first or after the last separator of `title`.
fn is_part(title: &str, part: &str) -> bool {
    let before = title.strip_prefix(part).is_some_and(|rest| {
        let rest = rest.trim_start_matches(['.', '!', '?']);
        SEPARATORS.iter().any(|s| rest.starts_with(s))
    });
    let after = title.strip_suffix(part).is_some_and(|rest| SEPARATORS.iter().any(|s| rest.ends_with(s)));
    before || after
}

/// Looks for sentences in what little text there is: title, visible text, noscript text.
fn read_sentences(table: &Table, charset: Charset, scratch: &mut Scratch) {
    let Scratch { facts, folded, folded_title, found, lower, kept, .. } = scratch;
    folded.clear();
    for part in [&facts.visible, &facts.noscript] {
        part.kept_into(lower, charset.counting, kept);
        text::append_collapsed(&charset.text(kept), folded);
        folded.push('\n');
    }
    folded.push_str(folded_title);
    table.sentences.each(folded.as_bytes(), &table.patterns, |hit| {
        let part = table.parts[hit.pattern as usize];
        let end = table.patterns[hit.pattern as usize].end_at(folded.as_bytes(), hit.start as usize);
        found.add(part.rule, part.bit, Place::Text, At::Folded(hit.start, end.unwrap_or(0) as u32));
        true
    });
}

fn read_refresh(table: &Table, scratch: &mut Scratch) {
    let Some(range) = scratch.facts.refresh.clone() else { return };
    let found = &mut scratch.found;
    let start = range.start as u32;
    let target = &scratch.lower[range];
    // A bare delay has no target.
    if memchr::memchr(b'/', target).is_none() && memchr::memchr(b'?', target).is_none() {
        return;
    }
    table.refreshes.each(target, &table.patterns, |hit| {
        let part = table.parts[hit.pattern as usize];
        found.add(part.rule, part.bit, Place::Inert, At::Body(start + hit.start, start + target.len() as u32));
        true
    });
}

/// Bytes between `<script` and `</script`, wherever they stand.
fn script_bytes(detector: &Detector, lower: &[u8]) -> usize {
    let mut sum = 0;
    let mut rest = lower;
    while let Some(at) = detector.finders.script_open.find(rest) {
        let from = &rest[at..];
        let Some(begin) = memchr::memchr(b'>', from) else { break };
        let inner = &from[begin + 1..];
        let len = detector.finders.script.find(inner).unwrap_or(inner.len());
        sum += len;
        rest = &inner[len..];
    }
    sum
}

/// Whether a rule that was seen holds on this page.
fn holds(rule: &Rule, bits: u8, page: &Page<'_>, scratch: &Scratch) -> bool {
    if bits & rule.needs != rule.needs {
        return false;
    }
    let facts = &scratch.facts;
    let (mut gate, mut max_links) = match page.status {
        200 => (rule.gate_200, rule.max_links.min(rule.max_links_200)),
        _ => (rule.gate, rule.max_links),
    };
    let wording = match rule.grade {
        Grade::Title | Grade::Sentence => true,
        Grade::Queue => rule.vendor.is_none(),
        _ => false,
    };
    if page.status == 200 && facts.furnished && wording {
        (gate, max_links) = (gate.min(FURNISHED_GATE), max_links.min(FURNISHED_LINKS));
    }
    if facts.asks_who && (rule.grade == Grade::Weak || (wording && rule.gate <= VAGUE_GATE)) {
        return false;
    }
    // A page that is not there may say so in any words.
    if matches!(page.status, 404 | 410) && wording && rule.gate <= VAGUE_GATE {
        return false;
    }
    // What refuses for want of credentials, as HTTP knows them, is no wall, whatever its words.
    if page.status == 401 && wording && rule.vendor.is_none() && header(page.headers, "www-authenticate").is_some() {
        return false;
    }
    (rule.status.is_empty() || rule.status.contains(&page.status))
        && (rule.gate >= NO_GATE || (facts.complete && facts.visible.chars <= gate))
        && facts.links <= max_links
        && facts.inputs <= rule.max_inputs
        && page.body.len() <= rule.max_bytes as usize
        && facts.images <= rule.max_images
        && facts.frames <= rule.max_frames
        && (!rule.noindex || facts.noindex)
        && rule.password.is_none_or(|wanted| wanted == facts.password)
        && match rule.mount {
            Some(true) => facts.mounts > 0,
            Some(false) => facts.mounts == 0 && facts.components == 0,
            None => true,
        }
        && (!rule.component || facts.components > 0)
        && (!rule.scripts || facts.scripts > 0)
        && (!rule.title_absent || facts.title.is_none())
}

/// Fills in the verdict from what was found.
fn weigh(table: &Table, page: &Page<'_>, scratch: &Scratch, verdict: &mut Verdict) {
    let holding = || {
        scratch
            .found
            .touched
            .iter()
            .map(|&index| (index, &table.rules[index as usize]))
            .filter(|(index, rule)| holds(rule, scratch.found.bits[*index as usize], page, scratch))
    };
    let strongest = |of: &dyn Fn(&Rule) -> bool| {
        holding().filter(|(_, r)| of(r)).min_by_key(|(index, r)| (r.grade, r.vendor.is_none(), *index)).map(|(_, r)| r)
    };
    let first = |of: &dyn Fn(Grade) -> bool| strongest(&|r| of(r.grade));
    let mut block = first(&Grade::blocks);
    // A widget's script beside an application's own is that application's; to explain more, it takes a framework.
    let explains = |r: &Rule, b: &Rule| r.application && (b.grade == Grade::Weak || r.framework.is_some());
    if let Some(b) = block.filter(|b| b.mount == Some(false))
        && holding().any(|(_, r)| explains(r, b))
    {
        block = strongest(&|r| r.grade.blocks() && r.mount != Some(false));
    }
    let queue = first(&|g| g == Grade::Queue);
    let refused = matches!(page.status, 403 | 429);
    match (block, queue) {
        (Some(b), q) if q.is_none() || b.grade == Grade::Mitigated => {
            verdict.is_blocked = true;
            verdict.block_type = Some(if b.refusal && refused { "blocked_403" } else { "blocked_captcha" });
            decided_by(table, b, verdict);
            if b.vendor.is_none() {
                let named =
                    holding().find(|(_, r)| (r.grade.blocks() || r.grade == Grade::Refusal) && r.vendor.is_some());
                verdict.vendor = named.and_then(|(_, r)| table.vendor(r.vendor));
            }
        }
        (_, Some(queue)) => {
            verdict.is_queued = true;
            decided_by(table, queue, verdict);
        }
        _ if refused => {
            verdict.is_blocked = true;
            verdict.block_type = Some("blocked_403");
            verdict.confidence = 0.9;
            if let Some(refusal) = first(&|g| g == Grade::Refusal) {
                decided_by(table, refusal, verdict);
            }
        }
        _ => {}
    }
    verdict.has_paywall = first(&|g| g == Grade::Paywall).is_some();
    if !verdict.is_html {
        return;
    }
    verdict.soft_404 = (200..300).contains(&page.status) && first(&|g| g == Grade::NotFound).is_some();
    verdict.has_login_wall = scratch.facts.password
        && verdict.text_complete
        && verdict.text_chars < LOGIN_WALL_CHARS
        && matches!((page.url, page.final_url), (Some(asked), Some(got)) if asked != got);
    if verdict.is_blocked || verdict.is_queued {
        return;
    }
    let thin =
        verdict.text_complete && verdict.text_chars < CONTENT_CHARS && verdict.noscript_chars < NOSCRIPT_CONTENT_CHARS;
    if !thin {
        return;
    }
    let facts = &scratch.facts;
    let spa = first(&|g| g == Grade::Spa).filter(|_| (facts.scripts > 0 || facts.components > 0) && !facts.moved);
    match spa {
        Some(rule) => {
            verdict.has_spa = true;
            decided_by(table, rule, verdict);
            let named =
                holding().filter(|(_, r)| r.grade == Grade::Spa && r.framework.is_some()).min_by_key(|(i, _)| *i);
            verdict.framework = named.and_then(|(_, r)| r.framework.clone());
        }
        None => verdict.is_empty = true,
    }
}

fn decided_by(table: &Table, rule: &Rule, verdict: &mut Verdict) {
    verdict.vendor = table.vendor(rule.vendor);
    verdict.rule = Some(Arc::clone(&rule.id));
    verdict.grade = Some(rule.grade);
    verdict.confidence = rule.confidence;
}

/// All that was found in the page that was inspected last.
pub(super) fn matches(table: &Table, page: &Page<'_>, scratch: &Scratch) -> Vec<Match> {
    let shorten = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().take(80).collect::<String>();
    let slice = |bytes: &[u8], start: u32, end: u32| {
        let end = (end as usize).min(bytes.len());
        shorten(&bytes[(start as usize).min(end)..end])
    };
    scratch
        .found
        .pieces
        .iter()
        .map(|piece| {
            let rule = &table.rules[piece.rule as usize];
            let (offset, text) = match piece.at {
                At::Body(start, end) => (Some(start), slice(&scratch.lower, start, end)),
                At::Folded(start, end) => (None, slice(scratch.folded.as_bytes(), start, end)),
                At::Title => (None, shorten(scratch.title.as_bytes())),
                At::Header(index) => match page.headers.get(index as usize) {
                    Some(h) => (None, shorten(format!("{}: {}", h.name, h.value).as_bytes())),
                    None => (None, "host".to_owned()),
                },
            };
            Match {
                rule: Arc::clone(&rule.id),
                vendor: table.vendor(rule.vendor),
                grade: rule.grade,
                place: piece.place,
                offset,
                text,
                counted: holds(rule, scratch.found.bits[piece.rule as usize], page, scratch),
                note: Arc::clone(&rule.note),
            }
        })
        .collect()
}
