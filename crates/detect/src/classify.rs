//! Classification: the evidence found in a page, weighed in one fixed order.
//!
//! The order: headers by which a vendor says that it responded; markers, titles, sentences, widgets
//! and shell scripts; the status; application shells and emptiness.
//!
//! Owns: the last stages of a page, [`Held`], [`Weighed`] and [`Judged`]; [`crate::collect`] has
//! those before. Each is made from the one before.
//!
//! Invariants: with more visible text than a rule allows, the rule proves nothing.

use std::sync::Arc;

use memchr::memmem;

use super::cues::CueInput;
use crate::collect::{
    Decoded, Found, NO_LIMIT, script_bytes, speaks_without_scripts, vendor_bit, without_long_raw,
};
use crate::html::page_facts::{HARDLY_ANY_TEXT, PageFacts};
use crate::rules::condition::ConditionInput;

use super::verdict::{RuleMatch, Vendors, Verdict};
use crate::Explanation;
use crate::cue_tally::CueTally;
use crate::cues;
use crate::html::redirect;
use crate::login_address;
use crate::network_signs::host;
use crate::options::ReadContext;
use crate::rules::compiled::{Rule, RuleTable};
use crate::rules::strength::Grade;
use crate::scratch::{EvidencePiece, MatchPosition, Scratch};
use crate::short_text;
use crate::verdict::CONTENT_CHARS;
use fetchwise_types::fetch_result::BlockKind;
use fetchwise_types::response::{Page, header, media_type};

/// Visible characters below which a page with a password field may be a login form in front of the
/// content.
const LOGIN_WALL_CHARS: u32 = 600;
/// Maximum visible characters and links of a page with a log-in and nothing else.
const BARE_LOGIN_CHARS: u32 = 300;
const BARE_LOGIN_LINKS: u32 = 12;
/// Maximum visible characters of a block page with status 200 and the furniture of a site's pages
/// ...
const FURNISHED_CHARS: u32 = 250;
/// ... and its maximum links, where words are the evidence.
const FURNISHED_LINKS: u32 = 4;
/// Minimum characters of hidden text that count as content that a script only has to show.
const HIDDEN_CONTENT: usize = 1_000;
/// Confidence of a failure that cues indicate.
const FAILURE_CONFIDENCE: f32 = 0.8;
/// Rules of words with at most this limit of visible characters are vague. They prove nothing where
/// something else explains the words: a form that asks who the visitor is, or status 404.
const VAGUE_CHARS: u32 = 500;

/// The shipped rules for templates that a script has not filled yet: their sentences are no
/// content.
const TEMPLATES: [&str; 2] = ["spa-template", "spa-named"];

/// The shipped rule whose words errors and apologies contain, too.
const CUE_WORDS: &str = "cue-words";

/// A page with the rules that hold on it.
struct Held<'a> {
    found: Found<'a>,
    held: &'a mut Vec<u16>,
}

/// A page whose cues are added up, if they count.
struct Weighed<'a> {
    held: Held<'a>,
    weighing: &'a mut CueTally,
    /// Whether its words may be those of a block, and the cues did not count.
    is_unweighed: bool,
}

/// A page with its verdict.
pub(super) struct Judged<'a> {
    weighed: Weighed<'a>,
    pub(super) verdict: Verdict,
}

