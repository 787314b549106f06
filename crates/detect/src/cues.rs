//! Walls that no rule knows: what a page's main region says of a wall (`concepts`), and how it looks, added up against a threshold.
//!
//! Each kind of cue counts once, and none is enough alone: a wall suspects, demands, refuses, and has nothing else to say. What the
//! page says beside that is its own, and takes weight away. Cues are looked for where a page says little at all, and says something
//! that only walls and texts about them say.

use std::sync::Arc;

use super::concepts::Meanings;
use crate::html::charset::Charset;
use crate::html::main_content::{Block, Region};
use crate::html::page_facts::Facts;
use crate::html::tokenizer::Finders;
use crate::rules::compiled::Table;
use crate::rules::scan::Buffer;
use fetchwise_types::fetch_result::BlockKind;

/// What stands in a verdict for the rule that decided.
pub(super) const RULE: &str = "cues";

/// From this sum on, cues are a wall.
const THRESHOLD: i32 = 55;
/// With status 404 or 410, whose pages apologise in many words, it takes more.
const THRESHOLD_GONE: i32 = 90;
/// With status 403 or 429, which refuse by themselves, it takes less.
const THRESHOLD_REFUSED: i32 = 40;

/// Visible characters up to which cues are looked for where a title gives reason to: a wall in a large frame.
pub(super) const FRAMED_TEXT: u32 = 6_000;

/// Title or heading with words of walls.
const TITLE: i32 = 20;
/// The visitor's own address.
const ADDRESS: i32 = 15;
/// The number of a request or an incident.
const NUMBER: i32 = 15;
/// A button to try again or to prove something.
const BUTTON: i32 = 10;
/// An element named after a captcha, and no form around it.
const WIDGET: i32 = 25;
/// A script sets a cookie and comes again, in a page that says nothing of its own.
const COOKIE_SCRIPT: i32 = 15;
/// Nothing of the page's own; next to nothing.
const NOTHING_OWN: i32 = 20;
const LITTLE_OWN: i32 = 10;
/// A rule's title or sentence is there, and only its conditions do not hold.
const KNOWN_WORDS: i32 = 30;
/// An article's elements.
const ARTICLE: i32 = -20;
/// Fields for who one is; a form of several fields.
const ASKS_WHO: i32 = -25;
const FORM: i32 = -15;

/// Characters of its own that a wall may have; each eight beyond take one away.
const OWN_FREE: u32 = 220;
const OWN_EACH: u32 = 8;
/// Own characters that are nothing, and next to nothing.
const OWN_NOTHING: u32 = 70;
const OWN_LITTLE: u32 = 160;
/// Links and pictures in the main region that a wall may have; each beyond takes so much away.
const LINKS_FREE: u32 = 8;
const LINK: i32 = 3;
const IMAGES_FREE: u32 = 4;
const IMAGE: i32 = 4;
/// Most characters of a short sentence.
const SHORT_SENTENCE: u32 = 60;
/// Longest sentence, in bytes, whose words are taken together.
const SENTENCE_MAX: usize = 600;
/// Longest block, in bytes, that a title, a label or a button is.
const LABEL_MAX: u32 = 160;
/// Longest text of links, in bytes, that is navigation and not content.
const NAVIGATION_MAX: u32 = 50;
/// From so many bullets on, a block is a list.
const LIST_ITEMS: usize = 3;

/// One thing that speaks for a wall, or, with a weight below nothing, against one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Cue {
    /// The concept's id in the rules, or what it is called that is seen without words.
    pub id: Arc<str>,
    /// How much it weighs.
    pub weight: i32,
    /// Where it was read, at most 80 characters; empty where it is no text.
    pub text: String,
}

/// What cues there are and what they come to.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CueSum {
    /// The cues, each kind once.
    pub cues: Vec<Cue>,
    /// What they add up to.
    pub sum: i32,
    /// What it takes.
    pub threshold: i32,
    /// Whether one of them is a core concept, without which nothing is a wall.
    pub core: bool,
    /// Characters of the main region that say nothing of a wall.
    pub own_chars: u32,
}

/// The weighing of one page, kept from page to page.
#[derive(Debug, Default)]
pub(super) struct Weighing {
    region: Region,
    /// Words in the region: where each stands and what it means.
    words: Vec<(u32, Meanings)>,
    cues: Vec<Counted>,
    pub(super) sum: i32,
    pub(super) threshold: i32,
    core: bool,
    task: bool,
    /// Something that is said speaks against a wall.
    about: bool,
    own_chars: u32,
    /// Whether the page was weighed at all.
    done: bool,
}

