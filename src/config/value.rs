//! Parsing of single values: names, times as `"30s"` or a number, sizes as `"64MiB"` or a number.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use url::Url;

use super::secret::{Secret, without_password};
use crate::policy;
use fetchwise_pace::{CrawlDelay, PaceMode};
use fetchwise_types::heuristic::files::FileSuffixes;
use fetchwise_types::registry::Class;
use fetchwise_types::time::Timestamp;
use fetchwise_types::unknown_name::UnknownName;

/// Cost of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum CostConfig {
    /// Number of plain requests.
    Requests(f64),
    /// Measured cost, which begins with the cost of the class.
    Measured,
}

/// Threshold of background compaction.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum CompactThreshold {
    /// No background compaction.
    Never,
    /// Share of the log with attempts past their retention.
    Fraction(f64),
}

impl CompactThreshold {
    /// Returns the share, if any.
    pub fn share(self) -> Option<f64> {
        match self {
            Self::Never => None,
            Self::Fraction(share) => Some(share),
        }
    }
}

/// Writes the value as a config has it.
impl fmt::Debug for CompactThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("\"never\""),
            Self::Fraction(share) => write!(f, "{share:?}"),
        }
    }
}

/// Returns a list of texts, as the default of a key.
pub(super) fn list(texts: &[&str]) -> toml::Value {
    texts.to_vec().into()
}

/// Parses a name with the `FromStr` of its type.
pub(super) fn named<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

/// Parses a list of names with the `FromStr` of their type.
pub(super) fn named_list<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    from: D,
) -> Result<Option<Vec<T>>, D::Error> {
    let names: Vec<String> = Vec::deserialize(from)?;
    names
        .iter()
        .map(|name| name.parse().map_err(D::Error::custom))
        .collect::<Result<_, _>>()
        .map(Some)
}

/// Parses the name of a shipped policy.
pub(super) fn policy<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(from)?;
    match policy::NAMES.contains(&&*name) {
        true => Ok(Some(name)),
        false => Err(D::Error::custom(UnknownName::new("policy", &name, policy::NAMES))),
    }
}

/// Parses suffixes, with or without their dots.
pub(super) fn suffixes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let suffixes: Vec<String> = Vec::deserialize(from)?;
    for suffix in &suffixes {
        FileSuffixes::default().file(suffix).map_err(D::Error::custom)?;
    }
    Ok(suffixes)
}

/// Parses the name of a fetcher's class.
pub(super) fn class<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Class>, D::Error> {
    let name = String::deserialize(from)?;
    name.parse().map(Some).map_err(|unknown: UnknownName| D::Error::custom(unknown))
}

/// Parses the mode of pace.
pub(super) fn pace_mode<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PaceMode>, D::Error> {
    one_of(from, "mode of pace", &["learn", "fixed", "off"])
}

/// Parses the use of a `Crawl-delay`.
pub(super) fn crawl_delay<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<CrawlDelay>, D::Error> {
    one_of(from, "use of Crawl-delay", &["minimum", "initial", "ignore"])
}

fn one_of<'de, D: Deserializer<'de>, T: FromStr>(
    from: D,
    what: &'static str,
    names: &[&str],
) -> Result<Option<T>, D::Error> {
    let name = String::deserialize(from)?;
    let unknown = |_| D::Error::custom(UnknownName::new(what, &name, names.iter().copied()));
    name.parse().map(Some).map_err(unknown)
}

/// Parses a number, or `"measured"`.
pub(super) fn cost<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CostConfig>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number of plain requests, or \"measured\"")]
    enum Cost {
        Number(f64),
        Name(String),
    }
    match Cost::deserialize(from)? {
        Cost::Number(requests) => Ok(Some(CostConfig::Requests(requests))),
        Cost::Name(name) if name == "measured" => Ok(Some(CostConfig::Measured)),
        Cost::Name(name) => Err(D::Error::custom(format_args!(
            "invalid cost {name:?}: expected a number or \"measured\""
        ))),
    }
}

