//! An attempt as one JSON object on one line: what `export` writes and `import` reads.
//!
//! Owns the field names, the defaults of what is absent, and what makes a line unfit. Invariant: a line that is taken says
//! nothing that contradicts itself, and the same line makes the same attempt, id included, whenever it is read. Must not
//! know where lines come from or where attempts go.
//!
//! | field | absent or null |
//! |---|---|
//! | `url`, `fetcher`, `success`, `attempted_at` | the line is refused |
//! | `id` | made from the content (UUIDv8): the same content is the same attempt |
//! | `link` | the URL |
//! | `error_type` | none |
//! | `is_banned` | what `error_type` says |
//! | `weight` | 1 for a success and for a failure of unknown kind, else what `error_type` says |
//! | `heuristics` | extracted from the URL (an empty list, too: every URL has some) |
//! | `duration_ms` | 0 |
//! | `try_no` | 1 |
//! | all others | none |
//!
//! A success with an `error_type` or with `is_banned` is refused, and so is an `is_banned` that the `error_type` denies: it
//! would teach something wrong either way.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

use super::bounds::{DURATION_MAX_MS, HEADER_MAX_BYTES, ITEMS_MAX, LINK_MAX_BYTES, NAME_MAX_BYTES, VALUE_MAX_BYTES};
use super::{Attempt, ErrorType, Hint, Tag, stored_headers};
use crate::decision::Source;
use crate::heuristic::Heuristic;
use crate::heuristic::url::{URL_MAX_BYTES, UrlError, UrlFeatures, identity, parse as parse_url, shorten};
use crate::registry::canonical;
use crate::response::Header;
use crate::rfc3339;
use crate::time::Timestamp;

/// The longest line that is worth reading, in bytes: every [recorded](super::bounds) attempt fits.
pub const LINE_MAX_BYTES: usize = 4 << 20;

/// Integer times before this (2000-01-01) are rather seconds than milliseconds.
const LOOKS_LIKE_SECONDS_BEFORE: i64 = 946_684_800_000;

/// Why a line is no attempt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It is not JSON, or no JSON object.
    #[error("not a JSON object: {reason} (column {column})")]
    Json {
        /// What the parser said.
        reason: String,
        /// Where, counted from 1.
        column: usize,
    },
    /// It lacks a field that every attempt has.
    #[error("`{field}` is missing; an attempt needs `url`, `fetcher`, `success` and `attempted_at`")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A field holds what it cannot hold.
    #[error("`{field}` must be {expected}, got {got}")]
    Invalid {
        /// The field.
        field: String,
        /// What it takes.
        expected: String,
        /// What it held, shortened.
        got: String,
    },
    /// The URL is not one that can be fetched.
    #[error("`url`: {0}")]
    Url(#[source] UrlError),
    /// Two fields exclude each other.
    #[error("`success` is true although `{field}` is {got}: an attempt either delivered content or failed")]
    Contradiction {
        /// The other field.
        field: &'static str,
        /// Its value.
        got: String,
    },
    /// The two fields that tell of a block do not agree.
    #[error("`is_banned` is {is_banned} although `error_type` is {error_type:?}")]
    Ban {
        /// What `is_banned` says.
        is_banned: bool,
        /// What `error_type` says.
        error_type: &'static str,
    },
}

/// What was odd about a line that was taken all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Fields that mean nothing here and were left out.
    pub unknown_fields: Vec<String>,
    /// The time lay in the future and was moved to now.
    pub clamped: bool,
    /// `attempted_at` was an integer so small that it may have been meant as seconds.
    pub looks_like_seconds: bool,
}

/// Writes `attempt` as one line, without the line break. All fields are there, those without a value as `null`.
///
/// ```
/// use fetchwise::attempt::{Attempt, json};
/// use fetchwise::time::Timestamp;
///
/// let url = url::Url::parse("https://example.org/a.pdf").unwrap();
/// let attempt = Attempt::new(&url, "direct_access", Timestamp::from_millis(0)).unwrap().delivered();
/// let line = json::to_json_line(&attempt);
/// let (same, notes) = json::from_json_line(&line, Timestamp::now()).unwrap();
/// assert_eq!((same, notes), (attempt, json::Notes::default()));
/// ```
pub fn to_json_line(attempt: &Attempt) -> String {
    // Writing strings and numbers to memory cannot fail: there is no I/O, and all map keys are strings.
    serde_json::to_string(&AttemptJson(attempt)).unwrap_or_default()
}

