//! Terms in robots.txt: `Content-Usage`, `Content-Signal` and `License` in the groups for a crawler.
//!
//! Invariants: at most [`MAX_RULES`] rules are kept. A match takes time linear in the length of the path for each rule.
//!
//! Must not know: which paths may be fetched, and where the file came from.

use memchr::memmem;

use super::read::{license, preferences};
use super::{Term, TermPlace, Vocabulary, product_token};

/// The most bytes of a file that are read.
const MAX_BYTES: usize = 512 << 10;
/// The most rules that are kept of one file.
const MAX_RULES: usize = 500;
/// The most licences that are kept of one file.
const MAX_LICENSES: usize = 4;
/// The longest pattern of a path that is read.
const MAX_PATTERN: usize = 2 << 10;

/// The terms of one origin's robots.txt for one crawler.
#[derive(Clone, Debug, Default)]
pub struct RobotsTerms {
    rules: Vec<TermRule>,
    licenses: Vec<Term>,
}

#[derive(Clone, Debug)]
struct TermRule {
    vocabulary: Vocabulary,
    /// Pattern of paths, with its escapes in one form.
    pattern: Box<str>,
    terms: Box<[Term]>,
}

impl RobotsTerms {
    /// Reads the terms for the crawler called `agent`. Groups for its name count if there are any, those for `*`
    /// otherwise.
    ///
    /// ```
    /// use fetchwise_types::consent::RobotsTerms;
    ///
    /// let text = b"User-agent: *\nContent-Usage: train-ai=n\nContent-Usage: /open/ train-ai=y";
    /// let terms = RobotsTerms::read(text, "fetchwise");
    /// assert_eq!(terms.at("/a")[0].to_string(), "train-ai=n content-usage robots.txt");
    /// assert_eq!(terms.at("/open/a")[0].to_string(), "train-ai=y content-usage robots.txt");
    /// ```
    pub fn read(text: &[u8], agent: &str) -> Self {
        let text = String::from_utf8_lossy(&text[..text.len().min(MAX_BYTES)]);
        let (mut own, mut any) = (None::<Self>, Self::default());
        let mut licenses = Vec::new();
        let (mut is_own, mut is_any, mut names_agents, mut in_group) = (false, false, false, false);
        for line in text.trim_start_matches('\u{feff}').split(['\r', '\n']) {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else { continue };
            let (key, value) = (key.trim(), value.trim());
            if is_key(key, &["user-agent", "useragent", "user agent"]) {
                if !names_agents {
                    (is_own, is_any, names_agents, in_group) = (false, false, true, true);
                }
                let token = product_token(value);
                is_own |= !token.is_empty() && token.eq_ignore_ascii_case(product_token(agent));
                is_any |= value.starts_with('*');
                if is_own {
                    own.get_or_insert_default();
                }
                continue;
            }
            if is_key(key, &["license"]) {
                // A licence of the whole file, or of a group for this crawler.
                if (is_own || is_any || !in_group) && licenses.len() < MAX_LICENSES {
                    license(TermPlace::RobotsTxt, value, &mut licenses);
                }
                continue;
            }
            let vocabulary = if is_key(key, &["content-usage"]) {
                Some(Vocabulary::ContentUsage)
            } else if is_key(key, &["content-signal", "content-signals"]) {
                Some(Vocabulary::ContentSignal)
            } else {
                None
            };
            let is_rule = vocabulary.is_some() || is_key(key, &["allow", "disallow", "crawl-delay"]);
            if is_rule {
                names_agents = false;
            }
            let Some(rule) = vocabulary.and_then(|vocabulary| TermRule::read(vocabulary, value)) else { continue };
            if let Some(own) = own.as_mut().filter(|_| is_own) {
                own.add(rule);
            } else if is_any {
                any.add(rule);
            }
        }
        Self { licenses, ..own.unwrap_or(any) }
    }

    fn add(&mut self, rule: TermRule) {
        if self.rules.len() < MAX_RULES {
            self.rules.push(rule);
        }
    }

