//! The example file and the reference page, compared with what is declared. `FETCHWISE_BLESS=1`
//! writes what differs.
//!
//! Owns: the form of a setting in both. Lists of fetchers and priors, and all that stands around
//! the settings, are written by hand.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::*;
use crate::config::tree::Node;

/// Host of the examples.
const HOST: &str = "example.org";
/// Longest line of a comment.
const WIDTH: usize = 128;
/// Column of the comments that stand behind a setting of the reference page.
const COLUMN: usize = 26;

/// Table of settings: its name in the file, its meaning and its keys.
struct Section {
    name: String,
    about: &'static str,
    keys: Vec<Key>,
}

/// Returns the tables, the top level first, without the lists of tables.
fn sections() -> Vec<Section> {
    let mut list = KeyList::default();
    Config::list(&mut list);
    let mut sections = vec![Section { name: String::new(), about: "", keys: Vec::new() }];
    for mut key in list.keys.into_iter().filter(|key| !matches!(&*key.way[0], "fetcher" | "prior"))
    {
        match (key.kind, &key.way[..]) {
            (Kind::Table, _) => {
                sections.push(Section { name: key.name(), about: key.about, keys: Vec::new() })
            }
            (Kind::Map, _) => {
                let name = format!("{}.\"{HOST}\"", key.name());
                sections.push(Section { name, about: key.about, keys: Vec::new() });
            }
            (_, [_]) => sections[0].keys.push(key),
            _ => {
                key.way.drain(..key.way.len() - 1);
                sections.last_mut().unwrap().keys.push(key);
            }
        }
    }
    sections
}

impl Key {
    /// Returns the key's value in the documents.
    fn shown(&self) -> &toml::Value {
        match &self.default {
            Some(KeyDefault::Value(value) | KeyDefault::Words { such_as: Some(value), .. }) => {
                value
            }
            _ => panic!("the documents need a value for {}", self.name()),
        }
    }

    /// Returns what the documents say of the key.
    fn description(&self) -> String {
        let mut text = self.about.to_owned();
        if !self.expected.is_empty() {
            write!(text, " Valid: {}.", self.expected).unwrap();
        }
        match &self.default {
            Some(KeyDefault::Words { words, .. }) if *words != "none" => {
                write!(text, " Unless set: {words}.").unwrap()
            }
            _ => {}
        }
        text
    }
}

/// Returns a text as lines of a comment.
fn comment(text: &str) -> String {
    let mut lines = vec!["#".to_owned()];
    for word in text.split(' ') {
        if lines.last().unwrap().len() + word.len() >= WIDTH {
            lines.push("#".to_owned());
        }
        write!(lines.last_mut().unwrap(), " {word}").unwrap();
    }
    lines.join("\n") + "\n"
}

/// Returns the settings as the example file has them, commented out.
fn as_example() -> String {
    let mut text = String::new();
    for Section { name, about, keys } in sections() {
        if !name.is_empty() {
            write!(text, "\n{}#[{name}]\n", comment(about)).unwrap();
        }
        for key in &keys {
            writeln!(text, "{}#{} = {}", comment(&key.description()), key.name(), key.shown())
                .unwrap();
        }
    }
    text
}

/// Returns the settings as the reference page has them, with a long comment above its setting.
fn as_reference() -> String {
    let line = |setting: String, about: &str| match format!("{setting:<COLUMN$} # {about}\n") {
        line if line.len() <= WIDTH => line,
        _ => format!("{}{setting}\n", comment(about)),
    };
    let mut text = String::new();
    for Section { name, about, keys } in sections() {
        if !name.is_empty() {
            text += &format!("\n{}", line(format!("[{name}]"), about));
        }
        for key in &keys {
            text += &line(format!("{} = {}", key.name(), key.shown()), &key.description());
        }
    }
    text
}

/// Compares the part of a file between two marks with `want`, or writes it.
fn compare(file: &str, between: (&str, &str), want: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&path).unwrap();
    let begin = text.find(between.0).unwrap() + between.0.len();
    let end = begin + text[begin..].find(between.1).unwrap();
    if text[begin..end] == *want {
        return;
    }
    assert!(
        std::env::var_os("FETCHWISE_BLESS").is_some(),
        "{file} differs from the declared settings: FETCHWISE_BLESS=1 writes it"
    );
    fs::write(&path, format!("{}{want}{}", &text[..begin], &text[end..])).unwrap();
}

#[test]
fn the_example_and_the_reference_are_as_declared() {
    compare(
        "fetchwise.example.toml",
        ("or a number of bytes.\n\n", "\n# To change some settings of one"),
        &as_example(),
    );
    compare(
        "docs/reference/configuration.md",
        ("## Keys\n\n```toml\n", "\n[[fetcher]] "),
        &as_reference(),
    );
}

