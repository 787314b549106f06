//! Conversion of rows of a PocketBase database.
//!
//! Owns: how an attempt becomes a line for `import`, so that both follow the same rules; which
//! contradictions are corrected, and which are errors.
//!
//! Invariants: the same row always gives the same line, including the id.
//!
//! Must not know: SQL.

use rusqlite::types::Value;
use serde_json::{Map, json};
use url::Url;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::backoff::{LinkState, MAX_RISK_LEVEL};
use fetchwise::heuristic::url::{UrlFeatures, domain_of, parse};
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;

/// The URL prefix of rows that a bootstrap wrote.
const BOOTSTRAP: &str = "seed:";

/// The meaning of a row.
pub(super) enum ReadRow {
    Attempt(Box<AttemptRow>),
    /// A row of a bootstrap, without an attempt.
    Bootstrap,
    Invalid {
        row: String,
        error: String,
    },
}

/// An attempt of the database.
pub(super) struct AttemptRow {
    pub(super) id: String,
    pub(super) link: Option<String>,
    url: String,
    fetcher: String,
    success: bool,
    attempted_at: Value,
    is_banned: bool,
    error_type: Option<String>,
    http_status: Option<i64>,
    headers: Option<serde_json::Value>,
    duration_ms: Option<i64>,
    tags: Vec<TagRow>,
    is_mended: bool,
}

struct TagRow {
    kind: String,
    value: String,
    importance: Option<f64>,
}

/// An attempt whose heuristics are still being read.
pub(super) struct AttemptReader(Result<AttemptRow, ReadRow>);

impl AttemptReader {
    /// Starts with the row itself. `number` identifies a row without an id.
    pub(super) fn begin(number: i64, values: [Value; 11]) -> Self {
        let [
            id,
            url,
            fetcher,
            success,
            attempted_at,
            link,
            is_banned,
            error_type,
            http_status,
            headers,
            duration,
        ] = values;
        let id = text(id).filter(|id| !id.is_empty()).unwrap_or_else(|| format!("row {number}"));
        let unusable = |error: String| Self(Err(ReadRow::Invalid { row: id.clone(), error }));
        let Some(url) = text(url).filter(|url| !url.is_empty()) else {
            return unusable("url is empty".to_owned());
        };
        if url.starts_with(BOOTSTRAP) {
            return Self(Err(ReadRow::Bootstrap));
        }
        let Some(fetcher) = text(fetcher).filter(|name| !name.trim().is_empty()) else {
            return unusable("fetcher is empty".to_owned());
        };
        let Some(success) = yes(&success) else {
            return unusable(format!("success is {}: expected true or false", shown(&success)));
        };
        let is_banned = match &is_banned {
            Value::Null => false,
            other => match yes(other) {
                Some(banned) => banned,
                None => {
                    return unusable(format!(
                        "is_banned is {}: expected true or false",
                        shown(other)
                    ));
                }
            },
        };
        let (headers, headers_are_bad) = read_headers(text(headers));
        Self(Ok(AttemptRow {
            id: id.clone(),
            link: text(link),
            url,
            fetcher: fetcher.trim().to_owned(),
            success,
            attempted_at,
            is_banned,
            error_type: text(error_type)
                .map(|name| name.trim().to_owned())
                .filter(|name| !name.is_empty()),
            // PocketBase stores 0 for an unset number.
            http_status: whole(&http_status).filter(|status| *status != 0),
            headers,
            duration_ms: whole(&duration),
            tags: Vec::new(),
            is_mended: headers_are_bad,
        }))
    }

    /// Adds a heuristic; ignores one without a type.
    pub(super) fn tag(&mut self, [kind, value, importance]: [Value; 3]) {
        let Ok(row) = &mut self.0 else { return };
        let (Some(kind), Some(value)) = (text(kind).filter(|kind| !kind.is_empty()), text(value))
        else {
            return;
        };
        let importance = match importance {
            Value::Real(share) => Some(share),
            Value::Integer(share) => Some(share as f64),
            _ => None,
        };
        // PocketBase stores 0 for an unset number.
        row.tags.push(TagRow {
            kind,
            value,
            importance: importance.filter(|share| *share > 0.0 && *share <= 1.0),
        });
    }

    /// Ends the attempt after its last heuristic.
    pub(super) fn end(self) -> ReadRow {
        match self.0 {
            Ok(row) => ReadRow::Attempt(Box::new(row)),
            Err(read) => read,
        }
    }
}

impl AttemptRow {
    /// Returns the attempt as a line for `import`, and whether anything in it was corrected.
    pub(super) fn to_json_line(&self, link: Option<&str>) -> (String, bool) {
        let (error_type, is_banned, contradicts) = self.outcome();
        let mut line = Map::new();
        line.insert("id".to_owned(), json!(self.uuid().to_string()));
        line.insert("url".to_owned(), json!(self.url));
        if let Some(link) = link {
            line.insert("link".to_owned(), json!(link));
        }
        line.insert("fetcher".to_owned(), json!(self.fetcher));
        line.insert("success".to_owned(), json!(self.success));
        line.insert("attempted_at".to_owned(), time_json(&self.attempted_at));
        line.insert("error_type".to_owned(), json!(error_type));
        line.insert("is_banned".to_owned(), json!(is_banned));
        line.insert("http_status".to_owned(), json!(self.http_status));
        line.insert("response_headers".to_owned(), json!(self.headers));
        line.insert("duration_ms".to_owned(), json!(self.duration_ms));
        line.insert("heuristics".to_owned(), self.heuristics());
        (serde_json::Value::Object(line).to_string(), self.is_mended || contradicts)
    }

