//! How single values are read: names by what knows them, times as `"30s"` or a number, sizes as `"64MiB"` or a number.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::names::UnknownName;
use crate::policy;
use crate::registry::Class;

/// What a request costs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum CostConfig {
    /// So many plain requests.
    Requests(f64),
    /// What its requests take, beginning with the cost of its class.
    Measured,
}

/// A name that its type reads by itself.
pub(super) fn named<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<Option<T>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

/// The name of a shipped policy.
pub(super) fn policy<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(from)?;
    match policy::NAMES.contains(&&*name) {
        true => Ok(Some(name)),
        false => Err(D::Error::custom(UnknownName::new("policy", &name, policy::NAMES))),
    }
}

/// The name of a fetcher's class.
pub(super) fn class<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Class>, D::Error> {
    let name = String::deserialize(from)?;
    name.parse().map(Some).map_err(|unknown: UnknownName| D::Error::custom(unknown))
}

/// A number, or `"measured"`.
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
        Cost::Name(name) => {
            Err(D::Error::custom(format_args!("{name:?} is no cost; it can be a number or \"measured\"")))
        }
    }
}

/// A time; a bare number is in seconds.
pub(super) fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    time(from, 1.0)
}

/// A time; a bare number is in milliseconds.
pub(super) fn milliseconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    time(from, 1000.0)
}

/// A size in bytes.
pub(super) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(Some(ByteSize::deserialize(from)?.as_u64()))
}

fn time<'de, D: Deserializer<'de>>(from: D, a_second: f64) -> Result<Option<Duration>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a time, as in \"30s\" or \"10m\", or a number")]
    enum Time {
        Number(f64),
        Text(String),
    }
    let time = match Time::deserialize(from)? {
        Time::Number(number) => Duration::try_from_secs_f64(number / a_second)
            .map_err(|_| D::Error::custom(format_args!("{number:?} is no time; it can be any number from 0 up")))?,
        Time::Text(text) => humantime::parse_duration(&text)
            .map_err(|error| D::Error::custom(format_args!("{text:?} is no time, as \"30s\" is: {error}")))?,
    };
    Ok(Some(time))
}
