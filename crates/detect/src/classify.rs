//! Classification: the evidence found in a page, weighed in one fixed order.
//!
//! The order: headers by which a vendor says that it responded; markers, titles, sentences, widgets and shell scripts;
//! the status; application shells and emptiness.
//!
//! Invariants: with more visible text than a rule allows, the rule proves nothing.

use std::sync::Arc;

use memchr::memmem;

use super::cues::CueInput;
use crate::collect::{
    NO_LIMIT, host, lower, read_body, read_cue_words, read_headers, read_products, read_redirect, read_refresh_header,
    read_words, script_bytes, speaks_without_scripts, vendor_bit, without_long_raw,
};
use crate::html::charset::Charset;
use crate::html::page_facts::{HARDLY_ANY_TEXT, PageFacts};
use crate::rules::condition::ConditionInput;

use super::verdict::{RuleMatch, Vendors, Verdict};
use crate::cues;
use crate::html::{redirect, sniff};
use crate::login_address;
use crate::options::{DetectorOptions, ReadContext};
use crate::rules::compiled::{Rule, RuleTable};
use crate::rules::strength::Grade;
use crate::scratch::{CollectedEvidence, MatchPosition, Scratch};
use crate::short_text;
use crate::verdict::CONTENT_CHARS;
use fetchwise_types::fetch_result::BlockKind;
use fetchwise_types::response::{Page, header, media_type};

/// Visible characters below which a page with a password field may be a login form in front of the content.
const LOGIN_WALL_CHARS: u32 = 600;
/// Maximum visible characters and links of a page with a log-in and nothing else.
const BARE_LOGIN_CHARS: u32 = 300;
const BARE_LOGIN_LINKS: u32 = 12;
/// Maximum visible characters of a block page with status 200 and the furniture of a site's pages ...
const FURNISHED_CHARS: u32 = 250;
/// ... and its maximum links, where words are the evidence.
const FURNISHED_LINKS: u32 = 4;
/// Minimum characters of hidden text that count as content that a script only has to show.
const HIDDEN_CONTENT: usize = 1_000;
/// Confidence of a failure that cues indicate.
const FAILURE_CONFIDENCE: f32 = 0.8;
/// Rules of words with at most this limit of visible characters are vague. They prove nothing where something else
/// explains the words: a form that asks who the visitor is, or status 404.
const VAGUE_CHARS: u32 = 500;

/// Classifies one page with the rules of `table`.
pub(super) fn inspect(
    context: &ReadContext,
    table: &RuleTable,
    page: &Page<'_>,
    scratch: &mut Scratch,
    explain: bool,
) -> Verdict {
    scratch.forget(table.rules.len());
    let shortened = without_long_raw(page.body, context.options.max_bytes);
    let whole = shortened.as_deref().unwrap_or(page.body);
    let body = &whole[..whole.len().min(context.options.max_bytes)];
    let charset = lower(page, body, scratch);

    let mut verdict = Verdict {
        is_undecoded: !charset.needs_decoding() && is_undecoded(page, body),
        is_html: sniff::is_html(media_type(page.headers), &scratch.lower),
        bytes: u32::try_from(body.len()).unwrap_or(u32::MAX),
        text_complete: true,
        ..Verdict::default()
    };
    verdict.is_html &= !verdict.is_undecoded;
    read_headers(table, page, &mut scratch.found);
    let mut presence = 0;
    if verdict.is_html {
        presence = read_body(context, table, charset, body, scratch);
        count_text(context, scratch, &mut verdict);
    } else {
        scratch.facts.forget();
    }
    read_refresh_header(table, page, scratch);
    if verdict.is_html {
        read_products(context, table, charset, scratch);
    }
    test_rules(table, page, scratch);
    read_words(table, scratch);
    let (may_be_block, cues_count) = read_cues(context, table, page, (charset, verdict.is_html), scratch);
    let least = least_chars(context, page);
    Evidence { context, table, page, scratch, least }.judge(&mut verdict);
    verdict.text_hash = scratch.text_hash;
    if verdict.grade != Some(Grade::Content) && is_thin(&verdict, &scratch.facts, least) {
        read_thin(table, page, (charset, body), scratch, &mut verdict);
    } else if is_bare(&verdict, page) {
        read_bare(page, (charset, body), scratch, &mut verdict);
    }
    for &index in &scratch.found.touched {
        let rule = &table.rules[index as usize];
        if rule.grade == Grade::Presence || scratch.found.held.contains(&index) {
            presence |= vendor_bit(rule);
        }
    }
    if explain && may_be_block && !cues_count {
        // Only for display, so after the verdict.
        weigh_cues(context, table, page, charset, scratch);
    }
    if presence != 0 {
        verdict.waf = Vendors { names: Some(Arc::clone(&table.vendors)), bits: presence };
    }
    verdict
}