/// Parses a share, or `"never"`.
pub(super) fn compact_threshold<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<CompactThreshold>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a share of the log such as 0.25, or \"never\"")]
    enum At {
        Number(f64),
        Name(String),
    }
    match At::deserialize(from)? {
        At::Number(share) => Ok(Some(CompactThreshold::Fraction(share))),
        At::Name(name) if name == "never" => Ok(Some(CompactThreshold::Never)),
        At::Name(name) => Err(D::Error::custom(format_args!(
            "invalid share {name:?}: expected a number such as 0.25, or \"never\""
        ))),
    }
}

/// Parses a time; a bare number is in seconds.
pub(super) fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    time(from, 1.0)
}

/// Parses a time; a bare number is in milliseconds.
pub(super) fn milliseconds<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Duration>, D::Error> {
    time(from, 1000.0)
}

/// Parses a date (`"2024-05-31"`, as text or as TOML has it), or a point in time with an offset.
pub(super) fn date<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a date such as \"2024-05-31\"")]
    enum Date {
        Toml(toml::value::Datetime),
        Text(String),
    }
    let text = match Date::deserialize(from)? {
        Date::Toml(date) => date.to_string(),
        Date::Text(text) => text,
    };
    let wrong = || {
        D::Error::custom(format_args!("invalid date {text:?}: expected \"2024-05-31\" or RFC 3339"))
    };
    let read: toml::value::Datetime = text.parse().map_err(|_| wrong())?;
    let date = read.date.ok_or_else(wrong)?;
    let days = days_from_epoch(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    let time = read.time.map_or(0, |time| {
        let second = time.second.map_or(0, i64::from);
        (i64::from(time.hour) * 60 + i64::from(time.minute)) * 60 + second
    });
    let offset = match read.offset {
        Some(toml::value::Offset::Custom { minutes }) => i64::from(minutes) * 60,
        _ => 0,
    };
    Ok(Some(Timestamp::from_millis((days * 86_400 + time - offset) * 1000)))
}

/// Returns the number of days since 1970-01-01.
fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = (month + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Parses an http or https URL.
pub(super) fn web_address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Url>, D::Error> {
    let text = String::deserialize(from)?;
    let shown = without_password(&text);
    let address = Url::parse(&text)
        .map_err(|error| D::Error::custom(format_args!("invalid URL {shown:?}: {error}")))?;
    match address.scheme() {
        "http" | "https" if address.has_host() => Ok(Some(address)),
        _ => Err(D::Error::custom(format_args!("invalid URL {shown:?}: expected http or https"))),
    }
}

/// Parses an http or https URL that may hold a password or a key. No message shows it.
pub(super) fn secret_address<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Secret<Url>>, D::Error> {
    let Secret(text) = Secret::<String>::deserialize(from)?;
    let address = Url::parse(&text)
        .map_err(|error| D::Error::custom(format_args!("invalid URL: {error}")))?;
    match address.scheme() {
        "http" | "https" if address.has_host() => Ok(Some(Secret(address))),
        _ => Err(D::Error::custom("invalid URL: expected http or https")),
    }
}

/// Parses a size in bytes.
pub(super) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(Some(ByteSize::deserialize(from)?.as_u64()))
}

fn time<'de, D: Deserializer<'de>>(from: D, a_second: f64) -> Result<Option<Duration>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a time such as \"30s\" or \"10m\", or a number")]
    enum Time {
        Number(f64),
        Text(String),
    }
    let time = match Time::deserialize(from)? {
        Time::Number(number) => Duration::try_from_secs_f64(number / a_second).map_err(|_| {
            D::Error::custom(format_args!("invalid time {number:?}: expected a number from 0 up"))
        })?,
        Time::Text(text) => humantime::parse_duration(&text).map_err(|error| {
            D::Error::custom(format_args!(
                "invalid time {text:?}: {error}; expected a text such as \"30s\""
            ))
        })?,
    };
    Ok(Some(time))
}
