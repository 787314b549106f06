//! Merging of settings from a file, environment variables and options, and reporting of all that is
//! invalid.
//!
//! Owns: the precedence, and the origin of each value.
//!
//! Invariants: the value of a key that may hold a secret appears in no message and in no list of
//! settings.
//!
//! Must not know: the environment, which it never reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_path_to_error::Segment;

use super::declare::Key;
use super::error::{ConfigError, InvalidValue};
use super::origin::{Origin, Problem};
use super::secret::without_password;
use super::tree::{Node, NodeContent};
use super::{Config, built_in_changes, keys, tuning};
use crate::config::env::{PREFIX, VariableError, resolve_variable, value};
use fetchwise_types::unknown_name::nearest;

/// Settings from several sources. Later ones take precedence over earlier ones.
///
/// ```
/// use fetchwise::config::Layers;
///
/// let variables = [("FETCHWISE_LOG__DURABILITY".to_owned(), "sync".to_owned())];
/// let mut layers = Layers::default();
/// layers.text("[log]\ndurability = 'os'\ninterval = '1s'", "x.toml".as_ref())?;
/// layers.variables(variables, &[]);
/// let resolved = layers.resolve()?;
/// let from: Vec<_> = resolved.settings().iter().map(|set| format!("{} {}", set.key, set.origin)).collect();
/// assert_eq!(from, ["log.durability FETCHWISE_LOG__DURABILITY", "log.interval x.toml:3"]);
/// # Ok::<(), fetchwise::config::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Layers {
    tree: Node,
    keys: Vec<Key>,
    warnings: Vec<Problem>,
    problems: Vec<Problem>,
}

impl Default for Layers {
    fn default() -> Self {
        Self { tree: Node::empty(), keys: keys(), warnings: Vec::new(), problems: Vec::new() }
    }
}

impl Layers {
    /// Reads the settings of a file. They replace everything added so far.
    ///
    /// # Errors
    /// When the file cannot be read, or is not valid TOML.
    pub fn file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        self.text(&text, path)
    }

    /// Does the same as [`Layers::file`] with the text of a file.
    ///
    /// # Errors
    /// When the text is not valid TOML.
    pub fn text(&mut self, text: &str, path: &Path) -> Result<(), ConfigError> {
        self.tree = Node::parse(text, path).map_err(ConfigError::Settings)?;
        Ok(())
    }

    /// Adds environment variables. Every non-empty variable with the prefix `FETCHWISE_` sets a
    /// key. A variable without a key results in a warning, unless it is among `others` or the
    /// settings refer to it as the holder of a secret.
    pub fn variables(&mut self, all: impl IntoIterator<Item = (String, String)>, others: &[&str]) {
        let meant: BTreeMap<String, String> = all
            .into_iter()
            .filter(|(name, text)| name.starts_with(PREFIX) && !text.is_empty())
            .collect();
        // Whole lists and tables first, so that their elements can be found.
        let (mut named, keys) = (Vec::new(), std::mem::take(&mut self.keys));
        let mut lost = Vec::new();
        for (name, text) in &meant {
            match resolve_variable(name, &keys, &self.tree) {
                Ok((way, key)) if !key.way.iter().any(|step| step == super::ANY) => {
                    self.set_text(&way, name, text, key)
                }
                _ => named.push((name, text)),
            }
        }
        let is_of_fetcher = |(name, _): &(&String, &String)| name.contains("FETCHER__");
        if named.iter().any(is_of_fetcher) && built_in_changes::are_built_in(&self.tree) {
            self.problems.extend(built_in_changes::list_with_changes(&mut self.tree));
        }
        for (name, text) in named {
            match resolve_variable(name, &keys, &self.tree) {
                Ok((way, key)) => self.set_text(&way, name, text, key),
                Err(why) => lost.push((name, why)),
            }
        }
        let holders = self.holders_of_secrets();
        for (name, why) in lost {
            if !others.contains(&name.as_str()) && !holders.contains(name) {
                self.warnings.push(unknown_variable(name, why));
            }
        }
        self.keys = keys;
    }

    /// Sets the key at `way` from another source: an option, or a variable with another name.
    pub fn set<S: AsRef<str>>(
        &mut self,
        way: &[S],
        value: impl Into<toml::Value>,
        origin: &Origin,
    ) {
        let way: Vec<String> = way.iter().map(|step| step.as_ref().to_owned()).collect();
        self.tree.set(&way, Node::of(value.into(), origin));
    }

    /// Reads and validates all layers.
    ///
    /// # Errors
    /// [`ConfigError::Settings`] with every problem.
    pub fn resolve(self) -> Result<Resolved, ConfigError> {
        let Self { mut tree, keys, warnings, mut problems } = self;
        if tree.get(&["fetcher"]).is_some() {
            problems.extend(built_in_changes::list_with_changes(&mut tree));
        }
        let config = loop {
            let error = match serde_path_to_error::deserialize::<_, Config>(tree.value()) {
                Ok(config) => break config,
                Err(error) => error,
            };
            let (problem, way) = to_problem(&tree, &keys, &error);
            problems.push(problem);
            // The invalid value is removed, and the rest is read again, so that all problems are
            // found.
            if tree.take(&way).is_none() {
                return Err(ConfigError::Settings(problems));
            }
        };
        problems.extend(config.check().into_iter().map(|bad| with_origin(&tree, bad)));
        if problems.is_empty() {
            return Ok(Resolved { config, tree, keys, warnings });
        }
        problems.sort_by_cached_key(Problem::rank);
        Err(ConfigError::Settings(problems))
    }

    fn set_text(&mut self, way: &[String], name: &str, text: &str, key: &Key) {
        self.tree.set(way, Node::of(value(text, &key.kind), &Origin::Variable(name.to_owned())));
    }

    /// Returns the variables that the settings refer to as holders of secrets.
    fn holders_of_secrets(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.tree.each(&mut Vec::new(), &mut |way, node| {
            if let (
                Some("proxy_user_env" | "key_env"),
                NodeContent::Single(toml::Value::String(name)),
            ) = (way.last().map(String::as_str), &node.content)
            {
                names.push(name.clone());
            }
        });
        names
    }
}

