//! `config show`: every setting in effect, with its origin.

use clap::Args;
use fetchwise::config::{ANY, Kind, Origin, Setting, keys, variable_of};
use serde::Serialize;
use serde_json::Value;

use crate::commands::config::defaults::{Fallback, fallback, of_fetcher};
use crate::parse::global::GlobalArgs;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{DIM, Output, Table};

/// Show every setting in effect and its origin
///
/// A setting comes from its default, a line of the config file, an environment variable or an option. A value that may
/// be a password or a key is not shown, only its origin.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fetchwise config show --changed\n  fetchwise config show --json --config fetchwise.toml"
)]
pub(crate) struct ShowArgs {
    /// Show only settings that differ from the default
    #[arg(long)]
    changed: bool,
}

#[derive(Serialize)]
struct SettingJson<'a> {
    key: &'a str,
    /// Null for a secret, and for an unset setting without a single default.
    value: Option<Value>,
    /// The default in words, if it is not one value.
    note: Option<&'a str>,
    is_set: bool,
    is_secret: bool,
    /// `default`, `file`, `environment` or `flag`.
    source: &'a str,
    /// `FILE:LINE`, or the name of the variable or option.
    from: String,
    /// The variable that sets it.
    variable: String,
}

/// A line of the list.
struct Row {
    key: String,
    value: Option<Value>,
    note: Option<&'static str>,
    is_secret: bool,
    origin: Origin,
}

/// Runs the command.
pub(super) fn run(args: &ShowArgs, global: &GlobalArgs, out: &mut Output) -> Result<Exit, Failure> {
    let settings = Settings::resolve(global)?;
    let mut rows = rows(&settings);
    rows.retain(|row| !args.changed || row.origin != Origin::Default);
    if out.json {
        for row in &rows {
            let steps: Vec<&str> = row.key.split('.').collect();
            out.object(&SettingJson {
                key: &row.key,
                value: row.value.clone(),
                note: row.note,
                is_set: row.origin != Origin::Default,
                is_secret: row.is_secret,
                source: row.origin.kind(),
                from: row.origin.to_string(),
                variable: variable_of(&steps),
            })?;
        }
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["setting", "value", "from"]);
    for row in rows {
        let value = match (&row.value, row.note) {
            _ if row.is_secret => format!("set (from {})", row.origin),
            (Some(value), _) => value.to_string(),
            (None, note) => format!("({})", note.unwrap_or("not set")),
        };
        let cells = [row.key, value, row.origin.to_string()];
        match row.origin {
            Origin::Default => table.styled_row(DIM, cells),
            _ => table.row(cells),
        }
    }
    out.line(table)?;
    Ok(Exit::Done)
}

/// Returns all keys, with those of existing list and table elements.
fn rows(settings: &Settings) -> Vec<Row> {
    let mut set: Vec<Setting> = settings.resolved.settings();
    let mut rows = Vec::new();
    for key in keys().into_iter().filter(|key| !key.way.iter().any(|step| step == ANY)) {
        let name = key.name();
        let within = format!("{name}.");
        let (own, rest): (Vec<_>, Vec<_>) =
            set.into_iter().partition(|one| is_key(&one.key, &name) || one.key.starts_with(&within));
        set = rest;
        if own.is_empty()
            || matches!(key.kind, Kind::Tables | Kind::Map) && own.iter().all(|one| is_key(&one.key, &name))
        {
            let (value, note) = match fallback(&name, settings) {
                Some(Fallback::Value(value)) => (Some(value), None),
                Some(Fallback::Words(words)) => (None, Some(words)),
                None => (None, None),
            };
            rows.push(Row { key: name, value, note, is_secret: false, origin: Origin::Default });
            continue;
        }
        rows.extend(own.into_iter().map(row_of));
        if key.way == ["fetcher"] {
            add_of_fetchers(settings, &mut rows);
        }
    }
    rows
}

/// Returns whether a key that was set is the one called `name`; the key of a time may end in its unit.
fn is_key(key: &str, name: &str) -> bool {
    key.strip_prefix(name).is_some_and(|unit| matches!(unit, "" | "_s" | "_ms"))
}

fn row_of(set: Setting) -> Row {
    let is_secret = set.value.is_none();
    let value = set.value.map(|value| json(&value));
    Row { key: set.key, value, note: None, is_secret, origin: set.origin }
}

/// Adds the settings that each fetcher of the config takes from its class.
fn add_of_fetchers(settings: &Settings, rows: &mut Vec<Row>) {
    for (place, fetcher) in settings.config.fetchers.iter().enumerate() {
        for (key, value) in of_fetcher(fetcher) {
            let key = format!("fetcher.{place}.{key}");
            if !rows.iter().any(|row| row.key == key) {
                rows.push(Row { key, value: Some(value), note: None, is_secret: false, origin: Origin::Default });
            }
        }
    }
}

/// Returns a TOML value as JSON; days and times become text.
fn json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.as_str().into(),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => (*number).into(),
        toml::Value::Boolean(is) => (*is).into(),
        toml::Value::Datetime(date) => date.to_string().into(),
        toml::Value::Array(list) => list.iter().map(json).collect(),
        toml::Value::Table(table) => table.iter().map(|(key, value)| (key.clone(), json(value))).collect(),
    }
}
