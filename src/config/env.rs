//! Mapping of environment variables to keys and values.
//!
//! Owns: the rule. A variable is `FETCHWISE_` and the steps of the key in capitals, joined by two
//! underscores; the prefix `FETCHWISE__` works as well. Characters of a step other than letters and
//! digits become underscores.
//!
//! Must not know: the environment, which it never reads.

use super::declare::{ANY, Key, Kind};
use super::tree::{Node, NodeContent};
use super::tuning;
use fetchwise_types::unknown_name::nearest;

/// Prefix of every variable that sets a key.
pub(super) const PREFIX: &str = "FETCHWISE_";

/// Returns the variable that sets the key at `way`.
///
/// ```
/// assert_eq!(fetchwise::config::variable_of(&["log", "max_disk_bytes"]), "FETCHWISE_LOG__MAX_DISK_BYTES");
/// ```
pub fn variable_of<S: AsRef<str>>(way: &[S]) -> String {
    let steps: Vec<String> = way.iter().map(|step| variable_step(step.as_ref())).collect();
    format!("{PREFIX}{}", steps.join("__"))
}

/// Returns a step in the form that variables use.
fn variable_step(step: &str) -> String {
    step.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect()
}

/// Reason for which a variable sets no key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VariableError {
    /// No such key exists. Holds the most similar variable, if any.
    NoKey(Option<String>),
    /// The list or table has no such element. The text says how to name one.
    NoElement(String),
}

/// Returns the key that the variable `name` sets, and the path to it. `settings` provides the
/// elements of lists and of tables with free keys. Fetchers are selected by number or by name,
/// hosts by name.
pub(super) fn resolve_variable<'k>(
    name: &str,
    keys: &'k [Key],
    settings: &Node,
) -> Result<(Vec<String>, &'k Key), VariableError> {
    let text = name.strip_prefix(PREFIX).unwrap_or(name);
    let text = text.strip_prefix('_').unwrap_or(text).to_ascii_uppercase();
    let steps: Vec<&str> = text.split("__").collect();
    let is_meant = |key: &&Key| {
        key.way.len() == steps.len()
            && key
                .way
                .iter()
                .zip(&steps)
                .all(|(own, step)| own == ANY || variable_step(own) == *step)
    };
    let Some(key) = keys.iter().find(is_meant) else {
        let way: Vec<String> = steps.iter().map(|step| step.to_ascii_lowercase()).collect();
        if let Some(key) = tuning::meant(keys, &way) {
            return Err(VariableError::NoKey(Some(variable_of(&key.way))));
        }
        let known: Vec<String> = keys
            .iter()
            .filter(|key| !key.way.contains(&ANY.to_owned()))
            .map(|k| variable_of(&k.way))
            .collect();
        return Err(VariableError::NoKey(
            nearest(name, known.iter().map(String::as_str)).map(str::to_owned),
        ));
    };
    let mut way: Vec<String> = Vec::new();
    for (own, step) in key.way.iter().zip(&steps) {
        let next = if own == ANY { element(settings, &way, step)? } else { own.clone() };
        way.push(next);
    }
    Ok((way, key))
}

/// Returns the element of the list or table at `way` that `step` selects.
fn element(settings: &Node, way: &[String], step: &str) -> Result<String, VariableError> {
    let base = variable_of(way);
    let none = |names: Vec<String>| {
        let known = if names.is_empty() {
            "it is empty".to_owned()
        } else {
            format!("expected one of {}", names.join(", "))
        };
        let what = way.join(".");
        VariableError::NoElement(format!(
            "unknown element of {what}: {known}; {base} sets all of it as TOML"
        ))
    };
    match settings.get(way).map(|node| &node.content) {
        Some(NodeContent::List(list)) => {
            let name = |node: &Node| Some(variable_step(node.get(&["name"])?.value().as_str()?));
            let by_name = list.iter().position(|node| name(node).is_some_and(|name| name == step));
            let by_number = step.parse::<usize>().ok().filter(|place| *place < list.len());
            let place = by_name.or(by_number).map(|place| place.to_string());
            place.ok_or_else(|| {
                none(
                    list.iter()
                        .enumerate()
                        .map(|(n, node)| name(node).unwrap_or(n.to_string()))
                        .collect(),
                )
            })
        }
        Some(NodeContent::Table(table)) => {
            let key = table.keys().find(|key| variable_step(key) == step).cloned();
            key.ok_or_else(|| none(table.keys().map(|key| variable_step(key)).collect()))
        }
        _ => Err(none(Vec::new())),
    }
}