    /// Returns the terms of the path (with its query) of a URL. In each vocabulary the rules with the longest pattern
    /// count; equal ones count together.
    pub fn at(&self, path: &str) -> Vec<Term> {
        let mut terms = Vec::new();
        if !self.rules.is_empty() {
            let path = normal(path);
            for vocabulary in [Vocabulary::ContentUsage, Vocabulary::ContentSignal] {
                let matching = || {
                    let of_it = self.rules.iter().filter(|rule| rule.vocabulary == vocabulary);
                    of_it.filter(|rule| matches(&rule.pattern, &path))
                };
                let Some(longest) = matching().map(|rule| rule.pattern.len()).max() else { continue };
                for rule in matching().filter(|rule| rule.pattern.len() == longest) {
                    terms.extend(rule.terms.iter().cloned());
                }
            }
        }
        terms.extend(self.licenses.iter().cloned());
        terms
    }

    /// Returns whether the file has no terms.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.licenses.is_empty()
    }

    /// Returns about how many bytes of memory the terms take.
    pub fn bytes(&self) -> usize {
        let rule = |rule: &TermRule| size_of::<TermRule>() + rule.pattern.len() + rule.terms.len() * size_of::<Term>();
        let licenses =
            self.licenses.iter().map(|term| size_of::<Term>() + term.license.as_ref().map_or(0, |l| l.len()));
        self.rules.iter().map(rule).sum::<usize>() + licenses.sum::<usize>()
    }
}

impl TermRule {
    /// Reads `[/path] preferences`. `None` without a term that can be read: a pattern without terms does not hide a
    /// shorter one.
    fn read(vocabulary: Vocabulary, value: &str) -> Option<Self> {
        let (pattern, value) = match value.starts_with('/') {
            true => value.split_once([' ', '\t'])?,
            false => ("/", value),
        };
        if pattern.len() > MAX_PATTERN {
            return None;
        }
        let mut terms = Vec::new();
        preferences(vocabulary, TermPlace::RobotsTxt, value, &mut terms);
        (!terms.is_empty()).then(|| Self { vocabulary, pattern: normal(pattern).into(), terms: terms.into() })
    }
}

fn is_key(key: &str, names: &[&str]) -> bool {
    names.iter().any(|name| key.eq_ignore_ascii_case(name))
}

/// Returns a path or pattern with its escapes in one form: characters that need none stand for themselves, all others
/// are escaped in upper case.
pub(super) fn normal(path: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8);
    let bytes = path.as_bytes();
    let mut out = String::with_capacity(path.len());
    let escape = |out: &mut String, byte: u8| {
        out.push('%');
        out.push(char::from(HEX[usize::from(byte >> 4)]));
        out.push(char::from(HEX[usize::from(byte & 15)]));
    };
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        if byte == b'%'
            && let (Some(high), Some(low)) = (digit(bytes.get(at)), digit(bytes.get(at + 1)))
        {
            at += 2;
            let decoded = high << 4 | low;
            match decoded.is_ascii_alphanumeric() || matches!(decoded, b'-' | b'.' | b'_' | b'~') {
                true => out.push(char::from(decoded)),
                false => escape(&mut out, decoded),
            }
        } else if byte.is_ascii_graphic() {
            out.push(char::from(byte));
        } else {
            escape(&mut out, byte);
        }
    }
    out
}

