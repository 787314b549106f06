//! The groups of a robots.txt that are for one crawler, and their terms: `Content-Usage`,
//! `Content-Signal` and `License`.
//!
//! Owns: [`RobotsGroup`], the one choice of groups. What a file forbids and what it reserves are
//! read from the same lines.
//!
//! Invariants: beyond [`MAX_RULES`] rules, only those that reserve are kept. A match takes time
//! linear in the length of the path for each rule.
//!
//! Must not know: which paths may be fetched, and where the file came from.

use memchr::memmem;

use super::read::{license, preferences};
use super::{Term, TermPlace, Vocabulary, is_named};

/// The most bytes of a robots.txt that are read (RFC 9309, section 2.5). What follows is ignored,
/// together with the line that passes this limit.
pub const MAX_ROBOTS_BYTES: usize = 500 << 10;
/// The number of rules beyond which one that only permits is not kept.
const MAX_RULES: usize = 500;
/// The most licences that are kept of one file.
const MAX_LICENSES: usize = 4;
/// The longest pattern of a path that is read.
const MAX_PATTERN: usize = 2 << 10;
/// The names of the lines that belong to groups, with misspellings that the parser of the paths
/// reads, too.
const KEYS: [(&str, Key); 19] = [
    ("user-agent", Key::Agent),
    ("user agent", Key::Agent),
    ("useragent", Key::Agent),
    ("allow", Key::Access),
    ("alow", Key::Access),
    ("allaw", Key::Access),
    ("disallow", Key::Access),
    ("dissallow", Key::Access),
    ("dissalow", Key::Access),
    ("disalow", Key::Access),
    ("diasllow", Key::Access),
    ("disallaw", Key::Access),
    ("crawl-delay", Key::Access),
    ("crawl delay", Key::Access),
    ("crawldelay", Key::Access),
    ("content-usage", Key::Terms(Vocabulary::ContentUsage)),
    ("content-signal", Key::Terms(Vocabulary::ContentSignal)),
    ("content-signals", Key::Terms(Vocabulary::ContentSignal)),
    ("license", Key::License),
];

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    /// It names a crawler for which the group is.
    Agent,
    /// A rule about paths, or the crawl delay.
    Access,
    /// A rule about use.
    Terms(Vocabulary),
    /// A licence: of its group, or of the whole file if it stands before all groups.
    License,
}

/// The groups of a robots.txt for one crawler: those for its name if there are any, those for `*`
/// otherwise.
#[derive(Clone, Debug)]
pub struct RobotsGroup<'t> {
    name: String,
    rules: Vec<GroupRule<'t>>,
    licenses: Vec<&'t [u8]>,
}

#[derive(Clone, Copy, Debug)]
struct GroupRule<'t> {
    key: Key,
    value: &'t [u8],
    line: &'t [u8],
}

impl<'t> RobotsGroup<'t> {
    /// Selects the groups for the crawler called `agent`. A group is for it if one of its names has
    /// the same [product token](super::product_token).
    ///
    /// ```
    /// use fetchwise_types::consent::RobotsGroup;
    ///
    /// let text = b"User-agent: *\nDisallow: /\n\nUser-agent: ExampleBot/1.0\nDisallow: /private/";
    /// let group = RobotsGroup::read(text, "examplebot");
    /// assert_eq!((group.name(), group.access_rules()), ("examplebot/1.0", b"useragent *\nDisallow: /private/".to_vec()));
    /// ```
    pub fn read(text: &'t [u8], agent: &str) -> Self {
        let (mut own, mut any) = (None::<Self>, Self::named("*".to_owned()));
        let mut licenses = Vec::new();
        let (mut is_own, mut is_any, mut names_agents, mut in_group) = (false, false, false, false);
        let text = whole_lines(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text));
        for line in text.split(is_line_end) {
            let Some((key, value)) = read_line(line) else { continue };
            match key {
                Key::Agent => {
                    if !names_agents {
                        (is_own, is_any, names_agents, in_group) = (false, false, true, true);
                    }
                    let name = String::from_utf8_lossy(value);
                    is_any |= name.split_ascii_whitespace().next() == Some("*");
                    if is_named(&name, agent) {
                        is_own = true;
                        own.get_or_insert_with(|| Self::named(name.to_ascii_lowercase()));
                    }
                }
                Key::License if is_own || is_any || !in_group => licenses.push(value),
                Key::License => {}
                Key::Access | Key::Terms(_) => {
                    names_agents = false;
                    let rule = GroupRule { key, value, line };
                    if let Some(own) = own.as_mut().filter(|_| is_own) {
                        own.rules.push(rule);
                    } else if is_any {
                        any.rules.push(rule);
                    }
                }
            }
        }
        Self { licenses, ..own.unwrap_or(any) }
    }

    fn named(name: String) -> Self {
        Self { name, rules: Vec::new(), licenses: Vec::new() }
    }

    /// Returns the name of the groups in lower case, `*` if none is for the crawler's own name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the lines about paths and the crawl delay as a robots.txt with one group for every
    /// crawler. The result is at most as long as the file.
    pub fn access_rules(&self) -> Vec<u8> {
        // The shortest form of the line, since the file has one as well.
        let mut text = b"useragent *".to_vec();
        for rule in self.rules.iter().filter(|rule| rule.key == Key::Access) {
            text.push(b'\n');
            text.extend_from_slice(rule.line);
        }
        text
    }
}

