//! Cues of blocks that no rule knows: what the main content says (`concepts`) and how it looks,
//! added up against a threshold.
//!
//! Each kind of cue counts once, and none is enough alone. A block page suspects, demands, refuses,
//! and has nothing else to say. Other text is the page's own and takes weight away. Cues are
//! computed only for pages with little text that say something which only block pages, and texts
//! about them, say.

use std::sync::Arc;

use arrayvec::ArrayVec;

use crate::html::charset::Charset;
use crate::html::main_content::{MainContent, TextBlock};
use crate::html::page_facts::PageFacts;
use crate::html::tokenizer::Finders;
use crate::network_signs::NetworkSigns;
use crate::rules::compiled::RuleTable;
use crate::rules::scan::HitBuffer;
use crate::rules::vocabulary::Vocabulary;
use crate::rules::word_scan::Meanings;
use fetchwise_types::attempt::verdict_reason::MAX_CUES;
use fetchwise_types::fetch_result::BlockKind;

/// The rule name in verdicts that cues decided.
pub(crate) const RULE: &str = "cues";

/// Sum of weights from which cues make a block.
const THRESHOLD: i32 = 55;
/// Threshold with status 404 or 410, whose pages apologise in many words.
const THRESHOLD_GONE: i32 = 90;
/// Threshold with status 403, 429 or 451, which refuse by themselves.
const THRESHOLD_REFUSED: i32 = 40;

/// Confidence by the sum above the threshold, fitted with a logistic curve:
/// `cargo run -p fetchwise-detect --features json --example calibrate --
/// crates/detect/calibration/first-sight.tsv`. Between two knots it is linear. A sum below the
/// threshold is no block, so it stays below one half.
const CONFIDENCE: [(i32, f32); 9] = [
    (-60, 0.08),
    (-40, 0.19),
    (-20, 0.39),
    (-1, 0.49),
    (0, 0.63),
    (10, 0.73),
    (20, 0.82),
    (40, 0.92),
    (60, 0.97),
];

/// Maximum visible characters of a page whose cues are computed because its title hints at a block
/// in a large frame.
pub(crate) const FRAMED_TEXT: u32 = 6_000;

/// A title or heading with words of block pages.
const TITLE: i32 = 20;
/// The visitor's own address.
const ADDRESS: i32 = 15;
/// The number of a request or an incident.
const NUMBER: i32 = 15;
/// A button to retry or to prove something.
const BUTTON: i32 = 10;
/// An element named after a captcha, without a form around it.
const WIDGET: i32 = 25;
/// A script that sets a cookie and reloads, in a page without other text.
const COOKIE_SCRIPT: i32 = 15;
/// No text of the page's own; next to none.
const NOTHING_OWN: i32 = 20;
const LITTLE_OWN: i32 = 10;
/// A title or sentence of a rule whose conditions do not hold.
const KNOWN_WORDS: i32 = 30;
/// The name of a product of networks. It needs words of a refusal next to it.
const PRODUCT: i32 = 30;
/// A page that leads inside a network; one that knows its visitor's device; one that withholds the
/// site that was asked for; an address inside a network, and one next to the URL that was asked
/// for; the name of the site that was asked for; a redirect to another site that is told that name.
const LEADS_INSIDE: i32 = 60;
const KNOWS_VISITOR: i32 = 55;
const WITHHELD: i32 = 30;
const INSIDE: i32 = 20;
const INSIDE_WITH_URL: i32 = 30;
const NAMES_ASKED: i32 = 15;
const LED_AWAY: i32 = 25;
/// The cues without words that no failure of a server has.
const OF_BLOCKS: [&str; 9] = [
    "known-words",
    "widget",
    "cookie-script",
    "leads-inside",
    "knows-visitor",
    "asked-withheld",
    "links-inside",
    "names-inside",
    "led-away",
];
/// Elements of an article; of one that is about blocks.
const ARTICLE: i32 = -20;
const ARTICLE_ABOUT: i32 = -45;
/// Fields that ask who the visitor is; a form of several fields.
const ASKS_WHO: i32 = -25;
const FORM: i32 = -15;