/// Returns whether a pattern with `*` and a final `$` matches the beginning of `path`. The leftmost place of each part
/// leaves most for the next one, so that no part is searched for twice.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, is_whole) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut parts = pattern.split('*');
    let Some(mut rest) = path.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut last = None;
    for part in parts {
        last = Some(part);
        let Some(found) = memmem::find(rest.as_bytes(), part.as_bytes()) else { return false };
        rest = &rest[found + part.len()..];
    }
    match last {
        _ if !is_whole || rest.is_empty() => true,
        // The last part may stand at the end as well.
        Some(part) => rest.ends_with(part),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str, path: &str) -> Vec<String> {
        RobotsTerms::read(text.as_bytes(), "ExampleBot/1.0").at(path).iter().map(Term::to_string).collect()
    }

    #[test]
    fn the_own_group_counts_else_the_one_for_all() {
        let text = "Content-Usage: search=n\nUser-agent: other\nContent-Usage: search=n\n\nUser-Agent: *\nAllow: /\n\
                    content-usage : train-ai=n # why\n";
        assert_eq!(at(text, "/"), ["train-ai=n content-usage robots.txt"]);
        let own =
            format!("{text}\nuser-agent: other\nuser-agent: EXAMPLEBOT\nDisallow: /x\nContent-Signal: ai-train=yes");
        assert_eq!(at(&own, "/a"), ["train-ai=y content-signal robots.txt"]);
        let silent = format!("{text}\nuser-agent: examplebot\nDisallow: /x\n");
        assert!(at(&silent, "/a").is_empty(), "its own group says nothing");
        let two =
            format!("{own}\nUser-agent: a\nContent-Usage: search=n\nUser-agent: ExampleBot\nContent-Usage: search=y");
        assert_eq!(at(&two, "/a"), ["search=y content-usage robots.txt", "train-ai=y content-signal robots.txt"]);
    }

    #[test]
    fn the_longest_path_counts_and_equal_ones_count_together() {
        let text = "User-agent: *\nContent-Usage: train-ai=n\nContent-Usage: /a train-ai=y\nContent-Usage: /a search=n\n\
                    Content-Usage: /a/b/ nonsense\nContent-Usage: /a*.pdf$ train-ai=n\nContent-Signal: search=no";
        let usage = |path: &str| -> Vec<String> {
            let said = at(text, path).into_iter().filter(|term| term.contains("usage"));
            said.map(|term| term.split(' ').next().unwrap().to_owned()).collect()
        };
        assert_eq!(usage("/"), ["train-ai=n"]);
        assert_eq!(usage("/a/c"), ["train-ai=y", "search=n"]);
        assert_eq!(usage("/a/b/c"), ["train-ai=y", "search=n"], "a rule that cannot be read hides none");
        assert_eq!((usage("/a/x.pdf"), usage("/a/x.pdf?y").len()), (vec!["train-ai=n".to_owned()], 2));
        assert_eq!(at(text, "/").len(), 2, "each vocabulary has its own longest path");
    }

    #[test]
    fn escapes_and_wildcards_match_as_in_robots_txt() {
        for (pattern, path, does) in [
            ("/", "/x", true),
            ("/a%7eb", "/a~b", true),
            ("/a%2Fb", "/a/b", false),
            ("/\u{e9}", "/%C3%A9", true),
            ("/*.pdf", "/a/b.pdf?x", true),
            ("/*.pdf$", "/a.pdf/b.pdf", true),
            ("/*.pdf$", "/a.pdf?", false),
            ("/a$", "/a", true),
            ("/a$", "/ab", false),
            ("/*/*/x", "/1/x", false),
            ("/*a*a$", "/xaa", true),
        ] {
            assert_eq!(matches(&normal(pattern), &normal(path)), does, "{pattern} {path}");
        }
    }

    #[test]
    fn licenses_are_recorded() {
        let text = "License: https://e.org/license.xml\nUser-agent: *\nAllow: /";
        assert_eq!(at(text, "/a"), ["license=https://e.org/license.xml rsl robots.txt"]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(any::<u8>(), 0..200), path in "\\PC{0,40}") {
            let _ = RobotsTerms::read(&text, "x").at(&path);
            let lines = format!("User-agent: *\nContent-Usage: {}\nContent-Signal: /{path} ai-train=no", String::from_utf8_lossy(&text));
            let terms = RobotsTerms::read(lines.as_bytes(), "x");
            let _ = (terms.at(&path), terms.bytes());
        }
    }
}
