//! Cues of blocks that no rule knows: what the main content says (`concepts`) and how it looks,
//! added up against a threshold.
//!
//! Each kind of cue counts once, and none is enough alone. A block page suspects, demands, refuses,
//! and has nothing else to say. Other text is the page's own and takes weight away. Cues are
//! computed only for pages with little text that say something which only block pages, and texts
//! about them, say.

use crate::cue_tally::{CueName, CueTally, THRESHOLD};
use crate::html::charset::Charset;
use crate::html::main_content::{MainContent, TextBlock};
use crate::html::page_facts::PageFacts;
use crate::html::tokenizer::Finders;
use crate::identifiers::{has_address, has_digit, has_number, is_in_address, names_host};
use crate::network_signs::NetworkSigns;
use crate::rules::compiled::RuleTable;
use crate::rules::scan::HitBuffer;
use crate::rules::vocabulary::Vocabulary;
use crate::rules::word_scan::Meanings;
use crate::sentences::{bullets, count_chars, follows_bullet, quotation, sentence_end};

/// The rule name in verdicts that cues decided.
pub(crate) const RULE: &str = "cues";

/// Threshold with status 404 or 410, whose pages apologise in many words.
const THRESHOLD_GONE: i32 = 90;
/// Threshold with status 403, 429 or 451, which refuse by themselves.
const THRESHOLD_REFUSED: i32 = 40;

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
/// Minimum bullets of a block that is a list.
const LIST_ITEMS: usize = 3;

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
        weighing.add(CueName::Structural("known-words"), KNOWN_WORDS, (0, 0));
    }
    if page.names_product {
        (weighing.core, weighing.network, weighing.product) = (true, true, true);
        weighing.add(CueName::Structural("network-product"), PRODUCT, (0, 0));
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
            weighing.add(CueName::Structural("title"), TITLE, at);
        }
        if (block.button || linked) && len <= MAX_LABEL / 2 && of_block & vocabulary.button != 0 {
            weighing.add(CueName::Structural("button"), BUTTON, at);
        }
        if len <= 2 * MAX_LABEL && !is_title {
            let text = &weighing.region.text[block.start as usize..block.end as usize];
            let (address, number) =
                (has_address(text), has_number(text) && of_block & vocabulary.reference != 0);
            if address {
                weighing.add(CueName::Structural("address"), ADDRESS, at);
            }
            if number {
                weighing.add(CueName::Structural("number"), NUMBER, at);
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
        weighing.add(CueName::Structural(name), weight, (0, 0));
    }
}

/// Counts the cues without words.
fn count_visual_cues(weighing: &mut CueTally, page: &CueInput<'_>) {
    let facts = page.facts;
    let MainContent { links, images, fields, widget, article, .. } = weighing.region;
    let own = weighing.own_chars;
    if widget && fields <= 1 && !facts.asks_identity {
        weighing.task = true;
        weighing.add(CueName::Structural("widget"), WIDGET, (0, 0));
    }
    // A form that asks who the visitor is belongs to the page, however little text stands around
    // it.
    let is_bare = links <= LINKS_FREE && !facts.asks_identity;
    match own {
        0..=OWN_NOTHING if is_bare => {
            weighing.add(CueName::Structural("nothing-own"), NOTHING_OWN, (0, 0))
        }
        0..=OWN_LITTLE if is_bare => {
            weighing.add(CueName::Structural("little-own"), LITTLE_OWN, (0, 0))
        }
        _ => {}
    }
    if own <= OWN_NOTHING && sets_cookie_and_reloads(page.lower) {
        weighing.task = true;
        weighing.add(CueName::Structural("cookie-script"), COOKIE_SCRIPT, (0, 0));
    }
    // What stands below a refusal is part of the block, unless it is an article around it.
    let leads = weighing.anchored || weighing.network || weighing.failure_leads;
    let anchored = leads && !weighing.about && !article;
    let (own_free, own_each) =
        if anchored { (OWN_FREE_ANCHORED, OWN_EACH_ANCHORED) } else { (OWN_FREE, OWN_EACH) };
    weighing.add(
        CueName::Structural("own-text"),
        -((own.saturating_sub(own_free) / own_each) as i32),
        (0, 0),
    );
    weighing.add(
        CueName::Structural("links"),
        -(links.saturating_sub(LINKS_FREE).min(50) as i32) * LINK,
        (0, 0),
    );
    if !anchored {
        weighing.add(
            CueName::Structural("pictures"),
            -(images.saturating_sub(IMAGES_FREE).min(50) as i32) * IMAGE,
            (0, 0),
        );
    }
    if article && weighing.about {
        weighing.add(CueName::Structural("article"), ARTICLE_ABOUT, (0, 0));
    } else if article {
        weighing.add(CueName::Structural("article"), ARTICLE, (0, 0));
    }
    // A captive portal asks who its guest is.
    if facts.asks_identity && !weighing.network {
        weighing.add(CueName::Structural("asks-who"), ASKS_WHO, (0, 0));
    } else if facts.asks_message && !anchored {
        weighing.add(CueName::Structural("asks-message"), ASKS_WHO, (0, 0));
    } else if fields > 2 && !anchored {
        weighing.add(CueName::Structural("form"), FORM, (0, 0));
    }
}

/// Returns whether scripts of the page set a cookie and reload it.
fn sets_cookie_and_reloads(lower: &[u8]) -> bool {
    let has = |what: &[u8]| memchr::memmem::find(lower, what).is_some();
    has(b"document.cookie")
        && (has(b"location.reload") || has(b"location.replace") || has(b"location.href"))
}