/// Reads one line. A time after `now` becomes `now`.
///
/// # Errors
/// [`ImportError`] names the field and what is wrong with it.
///
/// ```
/// use fetchwise::attempt::json::from_json_line;
/// use fetchwise::time::Timestamp;
///
/// let line = r#"{"url": "https://wikipedia.org/wiki/Rust", "fetcher": "simple_http", "success": true,
///                "attempted_at": 1763650000123}"#;
/// let (attempt, _) = from_json_line(line, Timestamp::now()).unwrap();
/// assert_eq!(attempt.fetcher, "direct_access");
/// assert_eq!(attempt.heuristic("domain_path"), Some("wikipedia.org|wiki"));
/// ```
pub fn from_json_line(line: &str, now: Timestamp) -> Result<(Attempt, Notes), ImportError> {
    let fields: Fields = serde_json::from_str(line).map_err(|error| not_an_object(&error))?;
    read(fields, now)
}

/// An attempt that serializes as [`to_json_line`] writes it.
#[derive(Clone, Copy, Debug)]
pub struct AttemptJson<'a>(pub &'a Attempt);

impl Serialize for AttemptJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let a = self.0;
        let mut out = serializer.serialize_struct("Attempt", FIELDS.len())?;
        out.serialize_field("id", &a.id.hyphenated().to_string())?;
        out.serialize_field("link", &a.link)?;
        out.serialize_field("url", &a.url)?;
        out.serialize_field("fetcher", &a.fetcher)?;
        out.serialize_field("success", &a.success)?;
        out.serialize_field("is_banned", &a.is_banned)?;
        out.serialize_field("error_type", &a.error_type.as_ref().map(ErrorType::name))?;
        out.serialize_field("http_status", &a.http_status)?;
        out.serialize_field("response_headers", &HeadersJson(&a.response_headers))?;
        out.serialize_field("duration_ms", &a.duration_ms)?;
        out.serialize_field("attempted_at", &rfc3339::format(a.attempted_at))?;
        out.serialize_field("source", &a.source)?;
        out.serialize_field("propensity", &a.propensity)?;
        out.serialize_field("hint", &a.hint.map(Hint::name))?;
        out.serialize_field("weight", &a.weight)?;
        out.serialize_field("try_no", &a.try_no)?;
        out.serialize_field("shadow_fetcher", &a.shadow_fetcher)?;
        out.serialize_field("heuristics", &TagsJson(&a.heuristics))?;
        out.end()
    }
}

/// Headers as one object; of a name that comes twice the values are joined, as HTTP allows for every header stored here.
struct HeadersJson<'a>(&'a [Header]);

impl Serialize for HeadersJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut joined: Vec<(&str, Cow<'_, str>)> = Vec::with_capacity(self.0.len());
        for header in self.0 {
            match joined.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case(&header.name)) {
                Some((_, value)) => *value = Cow::Owned(format!("{value}, {}", header.value)),
                None => joined.push((&header.name, Cow::Borrowed(&header.value))),
            }
        }
        let mut map = serializer.serialize_map(Some(joined.len()))?;
        for (name, value) in &joined {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

struct TagsJson<'a>(&'a [Tag]);

impl Serialize for TagsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct TagJson<'a> {
            r#type: &'a str,
            value: &'a str,
            importance: Option<f32>,
        }
        serializer.collect_seq(self.0.iter().map(|tag| TagJson {
            r#type: &tag.heuristic.kind,
            value: &tag.heuristic.value,
            importance: tag.importance,
        }))
    }
}

/// The names of the fields, in the order in which they are written.
pub const FIELDS: [&str; 18] = [
    "id",
    "link",
    "url",
    "fetcher",
    "success",
    "is_banned",
    "error_type",
    "http_status",
    "response_headers",
    "duration_ms",
    "attempted_at",
    "source",
    "propensity",
    "hint",
    "weight",
    "try_no",
    "shadow_fetcher",
    "heuristics",
];