/// A cue that was counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    name: Name,
    weight: i32,
    at: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Name {
    Concept(u16),
    Seen(&'static str),
}

impl Weighing {
    pub(super) fn clear(&mut self) {
        self.cues.clear();
        self.words.clear();
        (self.sum, self.threshold, self.own_chars) = (0, 0, 0);
        (self.core, self.task, self.about, self.done) = (false, false, false, false);
    }

    /// How sure it is that this is a wall, from 0 to 1. At the threshold, it is as likely as not.
    pub(super) fn confidence(&self) -> f32 {
        if !self.core || !self.done {
            return 0.0;
        }
        confidence(self.sum - self.threshold)
    }

    /// Whether the page is about walls rather than one: it says so, and what it says of them is not enough.
    pub(super) fn is_about_walls(&self) -> bool {
        self.done && self.about && self.sum < self.threshold
    }

    /// What kind of block it is, if it is one.
    pub(super) fn kind(&self) -> BlockKind {
        if self.task { BlockKind::Challenge } else { BlockKind::Refusal }
    }

    fn add(&mut self, name: Name, weight: i32, at: (u32, u32)) {
        if weight != 0 && !self.cues.iter().any(|cue| cue.name == name) {
            self.cues.push(Counted { name, weight, at });
            self.sum += weight;
        }
    }

    /// What was counted, for a person. None where a page was not weighed.
    pub(super) fn explained(&self, table: &Table) -> Option<CueSum> {
        if !self.done {
            return None;
        }
        let text = |(start, end): (u32, u32)| {
            self.region.text.get(start as usize..end as usize).unwrap_or_default().chars().take(80).collect()
        };
        let cues = self.cues.iter().map(|cue| Cue {
            id: match cue.name {
                Name::Concept(index) => Arc::clone(&table.concepts.concepts[index as usize].id),
                Name::Seen(name) => name.into(),
            },
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

/// How sure so much more than the threshold is.
fn confidence(margin: i32) -> f32 {
    let odds = (margin as f32 / 15.0).exp();
    (odds / (1.0 + odds)).min(0.97)
}

/// A page as it was read, and what memory there is for reading it again.
pub(super) struct PageRead<'a> {
    pub(super) status: u16,
    /// The body in lower case.
    pub(super) lower: &'a [u8],
    pub(super) charset: Charset,
    pub(super) finders: &'a Finders,
    pub(super) facts: &'a Facts,
    pub(super) folded_title: &'a str,
    /// A rule's title or sentence is there, whether or not its conditions hold.
    pub(super) has_known_words: bool,
    pub(super) kept: &'a mut Vec<u8>,
    pub(super) buffer: &'a mut Buffer,
}

/// Weighs a page.
pub(super) fn weigh(table: &Table, page: PageRead<'_>, weighing: &mut Weighing) {
    weighing.done = true;
    weighing.threshold = match page.status {
        404 | 410 => THRESHOLD_GONE,
        403 | 429 => THRESHOLD_REFUSED,
        _ => THRESHOLD,
    };
    weighing.region.read(page.lower, page.finders, page.charset, page.kept);
    // The title is a block of its own, in front of nothing.
    let Region { text, blocks, .. } = &mut weighing.region;
    text.push(' ');
    let start = text.len() as u32;
    text.push_str(page.folded_title);
    let title = Block { start, end: text.len() as u32, linked: 0, heading: true, button: false };
    text.push(' ');
    blocks.push(title);
    let words = &mut weighing.words;
    let bytes = weighing.region.text.as_bytes();
    table.each_word(bytes, page.buffer, |at, meanings| words.push((at, meanings)));
    read_blocks(table, weighing);
    // Who one is asked for has a form to fill in: words of captchas there guard it.
    if page.has_known_words && !page.facts.asks_who {
        weighing.core = true;
        weighing.add(Name::Seen("known-words"), KNOWN_WORDS, (0, 0));
    }
    look(weighing, &page);
}

/// Reads what the blocks say.
fn read_blocks(table: &Table, weighing: &mut Weighing) {
    let vocabulary = &table.vocabulary;
    let mut own = 0;
    for n in 0..weighing.region.blocks.len() {
        let block = weighing.region.blocks[n];
        let is_title = n + 1 == weighing.region.blocks.len();
        let len = block.end - block.start;
        let linked = block.linked * 10 >= len * 9;
        let is_list = bullets(&weighing.region.text[block.start as usize..block.end as usize]) >= LIST_ITEMS;
        let mut of_block = 0;
        let mut at = block.start;
        while at < block.end {
            let end = sentence_end(&weighing.region.text, at, block.end);
            let chars = count_chars(&weighing.region.text, at, end);
            let short = if chars <= SHORT_SENTENCE { vocabulary.short } else { 0 };
            let meanings = weighing.meanings(at, end) | short;
            of_block |= meanings;
            // Items of a list name things: without the visitor in them, they say nothing to who reads.
            let names_things = is_list && follows_bullet(&weighing.region.text, at) && meanings & vocabulary.yours == 0;
            let is_read = (end - at) as usize <= SENTENCE_MAX && !names_things;
            let says = is_read && say(table, weighing, meanings, (at, end));
            if !(is_title || says || block.button || linked && len <= NAVIGATION_MAX) {
                own += if meanings & vocabulary.talk != 0 { chars / 2 } else { chars };
            }
            at = end;
        }
        let at = (block.start, block.end);
        if block.heading && len <= LABEL_MAX && vocabulary.is_title(of_block) {
            weighing.add(Name::Seen("title"), TITLE, at);
        }
        if (block.button || linked) && len <= LABEL_MAX / 2 && of_block & vocabulary.button != 0 {
            weighing.add(Name::Seen("button"), BUTTON, at);
        }
        if len <= 2 * LABEL_MAX && !is_title {
            let text = &weighing.region.text[block.start as usize..block.end as usize];
            let (address, number) = (has_address(text), has_number(text) && of_block & vocabulary.reference != 0);
            if address {
                weighing.add(Name::Seen("address"), ADDRESS, at);
            }
            if number {
                weighing.add(Name::Seen("number"), NUMBER, at);
            }
        }
    }
    weighing.own_chars = own;
}

/// Counts what a sentence with these meanings says. Returns whether it says something of a wall.
fn say(table: &Table, weighing: &mut Weighing, meanings: Meanings, at: (u32, u32)) -> bool {
    let mut says = false;
    for (index, concept) in table.concepts.concepts.iter().enumerate() {
        if concept.is_said_by(meanings) {
            says |= concept.weight > 0;
            weighing.core |= concept.core;
            weighing.task |= concept.task;
            weighing.about |= concept.weight < 0;
            weighing.add(Name::Concept(index as u16), concept.weight, at);
        }
    }
    says
}

/// Looks at what is seen without words.
fn look(weighing: &mut Weighing, page: &PageRead<'_>) {
    let facts = page.facts;
    let Region { links, images, fields, widget, article, .. } = weighing.region;
    let own = weighing.own_chars;
    if widget && fields <= 1 && !facts.asks_who {
        weighing.task = true;
        weighing.add(Name::Seen("widget"), WIDGET, (0, 0));
    }
    // A form that asks who one is is the page's own, however little stands beside it.
    let is_bare = links <= LINKS_FREE && !facts.asks_who;
    match own {
        0..=OWN_NOTHING if is_bare => weighing.add(Name::Seen("nothing-own"), NOTHING_OWN, (0, 0)),
        0..=OWN_LITTLE if is_bare => weighing.add(Name::Seen("little-own"), LITTLE_OWN, (0, 0)),
        _ => {}
    }
    if own <= OWN_NOTHING && sets_cookie_and_reloads(page.lower) {
        weighing.task = true;
        weighing.add(Name::Seen("cookie-script"), COOKIE_SCRIPT, (0, 0));
    }
    weighing.add(Name::Seen("own-text"), -((own.saturating_sub(OWN_FREE) / OWN_EACH) as i32), (0, 0));
    weighing.add(Name::Seen("links"), -(links.saturating_sub(LINKS_FREE).min(50) as i32) * LINK, (0, 0));
    weighing.add(Name::Seen("pictures"), -(images.saturating_sub(IMAGES_FREE).min(50) as i32) * IMAGE, (0, 0));
    if article {
        weighing.add(Name::Seen("article"), ARTICLE, (0, 0));
    }
    if facts.asks_who {
        weighing.add(Name::Seen("asks-who"), ASKS_WHO, (0, 0));
    } else if fields > 2 {
        weighing.add(Name::Seen("form"), FORM, (0, 0));
    }
}

impl Weighing {
    /// What the words between two places mean.
    fn meanings(&self, start: u32, end: u32) -> Meanings {
        // A word may begin with the white space before the sentence.
        let from = self.words.partition_point(|(at, _)| *at + 1 < start);
        self.words[from..].iter().take_while(|(at, _)| *at + 1 < end).fold(0, |set, (_, meanings)| set | meanings)
    }
}

/// Whether scripts in the page set a cookie and load it again.
fn sets_cookie_and_reloads(lower: &[u8]) -> bool {
    let has = |what: &[u8]| memchr::memmem::find(lower, what).is_some();
    has(b"document.cookie") && (has(b"location.reload") || has(b"location.replace") || has(b"location.href"))
}

/// Where the sentence ends that begins at `at`, in a block that ends at `end`.
fn sentence_end(text: &str, at: u32, end: u32) -> u32 {
    let rest = &text.as_bytes()[at as usize..end as usize];
    let mut n = 0;
    while n < rest.len() {
        let len = match &rest[n..] {
            // A full stop ends a sentence where white space follows; in addresses and numbers none does.
            [b'.' | b'!' | b'?', b' ', ..] => 2,
            // The full stop, the exclamation mark and the question mark of Chinese and Japanese.
            [0xE3, 0x80, 0x82, ..] | [0xEF, 0xBC, 0x81 | 0x9F, ..] => 3,
            // Those of Arabic and of Hindi.
            [0xD8, 0x9F, ..] => 2,
            [0xE0, 0xA5, 0xA4, ..] => 3,
            // A bullet ends what stands before it.
            rest => bullet(rest),
        };
        if len > 0 {
            return at + (n + len) as u32;
        }
        n += 1;
    }
    end
}

/// Bytes of the bullet between spaces that the text begins with, 0 where it begins with none.
fn bullet(text: &[u8]) -> usize {
    match text {
        [b' ', b'*', b' ', ..] => 3,
        [b' ', 0xE2, 0x80, 0xA2, b' ', ..] => 5,
        _ => 0,
    }
}

/// How many bullets stand in a text.
fn bullets(text: &str) -> usize {
    memchr::memchr_iter(b' ', text.as_bytes()).filter(|&at| bullet(&text.as_bytes()[at..]) > 0).count()
}

/// Whether what begins at `at` is an item of a list.
fn follows_bullet(text: &str, at: u32) -> bool {
    text.get(..at as usize).is_some_and(|before| before.ends_with(" * ") || before.ends_with(" \u{2022} "))
}

/// Characters between two places; one that stands for a syllable or a word counts as several.
fn count_chars(text: &str, start: u32, end: u32) -> u32 {
    let text = text.get(start as usize..end as usize).unwrap_or_default();
    let halves: u32 =
        text.chars().map(|c| if matches!(c, '\u{2E80}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7AF}') { 5 } else { 2 }).sum();
    halves / 2
}

/// Whether there is an address of the Internet protocol.
fn has_address(text: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':'))).any(|token| {
        let token = token.trim_matches(['.', ':']);
        let is_v4 = token.len() >= 7 && token.parse::<std::net::Ipv4Addr>().is_ok();
        is_v4 || (token.len() >= 12 && token.parse::<std::net::Ipv6Addr>().is_ok())
    })
}

/// Whether there is what looks like the number of a request: long, with digits and with letters or hyphens, or of many digits.
fn has_number(text: &str) -> bool {
    text.split(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '(' | ')' | '#' | '"')).any(|token| {
        let digits = token.bytes().filter(u8::is_ascii_digit).count();
        let others = token.bytes().filter(|b| b.is_ascii_lowercase() || matches!(b, b'-' | b'_' | b'.')).count();
        let plain = digits + others == token.len();
        (token.len() >= 8 && digits >= 3 && plain && others >= 1 && !token.contains("..")) || (digits >= 8 && plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_where_white_space_follows_its_mark() {
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
    fn a_bullet_ends_a_sentence_and_begins_an_item() {
        let text = "changes • one * two 2*3 * three";
        let mut items = Vec::new();
        let mut at = 0;
        while at < text.len() as u32 {
            let end = sentence_end(text, at, text.len() as u32);
            items.push((&text[at as usize..end as usize], follows_bullet(text, at)));
            at = end;
        }
        assert_eq!(items, [("changes • ", false), ("one * ", true), ("two 2*3 * ", true), ("three", true)]);
        assert_eq!(bullets(text), 3);
    }

    #[test]
    fn addresses_and_numbers_of_requests_are_told_from_dates_and_prices() {
        for text in ["ip: 80.174.166.248,", "your address (2001:db8:85a3::8a2e:370:7334)", "1.2.3.4."] {
            assert!(has_address(text), "{text}");
        }
        for text in ["version 1.2.3", "12:30:45", "300.1.1.1", "add: bed", "a.b.c.d"] {
            assert!(!has_address(text), "{text}");
        }
        for text in ["id: 9a820b41eecf0866", "ref 84d6a5d8-10fc-11f0", "#25682958638987199", "fab_chlg_20260625234952"]
        {
            assert!(has_number(text), "{text}");
        }
        for text in ["page 12 of 300", "monday, 12 may", "9.99 eur", "hello-world", "1234567"] {
            assert!(!has_number(text), "{text}");
        }
    }

    #[test]
    fn more_cues_are_surer_and_the_threshold_is_as_likely_as_not() {
        assert!((confidence(0) - 0.5).abs() < 1e-6);
        assert!(confidence(30) > confidence(10) && confidence(-30) < 0.2);
        assert!(confidence(10_000) <= 0.97 && confidence(-10_000) >= 0.0);
    }
}
