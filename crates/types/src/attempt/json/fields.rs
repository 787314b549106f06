//! The fields of an attempt's line and their valid values. `serde` reads a line,
//! `serde_path_to_error` says where it is invalid, and `serde_ignored` which fields are unknown.
//!
//! Invariants: the memory kept of a line, and the messages about it, are bounded.
//!
//! Must not know: how fields relate to each other. The module above does that.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use uuid::Uuid;

use super::error::ImportError;
use crate::attempt::bounds::{
    MAX_DURATION_MS, MAX_HEADER_BYTES, MAX_ITEMS, MAX_LINK_BYTES, MAX_NAME_BYTES, MAX_VALUE_BYTES,
};
use crate::attempt::{Arm, Hint, stored_headers};
use crate::heuristic::url::{MAX_URL_BYTES, shorten};
use crate::response::Header;
use crate::rfc3339;
use crate::time::Timestamp;

/// The fields of a line; null counts as absent, and so does an empty name.
#[derive(Default, Deserialize)]
#[serde(default, expecting = "an object with the fields of an attempt")]
pub(super) struct Fields {
    #[serde(deserialize_with = "id")]
    pub(super) id: Option<Uuid>,
    #[serde(deserialize_with = "text::<_, MAX_LINK_BYTES>")]
    pub(super) link: Option<String>,
    #[serde(deserialize_with = "text::<_, MAX_URL_BYTES>")]
    pub(super) url: Option<String>,
    #[serde(deserialize_with = "text::<_, MAX_URL_BYTES>")]
    pub(super) final_url: Option<String>,
    #[serde(deserialize_with = "name")]
    pub(super) fetcher: Option<String>,
    pub(super) success: Option<bool>,
    pub(super) is_banned: Option<bool>,
    #[serde(deserialize_with = "name")]
    pub(super) error_type: Option<String>,
    #[serde(deserialize_with = "whole::<_, u16, 100, 999>")]
    pub(super) http_status: Option<u16>,
    #[serde(deserialize_with = "headers")]
    pub(super) response_headers: Option<Vec<Header>>,
    #[serde(deserialize_with = "milliseconds")]
    pub(super) duration_ms: Option<u64>,
    #[serde(deserialize_with = "time")]
    pub(super) attempted_at: Option<At>,
    #[serde(deserialize_with = "name")]
    pub(super) source: Option<String>,
    #[serde(deserialize_with = "propensity")]
    pub(super) propensity: Option<f64>,
    #[serde(deserialize_with = "hint")]
    pub(super) hint: Option<Hint>,
    #[serde(deserialize_with = "share")]
    pub(super) weight: Option<f64>,
    #[serde(deserialize_with = "whole::<_, u32, 1, { u32::MAX }>")]
    pub(super) try_no: Option<u32>,
    #[serde(deserialize_with = "name")]
    pub(super) shadow_fetcher: Option<String>,
    pub(super) heuristics: Option<Vec<TagFields>>,
    #[serde(deserialize_with = "name")]
    pub(super) rule: Option<String>,
    #[serde(deserialize_with = "share")]
    pub(super) confidence: Option<f64>,
    #[serde(deserialize_with = "arm")]
    pub(super) arm: Option<Arm>,
}

/// The fields of one heuristic.
#[derive(Default, Deserialize)]
#[serde(default, expecting = "an object {type, value, importance}")]
pub(super) struct TagFields {
    #[serde(deserialize_with = "text::<_, MAX_NAME_BYTES>")]
    pub(super) r#type: Option<String>,
    #[serde(deserialize_with = "text::<_, MAX_VALUE_BYTES>")]
    pub(super) value: Option<String>,
    #[serde(deserialize_with = "share")]
    pub(super) importance: Option<f64>,
}

/// The time of an attempt.
pub(super) struct At {
    pub(super) at: Timestamp,
    /// Whether it was given as a number.
    pub(super) is_number: bool,
}

