//! `config show`: every setting in effect, with its origin.

use clap::Args;
use fetchwise::config::{
    ANY, FetcherConfig, Key, KeyDefault, Kind, Origin, Setting, keys, variable_of,
};
use fetchwise::robots::DEFAULT_AGENT;
use serde::Serialize;
use serde_json::{Value, json};

use crate::parse::global::GlobalArgs;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{DIM, Output, Table};

/// Show every setting in effect and its origin
///
/// A setting comes from its default, a line of the config file, an environment variable or an
/// option. A value that may be a password or a key is not shown, only its origin.
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
            set.into_iter().partition(|one| one.key == name || one.key.starts_with(&within));
        set = rest;
        if own.is_empty()
            || matches!(key.kind, Kind::Tables | Kind::Map) && own.iter().all(|one| one.key == name)
        {
            let (value, note) = default_of(&key, &name, settings);
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

/// Returns the value or the words that hold for a key while it is not set.
fn default_of(key: &Key, name: &str, settings: &Settings) -> (Option<Value>, Option<&'static str>) {
    match (name, &key.default) {
        ("data_dir", _) => match settings.data_dir() {
            Ok(dir) => (Some(json!(dir.display().to_string())), None),
            Err(_) => (None, Some("none: there is no home directory")),
        },
        ("robots.agent", _) => {
            (Some(json!(settings.config.identity.name.as_deref().unwrap_or(DEFAULT_AGENT))), None)
        }
        (_, Some(KeyDefault::Value(value))) => (Some(json(value)), None),
        (_, Some(KeyDefault::Words { words, .. })) => (None, Some(*words)),
        _ => (None, None),
    }
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
                rows.push(Row {
                    key,
                    value: Some(value),
                    note: None,
                    is_secret: false,
                    origin: Origin::Default,
                });
            }
        }
    }
}

/// Returns the settings that a fetcher of the config takes from its class.
fn of_fetcher(fetcher: &FetcherConfig) -> Vec<(&'static str, Value)> {
    let spec = fetcher.spec();
    vec![
        ("class", json!(spec.class.name())),
        ("cost", if spec.measures_cost { json!("measured") } else { json!(spec.cost) }),
        ("quality", json!(spec.quality)),
        ("prior", json!(spec.prior)),
        ("renders", json!(spec.renders)),
    ]
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
        toml::Value::Table(table) => {
            table.iter().map(|(key, value)| (key.clone(), json(value))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fetchwise::backoff::BackoffSettings;
    use fetchwise::detect::DetectorOptions;
    use fetchwise::evidence::decay::DEFAULT_HALF_LIFE_DAYS;
    use fetchwise::fetch::Limits;
    use fetchwise::fetch::browser::BrowserOptions;
    use fetchwise::fetch::http::DEFAULT_USER_AGENT;
    use fetchwise::journal::maintenance::{DEFAULT_COMPACT_THRESHOLD, DEFAULT_RETAIN_DAYS};
    use fetchwise::journal::{DEFAULT_SEGMENT_BYTES, Durability};
    use fetchwise::policy;
    use fetchwise::router::Mode;
    use fetchwise::selector::VisitSettings;

    use super::*;
    use crate::setup::settings::SPLIT_SHARE;
    use fetchwise_crawl::MAX_WAIT;

    fn time(span: Duration) -> Value {
        json!(humantime::format_duration(span).to_string())
    }

    /// Those that the library uses are compared there.
    #[test]
    fn the_declared_defaults_are_those_of_the_parts() {
        let (visit, browser) = (VisitSettings::default(), BrowserOptions::default());
        let Durability::Interval(interval) = Durability::default() else {
            panic!("another default")
        };
        let size = |bytes: u64| json!(format!("{}MiB", bytes >> 20));
        let all = keys();
        for (name, want) in [
            ("mode", json!(Mode::default().name())),
            ("split_share", json!(SPLIT_SHARE)),
            ("policy", json!(policy::NAMES[0])),
            ("tuning.half_life_days", json!(DEFAULT_HALF_LIFE_DAYS)),
            (
                "tuning.block_threshold",
                json!(f64::from(DetectorOptions::default().block_threshold)),
            ),
            ("backoff.escalate_after_block", json!(visit.escalate_after_block)),
            ("backoff.max_retry_after", time(BackoffSettings::default().max_retry_after)),
            ("http.timeout", time(visit.deadline)),
            ("tuning.probe_timeout", time(visit.probe_deadline)),
            ("http.max_redirects", json!(visit.max_redirects)),
            ("http.max_body", size(Limits::default().max_body)),
            ("http.user_agent", json!(DEFAULT_USER_AGENT)),
            ("pace.max_wait", time(MAX_WAIT)),
            ("robots.agent", json!(DEFAULT_AGENT)),
            ("browser.tabs", json!(browser.tabs)),
            ("tuning.browser_quiet", time(browser.quiet)),
            ("tuning.browser_max_settle", time(browser.max_settle)),
            ("log.interval", time(interval)),
            ("tuning.segment_bytes", size(DEFAULT_SEGMENT_BYTES)),
            ("log.retain_days", json!(DEFAULT_RETAIN_DAYS)),
            ("log.compact_threshold", json!(DEFAULT_COMPACT_THRESHOLD)),
        ] {
            let key = all.iter().find(|key| key.name() == name).unwrap();
            let Some(KeyDefault::Value(value)) = &key.default else {
                panic!("{name} has no default")
            };
            assert_eq!(json(value), want, "{name}");
        }
    }
}