/// Own characters that a block page may have; each eight beyond take one point away.
const OWN_FREE: u32 = 220;
const OWN_EACH: u32 = 8;
/// The same where the title, a heading or the first sentence is a refusal or a demand.
const OWN_FREE_ANCHORED: u32 = 300;
const OWN_EACH_ANCHORED: u32 = 14;
/// Maximum own characters that count as nothing, and as next to nothing.
const OWN_NOTHING: u32 = 70;
const OWN_LITTLE: u32 = 160;
/// Links and pictures that a block page may have in its main content, and the points that each one
/// beyond takes away.
const LINKS_FREE: u32 = 8;
const LINK: i32 = 3;
const IMAGES_FREE: u32 = 4;
const IMAGE: i32 = 4;
/// Maximum characters of a short sentence.
const SHORT_SENTENCE: u32 = 60;
/// Maximum characters of a sentence whose words are combined ...
const MAX_SENTENCE: u32 = 300;
/// ... and those that say nothing else. What is longer has something else to say, too.
const CONCISE: u32 = 150;
/// Maximum length in bytes of a block that is a title, label or button.
const MAX_LABEL: u32 = 160;
/// Maximum length in bytes of linked text that is navigation and not content.
const MAX_NAVIGATION: u32 = 50;
/// Minimum characters of a quotation, and minimum bytes of the sentence before it.
const QUOTATION_CHARS: u32 = 20;
const BEFORE_QUOTATION: u32 = 10;
/// Maximum bytes of a URL before a word in it, and after.
const MAX_ADDRESS: usize = 256;
/// Minimum bullets of a block that is a list.
const LIST_ITEMS: usize = 3;

/// One cue of a block or, with a negative weight, against one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Cue {
    /// The id of the concept, or the name of a cue without words.
    pub id: Arc<str>,
    /// Its weight.
    pub weight: i32,
    /// The text it was read in, at most 80 characters; empty for cues without words.
    pub text: String,
}

/// The cues of a page, and their sum.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CueSum {
    /// The cues, each kind once.
    pub cues: Vec<Cue>,
    /// The sum of their weights.
    pub sum: i32,
    /// The sum that makes a block.
    pub threshold: i32,
    /// Whether one of them is a core concept. Without one, no page is a block.
    pub core: bool,
    /// Characters of the main content that say nothing about a block.
    pub own_chars: u32,
}

impl CueSum {
    /// Returns the confidence that the page is a block, as far as its cues say; 0 without a core
    /// concept.
    pub fn confidence(&self) -> f32 {
        if self.core { confidence(self.sum - self.threshold) } else { 0.0 }
    }
}

/// Cues of one page. The memory is reused from page to page.
#[derive(Debug, Default)]
pub(crate) struct CueTally {
    region: MainContent,
    /// Words of the main content: position, meanings, and pattern.
    words: Vec<(u32, Meanings, u32)>,
    /// The meanings of the current sentence in each language.
    by_language: Vec<(u8, Meanings)>,
    cues: Vec<CountedCue>,
    pub(crate) sum: i32,
    pub(crate) threshold: i32,
    core: bool,
    task: bool,
    queue: bool,
    network: bool,
    /// A firewall of the site is named, and a product of networks.
    site: bool,
    product: bool,
    /// The page has a form or an element named after a captcha.
    has_form: bool,
    /// The weights of what only a server's failure says, and whether the title, a heading or the
    /// first sentence says it.
    failure: i32,
    failure_leads: bool,
    /// The title, a heading or the first sentence asks for a log-in.
    gate: bool,
    /// The title, a heading or the first sentence states a core concept.
    anchored: bool,
    /// A concept against a block was stated.
    about: bool,
    /// A sentence with the name of a host withholds something.
    withholds: bool,
    own_chars: u32,
    /// Whether the page was weighed at all.
    done: bool,
}