/// A line's known fields as they came, null counted as absent, and the names of the others.
#[derive(Default)]
struct Fields {
    known: BTreeMap<&'static str, Value>,
    unknown: Vec<String>,
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfLine;
        impl<'de> Visitor<'de> for OfLine {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object with the fields of an attempt")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Fields::default();
                let mut seen = 0u32;
                while let Some(key) = map.next_key_seed(FieldName)? {
                    match key {
                        Ok(index) if seen & (1 << index) != 0 => {
                            return Err(de::Error::duplicate_field(FIELDS[index]));
                        }
                        Ok(index) => {
                            seen |= 1 << index;
                            match map.next_value()? {
                                Value::Null => {}
                                value => {
                                    fields.known.insert(FIELDS[index], value);
                                }
                            }
                        }
                        Err(name) => {
                            map.next_value::<IgnoredAny>()?;
                            fields.unknown(shorten(&name));
                        }
                    }
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(OfLine)
    }
}

/// Reads a key: the index of a known field, or the name of another one.
struct FieldName;

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Result<usize, String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let name = String::deserialize(deserializer)?;
        Ok(FIELDS.iter().position(|field| *field == name).ok_or(name))
    }
}

impl Fields {
    fn unknown(&mut self, name: String) {
        // A line of nothing but odd names must not cost more than its length; so many are enough for a warning.
        if self.unknown.len() < ITEMS_MAX && !self.unknown.contains(&name) {
            self.unknown.push(name);
        }
    }

    fn required(&mut self, field: &'static str) -> Result<Value, ImportError> {
        self.known.remove(field).ok_or(ImportError::Missing { field })
    }

    /// A text field of at most `max` bytes without NUL; empty counts as absent.
    fn text(&mut self, field: &'static str, max: usize) -> Result<Option<String>, ImportError> {
        match self.known.remove(field) {
            None => Ok(None),
            Some(value) => Ok(Some(text(field, value, max)?).filter(|text| !text.is_empty())),
        }
    }

    /// A name: text without control characters.
    fn name(&mut self, field: &'static str) -> Result<Option<String>, ImportError> {
        let name = self.text(field, NAME_MAX_BYTES)?;
        match &name {
            Some(text) if text.chars().any(char::is_control) => {
                Err(invalid(field, "a name without control characters", &Value::from(text.as_str())))
            }
            _ => Ok(name),
        }
    }

    fn flag(&mut self, field: &'static str) -> Result<Option<bool>, ImportError> {
        match self.known.remove(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(invalid(field, "true or false", &other)),
        }
    }

    /// A whole number from `min` to `max`.
    fn whole(&mut self, field: &'static str, min: u64, max: u64) -> Result<Option<u64>, ImportError> {
        let Some(value) = self.known.remove(field) else { return Ok(None) };
        match value.as_u64().or_else(|| value.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0).map(|n| n as u64)) {
            Some(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => Err(invalid(field, &format!("a whole number from {min} to {max}"), &value)),
        }
    }

    /// A share: a number up to 1, from 0 on or above it.
    fn share(&mut self, field: &'static str, zero: bool) -> Result<Option<f64>, ImportError> {
        self.known.remove(field).map(|value| share(field, &value, zero)).transpose()
    }
}

