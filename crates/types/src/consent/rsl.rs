//! Terms in files of RSL (Really Simple Licensing 1.0): the uses that a licence permits, and those
//! that it prohibits.
//!
//! Invariants: a file has at most [`MAX_RSL_BYTES`] bytes, [`MAX_NODES`] nodes and no document
//! type, or it says nothing. A use that no element names is unknown.
//!
//! Must not know: where a file came from, and how a licence is obtained.

use roxmltree::{Document, Node, ParsingOptions};
use url::{Position, Url};

use super::robots::{matches, normal};
use super::{Purpose, Term, TermPlace, Vocabulary};

/// The longest file that is read.
pub const MAX_RSL_BYTES: usize = 64 << 10;
/// The most nodes of a file that is read.
const MAX_NODES: u32 = 10_000;
/// The namespace of RSL. Files without one are read too.
const NAMESPACE: &str = "https://rslstandard.org/rsl";
/// The purposes that RSL names.
const PURPOSES: [Purpose; 3] = [Purpose::Search, Purpose::TrainAi, Purpose::AiInput];
/// The kinds of payment that ask for no money.
const FREE: [&str; 2] = ["free", "attribution"];

/// The terms of one file of RSL.
#[derive(Clone, Debug, Default)]
pub struct RslTerms {
    contents: Vec<ContentTerms>,
}

/// The terms of a `content` element.
#[derive(Clone, Debug)]
struct ContentTerms {
    /// Host, and port if there is one, of an address with a scheme. A path alone applies to each
    /// site that names the file.
    authority: Option<Box<str>>,
    /// Pattern of paths, with its escapes in one form.
    pattern: Box<str>,
    /// Each purpose that is named, and whether it is permitted.
    purposes: Vec<(Purpose, bool)>,
}

impl RslTerms {
    /// Reads a file. One that is not RSL has no terms.
    ///
    /// ```
    /// use fetchwise_types::consent::{RslTerms, TermPlace};
    ///
    /// let text = br#"<rsl xmlns="https://rslstandard.org/rsl"><content url="/news/">
    ///     <license><permits type="usage">search</permits><prohibits type="usage">ai-all</prohibits></license>
    /// </content></rsl>"#;
    /// let terms = RslTerms::read(text);
    /// let said = |url: &str| terms.at(&url.parse().unwrap(), TermPlace::RobotsTxt).len();
    /// assert_eq!((said("https://e.org/news/1"), said("https://e.org/about")), (3, 0));
    /// ```
    pub fn read(text: &[u8]) -> Self {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_RSL_BYTES);
        let options = ParsingOptions {
            allow_dtd: false,
            nodes_limit: MAX_NODES,
            ..ParsingOptions::default()
        };
        let text = text.map(|text| text.trim_start_matches('\u{feff}').trim_start());
        let Some(document) = text.and_then(|text| Document::parse_with_options(text, options).ok())
        else {
            return Self::default();
        };
        let root = document.root_element();
        let contents = elements(root, "content")
            .filter(|_| is_named(root, "rsl"))
            .filter_map(ContentTerms::read);
        Self { contents: contents.collect() }
    }

    /// Returns the terms of `url`, whose site names the file at `place`. The `content` elements
    /// with the longest pattern count; equal ones count together.
    pub fn at(&self, url: &Url, place: TermPlace) -> Vec<Term> {
        let path = normal(&url[Position::BeforePath..Position::AfterQuery]);
        let authority = &url[Position::BeforeHost..Position::AfterPort];
        let matching = || {
            let of_host = |content: &&ContentTerms| {
                content.authority.as_ref().is_none_or(|named| named.eq_ignore_ascii_case(authority))
            };
            self.contents.iter().filter(of_host).filter(|content| matches(&content.pattern, &path))
        };
        let Some(longest) = matching().map(|content| content.pattern.len()).max() else {
            return Vec::new();
        };
        let decisive = matching().filter(|content| content.pattern.len() == longest);
        let purposes = decisive.flat_map(|content| &content.purposes);
        purposes
            .map(|(purpose, allowed)| Term::new(Vocabulary::Rsl, place, *purpose, *allowed))
            .collect()
    }
}