impl Fields {
    /// Reads a line, and returns the unknown fields in it, each once.
    pub(super) fn read(line: &str) -> Result<(Self, Vec<String>), ImportError> {
        // A list would be read as the fields in their order.
        if !line.trim_start().starts_with('{') {
            return Err(ImportError::Json {
                reason: "missing { at the start".to_owned(),
                column: 1,
            });
        }
        let mut unknown: Vec<String> = Vec::new();
        let mut note = |path: serde_ignored::Path<'_>| {
            let name = shorten(&field_of(&path));
            // A line full of unknown names must not cost more than its length; this number is
            // enough for a warning.
            if unknown.len() < MAX_ITEMS && !unknown.contains(&name) {
                unknown.push(name);
            }
        };
        let mut json = serde_json::Deserializer::from_str(line);
        let read = serde_path_to_error::deserialize(serde_ignored::Deserializer::new(
            &mut json, &mut note,
        ));
        let fields: Self = read.map_err(wrong)?;
        json.end().map_err(|error| not_an_object(&error))?;
        Ok((fields, unknown))
    }
}

/// Returns the path of an unknown field, with `[]` for any position in a list.
fn field_of(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, .. } => field_of(parent) + "[]",
        Path::Map { parent: Path::Root, key } => key.clone(),
        Path::Map { parent, key } => format!("{}.{key}", field_of(parent)),
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => field_of(parent),
    }
}

/// Returns the error of a field with an invalid value, or of a line that is not an object.
fn wrong(error: serde_path_to_error::Error<serde_json::Error>) -> ImportError {
    let field = error.path().to_string();
    let error = error.into_inner();
    if !error.is_data() || field == "." {
        return not_an_object(&error);
    }
    let text = message(&error);
    let reason = match text
        .strip_prefix("invalid type: ")
        .and_then(|text| text.rsplit_once(", expected "))
    {
        Some((got, "f64")) => format!("must be a number, got {}", shorten(got)),
        Some((got, expected)) => format!("must be {expected}, got {}", shorten(got)),
        None => text,
    };
    ImportError::Invalid { field, reason }
}

fn not_an_object(error: &serde_json::Error) -> ImportError {
    ImportError::Json { reason: message(error), column: error.column() }
}

/// Returns the parser's message. Its line number is that within its text, a single line of a file:
/// only the column is useful.
fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason).to_owned()
}

/// Reads a value as an `F`, and converts it into a `T`. An error says what is expected.
fn checked<'de, D: Deserializer<'de>, F: Deserialize<'de>, T>(
    from: D,
    check: impl FnOnce(F) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    Option::<F>::deserialize(from)?.map(check).transpose().map_err(D::Error::custom)
}

/// Returns the expected and the actual value, as a message.
fn must(be: impl fmt::Display, got: impl fmt::Debug) -> String {
    format!("must be {be}, got {}", shorten(&format!("{got:?}")))
}

/// Reads text of at most `MAX` bytes, without NUL.
fn text<'de, D: Deserializer<'de>, const MAX: usize>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, check_text::<MAX>)
}

fn check_text<const MAX: usize>(text: String) -> Result<String, String> {
    match text {
        text if text.len() > MAX => Err(must(format_args!("at most {MAX} bytes"), text)),
        text if text.contains('\0') => Err(must("text without NUL characters", text)),
        text => Ok(text),
    }
}

/// Reads short text without control characters; empty text counts as absent.
fn name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = checked(from, |text| match check_text::<MAX_NAME_BYTES>(text)? {
        text if text.chars().any(char::is_control) => {
            Err(must("a name without control characters", text))
        }
        text => Ok(text),
    });
    name.map(|name| name.filter(|name| !name.is_empty()))
}

fn id<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Uuid>, D::Error> {
    checked(from, |text: String| match Uuid::try_parse(&text) {
        Ok(id) if !id.is_nil() => Ok(id),
        _ => Err(must("a UUID", text)),
    })
}

