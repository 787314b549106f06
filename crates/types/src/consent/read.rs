//! Terms in header values, and in the `content` of a `meta` element.
//!
//! Structured fields (`Content-Usage`, `Content-Signal`) are parsed by the crate `sfv`.
//! `X-Robots-Tag` and `Link` are older and are none.
//!
//! Invariants: time is linear in the length of a value, of which at most [`MAX_VALUE`] bytes are
//! read.

use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::{Purpose, Term, TermPlace, Vocabulary, is_named};
use crate::response::Header;

/// The most bytes of one value that are read. A longer value is unreadable.
const MAX_VALUE: usize = 8 << 10;
/// The longest address of a licence that is recorded.
const MAX_LICENSE: usize = 512;
/// Directives of `X-Robots-Tag` with a value after a colon; any other name before a colon is that
/// of a crawler.
const VALUED: [&str; 4] =
    ["unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"];

/// Returns the terms in the headers of a response, for the crawler called `agent`.
///
/// ```
/// use fetchwise_types::consent::{Purpose, header_terms};
/// use fetchwise_types::response::Header;
///
/// let headers = [Header::new("Content-Usage", "train-ai=n, search=y"), Header::new("X-Robots-Tag", "noarchive")];
/// let terms = header_terms(&headers, "fetchwise");
/// let said: Vec<_> = terms.iter().map(|term| (term.purpose.unwrap(), term.allowed.unwrap())).collect();
/// assert_eq!(said, [(Purpose::TrainAi, false), (Purpose::Search, true), (Purpose::Archive, false)]);
/// assert!(header_terms(&[Header::new("Content-Usage", "train-ai=(")], "fetchwise").is_empty());
/// ```
pub fn header_terms(headers: &[Header], agent: &str) -> Vec<Term> {
    let mut terms = Vec::new();
    for vocabulary in [Vocabulary::ContentUsage, Vocabulary::ContentSignal] {
        // Several headers of one name are one structured field.
        let mut values =
            headers.iter().filter(|header| header.name.eq_ignore_ascii_case(vocabulary.name()));
        let Some(first) = values.next() else { continue };
        let joined = values.fold(first.value.clone(), |joined, other| joined + ", " + &other.value);
        preferences(vocabulary, TermPlace::Header, &joined, &mut terms);
    }
    for header in headers {
        if header.name.eq_ignore_ascii_case("x-robots-tag") {
            robots_directives(&header.value, TermPlace::Header, agent, &mut terms);
        } else if header.name.eq_ignore_ascii_case("link") {
            licenses(&header.value, &mut terms);
        }
    }
    terms
}

/// Adds the preferences of a dictionary: `train-ai=n` of `Content-Usage`, `ai-train=no` of
/// `Content-Signal`.
pub(super) fn preferences(
    vocabulary: Vocabulary,
    place: TermPlace,
    value: &str,
    terms: &mut Vec<Term>,
) {
    if value.len() > MAX_VALUE {
        return;
    }
    let (usage, lowered);
    let value = match vocabulary {
        Vocabulary::ContentSignal => {
            // Its authors do not call it a structured field, and sites write its names in any case.
            lowered = value.to_ascii_lowercase();
            usage = false;
            &*lowered
        }
        _ => {
            usage = true;
            value
        }
    };
    let Ok(preferences) = Parser::new(value.trim()).parse::<Dictionary>() else { return };
    for (key, entry) in &preferences {
        let purpose = match (key.as_str(), usage) {
            ("search", _) => Purpose::Search,
            ("train-ai", true) | ("ai-train", false) => Purpose::TrainAi,
            ("ai-use", true) | ("ai-input", false) => Purpose::AiInput,
            _ => continue,
        };
        let ListEntry::Item(item) = entry else { continue };
        let BareItem::Token(token) = &item.bare_item else { continue };
        let allowed = match (token.as_str(), usage) {
            ("y", true) | ("yes", false) => true,
            ("n", true) | ("no", false) => false,
            _ => continue,
        };
        terms.push(Term::new(vocabulary, place, purpose, allowed));
    }
}

/// Adds the terms of an `X-Robots-Tag`, or of the `content` of a `meta` element: `noindex`, or
/// `otherbot: noindex`, where the name selects one crawler, by its product token, up to the next
/// name.
pub fn robots_directives(value: &str, place: TermPlace, agent: &str, terms: &mut Vec<Term>) {
    if value.len() > MAX_VALUE {
        return;
    }
    let mut is_meant = true;
    for part in value.split(',') {
        let mut directive = part.trim();
        if let Some((name, rest)) = directive.split_once(':') {
            let name = name.trim();
            if VALUED.iter().any(|valued| name.eq_ignore_ascii_case(valued)) {
                continue;
            }
            let is_token = |byte: u8| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'*' | b'/')
            };
            if name.is_empty() || !name.bytes().all(is_token) {
                continue;
            }
            is_meant = name == "*" || is_named(name, agent);
            directive = rest.trim();
        }
        if !is_meant {
            continue;
        }
        let reserved: &[Purpose] = match directive.to_ascii_lowercase().as_str() {
            "noindex" | "none" => &[Purpose::Search],
            "noai" => &[Purpose::TrainAi, Purpose::AiInput],
            "noarchive" => &[Purpose::Archive],
            _ => continue,
        };
        terms.extend(
            reserved
                .iter()
                .map(|purpose| Term::new(Vocabulary::XRobotsTag, place, *purpose, false)),
        );
    }
}