/// Takes one page through all stages, with the rules of `table`, and ends with what `end` wants of
/// the last.
pub(super) fn inspect<T>(
    context: &ReadContext,
    table: &RuleTable,
    page: &Page<'_>,
    scratch: &mut Scratch,
    end: impl FnOnce(Judged<'_>) -> T,
) -> T {
    scratch.forget(table.rules.len());
    let shortened = without_long_raw(page.body, context.options.max_bytes);
    let Scratch { bytes, read, found, held, weighing, work } = scratch;
    let page = Decoded::new(context, table, page, shortened.as_deref(), bytes);
    end(page.read(read, found, work).find().hold(held).weigh(weighing).judge())
}

impl<'a> Found<'a> {
    /// Keeps the rules that hold on the page.
    fn hold(self, held: &'a mut Vec<u16>) -> Held<'a> {
        held.extend(self.evidence.touched.iter().filter(|&&index| self.holds(index)));
        Held { found: self, held }
    }

    fn rule(&self, index: u16) -> &'a Rule {
        &self.page.table.rules[index as usize]
    }

    fn facts(&self) -> &PageFacts {
        &self.read.facts
    }

    /// Returns whether all parts of a rule were found.
    fn is_complete(&self, index: u16) -> bool {
        let needs = self.rule(index).needs;
        self.evidence.bits[index as usize] & needs == needs
    }

    /// Returns whether a page has the furniture of a site's pages.
    fn is_furnished(&self) -> bool {
        self.page.page.status == 200 && self.facts().furnished
    }

    /// Returns whether HTTP authentication responds. It refuses in the same words as block pages.
    fn asks_for_credentials(&self) -> bool {
        let page = self.page.page;
        page.status == 401 && header(page.headers, "www-authenticate").is_some()
    }

    /// Returns whether a rule whose evidence was found holds on this page.
    fn holds(&self, index: u16) -> bool {
        if !self.is_complete(index) {
            return false;
        }
        let (rule, page, facts) = (self.rule(index), self.page.page, self.facts());
        let (mut max_visible_chars, mut max_links) = match page.status {
            200 => (rule.max_visible_chars_200, rule.max_links.min(rule.max_links_200)),
            _ => (rule.max_visible_chars, rule.max_links),
        };
        let wording = match rule.grade {
            Grade::Title | Grade::Sentence => true,
            Grade::Queue => rule.vendor.is_none(),
            _ => false,
        };
        if self.is_furnished() && wording {
            max_visible_chars = max_visible_chars.min(FURNISHED_CHARS);
            max_links = max_links.min(FURNISHED_LINKS);
        }
        // A form for a message explains the words that no vendor wrote: it is guarded by a captcha,
        // or a question.
        if facts.asks_message && wording && rule.vendor.is_none() && page.status == 200 {
            return false;
        }
        if facts.asks_identity
            && (rule.grade == Grade::Weak || (wording && rule.max_visible_chars <= VAGUE_CHARS))
        {
            return false;
        }
        // A missing page may say so in any words.
        if matches!(page.status, 404 | 410) && wording && rule.max_visible_chars <= VAGUE_CHARS {
            return false;
        }
        // A refusal for missing HTTP credentials is no block, whatever its words.
        if wording && rule.vendor.is_none() && self.asks_for_credentials() {
            return false;
        }
        (rule.max_visible_chars >= NO_LIMIT
            || (facts.complete && facts.visible.chars <= max_visible_chars))
            && facts.links <= max_links
            && rule.conditions.hold(ConditionInput { page, facts })
    }
}

/// Returns whether a rule knows no more than words, which articles use, too.
fn is_wording(rule: &Rule) -> bool {
    rule.vendor.is_none() && matches!(rule.grade, Grade::Title | Grade::Sentence)
}

impl<'a> Held<'a> {
    /// Returns the rules that hold.
    fn rules(&self) -> impl Iterator<Item = (u16, &'a Rule)> {
        self.held.iter().map(|&index| (index, self.found.rule(index)))
    }

    fn strongest(&self, of: impl Fn(&Rule) -> bool) -> Option<&'a Rule> {
        let key = |(index, rule): &(u16, &Rule)| (rule.grade, rule.vendor.is_none(), *index);
        self.rules().filter(|(_, rule)| of(rule)).min_by_key(key).map(|(_, rule)| rule)
    }

    fn first(&self, grade: Grade) -> Option<&'a Rule> {
        self.strongest(|rule| rule.grade == grade)
    }

    /// Returns whether this rule, which holds, makes the page a block.
    fn decides(&self, rule: &Rule) -> bool {
        // A widget's script next to an application's marker belongs to the application. Stronger
        // evidence needs a named framework to be explained.
        let explains =
            |by: &Rule| by.application && (rule.grade == Grade::Weak || by.framework.is_some());
        let is_explained =
            || rule.conditions.mount == Some(false) && self.rules().any(|(_, by)| explains(by));
        let threshold = self.found.page.context.options.block_threshold;
        rule.grade.blocks() && rule.confidence >= threshold && !is_explained()
    }

    /// Adds up the cues of the page if they count, and drops the rules of words that they explain.
    fn weigh(mut self, weighing: &'a mut CueTally) -> Weighed<'a> {
        let Found { page, read, .. } = &self.found;
        let (table, meanings) = (page.table, read.meanings);
        let by_words = !self.rules().any(|(_, rule)| rule.grade.blocks() && !is_wording(rule));
        let is_short = read.facts.complete && read.facts.visible.chars < LOGIN_WALL_CHARS;
        let may_ask = is_short && table.concepts.may_ask_for_login(read.all_meanings);
        let has_failed = table.concepts.may_have_failed(meanings);
        let doubtful = (table.vocabulary.is_about(meanings) || has_failed || may_ask) && by_words;
        let is_named = (table.concepts.may_be_of_network(meanings) || read.signs.any()) && by_words;
        let may_withhold = read.signs.names_asked
            && table.vocabulary.may_withhold(read.all_meanings)
            || read.signs.led_away && meanings != 0;
        let may_be_block = page.is_html
            && !self.found.asks_for_credentials()
            && (table.concepts.may_be_block(meanings)
                || self.names_product()
                || may_ask
                || read.signs.are_core()
                || may_withhold);
        let is_decided = self.rules().any(|(_, rule)| self.decides(rule));
        let cues_count = may_be_block && (doubtful || is_named || !is_decided);
        if cues_count {
            self.count_cues(weighing);
        }
        let out = Weighed { held: self, weighing, is_unweighed: may_be_block && !cues_count };
        // Articles about block pages, failures and log-ins use the same words.
        if cues_count
            && doubtful
            && (out.weighing.is_about_blocks() || out.weighing.is_failure() || out.is_gate())
        {
            out.held.held.retain(|&index| !is_wording(&table.rules[index as usize]));
        }
        out
    }

    fn names_product(&self) -> bool {
        self.rules().any(|(_, rule)| rule.grade == Grade::Network)
    }

    /// Adds up the cues of a block.
    fn count_cues(&mut self, weighing: &mut CueTally) {
        let found = &self.found;
        let (facts, touched) = (found.facts(), &found.evidence.touched);
        // Pages of a site use these words in many ways: as a title, a name or a quotation.
        let explained = found.is_furnished() && facts.visible.chars > FURNISHED_CHARS;
        // A rule for the thinnest pages only is no more than a word.
        let is_known = |rule: &Rule| {
            matches!(rule.grade, Grade::Title | Grade::Sentence)
                && rule.max_visible_chars > HARDLY_ANY_TEXT
        };
        let has_known_words = !explained
            && touched.iter().any(|&index| is_known(found.rule(index)) && found.is_complete(index));
        let names_product = self.names_product();
        let Found { page, read, work, .. } = &mut self.found;
        let input = CueInput {
            status: page.page.status,
            lower: &page.bytes.lower,
            charset: page.charset,
            finders: &page.context.finders,
            facts: &read.facts,
            folded_title: &read.folded_title,
            has_known_words,
            names_product,
            signs: read.signs,
            all_meanings: read.all_meanings,
            kept: &mut work.kept,
            buffer: &mut work.buffer,
        };
        cues::weigh(page.table, input, weighing);
    }
}