impl Config {
    /// Reads and validates a file.
    ///
    /// # Errors
    /// [`ConfigError`] with file, lines and keys.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let mut layers = Layers::default();
        layers.file(path)?;
        Ok(layers.resolve()?.config)
    }

    /// Reads and validates a text; `path` is for messages.
    ///
    /// # Errors
    /// [`ConfigError`] with lines and keys.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let mut layers = Layers::default();
        layers.text(text, path)?;
        Ok(layers.resolve()?.config)
    }
}

/// Valid settings with their origins.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The settings.
    pub config: Config,
    tree: Node,
    keys: Vec<Key>,
    /// Harmless problems: variables without a key.
    pub warnings: Vec<Problem>,
}

impl Default for Resolved {
    fn default() -> Self {
        Self { config: Config::default(), tree: Node::empty(), keys: keys(), warnings: Vec::new() }
    }
}

/// Key with a value from the user.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Setting {
    /// Full name of the key.
    pub key: String,
    /// Value; `None` for a secret, which is never shown. URLs have no user and password.
    pub value: Option<toml::Value>,
    /// Origin of the value.
    pub origin: Origin,
}

impl Resolved {
    /// Returns the origin of the key at `way`.
    pub fn origin<S: AsRef<str>>(&self, way: &[S]) -> Origin {
        self.tree.get(way).map_or(Origin::Default, |node| node.origin.clone())
    }

    /// Returns every key that is set, in alphabetical order.
    pub fn settings(&self) -> Vec<Setting> {
        let mut all = Vec::new();
        self.tree.each(&mut Vec::new(), &mut |way, node| {
            let is_secret = self.keys.iter().any(|key| key.is_secret && key.is_at(way));
            let value = (!is_secret).then(|| without_passwords(node.value()));
            if !way.is_empty() {
                all.push(Setting { key: way.join("."), value, origin: node.origin.clone() });
            }
        });
        all
    }
}

/// Returns a value without the passwords of URLs.
fn without_passwords(value: toml::Value) -> toml::Value {
    match value {
        toml::Value::String(text) => toml::Value::String(without_password(&text).into_owned()),
        toml::Value::Array(list) => {
            toml::Value::Array(list.into_iter().map(without_passwords).collect())
        }
        other => other,
    }
}

fn unknown_variable(name: &str, why: VariableError) -> Problem {
    let (message, meant) = match why {
        VariableError::NoKey(None) => ("unknown setting".to_owned(), None),
        VariableError::NoKey(Some(meant)) => {
            (format!("unknown setting; did you mean {meant}?"), Some(meant))
        }
        VariableError::NoElement(text) => (text, None),
    };
    Problem { origin: Origin::Variable(name.to_owned()), key: String::new(), message, meant }
}

/// Converts a deserialization error. Returns the problem, and the path to the value that has to be
/// removed before the next read.
fn to_problem(
    tree: &Node,
    keys: &[Key],
    error: &serde_path_to_error::Error<toml::de::Error>,
) -> (Problem, Vec<String>) {
    let way: Vec<String> = error.path().iter().filter_map(step).collect();
    let text = error.inner().message().trim_end();
    let is_key = text.starts_with("unknown field");
    let at = tree.nearest(&way);
    let origin = if is_key { &at.key_origin } else { &at.origin };
    let is_secret = keys.iter().any(|key| key.is_secret && key.is_at(&way));
    let is_text = matches!(at.content, NodeContent::Single(toml::Value::String(_)));
    // The reader would show a value that is not text.
    let mut message =
        if is_secret && !is_text { "expected text".to_owned() } else { text.to_owned() };
    if matches!(origin, Origin::Variable(_)) && !is_key {
        message = format!("{}: {message}", way.join("."));
    }
    let moved = is_key.then(|| tuning::meant(keys, &way)).flatten().map(Key::name);
    let meant = moved.or_else(|| suggestion(text).map(str::to_owned));
    if let Some(meant) = &meant {
        message.push_str(&format!("; did you mean `{meant}`?"));
    }
    (Problem { origin: origin.clone(), key: way.join("."), message, meant }, way)
}

fn step(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

/// Adds the place to an invalid value.
fn with_origin(tree: &Node, bad: InvalidValue) -> Problem {
    let origin = tree.nearest(&bad.way).origin.clone();
    let key = bad.way.join(".");
    Problem {
        origin,
        message: format!("invalid {key} {}: {}", bad.value, bad.expected),
        key,
        meant: None,
    }
}

/// Returns the name most similar to the unknown one, where `message` is serde's "unknown field `a`,
/// expected one of `b`, `c`".
fn suggestion(message: &str) -> Option<&str> {
    if !message.starts_with("unknown ") {
        return None;
    }
    let mut names = message.split('`').skip(1).step_by(2);
    let unknown = names.next()?;
    nearest(unknown, names)
}