/// A cue that was counted.
#[derive(Clone, Copy, Debug)]
struct CountedCue {
    name: CueName,
    weight: i32,
    at: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum CueName {
    Concept(u16),
    ConditionInput(&'static str),
}

impl CueName {
    fn id(self, table: &RuleTable) -> Arc<str> {
        match self {
            Self::Concept(index) => Arc::clone(&table.concepts.concepts[index as usize].id),
            Self::ConditionInput(name) => name.into(),
        }
    }
}

impl CueTally {
    pub(crate) fn clear(&mut self) {
        self.cues.clear();
        self.words.clear();
        (self.sum, self.threshold, self.own_chars) = (0, 0, 0);
        (self.core, self.task, self.about, self.done) = (false, false, false, false);
        (self.queue, self.network, self.anchored, self.withholds) = (false, false, false, false);
        (self.failure, self.failure_leads, self.gate) = (0, false, false);
        (self.site, self.product, self.has_form) = (false, false, false);
    }

    /// Returns the confidence that this is a block, from 0 to 1; above 0.5 from the threshold on.
    pub(crate) fn confidence(&self) -> f32 {
        if !self.core || !self.done {
            return 0.0;
        }
        confidence(self.sum - self.threshold)
    }

    /// Returns whether the page is about blocks and is none itself: it says so, and the sum stays
    /// below the threshold.
    pub(crate) fn is_about_blocks(&self) -> bool {
        self.done && self.about && self.sum < self.threshold
    }

    /// Returns whether the page gives a place in a queue, and nothing in it refuses or demands a
    /// proof.
    pub(crate) fn is_queue(&self) -> bool {
        self.queue
    }

    /// Returns whether the network of the crawler refuses, not the site.
    pub(crate) fn is_network(&self) -> bool {
        self.network && (self.product || !self.site)
    }

    /// Returns whether the server says that it failed. Where the page also refuses or asks for a
    /// proof, what leads it decides.
    pub(crate) fn is_failure(&self) -> bool {
        let says = self.done && self.failure_leads && self.failure > 0;
        let refuses =
            self.core && self.sum >= self.threshold && (self.anchored || self.task || self.network);
        says && self.failure_sum() >= THRESHOLD
            && (!refuses || self.failure_sum() > self.sum && !self.task)
    }

    /// Returns the sum of what indicates a failure: its own weights, and the cues of any page that
    /// is not the content.
    fn failure_sum(&self) -> i32 {
        let looks = |cue: &&CountedCue| match cue.name {
            CueName::ConditionInput(name) => !OF_BLOCKS.contains(&name),
            CueName::Concept(_) => cue.weight < 0,
        };
        self.failure + self.cues.iter().filter(looks).map(|cue| cue.weight).sum::<i32>()
    }

    /// Returns whether the page asks for a log-in before all else. Without a form to log in with,
    /// nothing else may indicate a block.
    pub(crate) fn is_gate(&self, has_form: bool) -> bool {
        let refuses = self.core && self.sum >= self.threshold && !has_form;
        self.done && self.gate && !self.task && !self.network && !refuses
    }

    /// Returns the kind of block, if it is one.
    pub(crate) fn kind(&self) -> BlockKind {
        if self.task { BlockKind::Challenge } else { BlockKind::Refusal }
    }

    fn add(&mut self, name: CueName, weight: i32, at: (u32, u32)) {
        if weight != 0 && !self.cues.iter().any(|cue| cue.name == name) {
            self.cues.push(CountedCue { name, weight, at });
            self.sum += weight;
        }
    }

    /// Returns whether a cue without words was counted.
    fn has(&self, name: &'static str) -> bool {
        self.cues.iter().any(|cue| cue.name == CueName::ConditionInput(name))
    }

    /// Returns the strongest cues of a block, the strongest first.
    pub(crate) fn strongest(&self, table: &RuleTable) -> Vec<Arc<str>> {
        let mut cues: ArrayVec<&CountedCue, MAX_CUES> = ArrayVec::new();
        for cue in self.cues.iter().filter(|cue| cue.weight > 0) {
            let place = cues.partition_point(|stronger| stronger.weight >= cue.weight);
            if place < MAX_CUES {
                cues.truncate(MAX_CUES - 1);
                cues.insert(place, cue);
            }
        }
        cues.into_iter().map(|cue| cue.name.id(table)).collect()
    }

    /// Returns the cues for a person. `None` if the page was not weighed.
    pub(crate) fn explained(&self, table: &RuleTable) -> Option<CueSum> {
        if !self.done {
            return None;
        }
        let text = |(start, end): (u32, u32)| {
            self.region
                .text
                .get(start as usize..end as usize)
                .unwrap_or_default()
                .chars()
                .take(80)
                .collect()
        };
        let cues = self.cues.iter().map(|cue| Cue {
            id: cue.name.id(table),
            weight: cue.weight,
            text: text(cue.at),
        });
        Some(CueSum {
            cues: cues.collect(),
            sum: self.sum,
            threshold: self.threshold,
            core: self.core,
            own_chars: self.own_chars,
        })
    }
}

/// Returns the confidence for a margin above the threshold.
fn confidence(margin: i32) -> f32 {
    let above = CONFIDENCE.partition_point(|(knot, _)| *knot <= margin);
    match (above.checked_sub(1).and_then(|below| CONFIDENCE.get(below)), CONFIDENCE.get(above)) {
        (Some((low, from)), Some((high, to))) => {
            from + (to - from) * (margin - low) as f32 / (high - low) as f32
        }
        (Some((_, last)), None) => *last,
        (None, first) => first.map_or(0.0, |(_, first)| *first),
    }
}

/// Inputs of the weighing, and buffers for a second pass over the page.
pub(crate) struct CueInput<'a> {
    pub(crate) status: u16,
    /// The body in lower case.
    pub(crate) lower: &'a [u8],
    pub(crate) charset: Charset,
    pub(crate) finders: &'a Finders,
    pub(crate) facts: &'a PageFacts,
    pub(crate) folded_title: &'a str,
    /// The title or sentence of a rule was found, whether its conditions hold or not.
    pub(crate) has_known_words: bool,
    /// A product of networks is named.
    pub(crate) names_product: bool,
    pub(crate) signs: NetworkSigns,
    /// The meanings of all words of the page.
    pub(crate) all_meanings: Meanings,
    pub(crate) kept: &'a mut Vec<u8>,
    pub(crate) buffer: &'a mut HitBuffer,
}

/// Adds up the cues of a page.
pub(crate) fn weigh(table: &RuleTable, page: CueInput<'_>, weighing: &mut CueTally) {
    weighing.done = true;
    weighing.threshold = match page.status {
        404 | 410 => THRESHOLD_GONE,
        403 | 429 | 451 => THRESHOLD_REFUSED,
        _ => THRESHOLD,
    };
    weighing.region.read(page.lower, page.finders, page.charset, page.kept);
    weighing.has_form = page.facts.forms > 0 || weighing.region.widget;
    // The title is a separate block.
    let MainContent { text, blocks, .. } = &mut weighing.region;
    text.push(' ');
    let start = text.len() as u32;
    text.push_str(page.folded_title);
    let title =
        TextBlock { start, end: text.len() as u32, linked: 0, heading: true, button: false };
    text.push(' ');
    blocks.push(title);
    let words = &mut weighing.words;
    let bytes = weighing.region.text.as_bytes();
    table.each_word(bytes, page.buffer, |word| {
        if !is_in_address(bytes, word.start as usize) {
            words.push((word.start, word.meanings, word.pattern));
        }
    });
    words.sort_unstable_by_key(|(at, _, pattern)| (*at, *pattern));
    read_blocks(table, weighing);
    // A form that asks who the visitor is needs a captcha to guard it.
    if page.has_known_words && !page.facts.asks_identity && !page.facts.asks_message {
        weighing.core = true;
        weighing.add(CueName::ConditionInput("known-words"), KNOWN_WORDS, (0, 0));
    }
    if page.names_product {
        (weighing.core, weighing.network, weighing.product) = (true, true, true);
        weighing.add(CueName::ConditionInput("network-product"), PRODUCT, (0, 0));
    }
    count_network_signs(table, weighing, &page);
    count_visual_cues(weighing, &page);
}

/// Reads the text blocks.
fn read_blocks(table: &RuleTable, weighing: &mut CueTally) {
    let vocabulary = &table.vocabulary;
    let mut own = 0;
    // The beginning of a sentence that a line break cuts after a comma.
    let mut begun = None;
    for n in 0..weighing.region.blocks.len() {
        let block = weighing.region.blocks[n];
        let is_title = n + 1 == weighing.region.blocks.len();
        let len = block.end - block.start;
        let linked = block.linked * 10 >= len * 9;
        let is_list =
            bullets(&weighing.region.text[block.start as usize..block.end as usize]) >= LIST_ITEMS;
        let mut of_block = 0;
        let mut at = block.start;
        while at < block.end {
            let end = sentence_end(&weighing.region.text, at, block.end);
            let chars = count_chars(&weighing.region.text, at, end);
            let short = if chars <= SHORT_SENTENCE { vocabulary.short } else { 0 };
            let shape =
                short | shape_of(vocabulary, &weighing.region.text[at as usize..end as usize]);
            let quoted = quotation(&weighing.region.text, at, end);
            let meanings =
                weighing.meanings(table, (begun.take().unwrap_or(at), end), quoted, shape);
            if end == block.end
                && weighing.region.text[at as usize..end as usize]
                    .trim_end()
                    .ends_with([',', '、', '，'])
            {
                begun = Some(at);
            }
            of_block |= meanings;
            weighing.withholds |= vocabulary.withholds_host(meanings);
            // List items are names. They address the visitor only if they contain a word for "you".
            let names_things = is_list
                && follows_bullet(&weighing.region.text, at)
                && meanings & vocabulary.yours == 0;
            let is_read = chars <= MAX_SENTENCE && !names_things;
            let leads = is_title || block.heading || (n == 0 && at == block.start && !linked);
            let says = is_read && count_concepts(table, weighing, meanings, (at, end), leads);
            if !(is_title || says || block.button || linked && len <= MAX_NAVIGATION) {
                own += if meanings & vocabulary.talk != 0 { chars / 2 } else { chars };
            } else if says && !is_title {
                own += chars.saturating_sub(CONCISE);
            }
            at = end;
        }
        let at = (block.start, block.end);
        if block.heading && len <= MAX_LABEL && vocabulary.is_title(of_block) {
            weighing.add(CueName::ConditionInput("title"), TITLE, at);
        }
        if (block.button || linked) && len <= MAX_LABEL / 2 && of_block & vocabulary.button != 0 {
            weighing.add(CueName::ConditionInput("button"), BUTTON, at);
        }
        if len <= 2 * MAX_LABEL && !is_title {
            let text = &weighing.region.text[block.start as usize..block.end as usize];
            let (address, number) =
                (has_address(text), has_number(text) && of_block & vocabulary.reference != 0);
            if address {
                weighing.add(CueName::ConditionInput("address"), ADDRESS, at);
            }
            if number {
                weighing.add(CueName::ConditionInput("number"), NUMBER, at);
            }
        }
    }
    weighing.own_chars = own;
}

/// Returns the meanings that a sentence has by its characters and not by its words.
fn shape_of(vocabulary: &Vocabulary, sentence: &str) -> Meanings {
    let when = |is: bool, meaning: Meanings| if is { meaning } else { 0 };
    when(has_digit(sentence), vocabulary.digits)
        | when(sentence.contains('@'), vocabulary.mailed)
        | when(sentence.contains("://") || names_host(sentence), vocabulary.linked)
}

/// Counts the concepts of the current sentence. Returns whether one of them counts for a block.
fn count_concepts(
    table: &RuleTable,
    weighing: &mut CueTally,
    meanings: Meanings,
    at: (u32, u32),
    leads: bool,
) -> bool {
    let mut says = false;
    let by_language = std::mem::take(&mut weighing.by_language);
    table.concepts.each_said_by(meanings, &by_language, |index, concept| {
        if concept.form && !weighing.has_form {
            return;
        }
        says |= concept.weight > 0;
        weighing.site |= concept.site;
        weighing.gate |= leads && concept.gate;
        if concept.failure {
            weighing.failure_leads |= leads;
            weighing.failure = weighing.failure.max(concept.weight);
            return;
        }
        weighing.core |= concept.core;
        weighing.task |= concept.task;
        weighing.queue |= concept.queue;
        weighing.network |= concept.network;
        weighing.anchored |= leads && concept.core;
        weighing.about |= concept.weight < 0;
        weighing.add(CueName::Concept(index), concept.weight, at);
    });
    weighing.by_language = by_language;
    says
}

/// Counts the signs of a network.
fn count_network_signs(table: &RuleTable, weighing: &mut CueTally, page: &CueInput<'_>) {
    let signs = page.signs;
    // A page of what stands between speaks of the site that was asked for as of another.
    let withholds = signs.names_asked
        && (weighing.withholds || weighing.anchored)
        && !weighing.about
        && table.vocabulary.may_withhold(page.all_meanings);
    // Where a redirect leads to another site whose heading refuses, the site that was asked for
    // does not.
    let refuses = weighing.anchored || weighing.has("title");
    let turned_away = signs.led_away && refuses && !weighing.task;
    let is_core = signs.are_core() || withholds || turned_away;
    weighing.core |= is_core;
    weighing.task |= (signs.leads_inside || signs.knows_visitor) && page.facts.inputs > 0;
    weighing.network |= is_core || signs.links_inside || signs.names_inside;
    // A site refuses without its whole URL, and does not say who keeps a filter or in which
    // category it is.
    let names_filter = signs.names_url && table.vocabulary.names_filter(page.all_meanings);
    weighing.network |= names_filter && weighing.anchored && !weighing.task;
    let inside = if signs.names_url { INSIDE_WITH_URL } else { INSIDE };
    let weights = [
        (signs.leads_inside, "leads-inside", LEADS_INSIDE),
        (signs.knows_visitor, "knows-visitor", KNOWS_VISITOR),
        (withholds, "asked-withheld", WITHHELD),
        (signs.links_inside, "links-inside", INSIDE),
        (signs.names_inside, "names-inside", inside),
        (signs.names_asked, "names-asked", NAMES_ASKED),
        (signs.led_away, "led-away", LED_AWAY),
    ];
    for (_, name, weight) in weights.into_iter().filter(|(is, ..)| *is) {
        weighing.add(CueName::ConditionInput(name), weight, (0, 0));
    }
}

/// Counts the cues without words.
fn count_visual_cues(weighing: &mut CueTally, page: &CueInput<'_>) {
    let facts = page.facts;
    let MainContent { links, images, fields, widget, article, .. } = weighing.region;
    let own = weighing.own_chars;
    if widget && fields <= 1 && !facts.asks_identity {
        weighing.task = true;
        weighing.add(CueName::ConditionInput("widget"), WIDGET, (0, 0));
    }
    // A form that asks who the visitor is belongs to the page, however little text stands around
    // it.
    let is_bare = links <= LINKS_FREE && !facts.asks_identity;
    match own {
        0..=OWN_NOTHING if is_bare => {
            weighing.add(CueName::ConditionInput("nothing-own"), NOTHING_OWN, (0, 0))
        }
        0..=OWN_LITTLE if is_bare => {
            weighing.add(CueName::ConditionInput("little-own"), LITTLE_OWN, (0, 0))
        }
        _ => {}
    }
    if own <= OWN_NOTHING && sets_cookie_and_reloads(page.lower) {
        weighing.task = true;
        weighing.add(CueName::ConditionInput("cookie-script"), COOKIE_SCRIPT, (0, 0));
    }
    // What stands below a refusal is part of the block, unless it is an article around it.
    let leads = weighing.anchored || weighing.network || weighing.failure_leads;
    let anchored = leads && !weighing.about && !article;
    let (own_free, own_each) =
        if anchored { (OWN_FREE_ANCHORED, OWN_EACH_ANCHORED) } else { (OWN_FREE, OWN_EACH) };
    weighing.add(
        CueName::ConditionInput("own-text"),
        -((own.saturating_sub(own_free) / own_each) as i32),
        (0, 0),
    );
    weighing.add(
        CueName::ConditionInput("links"),
        -(links.saturating_sub(LINKS_FREE).min(50) as i32) * LINK,
        (0, 0),
    );
    if !anchored {
        weighing.add(
            CueName::ConditionInput("pictures"),
            -(images.saturating_sub(IMAGES_FREE).min(50) as i32) * IMAGE,
            (0, 0),
        );
    }
    if article && weighing.about {
        weighing.add(CueName::ConditionInput("article"), ARTICLE_ABOUT, (0, 0));
    } else if article {
        weighing.add(CueName::ConditionInput("article"), ARTICLE, (0, 0));
    }
    // A captive portal asks who its guest is.
    if facts.asks_identity && !weighing.network {
        weighing.add(CueName::ConditionInput("asks-who"), ASKS_WHO, (0, 0));
    } else if facts.asks_message && !anchored {
        weighing.add(CueName::ConditionInput("asks-message"), ASKS_WHO, (0, 0));
    } else if fields > 2 && !anchored {
        weighing.add(CueName::ConditionInput("form"), FORM, (0, 0));
    }
}

impl CueTally {
    /// Returns the meanings of the words between two offsets and `of_all`, and keeps them by
    /// language: a sentence is in one language, and words of others that look alike mean nothing in
    /// it. Words inside `quoted` do not count.
    fn meanings(
        &mut self,
        table: &RuleTable,
        (start, end): (u32, u32),
        quoted: Option<(u32, u32)>,
        of_all: Meanings,
    ) -> Meanings {
        self.by_language.clear();
        // A word may begin with the white space before the sentence.
        let from = self.words.partition_point(|(at, ..)| *at + 1 < start);
        let mut set = of_all;
        let is_quoted = |at: u32| quoted.is_some_and(|(from, to)| (from..to).contains(&at));
        let words = self.words[from..].iter().take_while(|(at, ..)| *at + 1 < end);
        for (_, meanings, pattern) in words.filter(|(at, ..)| !is_quoted(*at)) {
            set |= meanings;
            for (language, meanings) in table.concepts.readings(*pattern) {
                match self.by_language.iter_mut().find(|(its, _)| *its == language) {
                    Some((_, known)) => *known |= meanings,
                    None => self.by_language.push((language, meanings | of_all)),
                }
            }
        }
        set
    }
}

/// Returns whether scripts of the page set a cookie and reload it.
fn sets_cookie_and_reloads(lower: &[u8]) -> bool {
    let has = |what: &[u8]| memchr::memmem::find(lower, what).is_some();
    has(b"document.cookie")
        && (has(b"location.reload") || has(b"location.replace") || has(b"location.href"))
}

/// The bytes that may begin the end of a sentence.
const MAY_END: [bool; 256] = {
    let mut table = [false; 256];
    let bytes = [b'.', b'!', b'?', b' ', 0xE3, 0xEF, 0xD8, 0xE0];
    let mut n = 0;
    while n < bytes.len() {
        table[bytes[n] as usize] = true;
        n += 1;
    }
    table
};

/// Returns the end of the sentence that begins at `at`, in a block that ends at `end`.
pub(crate) fn sentence_end(text: &str, at: u32, end: u32) -> u32 {
    let rest = &text.as_bytes()[at as usize..end as usize];
    let mut n = 0;
    while let Some(next) =
        rest.get(n..).and_then(|rest| rest.iter().position(|byte| MAY_END[usize::from(*byte)]))
    {
        n += next;
        let len = match &rest[n..] {
            // White space follows a full stop that ends a sentence, but not one inside an address
            // or a number.
            [b'.' | b'!' | b'?', b' ', ..] => 2,
            // Full stop, exclamation mark and question mark of Chinese and Japanese.
            [0xE3, 0x80, 0x82, ..] | [0xEF, 0xBC, 0x81 | 0x9F, ..] => 3,
            // Arabic question mark; the full stop of Hindi follows.
            [0xD8, 0x9F, ..] => 2,
            [0xE0, 0xA5, 0xA4, ..] => 3,
            // A bullet ends the text before it.
            rest => bullet(rest),
        };
        if len > 0 {
            return at + (n + len) as u32;
        }
        n += 1;
    }
    end
}

/// Returns the quotation in a sentence: a text that reports what a page says is no such page. Short
/// quotations are names of buttons and pages.
fn quotation(text: &str, at: u32, end: u32) -> Option<(u32, u32)> {
    let sentence = text.get(at as usize..end as usize)?;
    let is_mark = |c: char| matches!(c, '"' | '\u{201E}' | '\u{300C}' | '\u{300D}');
    let open = sentence.find(is_mark).filter(|open| *open as u32 >= BEFORE_QUOTATION)?;
    let from = open + sentence[open..].chars().next().map_or(1, char::len_utf8);
    let to = from + sentence[from..].find(is_mark)?;
    let (from, to) = (at + from as u32, at + to as u32);
    (count_chars(text, from, to) >= QUOTATION_CHARS).then_some((from, to))
}

/// Returns the length in bytes of the bullet between spaces at the beginning of the text, 0 without
/// one.
fn bullet(text: &[u8]) -> usize {
    match text {
        [b' ', b'*', b' ', ..] => 3,
        [b' ', 0xE2, 0x80, 0xA2, b' ', ..] => 5,
        _ => 0,
    }
}

/// Returns the number of bullets in a text.
fn bullets(text: &str) -> usize {
    memchr::memchr_iter(b' ', text.as_bytes())
        .filter(|&at| bullet(&text.as_bytes()[at..]) > 0)
        .count()
}

/// Returns whether a list item begins at `at`.
fn follows_bullet(text: &str, at: u32) -> bool {
    text.get(..at as usize)
        .is_some_and(|before| before.ends_with(" * ") || before.ends_with(" \u{2022} "))
}

/// Counts characters between two offsets; a character that is a syllable or a word counts as two
/// and a half.
pub(crate) fn count_chars(text: &str, start: u32, end: u32) -> u32 {
    let text = text.get(start as usize..end as usize).unwrap_or_default();
    if text.is_ascii() {
        return text.len() as u32;
    }
    let halves: u32 = text
        .chars()
        .map(|c| if matches!(c, '\u{2E80}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7AF}') { 5 } else { 2 })
        .sum();
    halves / 2
}

/// Returns whether a text names a host, such as `lark.example`.
fn names_host(text: &str) -> bool {
    text.contains('.') && text.split_whitespace().any(is_host)
}

fn is_host(word: &str) -> bool {
    let name = word.trim_matches(|c: char| !c.is_alphanumeric());
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let is_top = |label: &str| label.len() >= 2 && label.bytes().all(|b| b.is_ascii_alphabetic());
    name.rsplit_once('.').is_some_and(|(rest, top)| is_top(top) && rest.split('.').all(is_label))
}

/// Returns whether the word that begins at `at` is part of a URL or of the name of a host: a site's
/// name and paths are no statement. The scheme is a word, because who writes it means a page.
fn is_in_address(text: &[u8], at: usize) -> bool {
    let is_part = |b: &u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'<' | b'>' | b'(' | b')');
    let at = at + usize::from(text.get(at) == Some(&b' '));
    let (least, most) = (at.saturating_sub(MAX_ADDRESS), text.len().min(at + MAX_ADDRESS));
    let from = text[least..at]
        .iter()
        .rposition(|b| !is_part(b))
        .map_or(least, |before| least + before + 1);
    let to = text[at..most].iter().position(|b| !is_part(b)).map_or(most, |len| at + len);
    let run = std::str::from_utf8(&text[from..to]).unwrap_or_default();
    match run.split_once("://") {
        Some((scheme, _)) => at != from || !scheme.starts_with("http"),
        None => is_host(run.split(['/', ':', '?']).next().unwrap_or_default()),
    }
}