impl<'a> Weighed<'a> {
    fn page(&self) -> &'a Page<'a> {
        self.held.found.page.page
    }

    fn facts(&self) -> &PageFacts {
        self.held.found.facts()
    }

    /// Returns whether the page asks for a log-in before all else, by its cues.
    fn says_gate(&self) -> bool {
        self.weighing.is_gate(self.facts().password || self.facts().asks_identity)
    }

    /// Returns whether the page asks for a log-in and refuses nothing else. A refusing status
    /// outweighs the words.
    fn is_gate(&self) -> bool {
        self.says_gate() && !matches!(self.page().status, 403 | 429 | 451)
    }

    /// Judges the page.
    fn judge(mut self) -> Judged<'a> {
        let mut verdict = self.measured();
        match self.held.first(Grade::Content) {
            Some(content) => self.decided_by(content, &mut verdict),
            None => self.decide(&mut verdict),
        }
        let by_product = self.held.rules().any(|(_, rule)| rule.network);
        verdict.network_block = verdict.is_blocked
            && (by_product || verdict.vendor.is_none() && self.weighing.is_network());
        verdict.has_paywall = self.held.first(Grade::Paywall).is_some();
        if verdict.is_html {
            verdict.soft_404 = (200..300).contains(&self.page().status)
                && self.held.first(Grade::NotFound).is_some();
            verdict.has_login_wall = !verdict.is_blocked && self.asks_for_login();
            verdict.is_login_redirect =
                verdict.has_login_wall && login_address::is_led_to(self.page());
        }
        if verdict.grade != Some(Grade::Content) && self.is_thin(&verdict) {
            self.judge_thin(&mut verdict);
            self.read_thin(&mut verdict);
        } else if is_bare(&verdict, self.page()) {
            self.read_bare(&mut verdict);
        }
        verdict.waf = self.present_vendors();
        Judged { weighed: self, verdict }
    }

    /// Returns the verdict as far as it is an amount or a kind of bytes.
    fn measured(&self) -> Verdict {
        let page = &self.held.found.page;
        let measured = Verdict {
            is_undecoded: page.is_undecoded,
            is_html: page.is_html,
            bytes: u32::try_from(page.body.len()).unwrap_or(u32::MAX),
            text_complete: true,
            text_hash: self.held.found.read.text_hash,
            ..Verdict::default()
        };
        if !page.is_html {
            return measured;
        }
        let (facts, lower) = (self.facts(), &page.bytes.lower);
        let rest = lower.get(facts.end..).unwrap_or_default();
        Verdict {
            text_chars: if facts.visible.chars == 0 {
                text_in_waiting(facts, lower)
            } else {
                facts.visible.chars
            },
            text_complete: facts.complete,
            noscript_chars: facts.noscript.chars,
            high_script_ratio: (facts.script_bytes + script_bytes(page.context, rest)) * 2
                > lower.len(),
            ..measured
        }
    }

    /// Returns the vendors that are present.
    fn present_vendors(&self) -> Vendors {
        let Held { found, held } = &self.held;
        let is_present =
            |index: &&u16| found.rule(**index).grade == Grade::Presence || held.contains(*index);
        let present = found.evidence.touched.iter().filter(is_present);
        let bits =
            present.fold(found.presence, |bits, &index| bits | vendor_bit(found.rule(index)));
        Vendors { names: (bits != 0).then(|| Arc::clone(&found.page.table.vendors)), bits }
    }

    fn decided_by(&self, rule: &Rule, verdict: &mut Verdict) {
        verdict.vendor = self.held.found.page.table.vendor(rule.vendor);
        verdict.rule = Some(Arc::clone(&rule.id));
        verdict.grade = Some(rule.grade);
        verdict.confidence = rule.confidence;
    }

    /// Decides between a failure, a block, a waiting room and none of them.
    fn decide(&self, verdict: &mut Verdict) {
        let (held, weighing) = (&self.held, &self.weighing);
        let block = held.strongest(|rule| held.decides(rule));
        let queue = held.first(Grade::Queue);
        // A title that any server may write is weaker than what only a vendor writes.
        let failure = held.first(Grade::Failure).filter(|failure| match block {
            Some(block) if failure.vendor.is_none() => is_wording(block),
            block => block.is_none_or(|block| block.grade != Grade::Mitigated),
        });
        let by_cues = weighing.confidence() >= held.found.page.context.options.block_threshold;
        if let Some(failure) = failure {
            verdict.is_server_error = true;
            return self.decided_by(failure, verdict);
        }
        match (block, queue) {
            (None, None) if weighing.is_failure() => {
                self.decided_by_cues(FAILURE_CONFIDENCE, verdict);
                verdict.is_server_error = true;
            }
            (Some(block), queue) if queue.is_none() || block.grade == Grade::Mitigated => {
                self.block_by(block, verdict)
            }
            (_, Some(queue)) => {
                verdict.is_queued = true;
                self.decided_by(queue, verdict);
            }
            _ if by_cues && weighing.is_queue() => {
                self.decided_by_cues(weighing.confidence(), verdict);
                verdict.is_queued = true;
            }
            _ if by_cues && !self.is_gate() => {
                self.decided_by_cues(weighing.confidence(), verdict);
                verdict.is_blocked = true;
                verdict.block_type = Some(weighing.kind());
            }
            _ if matches!(self.page().status, 403 | 429 | 451) => {
                verdict.is_blocked = true;
                verdict.block_type = Some(BlockKind::Refusal);
                verdict.confidence = 0.9;
                if let Some(refusal) = held.first(Grade::Refusal) {
                    self.decided_by(refusal, verdict);
                }
            }
            _ => {}
        }
    }

    fn decided_by_cues(&self, confidence: f32, verdict: &mut Verdict) {
        verdict.confidence = confidence;
        verdict.rule = Some(Arc::from(cues::RULE));
        verdict.cues = self.weighing.strongest(self.held.found.page.table);
    }

    /// Makes the page a block by this rule.
    fn block_by(&self, block: &Rule, verdict: &mut Verdict) {
        verdict.is_blocked = true;
        let challenges =
            self.held.rules().any(|(_, rule)| self.held.decides(rule) && !rule.refusal);
        verdict.block_type =
            Some(if challenges { BlockKind::Challenge } else { BlockKind::Refusal });
        self.decided_by(block, verdict);
        if block.vendor.is_none() {
            let names = |rule: &Rule| {
                (rule.grade.blocks() || rule.grade == Grade::Refusal) && rule.vendor.is_some()
            };
            let named = self.held.rules().find(|(_, rule)| names(rule));
            verdict.vendor =
                named.and_then(|(_, rule)| self.held.found.page.table.vendor(rule.vendor));
        }
    }

    /// Decides whether a page with next to nothing to read is a shell or empty.
    fn judge_thin(&self, verdict: &mut Verdict) {
        let facts = self.facts();
        // A log-in is delivered with its mark. No browser gets further.
        if verdict.has_login_wall && verdict.text_chars > 0 {
            return;
        }
        // Nothing is known about content beyond the limit of bytes, but without any text there is
        // none.
        let is_cut = verdict.bytes as usize >= self.held.found.page.context.options.max_bytes;
        if is_cut && !facts.body {
            verdict.is_empty = verdict.text_chars == 0;
            return;
        }
        // Hidden text only has to be shown by a script.
        if facts.hidden >= HIDDEN_CONTENT && facts.scripts > 0 && verdict.text_chars > 0 {
            return;
        }
        let may_fill = (facts.scripts > 0 || facts.components > 0) && !facts.moved;
        match self.held.first(Grade::Spa).filter(|_| may_fill) {
            Some(rule) => {
                verdict.has_spa = true;
                self.decided_by(rule, verdict);
                let names = |rule: &Rule| rule.grade == Grade::Spa && rule.framework.is_some();
                let named = self
                    .held
                    .rules()
                    .filter(|(_, rule)| names(rule))
                    .min_by_key(|(index, _)| *index);
                verdict.framework = named.and_then(|(_, rule)| rule.framework.clone());
            }
            None => verdict.is_empty = verdict.text_chars == 0 || !shows_something(facts),
        }
    }
    /// Returns whether a page asks for a log-in in place of the content: it came from a log-in
    /// address, it says so before all else, or it is a form for a password and nothing else.
    fn asks_for_login(&self) -> bool {
        let (page, facts) = (self.page(), self.facts());
        if !facts.complete || facts.visible.chars >= LOGIN_WALL_CHARS {
            return false;
        }
        let asks = facts.inputs > 0 && (facts.password || facts.asks_identity);
        let is_bare = facts.visible.chars <= BARE_LOGIN_CHARS && facts.links <= BARE_LOGIN_LINKS;
        let says = self.says_gate();
        let is_elsewhere =
            matches!((page.url, page.final_url), (Some(asked), Some(got)) if asked != got);
        page.status == 401
            || login_address::is_led_to(page) && (asks || says)
            || facts.password && (is_elsewhere || says || is_bare)
            || says && is_bare
    }

    /// Returns whether an unblocked page has next to nothing to read.
    fn is_thin(&self, verdict: &Verdict) -> bool {
        verdict.is_html
            && !(verdict.is_blocked || verdict.is_queued || verdict.is_server_error)
            // Reading stops early in a page of very many tags, which shows nothing if it has shown
            // nothing so far.
            && (verdict.text_complete || verdict.text_chars == 0)
            && verdict.text_chars < least_chars(self.held.found.page.context, self.page())
            && !speaks_without_scripts(self.facts())
    }

    /// Reads more from a page with next to nothing to read: its redirect target, and hints at a
    /// block.
    fn read_thin(&mut self, verdict: &mut Verdict) {
        verdict.block_cues = self.hints_at_challenge();
        if verdict.block_cues {
            return;
        }
        if let Some(target) = self.redirect() {
            self.leave_for(target, verdict);
        } else if verdict.text_chars > 0 {
            // Without visible characters, no words can hint at a block.
            self.read_short_text(verdict);
        }
    }

    /// Returns whether the page may be a challenge: the evidence of a rule is complete, and only
    /// its conditions do not hold. Shell rules hint at nothing without their conditions: any script
    /// may do what they look for.
    fn hints_at_challenge(&self) -> bool {
        let found = &self.held.found;
        let lost = |&index: &u16| {
            let grade = found.rule(index).grade;
            grade.concerns_blocks()
                && !matches!(grade, Grade::Shell | Grade::Cue)
                && found.is_complete(index)
                && !found.page.table.always.contains(&index)
        };
        found.evidence.to_challenge || found.evidence.touched.iter().any(lost)
    }

    /// Returns the target of a page that redirects its visitor. One with a form to fill in does
    /// not.
    fn redirect(&self) -> Option<Box<str>> {
        let stays = self.facts().inputs > 0 || !(200..300).contains(&self.page().status);
        self.held.found.redirect().filter(|_| !stays)
    }

    /// Makes the page a redirect to `target`, unless its client would get this page again.
    fn leave_for(&self, target: Box<str>, verdict: &mut Verdict) {
        let page = self.page();
        let lower = &self.held.found.page.bytes.lower;
        // A client without scripts does not keep the cookie.
        if sets_cookie(lower) && redirect::leads_back(&target, page.final_url.or(page.url)) {
            verdict.block_cues = true;
            return;
        }
        // The visitor leaves the application, if there is one.
        no_shell(verdict);
        verdict.is_empty = true;
        verdict.has_login_wall |=
            login_address::is_login(&target) && !page.url.is_some_and(login_address::is_login);
        verdict.redirect = Some(target);
    }

    /// Reads the words of a page with next to no text: they may hint at a block, or be all that it
    /// has to say.
    fn read_short_text(&mut self, verdict: &mut Verdict) {
        let found = &mut self.held.found;
        found.read_cue_words();
        let (found, table) = (&self.held.found, self.held.found.page.table);
        let is_cue = |index: &&u16| found.rule(**index).grade == Grade::Cue && found.holds(**index);
        let mut cues =
            found.evidence.touched.iter().filter(is_cue).map(|index| &*found.rule(*index).id);
        verdict.block_cues = cues.clone().next().is_some();
        // A browser would show what a page without anything to run shows already, and an
        // application's shell has an element to fill and nothing to say.
        let facts = found.facts();
        let is_unfilled = verdict.rule.as_deref().is_some_and(|rule| TEMPLATES.contains(&rule));
        let is_filled =
            !is_unfilled && facts.mounts == 0 && (facts.components == 0 || facts.inputs > 0);
        let says = || short_text::says_something(found.read, verdict.framework.is_some());
        if verdict.has_spa && is_filled && !verdict.block_cues && says() {
            no_shell(verdict);
            return;
        }
        if !verdict.is_empty {
            return;
        }
        // Errors and apologies contain some of these words, too. Sentences outweigh them unless
        // they are about a block.
        let is_doubted = cues.any(|id| id != CUE_WORDS)
            || verdict.block_cues && table.vocabulary.may_refuse(found.read.all_meanings);
        verdict.is_empty = is_doubted || !short_text::is_content(found.read);
        verdict.block_cues &= verdict.is_empty;
    }

    /// Reads the redirect of a page that is not HTML: only the header names one.
    fn read_bare(&self, verdict: &mut Verdict) {
        if self.held.found.evidence.to_challenge || !(200..300).contains(&self.page().status) {
            return;
        }
        verdict.redirect = self.held.found.redirect();
        verdict.is_empty |= verdict.redirect.is_some();
    }
}