    /// Returns the error and whether it was a ban, without contradictions. PocketBase kept a
    /// successful retry with the error of the request before it; the kind of the error decides
    /// about a ban.
    fn outcome(&self) -> (Option<&str>, Option<bool>, bool) {
        if self.success {
            return (None, None, self.error_type.is_some() || self.is_banned);
        }
        let error_type = self.error_type.as_deref();
        match error_type.and_then(ErrorKind::from_name) {
            Some(kind) => (error_type, None, kind.is_banned() != self.is_banned),
            None => (error_type, Some(self.is_banned), false),
        }
    }

    /// Returns the row's id if it is a UUID, else one derived from id and content: rows of two
    /// databases may have the same numbers.
    fn uuid(&self) -> Uuid {
        self.id.parse().unwrap_or_else(|_| {
            let content =
                [&self.id, &self.url, &self.fetcher, &time_json(&self.attempted_at).to_string()];
            Uuid::new_v8(xxh3_128(content.map(String::as_str).join("\0").as_bytes()).to_be_bytes())
        })
    }

    /// Returns the heuristics of the URL and those of the row.
    fn heuristics(&self) -> serde_json::Value {
        let own = Url::parse(&self.url)
            .ok()
            .and_then(|url| UrlFeatures::extract(&url).ok().map(|f| f.heuristics()));
        let own = own.unwrap_or_default();
        let own = own.iter().map(|tag| json!({ "type": tag.kind, "value": tag.value }));
        let tags = self.tags.iter().map(|tag| match tag.importance {
            Some(share) => json!({ "type": tag.kind, "value": tag.value, "importance": share }),
            None => json!({ "type": tag.kind, "value": tag.value }),
        });
        own.chain(tags).collect()
    }
}

/// A link of the database.
pub(super) struct LinkRow {
    pub(super) id: String,
    /// Its URL in the form that fetchwise writes, which is also its name.
    pub(super) url: String,
    pub(super) domain: String,
    pub(super) state: LinkState,
    /// The link's own mode: learning or not.
    pub(super) learning: Option<bool>,
}

impl LinkRow {
    /// Reads a row; none for a row without an id, or with a URL that cannot be fetched.
    pub(super) fn read(values: [Value; 8]) -> Option<Self> {
        let [id, url, paused_until, risk_level, attempt_count, last_attempt_at, wish, enabled] =
            values;
        let id = text(id).filter(|id| !id.is_empty())?;
        let mut url = parse(&text(url)?).ok()?;
        // As for the link of an attempt: without fragment and user info.
        url.set_fragment(None);
        url.set_username("").and_then(|()| url.set_password(None)).ok()?;
        let domain = domain_of(url.host_str()?).to_owned();
        let state = LinkState {
            paused_until: time(&paused_until),
            risk_level: whole(&risk_level).unwrap_or(0).clamp(0, i64::from(MAX_RISK_LEVEL)) as u8,
            attempt_count: whole(&attempt_count)
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or(0),
            last_attempt_at: time(&last_attempt_at),
            hint: None,
        };
        // The switch is off by default, so only "on" is a choice.
        let learning = wish_of(&wish).or_else(|| yes(&enabled).filter(|on| *on));
        Some(Self { id, url: url.into(), domain, state, learning })
    }
}

/// Returns the mode that a text or a truth value stands for; none if it is empty.
fn wish_of(value: &Value) -> Option<bool> {
    match value {
        Value::Text(text) if text.eq_ignore_ascii_case("learning") => Some(true),
        Value::Text(text) if text.eq_ignore_ascii_case("legacy") => Some(false),
        Value::Text(text) if text.trim().is_empty() => None,
        other => yes(other),
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text),
        Value::Integer(number) => Some(number.to_string()),
        Value::Real(number) => Some(number.to_string()),
        Value::Blob(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Value::Null => None,
    }
}

fn yes(value: &Value) -> Option<bool> {
    match value {
        Value::Integer(0) => Some(false),
        Value::Integer(1) => Some(true),
        Value::Text(text) if text.eq_ignore_ascii_case("true") || text == "1" => Some(true),
        Value::Text(text) if text.eq_ignore_ascii_case("false") || text == "0" => Some(false),
        _ => None,
    }
}

fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        Value::Real(number) => Some(number.round() as i64),
        Value::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Returns the time in RFC 3339 form: PocketBase writes a space instead of T.
fn iso(text: &str) -> String {
    text.trim().replacen(' ', "T", 1)
}

fn time(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Text(text) => rfc3339::parse(&iso(text)).ok(),
        Value::Integer(ms) if *ms > 0 => Some(Timestamp::from_millis(*ms)),
        _ => None,
    }
}

fn time_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Text(text) if !text.trim().is_empty() => json!(iso(text)),
        Value::Integer(ms) => json!(ms),
        Value::Real(ms) => json!(ms.round() as i64),
        _ => serde_json::Value::Null,
    }
}

/// Returns headers as one object of texts, and whether some were unreadable. Go writes a list for
/// each name.
fn read_headers(text: Option<String>) -> (Option<serde_json::Value>, bool) {
    let Some(text) = text.filter(|text| !matches!(text.trim(), "" | "null" | "{}" | "[]" | "\"\""))
    else {
        return (None, false);
    };
    let Ok(serde_json::Value::Object(object)) = serde_json::from_str(&text) else {
        return (None, true);
    };
    let mut headers = Map::new();
    for (name, value) in object {
        let value = match value {
            serde_json::Value::String(text) => text,
            serde_json::Value::Array(list) => {
                list.iter().filter_map(serde_json::Value::as_str).collect::<Vec<_>>().join(", ")
            }
            serde_json::Value::Number(number) => number.to_string(),
            _ => continue,
        };
        headers.insert(name, value.into());
    }
    (Some(headers.into()), false)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "empty".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
        Value::Blob(_) => "binary".to_owned(),
    }
}