/// Adds the licences that a `Link` names:
/// `<https://e.org/license.xml>; rel="license"; type="application/rsl+xml"`.
fn licenses(value: &str, terms: &mut Vec<Term>) {
    if value.len() > MAX_VALUE {
        return;
    }
    for link in value.split('<').skip(1) {
        let Some((address, parameters)) = link.split_once('>') else { continue };
        let parameters = parameters.to_ascii_lowercase();
        if parameters.contains("license") && parameters.contains("application/rsl+xml") {
            license(TermPlace::Header, address, terms);
        }
    }
}

/// Adds a licence if its address is short, plain text.
pub(super) fn license(place: TermPlace, address: &str, terms: &mut Vec<Term>) {
    let address = address.trim();
    let is_plain = address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    if !address.is_empty() && address.len() <= MAX_LICENSE && is_plain {
        terms.push(Term::license(place, address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(headers: &[(&str, &str)]) -> Vec<String> {
        let headers: Vec<Header> =
            headers.iter().map(|(name, value)| Header::new(*name, *value)).collect();
        header_terms(&headers, "ExampleBot").iter().map(Term::to_string).collect()
    }

    #[test]
    fn each_vocabulary_is_read_by_its_own_names() {
        assert_eq!(
            said(&[
                ("content-usage", "train-ai=n;x=1, ai-use=y, bots=n, search=maybe"),
                ("Content-Usage", "search=y")
            ]),
            [
                "train-ai=n content-usage header",
                "ai-input=y content-usage header",
                "search=y content-usage header"
            ]
        );
        assert_eq!(
            said(&[("Content-Signal", "Search=Yes,ai-train=no, ai-input=no, train-ai=n")]),
            [
                "search=y content-signal header",
                "train-ai=n content-signal header",
                "ai-input=n content-signal header"
            ]
        );
        assert_eq!(
            said(&[("X-Robots-Tag", "NoIndex, noai"), ("x-robots-tag", "noarchive")]),
            [
                "search=n x-robots-tag header",
                "train-ai=n x-robots-tag header",
                "ai-input=n x-robots-tag header",
                "archive=n x-robots-tag header"
            ]
        );
        assert_eq!(
            said(&[(
                "Link",
                "</a>; rel=next, <https://e.org/l.xml>; rel=\"license\"; type=\"application/rsl+xml\", </b>; rel=license"
            )]),
            ["license=https://e.org/l.xml rsl header"]
        );
    }

    #[test]
    fn what_cannot_be_read_says_nothing() {
        for value in [
            "train-ai=n, (",
            "train-ai",
            "train-ai=?0",
            "train-ai=\"n\"",
            "train-ai=N",
            "TRAIN-AI=n",
            "",
            "=",
            "é",
        ] {
            assert!(said(&[("content-usage", value)]).is_empty(), "{value}");
        }
        assert!(
            said(&[("content-usage", &format!("train-ai=n, x={}", "a".repeat(MAX_VALUE)))])
                .is_empty()
        );
        assert!(
            said(&[
                ("content-signal", "ai-train=false"),
                ("x-robots-tag", "follow, : , ::"),
                ("link", "<")
            ])
            .is_empty()
        );
        assert!(
            said(&[("link", "<https://e.org/\u{e9}>; rel=license; type=application/rsl+xml")])
                .is_empty()
        );
    }

    #[test]
    fn directives_for_another_crawler_do_not_count() {
        let directives = |value: &str| said(&[("x-robots-tag", value)]).len();
        assert_eq!(directives("otherbot: noindex, noarchive"), 0);
        assert_eq!(directives("examplebot: noindex, noarchive"), 2);
        assert_eq!(directives("otherbot: noindex, ExampleBot: noarchive"), 1);
        assert_eq!(directives("unavailable_after: Fri, 25 Jun 2027 15:00:00 GMT, noindex"), 1);
        assert_eq!(directives("max-snippet: 20, none"), 1);
    }

    #[test]
    fn directives_name_a_crawler_by_its_product_token() {
        let directives = |value: &str, agent: &str| {
            let mut terms = Vec::new();
            robots_directives(value, TermPlace::Header, agent, &mut terms);
            terms.len()
        };
        for agent in ["ExampleBot/1.0", "examplebot", "ExampleBot/1.0 (+https://bot.example)"] {
            assert_eq!(directives("examplebot: noindex, noarchive", agent), 2, "{agent}");
            assert_eq!(
                directives("otherbot: noindex, ExampleBot/2.0: noarchive", agent),
                1,
                "{agent}"
            );
            assert_eq!(
                directives("example: noindex, examplebot-news: noarchive", agent),
                0,
                "{agent}"
            );
        }
        assert_eq!(
            (directives("360bot: noindex", "360bot"), directives("361bot: noindex", "360bot")),
            (1, 0)
        );
        assert_eq!(directives("otherbot: noindex", ""), 0);
    }
}
