//! Sentences, quotations and list items in the main content.
//!
//! Owns: where a sentence, a quotation or a list item begins and ends, and how long it is for a
//! reader.
//!
//! Invariants: each offset stands between two characters. The cost grows with the length of the
//! text.
//!
//! Must not know: what words mean.

/// Minimum characters of a quotation, and minimum bytes of the sentence before it.
const QUOTATION_CHARS: u32 = 20;
const BEFORE_QUOTATION: u32 = 10;

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
pub(crate) fn quotation(text: &str, at: u32, end: u32) -> Option<(u32, u32)> {
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
pub(crate) fn bullets(text: &str) -> usize {
    memchr::memchr_iter(b' ', text.as_bytes())
        .filter(|&at| bullet(&text.as_bytes()[at..]) > 0)
        .count()
}

/// Returns whether a list item begins at `at`.
pub(crate) fn follows_bullet(text: &str, at: u32) -> bool {
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
}