impl ContentTerms {
    /// Reads a `content` element. `None` without a term.
    fn read(content: Node<'_, '_>) -> Option<Self> {
        let url = content.attribute("url")?.trim();
        let (authority, path) = match url.split_once("://") {
            Some((_, rest)) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (Some(authority), path)
            }
            None => (None, url),
        };
        let pattern = if path.is_empty() { "/" } else { path };
        // With a server, even a free licence has to be obtained.
        let has_server = content.has_attribute("server");
        let (mut granted, mut withheld, mut prohibited) = (Vec::new(), Vec::new(), Vec::new());
        for license in elements(content, "license") {
            prohibited.extend(usages(license, "prohibits"));
            let permitted = usages(license, "permits");
            let is_free = elements(license, "payment").all(|payment| {
                payment.attribute("type").is_none_or(|kind| {
                    FREE.iter().any(|free| kind.trim().eq_ignore_ascii_case(free))
                })
            });
            // A licence for some users or countries may not be one for this crawler.
            let is_limited = ["permits", "prohibits"].into_iter().any(|name| {
                elements(license, name)
                    .any(|one| one.attribute("type").is_some_and(|kind| kind.trim() != "usage"))
            });
            match (has_server || !is_free, is_limited) {
                (true, _) => withheld.extend(permitted),
                (false, false) => granted.extend(permitted),
                (false, true) => {}
            }
        }
        let allowed = |purpose: &Purpose| {
            if prohibited.contains(purpose) {
                return Some(false);
            }
            let is_granted = granted.contains(purpose);
            (is_granted || withheld.contains(purpose)).then_some(is_granted)
        };
        let purposes: Vec<_> =
            PURPOSES.iter().filter_map(|purpose| Some((*purpose, allowed(purpose)?))).collect();
        let authority = authority.map(Into::into);
        (!purposes.is_empty()).then(|| Self {
            authority,
            pattern: normal(pattern).into(),
            purposes,
        })
    }
}

/// Returns the purposes that the usage elements of a licence name.
fn usages(license: Node<'_, '_>, name: &'static str) -> Vec<Purpose> {
    let of_usage =
        |one: &Node<'_, '_>| one.attribute("type").is_some_and(|kind| kind.trim() == "usage");
    let texts = elements(license, name).filter(of_usage).filter_map(|one| one.text());
    // Version 1.0 separates uses by spaces; its drafts used commas, and other names.
    let names = texts.flat_map(|text| text.split(|c: char| c.is_whitespace() || c == ','));
    let purposes = names.flat_map(|name| match name.to_ascii_lowercase().as_str() {
        "all" => &PURPOSES[..],
        "ai-all" => &[Purpose::TrainAi, Purpose::AiInput],
        "search" => &[Purpose::Search],
        "ai-train" | "train-ai" => &[Purpose::TrainAi],
        "ai-input" => &[Purpose::AiInput],
        _ => &[],
    });
    purposes.copied().collect()
}

fn elements<'a, 'i>(node: Node<'a, 'i>, name: &'static str) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(move |child| is_named(*child, name))
}