fn has_digit(text: &str) -> bool {
    // The digits of other scripts are outside ASCII.
    text.bytes().any(|byte| byte.is_ascii_digit())
        || !text.is_ascii() && text.chars().any(char::is_numeric)
}

/// Returns whether the text contains an IP address, or its placeholder in a vendor's template.
fn has_address(text: &str) -> bool {
    text.contains("::client_ip::")
        || text.split(|c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':'))).any(|token| {
            let token = token.trim_matches(['.', ':']);
            let is_v4 = token.len() >= 7 && token.parse::<std::net::Ipv4Addr>().is_ok();
            is_v4 || (token.len() >= 12 && token.parse::<std::net::Ipv6Addr>().is_ok())
        })
}

/// Returns whether the text contains a request number: long, with digits and with letters or
/// hyphens, or with many digits.
fn has_number(text: &str) -> bool {
    text.contains("::ray_id::")
        || text
            .split(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '(' | ')' | '#' | '"'))
            .any(|token| {
                let digits = token.bytes().filter(u8::is_ascii_digit).count();
                let others = token
                    .bytes()
                    .filter(|b| b.is_ascii_lowercase() || matches!(b, b'-' | b'_' | b'.'))
                    .count();
                let plain = digits + others == token.len();
                (token.len() >= 8 && digits >= 3 && plain && others >= 1 && !token.contains(".."))
                    || (digits >= 8 && plain)
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_at_a_mark_before_white_space() {
        let text = "your ip is 1.2.3.4. wait! 请稍候。好";
        let mut ends = Vec::new();
        let mut at = 0;
        while at < text.len() as u32 {
            let end = sentence_end(text, at, text.len() as u32);
            ends.push(&text[at as usize..end as usize]);
            at = end;
        }
        assert_eq!(ends, ["your ip is 1.2.3.4. ", "wait! ", "请稍候。", "好"]);
    }

    #[test]
    fn a_quotation_is_reported_speech() {
        let quoted = |text: &str| {
            quotation(text, 0, text.len() as u32)
                .map(|(from, to)| text[from as usize..to as usize].to_owned())
        };
        assert_eq!(
            quoted("a site tells me \"you have been blocked\".").as_deref(),
            Some("you have been blocked")
        );
        assert_eq!(
            quoted("dort steht dann: \u{201E}nicht verfügbar in ihrem land.\"").map(|s| s.len()),
            Some(31)
        );
        assert_eq!(
            quoted("很多新手看到\"访问过于频繁，请稍后再试\"。").as_deref(),
            Some("访问过于频繁，请稍后再试")
        );
        for text in [
            "please tick \"not a robot\" below",
            "\"you have been blocked\", it says",
            "a 5\" screen is enough for you",
        ] {
            assert_eq!(quoted(text), None, "{text}");
        }
    }

    #[test]
    fn a_bullet_ends_a_sentence_and_begins_an_item() {
        let text = "changes • one * two 2*3 * three";
        let mut items = Vec::new();
        let mut at = 0;
        while at < text.len() as u32 {
            let end = sentence_end(text, at, text.len() as u32);
            items.push((&text[at as usize..end as usize], follows_bullet(text, at)));
            at = end;
        }
        assert_eq!(
            items,
            [("changes • ", false), ("one * ", true), ("two 2*3 * ", true), ("three", true)]
        );
        assert_eq!(bullets(text), 3);
    }

    #[test]
    fn a_host_is_a_name_with_a_dot_inside() {
        for text in ["go to lark.example now", "(www.lark.example)", "lark.example.", "a-b.co.uk:"]
        {
            assert!(names_host(text), "{text}");
        }
        for text in ["the end. go on", "9.99 eur", "e.g. this", "a..b", "version 1.2", ""] {
            assert!(!names_host(text), "{text}");
        }
    }

    #[test]
    fn the_words_of_an_address_say_nothing() {
        for (text, word) in [
            ("banned: games.example.net now", "games"),
            ("banned: games.example.net now", "example"),
            ("see http://a.example/robot/check please", "robot"),
            ("您的http://robot.example/已", "robot"),
            ("(robot.example/a)", "robot"),
        ] {
            assert!(is_in_address(text.as_bytes(), text.find(word).unwrap_or_default()), "{text}");
        }
        for (text, word) in [
            ("see http://a.example/ please", "http"),
            ("see http://a.example/ please", " please"),
            ("no robot. please wait", "robot"),
            ("robot/human", "human"),
        ] {
            assert!(!is_in_address(text.as_bytes(), text.find(word).unwrap_or_default()), "{text}");
        }
    }

    #[test]
    fn addresses_and_request_numbers_differ_from_dates_and_prices() {
        for text in
            ["ip: 80.174.166.248,", "your address (2001:db8:85a3::8a2e:370:7334)", "1.2.3.4."]
        {
            assert!(has_address(text), "{text}");
        }
        for text in ["version 1.2.3", "12:30:45", "300.1.1.1", "add: bed", "a.b.c.d"] {
            assert!(!has_address(text), "{text}");
        }
        for text in [
            "id: 9a820b41eecf0866",
            "ref 84d6a5d8-10fc-11f0",
            "#25682958638987199",
            "fab_chlg_20260625234952",
        ] {
            assert!(has_number(text), "{text}");
        }
        for text in ["page 12 of 300", "monday, 12 may", "9.99 eur", "hello-world", "1234567"] {
            assert!(!has_number(text), "{text}");
        }
    }

    #[test]
    fn more_cues_raise_the_confidence_which_passes_one_half_at_the_threshold() {
        assert!(confidence(-1) < 0.5 && confidence(0) > 0.5);
        assert!((-200..200).all(|margin| confidence(margin) <= confidence(margin + 1)));
        assert!((confidence(30) - 0.87).abs() < 1e-6, "half way between two knots");
        assert!(confidence(i32::MAX) <= 0.97 && confidence(i32::MIN) >= 0.0);
    }
}