fn hint<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Hint>, D::Error> {
    let hint = name(from)?.map(|name| {
        Hint::from_name(&name).ok_or_else(|| must("blocked, empty, timeout or unknown", name))
    });
    hint.transpose().map_err(D::Error::custom)
}

fn arm<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arm>, D::Error> {
    let arm = name(from)?
        .map(|name| Arm::from_name(&name).ok_or_else(|| must("learning or legacy", name)));
    arm.transpose().map_err(D::Error::custom)
}

/// Reads a whole number. `200.0` is one too: tables with gaps are often written so.
fn whole<'de, D: Deserializer<'de>, T: TryFrom<u32>, const MIN: u32, const MAX: u32>(
    from: D,
) -> Result<Option<T>, D::Error> {
    checked(from, |number: f64| {
        let range = f64::from(MIN)..=f64::from(MAX);
        let whole = Some(number).filter(|number| number.fract() == 0.0 && range.contains(number));
        whole
            .and_then(|number| T::try_from(number as u32).ok())
            .ok_or_else(|| must(format_args!("a whole number from {MIN} to {MAX}"), number))
    })
}

fn milliseconds<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    checked(from, |ms: f64| match (0.0..=MAX_DURATION_MS as f64).contains(&ms) {
        true => Ok(ms.round() as u64),
        false => Err(must("a number of milliseconds, 0 or more", ms)),
    })
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    checked(from, |share: f64| match (0.0..=1.0).contains(&share) {
        // Minus zero is zero.
        true => Ok(share.abs()),
        false => Err(must("a number from 0 to 1", share)),
    })
}

fn propensity<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    checked(from, |share: f64| match share > 0.0 && share <= 1.0 {
        true => Ok(share),
        false => Err(must("a number above 0, at most 1", share)),
    })
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<At>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "must be a time in RFC 3339, or whole milliseconds since 1970")]
    enum Time {
        Text(String),
        Milliseconds(i64),
    }
    const EXPECTED: &str = "a time in RFC 3339, or whole milliseconds since 1970";
    let is_time = |at: &Timestamp| at.as_millis() >= 0;
    checked(from, |time| match time {
        Time::Text(text) => match rfc3339::parse(&text).ok().filter(is_time) {
            Some(at) => Ok(At { at, is_number: false }),
            None => Err(must(EXPECTED, text)),
        },
        Time::Milliseconds(ms) => match Some(Timestamp::from_millis(ms)).filter(is_time) {
            Some(at) => Ok(At { at, is_number: true }),
            None => Err(must(EXPECTED, ms)),
        },
    })
}

/// Reads response headers as an object or as a list of pairs, and keeps those that may be stored.
/// HTTP libraries often give a list of values for a name.
fn headers<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Header>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "must be an object of names and values, or a list of [name, value] pairs"
    )]
    enum Headers {
        Object(BTreeMap<String, Values>),
        Pairs(Vec<(String, Values)>),
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Values {
        One(String),
        Many(Vec<String>),
    }
    checked(from, |headers| {
        let pairs = match headers {
            Headers::Object(map) => map.into_iter().collect(),
            Headers::Pairs(pairs) => pairs,
        };
        let mut all: Vec<Header> = Vec::with_capacity(pairs.len().min(MAX_ITEMS));
        for (name, values) in pairs {
            let name = check_text::<MAX_NAME_BYTES>(name)?;
            let values = match values {
                Values::One(value) => vec![value],
                Values::Many(values) => values,
            };
            for value in values {
                all.push(Header::new(name.clone(), check_text::<MAX_HEADER_BYTES>(value)?));
            }
            if all.len() > MAX_ITEMS {
                return Err(format!("must be {MAX_ITEMS} headers at most"));
            }
        }
        Ok(stored_headers(&all))
    })
}