/// Returns the example with all of its settings active. A commented-out setting has no blank after
/// the `#`.
fn example() -> String {
    let is_setting = |rest: &str| rest.starts_with(|c: char| c == '[' || c.is_ascii_lowercase());
    let line = |line: &'static str| match line.strip_prefix('#') {
        Some(rest) if is_setting(rest) => rest,
        _ => line,
    };
    EXAMPLE.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_has_every_key_and_no_other() {
    let text = example();
    let path = Path::new("fetchwise.example.toml");
    // The shipped file changes nothing.
    let shipped: toml::Table = EXAMPLE.parse().unwrap();
    assert!(shipped.is_empty(), "{shipped}");
    // With all settings active it is a valid config, so it has no unknown key.
    Config::from_toml(&text, path).unwrap();
    let settings = Node::parse(&text, path).unwrap();
    let mut ways = Vec::new();
    settings.each(&mut Vec::new(), &mut |way, _| ways.push(way.to_vec()));
    let all = keys();
    let leaves = all.iter().filter(|key| !matches!(key.kind, Kind::Tables | Kind::Map));
    let missing: Vec<String> =
        leaves.filter(|key| !ways.iter().any(|way| key.is_at(way))).map(Key::name).collect();
    assert!(missing.is_empty(), "the example lacks {missing:?}");
    let unknown: Vec<_> = ways.iter().filter(|way| !all.iter().any(|key| key.is_at(way))).collect();
    assert!(unknown.is_empty(), "no key is {unknown:?}");
}

#[test]
fn the_documented_config_is_valid() {
    let page = include_str!("../../../docs/reference/configuration.md");
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let config = Config::from_toml(example, Path::new("configuration.md")).unwrap();
    assert_eq!((config.fetchers.len(), config.priors.len()), (2, 1));
    assert_eq!(config.http.max_body, Some(256 << 20));
}

/// Returns a config in which every setting with one default has that default.
fn declared_defaults() -> Config {
    let mut layers = Layers::default();
    for key in keys() {
        if let Some(KeyDefault::Value(value)) = key.default {
            layers.set(&key.way, value, &Origin::Default);
        }
    }
    layers.resolve().unwrap().config
}

#[test]
fn the_declared_defaults_are_those_of_the_parts() {
    let (declared, unset) = (declared_defaults(), Config::default());
    let debug = |part: &dyn std::fmt::Debug| format!("{part:?}");
    assert_eq!(debug(&declared.settings()), debug(&unset.settings()));
    assert_eq!(debug(&declared.pace()), debug(&unset.pace()));
    assert_eq!(debug(&declared.backoff()), debug(&unset.backoff()));
    assert_eq!(debug(&declared.consent.settings("a")), debug(&unset.consent.settings("a")));
    // The margin that is declared is that of the default metric.
    let guard = |config: &Config| crate::ab_test::GuardSettings { margin: None, ..config.guard() };
    assert_eq!(debug(&guard(&declared)), debug(&guard(&unset)));
    assert_eq!(
        declared.tuning.rollout_margin,
        declared.rollout.metric.map(|metric| metric.margin())
    );
}

#[test]
fn every_field_is_a_key_with_its_kind() {
    let all = keys();
    let of =
        |name: &str| all.iter().find(|key| key.name() == name).map(|key| (key.kind, key.is_secret));
    for (name, kind) in [
        ("mode", Kind::Text),
        ("data_dir", Kind::Text),
        ("split_share", Kind::Number),
        ("http.timeout", Kind::Any),
        ("http.max_body", Kind::Number),
        ("log.durability", Kind::Text),
        ("log.compact_threshold", Kind::Any),
        ("network.allow", Kind::List),
        ("network.allow_private", Kind::Switch),
        ("robots.use", Kind::Text),
        ("pace.host", Kind::Map),
        ("pace.host.*.rate", Kind::Number),
        ("fetcher", Kind::Tables),
        ("fetcher.*.cost", Kind::Any),
        ("fetcher.*.command", Kind::List),
        ("fetcher.*.archive.from.*.wayback", Kind::Text),
        ("prior.*.samples", Kind::Number),
    ] {
        assert_eq!(of(name), Some((kind, false)), "{name}");
    }
    for secret in ["fetcher.*.proxy", "fetcher.*.cdp", "fetcher.*.solver", "fetcher.*.search.url"] {
        assert_eq!(of(secret), Some((Kind::Text, true)), "{secret}");
    }
    for none in ["signing", "detect", "fetcher.*.archive"] {
        assert_eq!(of(none), None, "{none}");
    }
}
