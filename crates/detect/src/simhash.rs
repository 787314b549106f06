//! The SimHash of a page with little text: 64 bits that differ little for texts that differ little.
//!
//! Words with digits, with a slash and with a dot inside are left out, so that neither a request
//! number nor the address that a page echoes makes it a different one.
//!
//! Must not know: what the text means.

/// Minimum words that bits are computed from: fewer words make different pages look alike.
const MIN_WORDS: u32 = 4;

/// Returns the SimHash of a folded text. For texts of few words it is an exact hash.
pub(super) fn simhash(text: &str) -> u64 {
    let mut counts = [0i16; 64];
    let mut words = 0u32;
    let mut before = 0u64;
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty() && !is_of_address(word)) {
        let hash = xxhash_rust::xxh3::xxh3_64(word.as_bytes());
        // Words count together with the word before them, so that their order matters.
        let pair = hash ^ before.rotate_left(23);
        before = hash;
        for (bit, count) in counts.iter_mut().enumerate() {
            *count += if pair >> bit & 1 == 1 { 1 } else { -1 };
        }
        words += 1;
        if words == i16::MAX as u32 {
            break;
        }
    }
    let hash =
        counts.iter().enumerate().fold(0, |hash, (bit, count)| hash | u64::from(*count > 0) << bit);
    if words >= MIN_WORDS { hash } else { xxhash_rust::xxh3::xxh3_64(text.as_bytes()) }
}

/// Returns whether a word may be part of an address or a number, which pages echo.
fn is_of_address(word: &str) -> bool {
    let inner = word.trim_matches(|c: char| !c.is_alphanumeric());
    word.bytes().any(|b| b.is_ascii_digit() || b == b'/') || inner.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(a: &str, b: &str) -> u32 {
        (simhash(a) ^ simhash(b)).count_ones()
    }

    #[test]
    fn the_same_page_with_another_number_or_path_has_nearly_the_same_hash() {
        let refusal = "we are sorry but something about your visit made us stop it please write to us and name the number below so that \
                    we can find out what happened thank you for your patience number ";
        assert_eq!(distance(&format!("{refusal}8f3a"), &format!("{refusal}91bc22")), 0);
        assert_eq!(distance(&format!("{refusal} /a/garden"), &format!("{refusal} /b/kitchen")), 0);
        assert_eq!(
            distance(
                &format!("{refusal} lark.example."),
                &format!("{refusal} (www.heron.example)")
            ),
            0
        );
        assert!(
            distance(&format!("{refusal} closed."), &format!("{refusal} open.")) > 0,
            "a dot at the end is none inside"
        );
    }

    #[test]
    fn different_pages_have_different_hashes_even_with_few_words() {
        let (one, two) = (
            "opening hours of the museum monday to friday nine to five closed on holidays",
            "the ferry leaves from the old harbour every hour and takes cars and bicycles",
        );
        assert!(distance(one, two) > 12, "{}", distance(one, two));
        assert!(distance("page not found", "page not here") > 12);
        assert_eq!(distance("1 2 3 4", "1 2 3 4"), 0);
    }
}