/// Cuts a file at the last end of a line within [`MAX_ROBOTS_BYTES`].
fn whole_lines(text: &[u8]) -> &[u8] {
    // A line that ends at the limit is whole.
    let Some(beginning) = text.get(..=MAX_ROBOTS_BYTES) else { return text };
    &text[..beginning.iter().rposition(is_line_end).unwrap_or(0)]
}

fn is_line_end(byte: &u8) -> bool {
    matches!(byte, b'\r' | b'\n' | 0)
}

/// Reads `key: value # comment`, or `key value`. `None` if the line belongs to no group.
fn read_line(line: &[u8]) -> Option<(Key, &[u8])> {
    let line = line.trim_ascii_start();
    let (key, value) = KEYS.iter().find_map(|(name, key)| {
        let (start, rest) = line.split_at_checked(name.len())?;
        let after = rest.trim_ascii_start();
        let is_apart = after.len() < rest.len();
        let value = after.strip_prefix(b":").or(is_apart.then_some(after))?;
        start.eq_ignore_ascii_case(name.as_bytes()).then_some((*key, value))
    })?;
    let value = value.split(|byte| *byte == b'#').next().unwrap_or_default();
    Some((key, value.trim_ascii()))
}

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
    /// Reads the terms for the crawler called `agent`. Groups for its name count if there are any,
    /// those for `*` otherwise.
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
        Self::of(&RobotsGroup::read(text, agent))
    }

    /// Reads the terms of the groups for a crawler.
    pub fn of(group: &RobotsGroup<'_>) -> Self {
        let mut terms = Self::default();
        for rule in &group.rules {
            if let Key::Terms(vocabulary) = rule.key {
                let rule = TermRule::read(vocabulary, &String::from_utf8_lossy(rule.value));
                terms
                    .rules
                    .extend(rule.filter(|rule| terms.rules.len() < MAX_RULES || rule.reserves()));
            }
        }
        for address in &group.licenses {
            if terms.licenses.len() < MAX_LICENSES {
                license(
                    TermPlace::RobotsTxt,
                    &String::from_utf8_lossy(address),
                    &mut terms.licenses,
                );
            }
        }
        terms
    }

    /// Returns the terms of the path (with its query) of a URL. In each vocabulary the rules with
    /// the longest pattern count; equal ones count together.
    pub fn at(&self, path: &str) -> Vec<Term> {
        let mut terms = Vec::new();
        if !self.rules.is_empty() {
            let path = normal(path);
            for vocabulary in [Vocabulary::ContentUsage, Vocabulary::ContentSignal] {
                let matching = || {
                    let of_it = self.rules.iter().filter(|rule| rule.vocabulary == vocabulary);
                    of_it.filter(|rule| matches(&rule.pattern, &path))
                };
                let Some(longest) = matching().map(|rule| rule.pattern.len()).max() else {
                    continue;
                };
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
        let rule = |rule: &TermRule| {
            size_of::<TermRule>() + rule.pattern.len() + rule.terms.len() * size_of::<Term>()
        };
        let licenses = self
            .licenses
            .iter()
            .map(|term| size_of::<Term>() + term.license.as_ref().map_or(0, |l| l.len()));
        self.rules.iter().map(rule).sum::<usize>() + licenses.sum::<usize>()
    }
}

impl TermRule {
    /// Reads `[/path] preferences`. `None` without a term that can be read: a pattern without terms
    /// does not hide a shorter one.
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
        (!terms.is_empty()).then(|| Self {
            vocabulary,
            pattern: normal(pattern).into(),
            terms: terms.into(),
        })
    }

    /// Returns whether it reserves its paths against a purpose.
    fn reserves(&self) -> bool {
        self.terms.iter().any(|term| term.allowed == Some(false))
    }
}

/// Returns a path or pattern with its escapes in one form: characters that need none stand for
/// themselves, all others are escaped in upper case.
pub(super) fn normal(path: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |byte: Option<&u8>| {
        byte.and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8)
    };
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