/// Fills in the amounts of text and script.
fn count_text(context: &ReadContext, scratch: &Scratch, verdict: &mut Verdict) {
    let facts = &scratch.facts;
    verdict.text_chars = facts.visible.chars;
    verdict.text_complete = facts.complete;
    verdict.noscript_chars = facts.noscript.chars;
    if verdict.text_chars == 0 {
        verdict.text_chars = text_in_waiting(scratch);
    }
    let rest = scratch.lower.get(facts.end..).unwrap_or_default();
    verdict.high_script_ratio = (facts.script_bytes + script_bytes(context, rest)) * 2 > scratch.lower.len();
}

/// Keeps the rules that hold on the page.
fn test_rules(table: &RuleTable, page: &Page<'_>, scratch: &mut Scratch) {
    for n in 0..scratch.found.touched.len() {
        let index = scratch.found.touched[n];
        if holds(&table.rules[index as usize], scratch.found.bits[index as usize], page, scratch) {
            scratch.found.held.push(index);
        }
    }
}

/// Returns whether a rule knows no more than words, which articles use, too.
fn is_wording(rule: &Rule) -> bool {
    rule.vendor.is_none() && matches!(rule.grade, Grade::Title | Grade::Sentence)
}

/// Adds up the cues of a page if they count, and drops the rules of words that they explain. Returns whether its words may
/// be those of a block, and whether the cues count.
fn read_cues(
    context: &ReadContext,
    table: &RuleTable,
    page: &Page<'_>,
    (charset, is_html): (Charset, bool),
    scratch: &mut Scratch,
) -> (bool, bool) {
    let held = || scratch.found.held.iter().map(|&index| &table.rules[index as usize]);
    let by_words = !held().any(|rule| rule.grade.blocks() && !is_wording(rule));
    let is_short = scratch.facts.complete && scratch.facts.visible.chars < LOGIN_WALL_CHARS;
    let may_ask = is_short && table.concepts.may_ask_for_login(scratch.all_meanings);
    let has_failed = table.concepts.may_have_failed(scratch.meanings);
    let doubtful = (table.vocabulary.is_about(scratch.meanings) || has_failed || may_ask) && by_words;
    let is_named = table.concepts.may_be_of_network(scratch.meanings) && by_words;
    let names_product = held().any(|rule| rule.grade == Grade::Network);
    let may_be_block = is_html
        && !asks_for_credentials(page)
        && (table.concepts.may_be_block(scratch.meanings) || names_product || may_ask);
    let is_decided = held().any(|rule| decides_block(table, &scratch.found, rule, &context.options));
    let cues_count = may_be_block && (doubtful || is_named || !is_decided);
    if cues_count {
        weigh_cues(context, table, page, charset, scratch);
        // Articles about block pages, failures and log-ins use the same words.
        if doubtful && (scratch.weighing.is_about_blocks() || scratch.weighing.is_failure() || is_gate(page, scratch)) {
            scratch.found.held.retain(|&index| !is_wording(&table.rules[index as usize]));
        }
    }
    (may_be_block, cues_count)
}

