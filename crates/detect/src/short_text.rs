//! Content of pages with next to no text: whether it says something, by sentences and script
//! instead of length.
//!
//! A contact card, a missing page and a note say what they have to say in two lines. A loading
//! note, a copyright line and a list of links do not.
//!
//! Must not know: what the sentences mean, except that they belong to the frame of a page.

use crate::scratch::PageReading;
use crate::sentences::{count_chars, sentence_end};

/// Minimum characters of a sentence; a Chinese character counts as two and a half.
const SENTENCE_CHARS: u32 = 15;
/// Minimum words of a sentence, in scripts that separate words: of a long one in languages that
/// build long words ...
const SENTENCE_WORDS: usize = 4;
const LONG_SENTENCE: (u32, usize) = (24, 3);
/// ... and minimum letters of one in other scripts.
const SENTENCE_LETTERS: usize = 6;
/// Minimum characters of all sentences.
const CONTENT_SENTENCES: u32 = 36;
/// Minimum characters of a page with scripts that has no element for them to fill.
const FILLED_CHARS: u32 = 30;
/// Minimum characters and links of a page of a site that only lists links.
const LISTING_CHARS: u32 = 100;
const LISTING_LINKS: u32 = 6;

/// Returns whether the short text of a page says something.
pub(crate) fn is_content(read: &PageReading) -> bool {
    let facts = &read.facts;
    if facts.furnished
        && facts.links >= LISTING_LINKS
        && facts.visible.chars >= LISTING_CHARS
        && facts.mounts == 0
    {
        return true;
    }
    // A browser shows no more than the bytes do, where nothing runs and nothing is loaded.
    let is_all =
        facts.scripts == 0 && facts.frames == 0 && facts.components == 0 && facts.refresh.is_none();
    // Scripts without an element to fill only decorate what is there.
    let says = || facts.visible.chars >= FILLED_CHARS || sentence_chars(read) >= SENTENCE_CHARS;
    let is_filled = facts.mounts == 0 && facts.components == 0 && says();
    let is_own = read.frame_words.is_empty() && facts.links <= 1;
    if is_own && facts.visible.chars > 0 && (is_all || is_filled) {
        return true;
    }
    sentence_chars(read) >= CONTENT_SENTENCES
}

/// Returns whether a page that carries an application's scripts, but no element for them to fill,
/// says something: a sentence, or a form with its labels. Next to the marks of a framework, a short
/// sentence may be its own.
pub(crate) fn says_something(read: &PageReading, is_framework: bool) -> bool {
    let has_form = read.facts.inputs > 0 && read.facts.visible.chars > 0;
    let least = if is_framework { CONTENT_SENTENCES } else { SENTENCE_CHARS };
    has_form && read.frame_words.is_empty() || sentence_chars(read) >= least
}

/// Returns the characters of the sentences that belong to no frame.
fn sentence_chars(read: &PageReading) -> u32 {
    let text = read.visible_text();
    let (mut at, end, mut chars) = (0, text.len() as u32, 0);
    while at < end {
        let next = sentence_end(text, at, end);
        let is_framing = read.frame_words.iter().any(|word| (at..next).contains(&(*word + 1)));
        let sentence = text.get(at as usize..next as usize).unwrap_or_default();
        if !is_framing && is_sentence(sentence) {
            chars += count_chars(text, at, next);
        }
        at = next;
    }
    chars
}

/// Returns whether a text between two full stops is a sentence: enough words, or enough letters of
/// a script that does not separate them.
fn is_sentence(text: &str) -> bool {
    let chars = count_chars(text, 0, text.len() as u32);
    if chars < SENTENCE_CHARS {
        return false;
    }
    let dense = |c: char| matches!(c, '\u{E00}'..='\u{EFF}' | '\u{1780}'..='\u{17FF}' | '\u{3040}'..='\u{9FFF}');
    let letters = if text.is_ascii() { 0 } else { text.chars().filter(|c| dense(*c)).count() };
    let words =
        text.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count();
    let is_long = chars >= LONG_SENTENCE.0 && words >= LONG_SENTENCE.1;
    letters >= SENTENCE_LETTERS || words >= SENTENCE_WORDS || is_long
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_words_or_letters_of_a_dense_script() {
        for text in [
            "we are open all day.",
            "우리 동네 작은 빵집입니다.",
            "我是一名木匠。",
            "駅から歩いて五分です。",
        ] {
            assert!(is_sentence(text), "{text}");
        }
        for text in
            ["home about contact", "loading...", "404", "1 2 3 4 5 6 7 8 9 10", "菜单", "a b c d"]
        {
            assert!(!is_sentence(text), "{text}");
        }
    }
}
