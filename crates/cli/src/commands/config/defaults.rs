//! Defaults of all settings, read from the parts that define them.
//!
//! Owns: no number. A default that depends on something is given in words.

use std::time::Duration;

use fetchwise::ab_test::GuardSettings;
use fetchwise::backoff::BackoffSettings;
use fetchwise::cache_use::CacheUse;
use fetchwise::config::{Config, DurabilityName, FetcherConfig, ImportanceMode};
use fetchwise::consent::{OnReserved, Vocabulary};
use fetchwise::detect::DetectorOptions;
use fetchwise::evidence::decay::DEFAULT_HALF_LIFE_DAYS;
use fetchwise::fetch::Limits;
use fetchwise::fetch::browser::BrowserOptions;
use fetchwise::fetch::http::DEFAULT_USER_AGENT;
use fetchwise::journal::maintenance::{DEFAULT_COMPACT_THRESHOLD, DEFAULT_RETAIN_DAYS};
use fetchwise::journal::{DEFAULT_SEGMENT_BYTES, Durability};
use fetchwise::pace::PaceSettings;
use fetchwise::policy;
use fetchwise::robots::DEFAULT_AGENT;
use fetchwise::router::Mode;
use fetchwise::score::ImportanceUse;
use fetchwise::selector::VisitSettings;
use serde_json::{Value, json};

use crate::setup::settings::{SPLIT_SHARE, Settings};
use fetchwise_crawl::MAX_WAIT;

/// The default of a setting.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fallback {
    /// One value.
    Value(Value),
    /// A description, for a default that depends on something.
    Words(&'static str),
}

/// Returns the default of `key`, which is not inside a list; none for an unknown key.
pub(super) fn fallback(key: &str, settings: &Settings) -> Option<Fallback> {
    let value = match key.split_once('.') {
        Some(("scoring", key)) => scoring(key)?,
        Some(("backoff", key)) => backoff(key)?,
        Some(("pace", key)) => pace(key)?,
        Some(("http", key)) => return http(key),
        Some(("log", key)) => return log(key),
        Some(("importance", key)) => importance(key)?,
        Some(("detect", "block_threshold")) => json!(f64::from(DetectorOptions::default().block_threshold)),
        Some(("rollout", "retry_after")) => return words("never"),
        Some(("rollout", key)) => rollout(key)?,
        Some(("identity", key)) => return identity(key),
        Some(("robots", "use")) => return words("obey for lists, ignore for URLs on the command line"),
        Some(("robots", "agent")) => json!(settings.config.identity.name.as_deref().unwrap_or(DEFAULT_AGENT)),
        Some(("cache", "use")) => json!(CacheUse::Off.name()),
        Some(("consent", "purposes")) => json!([]),
        Some(("consent", "respect")) => json!(Vocabulary::ALL.iter().map(|known| known.name()).collect::<Vec<_>>()),
        Some(("consent", "on_reserved")) => json!(OnReserved::Skip.name()),
        Some(("consent", "licenses")) => json!("record"),
        Some(("network", "allow")) => json!([]),
        Some(("network", "allow_private")) => json!(Config::default().network.allow_private),
        Some(("fleet", "url")) => json!([]),
        Some(("fleet", "pool")) => json!("default"),
        Some(("fleet", "egress_group")) => json!(""),
        Some(("fleet", "scope")) => json!("all"),
        Some(("fleet", "max_age")) => json!("7days"),
        Some(("fleet", "max_attempts_per_second")) => json!(2000),
        Some(("fleet", "max_new_keys_per_second")) => json!(200),
        Some(("fleet", "max_snapshot_bytes")) => json!("8GiB"),
        Some(("fleet", "tls_ca_file")) => return words("the system's authorities"),
        Some(("fleet", "plaintext" | "required")) => json!(false),
        Some(("fleet", _)) => return words("none"),
        Some(("browser", "enabled")) => json!(true),
        Some(("browser", "path")) => return words("the first one on the PATH"),
        Some(("browser", "tabs")) => json!(BrowserOptions::default().tabs),
        Some(("browser", "quiet")) => json!("500ms"),
        Some(("browser", "max_settle")) => json!("10s"),
        _ => return top(key, settings),
    };
    Some(Fallback::Value(value))
}

fn rollout(key: &str) -> Option<Value> {
    let base = GuardSettings::default();
    Some(match key {
        "fall_back" => json!(base.is_on),
        "metric" => json!(base.metric.to_string()),
        "confidence" => json!(base.confidence),
        "margin" => json!(base.margin.unwrap_or_else(|| base.metric.margin())),
        "min_pages" => json!(base.visits_min),
        "min_hosts" => json!(base.hosts_min),
        _ => return None,
    })
}

fn identity(key: &str) -> Option<Fallback> {
    Some(Fallback::Value(match key {
        "mode" => return words("always if agent is set and a key exists, else never"),
        "about" => return words("the page /bot of the agent"),
        "keys" => return words("fetchwise/identity in the user's configuration directory"),
        "agent" | "name" | "contact" | "key_env" => return words("none"),
        "ips" => json!([]),
        "host" => json!({}),
        "coverage" => json!("request"),
        "form" => json!("auto"),
        "after_refusal" => json!("leave"),
        "browser_scope" => json!("site"),
        "http" => json!("never"),
        _ => return None,
    }))
}

fn words(words: &'static str) -> Option<Fallback> {
    Some(Fallback::Words(words))
}