/// Parses the text of a variable for a key of this `kind`. An invalid value stays text, so that the
/// reader of the key reports what is expected.
pub(super) fn value(text: &str, kind: &Kind) -> toml::Value {
    let as_text = || toml::Value::String(text.to_owned());
    let trimmed = text.trim();
    match kind {
        Kind::Text => as_text(),
        Kind::List if !trimmed.starts_with('[') => {
            let parts = trimmed.split(',').map(str::trim).filter(|part| !part.is_empty());
            toml::Value::Array(parts.map(|part| toml::Value::String(part.to_owned())).collect())
        }
        // A date needs no quotes here, and parses as one anyway.
        Kind::Any
        | Kind::Number
        | Kind::Switch
        | Kind::List
        | Kind::Table
        | Kind::Tables
        | Kind::Map => match format!("value = {trimmed}").parse::<toml::Table>() {
            Ok(mut table) => table.remove("value").unwrap_or_else(as_text),
            Err(_) => as_text(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::keys;

    fn settings() -> Node {
        let text = "[[fetcher]]\nname = 'by-residential'\n[[fetcher]]\nname = 'b'\n[pace.host.'e.org']\nrate = 1.0";
        Node::parse(text, Path::new("c.toml")).unwrap()
    }

    #[test]
    fn a_variable_sets_the_key_of_its_steps() {
        let (keys, settings) = (keys(), settings());
        let way =
            |name: &str| resolve_variable(name, &keys, &settings).map(|(way, _)| way.join("."));
        for (name, want) in [
            ("FETCHWISE_MODE", "mode"),
            ("FETCHWISE_DATA_DIR", "data_dir"),
            ("FETCHWISE_LOG__MAX_DISK_BYTES", "log.max_disk_bytes"),
            ("FETCHWISE__LOG__MAX_DISK_BYTES", "log.max_disk_bytes"),
            ("FETCHWISE_NETWORK__ALLOW", "network.allow"),
            ("FETCHWISE_FETCHER__BY_RESIDENTIAL__PROXY", "fetcher.0.proxy"),
            ("FETCHWISE_FETCHER__1__COST", "fetcher.1.cost"),
            ("FETCHWISE_PACE__HOST__E_ORG__RATE", "pace.host.e.org.rate"),
        ] {
            assert_eq!(way(name), Ok(want.to_owned()));
        }
        assert_eq!(
            way("FETCHWISE_LOG__DISC_MAX"),
            Err(VariableError::NoKey(Some("FETCHWISE_LOG__MAX_DISK_BYTES".to_owned())))
        );
        let Err(VariableError::NoElement(text)) = way("FETCHWISE_FETCHER__C__COST") else {
            panic!("there is no fetcher c")
        };
        assert_eq!(
            text,
            "unknown element of fetcher: expected one of BY_RESIDENTIAL, B; FETCHWISE_FETCHER sets all of it as TOML"
        );
    }

    #[test]
    fn every_key_has_a_variable_that_sets_it() {
        let (keys, settings) = (keys(), settings());
        for key in keys.iter().filter(|key| !key.way.contains(&ANY.to_owned())) {
            let name = variable_of(&key.way);
            assert_eq!(
                resolve_variable(&name, &keys, &settings).map(|(way, _)| way),
                Ok(key.way.clone()),
                "{name}"
            );
        }
    }

    #[test]
    fn the_text_of_a_variable_is_parsed_by_the_kind_of_its_key() {
        for (text, kind, want) in [
            ("2026", Kind::Text, "\"2026\""),
            ("true", Kind::Switch, "true"),
            ("0.5", Kind::Number, "0.5"),
            ("30", Kind::Any, "30"),
            ("64MiB", Kind::Any, "\"64MiB\""),
            ("never", Kind::Any, "\"never\""),
            ("a.org, b.org", Kind::List, "[\"a.org\", \"b.org\"]"),
            ("['a,b']", Kind::List, "[\"a,b\"]"),
            ("half", Kind::Number, "\"half\""),
        ] {
            assert_eq!(value(text, &kind).to_string(), want, "{text}");
        }
        assert!(value("[{name = 'a'}]", &Kind::Tables).as_array().is_some());
    }
}