/// Adds up the cues of a block. Must run after the rules were tested.
fn weigh_cues(context: &ReadContext, table: &RuleTable, page: &Page<'_>, charset: Charset, scratch: &mut Scratch) {
    let (found, facts) = (&scratch.found, &scratch.facts);
    // Pages of a site use these words in many ways: as a title, a name or a quotation.
    let explained = is_furnished(page, facts) && facts.visible.chars > FURNISHED_CHARS;
    let has_known_words = !explained
        && found.touched.iter().any(|&index| {
            let rule = &table.rules[index as usize];
            let bits = found.bits[index as usize];
            // A rule for the thinnest pages only is no more than a word.
            matches!(rule.grade, Grade::Title | Grade::Sentence)
                && bits & rule.needs == rule.needs
                && rule.max_visible_chars > HARDLY_ANY_TEXT
        });
    let read = CueInput {
        status: page.status,
        lower: &scratch.lower,
        charset,
        finders: &context.finders,
        facts: &scratch.facts,
        folded_title: &scratch.folded_title,
        has_known_words,
        names_product: found.held.iter().any(|&index| table.rules[index as usize].grade == Grade::Network),
        kept: &mut scratch.kept,
        buffer: &mut scratch.buffer,
    };
    cues::weigh(table, read, &mut scratch.weighing);
}

/// Returns whether the body is still compressed.
fn is_undecoded(page: &Page<'_>, body: &[u8]) -> bool {
    let encoding = header(page.headers, "content-encoding");
    sniff::is_undecoded(media_type(page.headers), encoding, page.final_url.or(page.url), body)
}

/// Returns the characters of a page without visible text that are there for a reader anyway: what noscript has
/// for those without scripts, and what a server sends in a hidden element for React to move.
fn text_in_waiting(scratch: &Scratch) -> u32 {
    let facts = &scratch.facts;
    if speaks_without_scripts(facts) {
        return facts.noscript.chars;
    }
    let is_streamed =
        || [&b"id=\"s:"[..], b"id='s:", b"id=s:"].iter().any(|id| memmem::find(&scratch.lower, id).is_some());
    if facts.hidden >= HIDDEN_CONTENT && facts.scripts > 0 && (facts.shows_without_scripts || is_streamed()) {
        u32::try_from(facts.hidden).unwrap_or(u32::MAX)
    } else {
        0
    }
}

/// Returns whether a page has the furniture of a site's pages.
fn is_furnished(page: &Page<'_>, facts: &PageFacts) -> bool {
    page.status == 200 && facts.furnished
}

/// Returns whether the page asks for a log-in and refuses nothing else. A refusing status outweighs the words.
fn is_gate(page: &Page<'_>, scratch: &Scratch) -> bool {
    let has_form = scratch.facts.password || scratch.facts.asks_identity;
    scratch.weighing.is_gate(has_form) && !matches!(page.status, 403 | 429 | 451)
}

/// Returns whether HTTP authentication responds. It refuses in the same words as block pages.
fn asks_for_credentials(page: &Page<'_>) -> bool {
    page.status == 401 && header(page.headers, "www-authenticate").is_some()
}

/// Returns whether a rule whose evidence was found holds on this page.
fn holds(rule: &Rule, bits: u8, page: &Page<'_>, scratch: &Scratch) -> bool {
    if bits & rule.needs != rule.needs {
        return false;
    }
    let facts = &scratch.facts;
    let (mut max_visible_chars, mut max_links) = match page.status {
        200 => (rule.max_visible_chars_200, rule.max_links.min(rule.max_links_200)),
        _ => (rule.max_visible_chars, rule.max_links),
    };
    let wording = match rule.grade {
        Grade::Title | Grade::Sentence => true,
        Grade::Queue => rule.vendor.is_none(),
        _ => false,
    };
    if is_furnished(page, facts) && wording {
        max_visible_chars = max_visible_chars.min(FURNISHED_CHARS);
        max_links = max_links.min(FURNISHED_LINKS);
    }
    // A form for a message explains the words that no vendor wrote: it is guarded by a captcha, or a question.
    if facts.asks_message && wording && rule.vendor.is_none() && page.status == 200 {
        return false;
    }
    if facts.asks_identity && (rule.grade == Grade::Weak || (wording && rule.max_visible_chars <= VAGUE_CHARS)) {
        return false;
    }
    // A missing page may say so in any words.
    if matches!(page.status, 404 | 410) && wording && rule.max_visible_chars <= VAGUE_CHARS {
        return false;
    }
    // A refusal for missing HTTP credentials is no block, whatever its words.
    if wording && rule.vendor.is_none() && asks_for_credentials(page) {
        return false;
    }
    (rule.max_visible_chars >= NO_LIMIT || (facts.complete && facts.visible.chars <= max_visible_chars))
        && facts.links <= max_links
        && rule.conditions.hold(ConditionInput { page, facts })
}