fn is_named(node: Node<'_, '_>, name: &str) -> bool {
    let tag = node.tag_name();
    node.is_element()
        && tag.name() == name
        && tag.namespace().is_none_or(|namespace| namespace == NAMESPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, url: &str) -> Vec<String> {
        let terms = RslTerms::read(text.as_bytes()).at(&url.parse().unwrap(), TermPlace::RobotsTxt);
        terms.iter().map(|term| term.to_string().split(' ').next().unwrap().to_owned()).collect()
    }

    fn file(contents: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?>\n<rsl xmlns=\"https://rslstandard.org/rsl\">{contents}</rsl>"
        )
    }

    fn content(url: &str, license: &str) -> String {
        format!("<content url=\"{url}\"><license>{license}</license></content>")
    }

    const NO_AI: &str = "<prohibits type=\"usage\">ai-all</prohibits>";
    const SEARCH: &str = "<permits type=\"usage\">search</permits>";

    #[test]
    fn each_use_has_its_purposes_and_a_prohibition_wins() {
        let uses = |element: &str, uses: &str| {
            at(
                &file(&content("/", &format!("<{element} type=\"usage\">{uses}</{element}>"))),
                "https://e.org/a",
            )
        };
        assert_eq!(uses("permits", "search ai-input"), ["search=y", "ai-input=y"]);
        assert_eq!(uses("prohibits", "ai-train"), ["train-ai=n"]);
        assert_eq!(uses("prohibits", "AI-ALL,ai-index"), ["train-ai=n", "ai-input=n"]);
        assert_eq!(uses("permits", "all"), ["search=y", "train-ai=y", "ai-input=y"]);
        assert!(uses("permits", "ai-index unheard-of").is_empty());
        let both =
            "<permits type=\"usage\">all</permits><prohibits type=\"usage\">ai-train</prohibits>";
        assert_eq!(
            at(&file(&content("/", both)), "https://e.org/a"),
            ["search=y", "train-ai=n", "ai-input=y"]
        );
        let users = "<permits type=\"user\">search</permits><prohibits>ai-train</prohibits>";
        assert!(
            at(&file(&content("/", users)), "https://e.org/a").is_empty(),
            "only uses are read"
        );
    }

    #[test]
    fn a_licence_that_has_to_be_paid_or_obtained_does_not_permit() {
        let with = |payment: &str| {
            at(&file(&content("/", &format!("{SEARCH}{payment}"))), "https://e.org/a")
        };
        for free in [
            "",
            "<payment type=\"free\"/>",
            "<payment type=\"attribution\"><standard>x</standard></payment>",
        ] {
            assert_eq!(with(free), ["search=y"], "{free}");
        }
        for paid in ["crawl", "use", "subscription", "unheard-of"] {
            assert_eq!(with(&format!("<payment type=\"{paid}\"/>")), ["search=n"], "{paid}");
        }
        assert!(
            with("<permits type=\"user\">education</permits>").is_empty(),
            "it may not be for this crawler"
        );
        let server = format!(
            "<content url=\"/\" server=\"https://l.org\"><license>{SEARCH}</license></content>"
        );
        assert_eq!(at(&file(&server), "https://e.org/a"), ["search=n"]);
        let two = format!(
            "<content url=\"/\"><license>{SEARCH}<payment type=\"crawl\"/></license><license>{SEARCH}</license></content>"
        );
        assert_eq!(at(&file(&two), "https://e.org/a"), ["search=y"], "one free licence is enough");
    }

    #[test]
    fn the_longest_pattern_of_the_host_counts() {
        let text = file(
            &[
                content("/", NO_AI),
                content("/open/*.html$", SEARCH),
                content("https://e.org/b", SEARCH),
                content("https://other.org/b/c", NO_AI),
            ]
            .concat(),
        );
        assert_eq!(at(&text, "https://e.org/a"), ["train-ai=n", "ai-input=n"]);
        assert_eq!(at(&text, "https://e.org/open/1.html"), ["search=y"]);
        assert_eq!(at(&text, "https://e.org/open/1.html?q"), ["train-ai=n", "ai-input=n"]);
        assert_eq!(
            (at(&text, "https://e.org/b/c"), at(&text, "https://other.org/b/c").len()),
            (vec!["search=y".into()], 2)
        );
    }

    #[test]
    fn a_file_that_is_not_rsl_says_nothing() {
        let good = file(&content("/", NO_AI));
        let plain = good.replace(" xmlns=\"https://rslstandard.org/rsl\"", "");
        assert_eq!(at(&plain, "https://e.org/").len(), 2, "a file without namespace is read");
        let entity = "<!DOCTYPE rsl [<!ENTITY a \"ai-all\">]>";
        for text in [
            String::new(),
            "<rsl>".to_owned(),
            good.replace("rslstandard", "other"),
            good.replace("<rsl ", "<license ").replace("</rsl>", "</license>"),
            good.replace("url=", "href="),
            good.replacen("?>\n", &format!("?>{entity}"), 1).replace("ai-all<", "&a;<"),
            file(&(content("/", NO_AI) + &" ".repeat(MAX_RSL_BYTES))),
            file(&(content("/", NO_AI) + &"<a/>".repeat(MAX_NODES as usize))),
            "<a>".repeat(20_000),
        ] {
            assert!(at(&text, "https://e.org/").is_empty(), "{}", &text[..text.len().min(200)]);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), url in "\\PC{0,20}") {
            let _ = RslTerms::read(&text);
            let text = file(&content(&url.replace(['<', '&', '"'], ""), NO_AI));
            let _ = at(&text, "https://e.org/a");
        }
    }
}