fn read(mut fields: Fields, now: Timestamp) -> Result<(Attempt, Notes), ImportError> {
    let mut notes = Notes::default();
    let url_text = text("url", fields.required("url")?, URL_MAX_BYTES)?;
    let url = parse_url(&url_text).map_err(ImportError::Url)?;
    fields.required("fetcher").map(|value| fields.known.insert("fetcher", value))?;
    let fetcher = fields.name("fetcher")?.ok_or_else(|| invalid("fetcher", "a name", &Value::from("")))?;
    fields.required("success").map(|value| fields.known.insert("success", value))?;
    let success = fields.flag("success")?.unwrap_or_default();
    let attempted_at = time(&fields.required("attempted_at")?, &mut notes)?;
    let error_type = fields.name("error_type")?.map(|name| ErrorType::from_name(&name));
    let is_banned = fields.flag("is_banned")?;
    check_end(success, error_type.as_ref(), is_banned)?;
    let kind = error_type.as_ref().and_then(ErrorType::kind);
    let id = id(&mut fields)?;
    let link = fields.text("link", LINK_MAX_BYTES)?;
    let weight = fields.share("weight", true)?;
    let tags = heuristics(&mut fields)?;
    let mut attempt = Attempt {
        id: Uuid::nil(),
        // A link that is a URL loses its user info as the URL does; any other name is the caller's.
        link: link.map_or_else(|| identity(&url).to_owned(), |link| parse_url(&link).map_or(link, String::from)),
        url: identity(&url).to_owned(),
        fetcher: canonical(&fetcher).to_owned(),
        success,
        is_banned: is_banned.unwrap_or(kind.is_some_and(|kind| kind.is_banned())),
        error_type,
        http_status: fields.whole("http_status", 100, 999)?.map(|status| status as u16),
        response_headers: headers(&mut fields)?,
        duration_ms: duration(&mut fields)?,
        attempted_at,
        source: fields.name("source")?.map(source),
        propensity: fields.share("propensity", false)?,
        hint: hint(&mut fields)?,
        weight: weight.unwrap_or(kind.map_or(1.0, |kind| kind.weight())),
        try_no: fields.whole("try_no", 1, u64::from(u32::MAX))?.map_or(1, |number| number as u32),
        shadow_fetcher: fields.name("shadow_fetcher")?.map(|name| canonical(&name).to_owned()),
        heuristics: tags.unwrap_or_default(),
    };
    // Made before anything that depends on the time of reading or on this release's extraction is filled in.
    attempt.id = id.unwrap_or_else(|| content_id(&attempt));
    if attempt.heuristics.is_empty() {
        let features = UrlFeatures::extract(&url).map_err(ImportError::Url)?;
        attempt.heuristics = features.heuristics().into_iter().map(Tag::from).collect();
    }
    notes.clamped = attempt.attempted_at > now;
    attempt.attempted_at = attempt.attempted_at.min(now);
    notes.unknown_fields = fields.unknown;
    Ok((attempt, notes))
}

/// The parser counts lines from the start of its text, which is one line of a file: only the column means something.
fn not_an_object(error: &serde_json::Error) -> ImportError {
    let text = error.to_string();
    let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason).to_owned();
    ImportError::Json { reason, column: error.column() }
}

/// The UUIDv8 of what a line says, whatever the order and spelling of its fields.
fn content_id(attempt: &Attempt) -> Uuid {
    Uuid::new_v8(xxh3_128(to_json_line(attempt).as_bytes()).to_be_bytes())
}

fn check_end(success: bool, error_type: Option<&ErrorType>, is_banned: Option<bool>) -> Result<(), ImportError> {
    match (success, error_type, is_banned) {
        (true, Some(kind), _) => {
            Err(ImportError::Contradiction { field: "error_type", got: format!("{:?}", kind.name()) })
        }
        (true, None, Some(true)) => Err(ImportError::Contradiction { field: "is_banned", got: "true".to_owned() }),
        (false, Some(ErrorType::Known(kind)), Some(banned)) if banned != kind.is_banned() => {
            Err(ImportError::Ban { is_banned: banned, error_type: kind.name() })
        }
        _ => Ok(()),
    }
}

fn id(fields: &mut Fields) -> Result<Option<Uuid>, ImportError> {
    let Some(value) = fields.known.remove("id") else { return Ok(None) };
    let read = value.as_str().and_then(|text| Uuid::try_parse(text).ok()).filter(|id| !id.is_nil());
    read.map(Some).ok_or_else(|| invalid("id", "a UUID", &value))
}

fn time(value: &Value, notes: &mut Notes) -> Result<Timestamp, ImportError> {
    const EXPECTED: &str = "a time in RFC 3339, or whole milliseconds since 1970";
    let at = match value {
        Value::String(text) => rfc3339::parse(text).ok(),
        Value::Number(number) => {
            let ms = number.as_i64();
            notes.looks_like_seconds = ms.is_some_and(|ms| (1_000_000_000..LOOKS_LIKE_SECONDS_BEFORE).contains(&ms));
            ms.map(Timestamp::from_millis)
        }
        _ => None,
    };
    at.filter(|at| at.as_millis() >= 0).ok_or_else(|| invalid("attempted_at", EXPECTED, value))
}

fn duration(fields: &mut Fields) -> Result<u64, ImportError> {
    let Some(value) = fields.known.remove("duration_ms") else { return Ok(0) };
    match value.as_f64() {
        Some(ms) if (0.0..=DURATION_MAX_MS as f64).contains(&ms) => Ok(ms.round() as u64),
        _ => Err(invalid("duration_ms", "a number of milliseconds, 0 or more", &value)),
    }
}