/// Returns whether this rule, which holds, makes the page a block.
fn decides_block(table: &RuleTable, found: &CollectedEvidence, rule: &Rule, options: &DetectorOptions) -> bool {
    // A widget's script next to an application's marker belongs to the application. Stronger evidence needs a named
    // framework to be explained.
    let explains = |by: &Rule| by.application && (rule.grade == Grade::Weak || by.framework.is_some());
    let is_explained = || {
        let held = found.held.iter().map(|&index| &table.rules[index as usize]);
        rule.conditions.mount == Some(false) && held.into_iter().any(explains)
    };
    rule.grade.blocks() && rule.confidence >= options.block_threshold && !is_explained()
}

/// The evidence found in a page, to be weighed.
struct Evidence<'a> {
    context: &'a ReadContext,
    table: &'a RuleTable,
    page: &'a Page<'a>,
    scratch: &'a Scratch,
    /// The visible characters from which on the page is content.
    least: u32,
}

impl Evidence<'_> {
    /// Returns the rules that hold.
    fn holding(&self) -> impl Iterator<Item = (u16, &Rule)> {
        self.scratch.found.held.iter().map(|&index| (index, &self.table.rules[index as usize]))
    }

    fn strongest(&self, of: impl Fn(&Rule) -> bool) -> Option<&Rule> {
        let key = |(index, rule): &(u16, &Rule)| (rule.grade, rule.vendor.is_none(), *index);
        self.holding().filter(|(_, rule)| of(rule)).min_by_key(key).map(|(_, rule)| rule)
    }

    fn first(&self, grade: Grade) -> Option<&Rule> {
        self.strongest(|rule| rule.grade == grade)
    }

    fn decides(&self, rule: &Rule) -> bool {
        decides_block(self.table, &self.scratch.found, rule, &self.context.options)
    }

    /// Fills in the verdict.
    fn judge(&self, verdict: &mut Verdict) {
        let (page, scratch) = (self.page, self.scratch);
        match self.first(Grade::Content) {
            Some(content) => decided_by(self.table, content, verdict),
            None => self.decide(verdict),
        }
        let by_product = self.holding().any(|(_, rule)| rule.network);
        verdict.network_block =
            verdict.is_blocked && (by_product || verdict.vendor.is_none() && scratch.weighing.is_network());
        verdict.has_paywall = self.first(Grade::Paywall).is_some();
        if !verdict.is_html {
            return;
        }
        verdict.soft_404 = (200..300).contains(&page.status) && self.first(Grade::NotFound).is_some();
        verdict.has_login_wall = !verdict.is_blocked && asks_for_login(page, scratch);
        verdict.is_login_redirect = verdict.has_login_wall && login_address::is_led_to(page);
        if verdict.grade != Some(Grade::Content) && is_thin(verdict, &scratch.facts, self.least) {
            self.judge_thin(verdict);
        }
    }

    /// Decides between a failure, a block, a waiting room and none of them.
    fn decide(&self, verdict: &mut Verdict) {
        let (table, weighing) = (self.table, &self.scratch.weighing);
        let block = self.strongest(|rule| self.decides(rule));
        let queue = self.first(Grade::Queue);
        // A title that any server may write is weaker than what only a vendor writes.
        let failure = self.first(Grade::Failure).filter(|failure| match block {
            Some(block) if failure.vendor.is_none() => is_wording(block),
            block => block.is_none_or(|block| block.grade != Grade::Mitigated),
        });
        let by_cues = weighing.confidence() >= self.context.options.block_threshold;
        if let Some(failure) = failure {
            verdict.is_server_error = true;
            return decided_by(table, failure, verdict);
        }
        match (block, queue) {
            (None, None) if weighing.is_failure() => {
                self.decided_by_cues(FAILURE_CONFIDENCE, verdict);
                verdict.is_server_error = true;
            }
            (Some(block), queue) if queue.is_none() || block.grade == Grade::Mitigated => self.block_by(block, verdict),
            (_, Some(queue)) => {
                verdict.is_queued = true;
                decided_by(table, queue, verdict);
            }
            _ if by_cues && weighing.is_queue() => {
                self.decided_by_cues(weighing.confidence(), verdict);
                verdict.is_queued = true;
            }
            _ if by_cues && !is_gate(self.page, self.scratch) => {
                self.decided_by_cues(weighing.confidence(), verdict);
                verdict.is_blocked = true;
                verdict.block_type = Some(weighing.kind());
            }
            _ if matches!(self.page.status, 403 | 429 | 451) => {
                verdict.is_blocked = true;
                verdict.block_type = Some(BlockKind::Refusal);
                verdict.confidence = 0.9;
                self.first(Grade::Refusal).into_iter().for_each(|refusal| decided_by(table, refusal, verdict));
            }
            _ => {}
        }
    }

    fn decided_by_cues(&self, confidence: f32, verdict: &mut Verdict) {
        verdict.confidence = confidence;
        verdict.rule = Some(Arc::from(cues::RULE));
        verdict.cues = self.scratch.weighing.strongest(self.table);
    }

    /// Makes the page a block by this rule.
    fn block_by(&self, block: &Rule, verdict: &mut Verdict) {
        verdict.is_blocked = true;
        let challenges = self.holding().any(|(_, rule)| self.decides(rule) && !rule.refusal);
        verdict.block_type = Some(if challenges { BlockKind::Challenge } else { BlockKind::Refusal });
        decided_by(self.table, block, verdict);
        if block.vendor.is_none() {
            let names = |rule: &Rule| (rule.grade.blocks() || rule.grade == Grade::Refusal) && rule.vendor.is_some();
            let named = self.holding().find(|(_, rule)| names(rule));
            verdict.vendor = named.and_then(|(_, rule)| self.table.vendor(rule.vendor));
        }
    }

    /// Decides whether a page with next to nothing to read is a shell or empty.
    fn judge_thin(&self, verdict: &mut Verdict) {
        let facts = &self.scratch.facts;
        // A log-in is delivered with its mark. No browser gets further.
        if verdict.has_login_wall && verdict.text_chars > 0 {
            return;
        }
        // Nothing is known about content beyond the limit of bytes, but without any text there is none.
        let is_cut = verdict.bytes as usize >= self.context.options.max_bytes;
        if is_cut && !facts.body {
            verdict.is_empty = verdict.text_chars == 0;
            return;
        }
        // Hidden text only has to be shown by a script.
        if facts.hidden >= HIDDEN_CONTENT && facts.scripts > 0 && verdict.text_chars > 0 {
            return;
        }
        let may_fill = (facts.scripts > 0 || facts.components > 0) && !facts.moved;
        match self.first(Grade::Spa).filter(|_| may_fill) {
            Some(rule) => {
                verdict.has_spa = true;
                decided_by(self.table, rule, verdict);
                let names = |rule: &Rule| rule.grade == Grade::Spa && rule.framework.is_some();
                let named = self.holding().filter(|(_, rule)| names(rule)).min_by_key(|(index, _)| *index);
                verdict.framework = named.and_then(|(_, rule)| rule.framework.clone());
            }
            None => verdict.is_empty = verdict.text_chars == 0 || !shows_something(facts),
        }
    }
}