/// Returns whether a pattern with `*` and a final `$` matches the beginning of `path`. The leftmost
/// place of each part leaves most for the next one, so that no part is searched for twice.
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
        RobotsTerms::read(text.as_bytes(), "ExampleBot/1.0")
            .at(path)
            .iter()
            .map(Term::to_string)
            .collect()
    }

    #[test]
    fn the_own_group_counts_else_the_one_for_all() {
        let text = "Content-Usage: search=n\nUser-agent: other\nContent-Usage: search=n\n\nUser-Agent: *\nAllow: /\n\
                    content-usage : train-ai=n # why\n";
        assert_eq!(at(text, "/"), ["train-ai=n content-usage robots.txt"]);
        let own = format!(
            "{text}\nuser-agent: other\nuser-agent: EXAMPLEBOT\nDisallow: /x\nContent-Signal: ai-train=yes"
        );
        assert_eq!(at(&own, "/a"), ["train-ai=y content-signal robots.txt"]);
        let silent = format!("{text}\nuser-agent: examplebot\nDisallow: /x\n");
        assert!(at(&silent, "/a").is_empty(), "its own group says nothing");
        let two = format!(
            "{own}\nUser-agent: a\nContent-Usage: search=n\nUser-agent: ExampleBot\nContent-Usage: search=y"
        );
        assert_eq!(
            at(&two, "/a"),
            ["search=y content-usage robots.txt", "train-ai=y content-signal robots.txt"]
        );
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
        assert_eq!(
            usage("/a/b/c"),
            ["train-ai=y", "search=n"],
            "a rule that cannot be read hides none"
        );
        assert_eq!(
            (usage("/a/x.pdf"), usage("/a/x.pdf?y").len()),
            (vec!["train-ai=n".to_owned()], 2)
        );
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
    fn a_group_is_for_the_crawler_with_its_product_token() {
        let name_for = |line: &str, agent: &str| {
            let text = format!(
                "User-agent: *\nDisallow: /any\n\n{line}\nDisallow: /own\nContent-Usage: train-ai=n\n"
            );
            let group = RobotsGroup::read(text.as_bytes(), agent);
            let (is_own, has_terms) =
                (group.access_rules().ends_with(b"/own"), !RobotsTerms::of(&group).is_empty());
            assert_eq!(
                (is_own, has_terms),
                (group.name() != "*", group.name() != "*"),
                "{line}: one group for both"
            );
            group.name().to_owned()
        };
        for (line, agent, name) in [
            ("User-agent: ExampleBot", "examplebot/2.0 (+https://e.org)", "examplebot"),
            ("User-agent: examplebot/1.0", "ExampleBot", "examplebot/1.0"),
            ("user-agent : EXAMPLEBOT 7 # ours", "ExampleBot", "examplebot 7"),
            ("USER AGENT examplebot", "ExampleBot", "examplebot"),
            ("useragent:examplebot\nUser-agent: other", "ExampleBot", "examplebot"),
            ("User-agent: 360bot", "360bot", "360bot"),
            ("User-agent: examplebot-images", "ExampleBot", "*"),
            ("User-agent: example", "ExampleBot", "*"),
            ("User-agent:", "ExampleBot", "*"),
            ("User-agent: *x", "ExampleBot", "*"),
        ] {
            assert_eq!(name_for(line, agent), name, "{line} for {agent}");
        }
    }

    #[test]
    fn a_line_that_passes_the_limit_is_ignored_with_all_that_follows() {
        let filler = "#".repeat(MAX_ROBOTS_BYTES - 60);
        let before = format!("User-agent: *\nContent-Usage: train-ai=n\n{filler}\n");
        let cut = format!("{before}Content-Usage: /a train-ai=y, search=n\n");
        assert!(before.len() < MAX_ROBOTS_BYTES && cut.len() > MAX_ROBOTS_BYTES);
        assert_eq!(at(&cut, "/a"), ["train-ai=n content-usage robots.txt"]);
        let full = &cut.as_bytes()[cut.len() - MAX_ROBOTS_BYTES..];
        assert_eq!(whole_lines(full), full, "a file of the limit is whole");
        let with_end = [full, b"\n"].concat();
        assert_eq!(whole_lines(&with_end), full, "a line that ends at the limit is whole");
        let rules = RobotsGroup::read(full, "examplebot").access_rules();
        assert!(rules.len() <= full.len());
    }

    #[test]
    fn no_number_of_rules_hides_one_that_reserves() {
        let many: String =
            (0..2 * MAX_RULES).map(|n| format!("Content-Usage: /{n} train-ai=y\n")).collect();
        let text = format!("User-agent: *\n{many}Content-Usage: /late train-ai=n\n");
        assert_eq!(at(&text, "/late"), ["train-ai=n content-usage robots.txt"]);
        assert_eq!(RobotsTerms::read(text.as_bytes(), "x").rules.len(), MAX_RULES + 1);
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