/// The label as the crate's own text where it is one of its own.
fn source(name: String) -> Cow<'static, str> {
    match Source::from_name(&name) {
        Some(source) => Cow::Borrowed(source.name()),
        None => Cow::Owned(name),
    }
}

fn hint(fields: &mut Fields) -> Result<Option<Hint>, ImportError> {
    let Some(name) = fields.name("hint")? else { return Ok(None) };
    let read = Hint::from_name(&name);
    read.map(Some).ok_or_else(|| invalid("hint", "blocked, empty, timeout or unknown", &Value::from(name)))
}

/// Response headers as an object or as a list of pairs, those of them that may be stored.
fn headers(fields: &mut Fields) -> Result<Vec<Header>, ImportError> {
    const FIELD: &str = "response_headers";
    const EXPECTED: &str = "an object of names and values, or a list of [name, value] pairs";
    let Some(value) = fields.known.remove(FIELD) else { return Ok(Vec::new()) };
    let pairs: Vec<(String, Value)> = match value {
        Value::Object(map) => map.into_iter().collect(),
        Value::Array(list) => {
            let pair = |item: Value| match item {
                Value::Array(pair) => match <[Value; 2]>::try_from(pair) {
                    Ok([Value::String(name), value]) => Ok((name, value)),
                    _ => Err(invalid(FIELD, EXPECTED, &Value::from("another list"))),
                },
                other => Err(invalid(FIELD, EXPECTED, &other)),
            };
            list.into_iter().map(pair).collect::<Result<_, _>>()?
        }
        other => return Err(invalid(FIELD, EXPECTED, &other)),
    };
    if pairs.len() > ITEMS_MAX {
        return Err(invalid(FIELD, &format!("{ITEMS_MAX} headers at most"), &Value::from(pairs.len())));
    }
    let mut out: Vec<Header> = Vec::with_capacity(pairs.len());
    for (name, value) in pairs {
        let name = text(FIELD, Value::from(name), NAME_MAX_BYTES)?;
        // HTTP libraries often give a list of values for a name.
        let values = match value {
            Value::Array(values) if values.len() <= ITEMS_MAX => values,
            one => vec![one],
        };
        for value in values {
            out.push(Header::new(name.clone(), text(FIELD, value, HEADER_MAX_BYTES)?));
        }
    }
    Ok(stored_headers(&out))
}

fn heuristics(fields: &mut Fields) -> Result<Option<Vec<Tag>>, ImportError> {
    const FIELD: &str = "heuristics";
    let list = match fields.known.remove(FIELD) {
        None => return Ok(None),
        Some(Value::Array(list)) if list.len() <= ITEMS_MAX => list,
        Some(other) => {
            return Err(invalid(FIELD, &format!("a list of at most {ITEMS_MAX} {{type, value, importance}}"), &other));
        }
    };
    let mut tags: Vec<Tag> = Vec::with_capacity(list.len());
    for (index, item) in list.into_iter().enumerate() {
        let Value::Object(mut item) = item else {
            return Err(invalid(&format!("{FIELD}[{index}]"), "an object {type, value, importance}", &item));
        };
        let part = |name: &str| format!("{FIELD}[{index}].{name}");
        let kind = text(&part("type"), item.remove("type").unwrap_or_default(), NAME_MAX_BYTES)?;
        let value = text(&part("value"), item.remove("value").unwrap_or_default(), VALUE_MAX_BYTES)?;
        if kind.is_empty() {
            return Err(invalid(&part("type"), "the heuristic's type", &Value::from(kind)));
        }
        let importance = match item.remove("importance").unwrap_or_default() {
            Value::Null => None,
            number => Some(share(&part("importance"), &number, true)? as f32),
        };
        for name in item.keys() {
            fields.unknown(format!("heuristics[].{}", shorten(name)));
        }
        // Twice the same would count twice.
        if !tags.iter().any(|tag| tag.heuristic.kind == kind && tag.heuristic.value == value) {
            tags.push(Tag { heuristic: Heuristic::new(kind, value), importance });
        }
    }
    Ok(Some(tags))
}