/// Returns whether a page asks for a log-in in place of the content: it came from a log-in address, it says so before all
/// else, or it is a form for a password and nothing else.
fn asks_for_login(page: &Page<'_>, scratch: &Scratch) -> bool {
    let facts = &scratch.facts;
    if !facts.complete || facts.visible.chars >= LOGIN_WALL_CHARS {
        return false;
    }
    let asks = facts.inputs > 0 && (facts.password || facts.asks_identity);
    let is_bare = facts.visible.chars <= BARE_LOGIN_CHARS && facts.links <= BARE_LOGIN_LINKS;
    let says = scratch.weighing.is_gate(facts.password || facts.asks_identity);
    let is_elsewhere = matches!((page.url, page.final_url), (Some(asked), Some(got)) if asked != got);
    page.status == 401
        || login_address::is_led_to(page) && (asks || says)
        || facts.password && (is_elsewhere || says || is_bare)
        || says && is_bare
}

/// Returns the visible characters from which on a page of this host is content.
fn least_chars(context: &ReadContext, page: &Page<'_>) -> u32 {
    if context.min_chars.is_empty() {
        return CONTENT_CHARS;
    }
    let host = page.final_url.or(page.url).and_then(host).map(str::to_ascii_lowercase);
    host.and_then(|host| context.min_chars.get(&*host)).copied().unwrap_or(CONTENT_CHARS)
}