fn top(key: &str, settings: &Settings) -> Option<Fallback> {
    let value = match key {
        "mode" => json!(Mode::default().name()),
        "split_share" => json!(SPLIT_SHARE),
        "policy" => json!(policy::NAMES[0]),
        "data_dir" => match settings.data_dir() {
            Ok(dir) => json!(dir.display().to_string()),
            Err(_) => return words("none: there is no home directory"),
        },
        "router" | "rules" => return words("none"),
        "half_life_days" => json!(DEFAULT_HALF_LIFE_DAYS),
        "max_keys" => return words("no limit"),
        "file_suffixes" | "page_suffixes" => json!([]),
        "built_in_priors" => json!(true),
        "fetcher" => return words("the built-in ones, and those in the log"),
        "prior" => return words("the built-in ones"),
        _ => return None,
    };
    Some(Fallback::Value(value))
}

fn scoring(key: &str) -> Option<Value> {
    let base = Config::default().settings();
    Some(match key {
        "page_value" => json!(base.page_value),
        "blocked_cost" => json!(base.blocked_cost),
        "success_discount" => json!(base.success_discount),
        "min_confidence" => json!(base.min_confidence),
        // The value after a week of decay: see `Config::settings`.
        "min_attempts" => json!((base.min_sample / 0.9).round()),
        "explore_rate" => json!(base.explore_rate),
        "explore_stale_rate" => json!(base.explore_stale_rate),
        "max_explore_rate" => json!(base.max_explore_rate),
        "last_ditch" => json!(base.last_ditch),
        "plain_outcome_weight" => json!(base.plain_outcome_weight),
        "host_signal_weight" => json!(base.host_signal_weight),
        "impassable_try_rate" => json!(base.impassable_try_rate),
        "max_attempts" => json!(base.max_attempts),
        _ => return None,
    })
}

fn importance(key: &str) -> Option<Value> {
    let with = |mode| {
        let mut config = Config::default();
        config.importance.mode = Some(mode);
        config.settings().importance
    };
    match (key, with(ImportanceMode::Prune), with(ImportanceMode::Scale)) {
        ("use", ..) => Some(json!("off")),
        ("min", ImportanceUse::Prune { min }, _) => Some(json!(min)),
        ("full", _, ImportanceUse::Scale { full }) => Some(json!(full)),
        _ => None,
    }
}

fn backoff(key: &str) -> Option<Value> {
    let base = BackoffSettings::default();
    Some(match key {
        "blocked_base" => time(base.blocked_base),
        "failed_base" => time(base.failed_base),
        "max_retry_after" => time(base.max_retry_after),
        "host_block_threshold" => json!(base.host_block_threshold),
        "host_block_window" => time(base.host_block_window),
        "escalate_after_block" => json!(VisitSettings::default().escalate_after_block),
        _ => return None,
    })
}

fn pace(key: &str) -> Option<Value> {
    let base = PaceSettings::default();
    Some(match key {
        "mode" => json!(base.mode.to_string()),
        "initial_rate" => json!(base.initial_rate),
        "max_rate" => json!(base.max_rate),
        "min_rate" => json!(base.min_rate),
        "max_parallel" => json!(base.max_parallel),
        "crawl_delay" => json!(base.crawl_delay.to_string()),
        "max_crawl_delay" => time(Duration::from_secs_f64(base.max_crawl_delay_s)),
        "max_wait" => time(MAX_WAIT),
        "host" => json!({}),
        _ => return None,
    })
}

fn http(key: &str) -> Option<Fallback> {
    let base = VisitSettings::default();
    Some(Fallback::Value(match key {
        "timeout" => time(base.deadline),
        "probe_timeout" => time(base.probe_deadline),
        "max_body" => size(Limits::default().max_body),
        "max_redirects" => json!(base.max_redirects),
        "user_agent" => json!(DEFAULT_USER_AGENT),
        "ca_file" => return words("Mozilla's authorities only"),
        _ => return None,
    }))
}

fn log(key: &str) -> Option<Fallback> {
    let (name, interval) = match Durability::default() {
        Durability::Interval(interval) => (DurabilityName::Interval, interval),
        _ => return None,
    };
    Some(Fallback::Value(match key {
        "durability" => json!(format!("{name:?}").to_lowercase()),
        "interval" => time(interval),
        "segment_bytes" => size(DEFAULT_SEGMENT_BYTES),
        "retain_days" => json!(DEFAULT_RETAIN_DAYS),
        "compact_threshold" => json!(DEFAULT_COMPACT_THRESHOLD),
        "max_disk_bytes" => return words("no limit"),
        "query" => json!("keep"),
        _ => return None,
    }))
}

/// Returns the settings that a fetcher of the config takes from its class.
pub(super) fn of_fetcher(fetcher: &FetcherConfig) -> Vec<(&'static str, Value)> {
    let spec = fetcher.spec();
    vec![
        ("class", json!(spec.class.name())),
        ("cost", if spec.measures_cost { json!("measured") } else { json!(spec.cost) }),
        ("quality", json!(spec.quality)),
        ("prior", json!(spec.prior)),
        ("renders", json!(spec.renders)),
    ]
}

fn time(span: Duration) -> Value {
    json!(humantime::format_duration(span).to_string())
}

/// Returns a size in the largest unit that divides it.
fn size(bytes: u64) -> Value {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => json!(format!("{}{name}", bytes / unit)),
        None => json!(bytes),
    }
}