fn share(field: &str, value: &Value, zero: bool) -> Result<f64, ImportError> {
    match value.as_f64() {
        Some(share) if share <= 1.0 && (share > 0.0 || zero && share == 0.0) => Ok(share.abs()),
        _ if zero => Err(invalid(field, "a number from 0 to 1", value)),
        _ => Err(invalid(field, "a number above 0, at most 1", value)),
    }
}

fn text(field: &str, value: Value, max: usize) -> Result<String, ImportError> {
    match value {
        Value::String(text) if text.len() > max => {
            Err(invalid(field, &format!("at most {max} bytes"), &Value::from(text)))
        }
        Value::String(text) if text.contains('\0') => {
            Err(invalid(field, "text without NUL characters", &Value::from(text)))
        }
        Value::String(text) => Ok(text),
        other => Err(invalid(field, "text", &other)),
    }
}

fn invalid(field: &str, expected: &str, got: &Value) -> ImportError {
    ImportError::Invalid { field: field.to_owned(), expected: expected.to_owned(), got: shorten(&got.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::outcome::ErrorKind;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_millis(1_795_000_000_000);

    fn line(extra: &str) -> String {
        format!(
            r#"{{"url":"https://e.org/a/b.html","fetcher":"playwright","success":false,"attempted_at":1790000000000{extra}}}"#
        )
    }

    fn read_ok(text: &str) -> Attempt {
        from_json_line(text, NOW).unwrap().0
    }

    fn message(text: &str) -> String {
        from_json_line(text, NOW).unwrap_err().to_string()
    }

    #[test]
    fn what_is_absent_is_filled_in() {
        let a = read_ok(&line(r#","error_type":"timeout""#));
        assert_eq!((a.link.as_str(), a.weight, a.is_banned, a.try_no), ("https://e.org/a/b.html", 0.5, false, 1));
        assert_eq!(a.heuristic("domain_suffix"), Some("e.org|.html"));
        let a = read_ok(&line(r#","error_type":"blocked_captcha","heuristics":null"#));
        assert!(a.is_banned && a.weight == 1.0 && a.heuristic("domain") == Some("e.org"));
        let a = read_ok(&line(r#","error_type":"gremlins","heuristics":[{"type":"mine","value":"x"}]"#));
        assert_eq!((a.weight, a.heuristics.len(), a.heuristic("domain")), (1.0, 1, None));
        assert_eq!(read_ok(&line(r#","error_type":"not_found""#)).weight, 0.0);
        assert_eq!(read_ok(&line(r#","error_type":"","source":"","hint":null"#)).error_type, None);
    }

    #[test]
    fn times_are_rfc_3339_or_integer_milliseconds_and_none_lies_ahead() {
        let with = |time: &str| {
            from_json_line(
                &format!(r#"{{"url":"http://e.org","fetcher":"f","success":true,"attempted_at":{time}}}"#),
                NOW,
            )
        };
        for text in ["1700000000123", "\"2023-11-14T22:13:20.123Z\"", "\"2023-11-14T23:13:20.1239+01:00\""] {
            assert_eq!(with(text).unwrap().0.attempted_at.as_millis(), 1_700_000_000_123, "{text}");
        }
        let (ahead, notes) = with("1795000000001").unwrap();
        assert!(ahead.attempted_at == NOW && notes.clamped);
        assert!(with("1700000000").unwrap().1.looks_like_seconds);
        for bad in ["\"yesterday\"", "-5", "1.5", "1e400", "true", "\"1969-12-31T23:59:59Z\""] {
            let error = with(bad).unwrap_err().to_string();
            assert!(error.contains("attempted_at") || error.contains("number out of range"), "{bad}: {error}");
        }
    }

    #[test]
    fn the_same_content_is_the_same_attempt() {
        let a = read_ok(&line(""));
        assert_eq!(a.id.get_version_num(), 8);
        let reordered = r#"{ "success":false,"fetcher":"playwright", "error_type":null,
            "attempted_at":"2026-09-21T14:13:20Z", "url":"https://e.org/a/b.html#top"}"#;
        assert_eq!(read_ok(reordered).id, a.id);
        assert_ne!(read_ok(&line(r#","duration_ms":1"#)).id, a.id);
        // A time that lies ahead is clamped differently at each import, yet the attempt is the same.
        let ahead = line("").replace("1790000000000", "1799000000000");
        let later = from_json_line(&ahead, NOW.saturating_add(std::time::Duration::from_secs(9))).unwrap().0;
        assert_eq!(read_ok(&ahead).id, later.id);
    }

    #[test]
    fn an_id_that_is_given_is_kept() {
        let a = read_ok(&line(r#","id":"018f8e2c-7b5a-7c3d-9e4f-0123456789ab""#));
        assert_eq!(a.id.to_string(), "018f8e2c-7b5a-7c3d-9e4f-0123456789ab");
        assert!(message(&line(r#","id":"7""#)).contains("`id` must be a UUID"));
    }

    #[test]
    fn unknown_fields_are_named_once_and_left_out() {
        let text = line(r#","x":1,"y":{"deep":[1,2]},"x":2,"heuristics":[{"type":"t","value":"v","z":1}]"#);
        assert_eq!(from_json_line(&text, NOW).unwrap().1.unknown_fields, ["x", "y", "heuristics[].z"]);
    }

    #[test]
    fn missing_fields_are_named() {
        let full = [
            ("url", r#""url":"http://e.org""#),
            ("fetcher", r#""fetcher":"f""#),
            ("success", r#""success":true"#),
            ("attempted_at", r#""attempted_at":1"#),
        ];
        for (missing, _) in full {
            let rest: Vec<&str> = full.iter().filter(|(name, _)| *name != missing).map(|(_, text)| *text).collect();
            let text = format!("{{{}}}", rest.join(","));
            assert!(message(&text).starts_with(&format!("`{missing}` is missing")), "{}", message(&text));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_field() {
        for (extra, want) in [
            (r#","weight":1.5"#, "`weight` must be a number from 0 to 1"),
            (r#","weight":-0.1"#, "`weight`"),
            (r#","weight":"1""#, "`weight`"),
            (r#","propensity":0"#, "`propensity`"),
            (r#","duration_ms":-1"#, "`duration_ms`"),
            (r#","http_status":99"#, "`http_status`"),
            (r#","http_status":70000"#, "`http_status`"),
            (r#","try_no":0"#, "`try_no`"),
            (r#","hint":"hunch""#, "`hint`"),
            (r#","is_banned":"no""#, "`is_banned`"),
            (r#","source":"a\u0000b""#, "`source`"),
            (r#","link":7"#, "`link`"),
            (r#","response_headers":[["a"]]"#, "`response_headers`"),
            (r#","response_headers":"a: b""#, "`response_headers`"),
            (r#","heuristics":{}"#, "`heuristics`"),
            (r#","heuristics":[{"value":"v"}]"#, "`heuristics[0].type`"),
            (r#","heuristics":[{"type":"t","value":true}]"#, "`heuristics[0].value`"),
            (r#","heuristics":[{"type":"t","value":"v","importance":2}]"#, "`heuristics[0].importance`"),
            (r#","fetcher":"again""#, "duplicate field `fetcher`"),
        ] {
            let message = message(&line(extra));
            assert!(message.contains(want), "{extra}: {message}");
        }
        let long = line(&format!(r#","source":"{}""#, "s".repeat(1 << 20)));
        assert!(message(&long).contains("`source` must be at most") && message(&long).len() < 300);
        assert!(message("{\"url\":\"ftp://e.org/\"}").contains("unsupported scheme"));
        for text in ["", "[]", "7", "{", "\u{feff}{}", "nonsense", &"[".repeat(100_000), &"{\"x\":".repeat(100_000)] {
            assert!(message(text).contains("not a JSON object"), "{text:.20}");
        }
    }

    #[test]
    fn a_success_that_also_failed_is_refused() {
        let yes = line("").replace("false", "true");
        assert!(message(&yes.replace('}', r#","error_type":"timeout"}"#)).contains("`success` is true although"));
        assert!(message(&yes.replace('}', r#","is_banned":true}"#)).contains("`is_banned`"));
        assert!(
            message(&line(r#","error_type":"not_found","is_banned":true"#)).contains("`is_banned` is true although")
        );
        assert!(message(&line(r#","error_type":"blocked_403","is_banned":false"#)).contains("`is_banned` is false"));
        assert!(from_json_line(&yes.replace('}', r#","is_banned":false,"error_type":null}"#), NOW).is_ok());
    }

    #[test]
    fn only_headers_that_may_be_stored_are_and_pairs_and_lists_are_read() {
        for headers in [
            r#"{"Server":"nginx","Set-Cookie":"secret","via":["a","b"]}"#,
            r#"[["Server","nginx"],["Set-Cookie","secret"],["via","a"],["via","b"]]"#,
        ] {
            let a = read_ok(&line(&format!(r#","response_headers":{headers}"#)));
            let want = [Header::new("Server", "nginx"), Header::new("via", "a"), Header::new("via", "b")];
            assert_eq!(a.response_headers, want);
            assert!(to_json_line(&a).contains(r#""response_headers":{"Server":"nginx","via":"a, b"}"#));
        }
    }

    #[test]
    fn user_info_is_not_kept() {
        let a = read_ok(
            r#"{"url":"https://me:secret@e.org/","link":"https://me:secret@e.org/#x","fetcher":"f","success":true,"attempted_at":1}"#,
        );
        assert_eq!((a.url.as_str(), a.link.as_str()), ("https://e.org/", "https://e.org/"));
    }

    fn attempts() -> impl Strategy<Value = Attempt> {
        let names = || proptest::option::of("[a-z_]{1,20}");
        let end = prop_oneof![
            Just(None),
            proptest::sample::select(ErrorKind::ALL).prop_map(|kind| Some(ErrorType::Known(kind))),
            "[a-z]{3,12}x".prop_map(|name| Some(ErrorType::from_name(&name))),
        ];
        let tags = proptest::collection::vec(("[a-z_]{1,9}", "\\PC{0,30}", proptest::option::of(0f32..=1.0)), 1..6);
        (
            (any::<u128>(), "[a-z0-9/.]{0,30}", "\\PC{1,40}", "[a-z_]{1,20}", end, any::<bool>()),
            (proptest::option::of(100u16..1000), 0u64..1 << 53, 0i64..NOW.as_millis(), names(), 1u32..9),
            (proptest::option::of(1e-9f64..=1.0), proptest::sample::select(&[0.0, 0.5, 1.0][..]), names(), tags),
            proptest::option::of(proptest::sample::select(&Hint::ALL[..])),
        )
            .prop_map(
                |((id, path, link, fetcher, end, banned), (status, ms, at, from, try_no), rest, hint)| {
                    let (propensity, weight, shadow, tags) = rest;
                    let url = url::Url::parse(&format!("https://e.org/{path}")).unwrap();
                    let mut a = Attempt::new(&url, &fetcher, Timestamp::from_millis(at)).unwrap();
                    a.id = Uuid::from_u128(id.max(1));
                    a.link = parse_url(&link).map_or(link, String::from);
                    a.success = end.is_none();
                    a.is_banned = match &end {
                        None => false,
                        Some(ErrorType::Known(kind)) => kind.is_banned(),
                        Some(ErrorType::Other(_)) => banned,
                    };
                    a.error_type = end;
                    a.http_status = status;
                    a.response_headers =
                        status.map(|s| Header::new("Retry-After", s.to_string())).into_iter().collect();
                    a.duration_ms = ms;
                    a.source = from.map(source);
                    a.propensity = propensity;
                    a.hint = hint;
                    a.weight = weight;
                    a.try_no = try_no;
                    a.shadow_fetcher = shadow.map(|name| canonical(&name).to_owned());
                    a.heuristics = Vec::new();
                    for (kind, value, importance) in tags {
                        if !a.heuristics.iter().any(|t: &Tag| t.heuristic.kind == kind && t.heuristic.value == value) {
                            a.heuristics.push(Tag { heuristic: Heuristic::new(kind, value), importance });
                        }
                    }
                    a
                },
            )
    }

    proptest! {
        #[test]
        fn every_attempt_reads_back_as_it_was_written(attempt in attempts()) {
            let text = to_json_line(&attempt);
            prop_assert!(!text.contains('\n'));
            let (read, notes) = from_json_line(&text, NOW).unwrap();
            prop_assert_eq!(read, attempt);
            prop_assert_eq!(notes, Notes::default());
        }

        #[test]
        fn no_line_panics(text in "\\PC{0,80}", noise in "[\\[\\]{}\":,0-9a-z.eE+-]{0,80}") {
            let _ = from_json_line(&text, NOW);
            let _ = from_json_line(&noise, NOW);
            let _ = from_json_line(&line(&format!(",{noise}")), NOW);
        }
    }
}