/// Returns whether an unblocked page has next to nothing to read.
fn is_thin(verdict: &Verdict, facts: &PageFacts, least: u32) -> bool {
    let has_noscript = speaks_without_scripts(facts);
    verdict.is_html
        && !(verdict.is_blocked || verdict.is_queued || verdict.is_server_error)
        // Reading stops early in a page of very many tags, which shows nothing if it has shown nothing so far.
        && (verdict.text_complete || verdict.text_chars == 0)
        && verdict.text_chars < least
        && !has_noscript
}

/// Returns whether a reader sees something besides text: a form, a picture, a player or a frame.
fn shows_something(facts: &PageFacts) -> bool {
    facts.inputs > 0 || facts.shown > 0
}

/// Reads more from a page with next to nothing to read: its redirect target, and hints at a block.
fn read_thin(
    table: &RuleTable,
    page: &Page<'_>,
    (charset, body): (Charset, &[u8]),
    scratch: &mut Scratch,
    verdict: &mut Verdict,
) {
    let found = &scratch.found;
    // The rule's evidence is complete, and only its conditions do not hold. Shell rules hint at nothing without their
    // conditions: any script may do what they look for.
    let lost = |index: &u16| {
        let rule = &table.rules[*index as usize];
        rule.grade.concerns_blocks()
            && !matches!(rule.grade, Grade::Shell | Grade::Cue)
            && found.bits[*index as usize] & rule.needs == rule.needs
            && !table.always.contains(index)
    };
    if scratch.facts.to_challenge || found.touched.iter().any(lost) {
        verdict.block_cues = true;
        return;
    }
    // A page with a form to fill in does not redirect its visitor.
    let stays = scratch.facts.inputs > 0 || !(200..300).contains(&page.status);
    let redirect = read_redirect(page, (charset, body), scratch).filter(|_| !stays);
    if let Some(target) = redirect {
        // A client without scripts does not keep the cookie, so it would get this page again.
        if sets_cookie(&scratch.lower) && redirect::leads_back(&target, page.final_url.or(page.url)) {
            verdict.block_cues = true;
            return;
        }
        // The visitor leaves the application, if there is one.
        (verdict.has_spa, verdict.is_empty) = (false, true);
        (verdict.framework, verdict.vendor, verdict.rule) = (None, None, None);
        (verdict.grade, verdict.confidence) = (None, 0.0);
        verdict.has_login_wall |= login_address::is_login(&target) && !page.url.is_some_and(login_address::is_login);
        verdict.redirect = Some(target);
        return;
    }
    // Without visible characters, no words can hint at a block.
    if verdict.text_chars == 0 {
        return;
    }
    read_cue_words(table, scratch);
    let cue = |index: &u16| {
        let rule = &table.rules[*index as usize];
        rule.grade == Grade::Cue && holds(rule, scratch.found.bits[*index as usize], page, scratch)
    };
    let cues = |index: &&u16| cue(index);
    let mut found = scratch.found.touched.iter().filter(cues).map(|index| &*table.rules[*index as usize].id);
    verdict.block_cues = found.clone().next().is_some();
    // A browser would show what a page without anything to run shows already, and an application's shell has an
    // element to fill and nothing to say.
    let facts = &scratch.facts;
    let is_unfilled = verdict.rule.as_deref().is_some_and(|rule| TEMPLATES.contains(&rule));
    let is_filled = !is_unfilled && facts.mounts == 0 && (facts.components == 0 || facts.inputs > 0);
    let says = || short_text::says_something(scratch, verdict.framework.is_some());
    if verdict.has_spa && is_filled && !verdict.block_cues && says() {
        (verdict.has_spa, verdict.framework) = (false, None);
        (verdict.vendor, verdict.rule, verdict.grade, verdict.confidence) = (None, None, None, 0.0);
        return;
    }
    if !verdict.is_empty {
        return;
    }
    // Errors and apologies contain some of these words, too. Sentences outweigh them unless they are about a block.
    let is_doubted =
        found.any(|id| id != CUE_WORDS) || verdict.block_cues && table.vocabulary.may_refuse(scratch.all_meanings);
    verdict.is_empty = is_doubted || !short_text::is_content(scratch);
    verdict.block_cues &= verdict.is_empty;
}

