//! The rules of the Public Suffix List, and the longest one that a name matches.
//!
//! Owns: the compiled-in list and its table. Invariants: a name costs one look-up for each of its
//! labels that the list knows, and one more; its bytes are read once, from the end. Must not know:
//! what is registered below a suffix.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::LazyLock;

/// Which rules end at a name of the list. A name that only leads to longer ones has none.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    itself: Option<Section>,
    /// Any name with one label more is a suffix: `*.ck`.
    one_more: Option<Section>,
    /// The name is no suffix although a rule with `*` says so: `!www.ck`.
    is_exception: bool,
}

/// The two parts of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// Suffixes of registries.
    Icann,
    /// Suffixes below which a service gives out names.
    Private,
}

/// The suffix of a name: where it begins, and the section of its rule. A name that no rule matches
/// ends in its last label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suffix {
    pub(crate) begin: usize,
    pub(crate) section: Option<Section>,
}

/// The rules by the hash of their name; the name tells a hit from another name with the same hash.
/// The table is built at the first use, in about a millisecond.
type Table = HashMap<u64, (&'static str, Rules), BuildHasherDefault<Hashed>>;

static RULES: LazyLock<Table> = LazyLock::new(|| {
    let mut all = Table::with_capacity_and_hasher(12_000, BuildHasherDefault::default());
    for line in include_str!("list.txt").lines() {
        let (section, rule) = match line.strip_prefix('-') {
            Some(rule) => (Section::Private, rule),
            None => (Section::Icann, line),
        };
        let name = rule.trim_start_matches('!').trim_start_matches("*.");
        // The names above it are there, too, so that the search finds its way to the longer one.
        let mut hash = ReversedHash::default();
        let mut begin = hash.add_label(name, name.len());
        all.entry(hash.0).or_insert((name.get(begin..).unwrap_or_default(), Rules::default()));
        while begin > 0 {
            hash.add(b'.');
            begin = hash.add_label(name, begin - 1);
            all.entry(hash.0).or_insert((name.get(begin..).unwrap_or_default(), Rules::default()));
        }
        if let Some((_, rules)) = all.get_mut(&hash.0) {
            match rule.as_bytes().first() {
                Some(b'!') => rules.is_exception = true,
                Some(b'*') => rules.one_more = Some(section),
                _ => rules.itself = Some(section),
            }
        }
    }
    all
});

/// A hash of a name that is read from its end, so that one pass hashes all its suffixes.
#[derive(Clone, Copy, Default)]
struct ReversedHash(u64);

impl ReversedHash {
    /// Adds the label that ends at `end`, and returns where it begins.
    fn add_label(&mut self, name: &str, end: usize) -> usize {
        let before = name.as_bytes().get(..end).unwrap_or_default();
        let label = before.iter().rev().take_while(|&&byte| byte != b'.');
        end - label.fold(0, |length, &byte| {
            self.add(byte);
            length + 1
        })
    }

    fn add(&mut self, byte: u8) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Takes a hash for what it is.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        debug_assert!(false, "the keys are hashes");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Returns the suffix of a name without a trailing dot.
pub(crate) fn suffix(name: &str) -> Suffix {
    let mut hash = ReversedHash::default();
    let mut begin = hash.add_label(name, name.len());
    let mut found = Suffix { begin, section: None };
    let (mut below, mut one_more) = (name.len(), None);
    loop {
        let known = RULES.get(&hash.0).filter(|(known, _)| name.get(begin..) == Some(known));
        let rules = known.map(|(_, rules)| *rules);
        if rules.is_some_and(|rules| rules.is_exception) {
            return Suffix { begin: below, section: one_more };
        }
        if let Some(section) = rules.and_then(|rules| rules.itself).or(one_more) {
            found = Suffix { begin, section: Some(section) };
        }
        let (Some(rules), true) = (rules, begin > 0) else { return found };
        (below, one_more) = (begin, rules.one_more);
        hash.add(b'.');
        begin = hash.add_label(name, begin - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suffix_of(name: &str) -> (&str, Option<Section>) {
        let found = suffix(name);
        (&name[found.begin..], found.section)
    }

    #[test]
    fn the_longest_rule_decides_and_an_exception_before_it() {
        let (icann, private) = (Some(Section::Icann), Some(Section::Private));
        for (name, expected) in [
            ("www.example.com", ("com", icann)),
            ("www.example.co.uk", ("co.uk", icann)),
            // A rule for any label, and the name that is none of them.
            ("a.b.shop.ck", ("shop.ck", icann)),
            ("www.ck", ("ck", icann)),
            ("a.city.kobe.jp", ("kobe.jp", icann)),
            ("a.other.kobe.jp", ("other.kobe.jp", icann)),
            // A rule for any label above another one.
            ("r.cloud.int.apple", ("r.cloud.int.apple", private)),
            ("a.b.r.cloud.int.apple", ("b.r.cloud.int.apple", private)),
            // The parent of a rule for any label is no rule.
            ("ck", ("ck", None)),
            ("someone.github.io", ("github.io", private)),
            // As people write it, and as a URL has it.
            ("a.公司.cn", ("公司.cn", icann)),
            ("a.xn--55qx5d.cn", ("xn--55qx5d.cn", icann)),
            // A longer rule leads through a name that is none.
            ("a.eu-west-3.elb.amazonaws.com", ("eu-west-3.elb.amazonaws.com", private)),
            ("elb.amazonaws.com", ("com", icann)),
            ("a.nowhere-at-all", ("nowhere-at-all", None)),
            ("", ("", None)),
            ("..", ("", None)),
        ] {
            assert_eq!(suffix_of(name), expected, "{name}");
        }
    }

    #[test]
    fn each_rule_of_the_list_is_found() {
        assert!(include_str!("list.txt").lines().count() > 10_000);
        for line in include_str!("list.txt").lines() {
            let rule = line.trim_start_matches('-');
            let (name, expected) = match (rule.strip_prefix('!'), rule.strip_prefix("*.")) {
                (Some(name), _) => (name.to_owned(), name.split_once('.').unwrap().1.to_owned()),
                (_, Some(above)) => (format!("any-label.{above}"), format!("any-label.{above}")),
                _ => (rule.to_owned(), rule.to_owned()),
            };
            let section = if line.starts_with('-') { Section::Private } else { Section::Icann };
            assert_eq!(suffix_of(&name), (expected.as_str(), Some(section)), "{rule}");
        }
    }
}