impl Judged<'_> {
    /// Returns the verdict with all evidence, whether it counted or not.
    pub(super) fn explained(mut self) -> Explanation {
        if self.weighed.is_unweighed {
            // Only for display, so after the verdict.
            self.weighed.held.count_cues(self.weighed.weighing);
        }
        let cues = self.weighed.weighing.explained(self.weighed.held.found.page.table);
        Explanation { matches: self.weighed.held.found.matches(), cues, verdict: self.verdict }
    }
}

impl Found<'_> {
    /// Returns all evidence.
    fn matches(&self) -> Vec<RuleMatch> {
        let shorten =
            |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().take(80).collect::<String>();
        let slice = |bytes: &[u8], start: u32, end: u32| {
            let end = (end as usize).min(bytes.len());
            shorten(&bytes[(start as usize).min(end)..end])
        };
        let one = |piece: &EvidencePiece| {
            let rule = self.rule(piece.rule);
            let (offset, text) = match piece.at {
                MatchPosition::Body(start, end) => {
                    (Some(start), slice(&self.page.bytes.lower, start, end))
                }
                MatchPosition::Folded(start, end) => {
                    (None, slice(self.read.folded.as_bytes(), start, end))
                }
                MatchPosition::Title => (None, shorten(self.read.title.as_bytes())),
                MatchPosition::Header(index) => match self.page.page.headers.get(index as usize) {
                    Some(h) => (None, shorten(format!("{}: {}", h.name, h.value).as_bytes())),
                    None => (None, "host".to_owned()),
                },
            };
            RuleMatch {
                rule: Arc::clone(&rule.id),
                vendor: self.page.table.vendor(rule.vendor),
                grade: rule.grade,
                place: piece.place,
                offset,
                text,
                counted: self.holds(piece.rule),
                note: Arc::clone(&rule.note),
            }
        };
        self.evidence.pieces.iter().map(one).collect()
    }
}

