//! What in a text names a thing instead of saying something: hosts, URLs, addresses, numbers of
//! requests.
//!
//! Owns: how these look.
//!
//! Must not know: what their presence says about a page.

/// Maximum bytes of a URL before a word in it, and after.
const MAX_ADDRESS: usize = 256;

/// Returns whether a text names a host, such as `lark.example`.
pub(crate) fn names_host(text: &str) -> bool {
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
pub(crate) fn is_in_address(text: &[u8], at: usize) -> bool {
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

pub(crate) fn has_digit(text: &str) -> bool {
    // The digits of other scripts are outside ASCII.
    text.bytes().any(|byte| byte.is_ascii_digit())
        || !text.is_ascii() && text.chars().any(char::is_numeric)
}

/// Returns whether the text contains an IP address, or its placeholder in a vendor's template.
pub(crate) fn has_address(text: &str) -> bool {
    text.contains("::client_ip::")
        || text.split(|c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':'))).any(|token| {
            let token = token.trim_matches(['.', ':']);
            let is_v4 = token.len() >= 7 && token.parse::<std::net::Ipv4Addr>().is_ok();
            is_v4 || (token.len() >= 12 && token.parse::<std::net::Ipv6Addr>().is_ok())
        })
}

/// Returns whether the text contains a request number: long, with digits and with letters or
/// hyphens, or with many digits.
pub(crate) fn has_number(text: &str) -> bool {
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
}