/// Returns whether an unblocked page is next to nothing, and not HTML.
fn is_bare(verdict: &Verdict, page: &Page<'_>) -> bool {
    let text = page.body.trim_ascii();
    let is_text = || media_type(page.headers).is_some_and(|kind| kind.eq_ignore_ascii_case("text/plain"));
    !(verdict.is_html || verdict.is_blocked || verdict.is_queued)
        && (text.is_empty() || text.len() < CONTENT_CHARS as usize && is_text())
}

/// Reads the redirect of a page that is not HTML: only the header names one.
fn read_bare(page: &Page<'_>, body: (Charset, &[u8]), scratch: &Scratch, verdict: &mut Verdict) {
    if scratch.facts.to_challenge || !(200..300).contains(&page.status) {
        return;
    }
    verdict.redirect = read_redirect(page, body, scratch);
    verdict.is_empty |= verdict.redirect.is_some();
}
/// The shipped rules for templates that a script has not filled yet: their sentences are no content.
const TEMPLATES: [&str; 2] = ["spa-template", "spa-named"];

/// The shipped rule whose words errors and apologies contain, too.
const CUE_WORDS: &str = "cue-words";

/// Returns whether something in a lower-case page sets a cookie.
fn sets_cookie(lower: &[u8]) -> bool {
    // All variants contain this word, and most pages do not.
    memmem::find(lower, b"cookie").is_some()
        && [&b"document.cookie"[..], b"http-equiv=\"set-cookie", b"cookiestore.set"]
            .iter()
            .any(|how| memmem::find(lower, how).is_some())
}

fn decided_by(table: &RuleTable, rule: &Rule, verdict: &mut Verdict) {
    verdict.vendor = table.vendor(rule.vendor);
    verdict.rule = Some(Arc::clone(&rule.id));
    verdict.grade = Some(rule.grade);
    verdict.confidence = rule.confidence;
}

/// Returns all evidence found in the last page.
pub(super) fn matches(table: &RuleTable, page: &Page<'_>, scratch: &Scratch) -> Vec<RuleMatch> {
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
                MatchPosition::Body(start, end) => (Some(start), slice(&scratch.lower, start, end)),
                MatchPosition::Folded(start, end) => (None, slice(scratch.folded.as_bytes(), start, end)),
                MatchPosition::Title => (None, shorten(scratch.title.as_bytes())),
                MatchPosition::Header(index) => match page.headers.get(index as usize) {
                    Some(h) => (None, shorten(format!("{}: {}", h.name, h.value).as_bytes())),
                    None => (None, "host".to_owned()),
                },
            };
            RuleMatch {
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