/// Returns the characters of a page without visible text that are there for a reader anyway: what
/// noscript has for those without scripts, and what a server sends in a hidden element for React to
/// move.
fn text_in_waiting(facts: &PageFacts, lower: &[u8]) -> u32 {
    if speaks_without_scripts(facts) {
        return facts.noscript.chars;
    }
    let is_streamed = || {
        [&b"id=\"s:"[..], b"id='s:", b"id=s:"].iter().any(|id| memmem::find(lower, id).is_some())
    };
    if facts.hidden >= HIDDEN_CONTENT
        && facts.scripts > 0
        && (facts.shows_without_scripts || is_streamed())
    {
        u32::try_from(facts.hidden).unwrap_or(u32::MAX)
    } else {
        0
    }
}

/// Returns the visible characters from which on a page of this host is content.
fn least_chars(context: &ReadContext, page: &Page<'_>) -> u32 {
    if context.min_chars.is_empty() {
        return CONTENT_CHARS;
    }
    let host = page.final_url.or(page.url).and_then(host).map(str::to_ascii_lowercase);
    host.and_then(|host| context.min_chars.get(&*host)).copied().unwrap_or(CONTENT_CHARS)
}

/// Returns whether a reader sees something besides text: a form, a picture, a player or a frame.
fn shows_something(facts: &PageFacts) -> bool {
    facts.inputs > 0 || facts.shown > 0
}

/// Returns whether an unblocked page is next to nothing, and not HTML.
fn is_bare(verdict: &Verdict, page: &Page<'_>) -> bool {
    let text = page.body.trim_ascii();
    let is_text =
        || media_type(page.headers).is_some_and(|kind| kind.eq_ignore_ascii_case("text/plain"));
    !(verdict.is_html || verdict.is_blocked || verdict.is_queued)
        && (text.is_empty() || text.len() < CONTENT_CHARS as usize && is_text())
}

/// Returns whether something in a lower-case page sets a cookie.
fn sets_cookie(lower: &[u8]) -> bool {
    // All variants contain this word, and most pages do not.
    memmem::find(lower, b"cookie").is_some()
        && [&b"document.cookie"[..], b"http-equiv=\"set-cookie", b"cookiestore.set"]
            .iter()
            .any(|how| memmem::find(lower, how).is_some())
}

/// Takes back that the page is a shell.
fn no_shell(verdict: &mut Verdict) {
    (verdict.has_spa, verdict.framework) = (false, None);
    (verdict.vendor, verdict.rule, verdict.grade, verdict.confidence) = (None, None, None, 0.0);
}
