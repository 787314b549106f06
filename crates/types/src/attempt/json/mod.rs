//! An attempt as one JSON object on one line: the format of `export` and `import`.
//!
//! Owns: the field names, the defaults of absent fields, and the checks of a line; `fields` owns
//! the valid values of each field.
//!
//! Invariants: an accepted line does not contradict itself. The same line makes the same attempt,
//! id included, whenever it is read.
//!
//! Must not know: where lines come from, and where attempts go.
//!
//! | field | absent or null |
//! |---|---|
//! | `url`, `fetcher`, `success`, `attempted_at` | the line is refused |
//! | `id` | made from the content (UUIDv8): the same content is the same attempt |
//! | `link` | the URL |
//! | `error_type` | none |
//! | `is_banned` | what `error_type` says |
//! | `weight` | 1 for a success and for a failure of unknown kind, otherwise the weight of `error_type` |
//! | `final_url` | the URL; only read, since `heuristics` hold what it leads to |
//! | `heuristics` | extracted from the URL (also for an empty list: every URL has some) |
//! | `duration_ms` | 0 |
//! | `try_no` | 1 |
//! | all others | none |
//!
//! A success with an `error_type` or with `is_banned` is refused, and so is an `is_banned` that
//! contradicts the `error_type`: evidence would learn something wrong.

use std::borrow::Cow;

use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Serialize, Serializer};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

use super::bounds::MAX_ITEMS;
use super::{Arm, Attempt, ErrorType, Hint, Tag};
use crate::decision::{Rule, Source};
use crate::heuristic::Heuristic;
use crate::heuristic::url::{UrlFeatures, identity, parse as parse_url};
use crate::registry::canonical;
use crate::response::Header;
use crate::rfc3339;
use crate::time::Timestamp;
use fields::{At, Fields, TagFields};

mod error;
mod fields;

pub use error::ImportError;

/// The longest line that is read, in bytes: every [recorded](super::bounds) attempt fits.
pub const MAX_LINE_BYTES: usize = 4 << 20;

/// Integer times before this (2000-01-01) are probably seconds, not milliseconds.
const LOOKS_LIKE_SECONDS_BEFORE: i64 = 946_684_800_000;

/// Warnings about a line that was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Unknown fields, which were ignored.
    pub unknown_fields: Vec<String>,
    /// Whether the time lay in the future and was set to now.
    pub clamped: bool,
    /// Whether the line had no id, so that its id is one of its content.
    pub id_of_content: bool,
    /// Whether `attempted_at` was an integer so small that it may be in seconds.
    pub looks_like_seconds: bool,
}

/// Writes `attempt` as one line, without the line break. It has all fields; those without a value
/// are `null`.
///
/// ```
/// use fetchwise_types::attempt::{Attempt, json};
/// use fetchwise_types::time::Timestamp;
///
/// let url = url::Url::parse("https://example.org/a.pdf").unwrap();
/// let attempt = Attempt::new(&url, "direct_access", Timestamp::from_millis(0)).unwrap().delivered();
/// let line = json::to_json_line(&attempt);
/// let (same, notes) = json::from_json_line(&line, Timestamp::now()).unwrap();
/// assert_eq!((same, notes), (attempt, json::Notes::default()));
/// ```
pub fn to_json_line(attempt: &Attempt) -> String {
    // Writing strings and numbers to memory cannot fail: there is no I/O, and all map keys are
    // strings.
    serde_json::to_string(&AttemptJson(attempt)).unwrap_or_default()
}

/// Reads one line. A time after `now` becomes `now`.
///
/// # Errors
/// [`ImportError`] names the field and the error in it.
///
/// ```
/// use fetchwise_types::attempt::json::from_json_line;
/// use fetchwise_types::time::Timestamp;
///
/// let line = r#"{"url": "https://wikipedia.org/wiki/Rust", "fetcher": "simple_http", "success": true,
///                "attempted_at": 1763650000123}"#;
/// let (attempt, _) = from_json_line(line, Timestamp::now()).unwrap();
/// assert_eq!(attempt.fetcher, "direct_access");
/// assert_eq!(attempt.heuristic("domain_path"), Some("wikipedia.org|wiki"));
/// ```
pub fn from_json_line(line: &str, now: Timestamp) -> Result<(Attempt, Notes), ImportError> {
    let (fields, unknown_fields) = Fields::read(line)?;
    let mut notes = Notes { unknown_fields, ..Notes::default() };
    Ok((attempt(fields, now, &mut notes)?, notes))
}

/// An attempt that serializes as [`to_json_line`] writes it.
#[derive(Clone, Copy, Debug)]
pub struct AttemptJson<'a>(pub &'a Attempt);

impl Serialize for AttemptJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(self.0, serializer, false)
    }
}

/// An attempt as its id is computed from it: without the fields that were added later, unless they
/// have a value. A line that was written before these fields existed keeps its id.
struct Content<'a>(&'a Attempt);

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(self.0, serializer, true)
    }
}

fn write<S: Serializer>(a: &Attempt, serializer: S, is_brief: bool) -> Result<S::Ok, S::Error> {
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
    if !(is_brief && a.rule.is_none()) {
        out.serialize_field("rule", &a.rule)?;
    }
    if !(is_brief && a.confidence.is_none()) {
        out.serialize_field("confidence", &a.confidence)?;
    }
    if !(is_brief && a.arm.is_none()) {
        out.serialize_field("arm", &a.arm.map(Arm::name))?;
    }
    out.end()
}

/// Headers as one object. Values of the same name are joined, as HTTP allows for every header
/// stored here.
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
pub const FIELDS: [&str; 21] = [
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
    "rule",
    "confidence",
    "arm",
];

fn attempt(fields: Fields, now: Timestamp, notes: &mut Notes) -> Result<Attempt, ImportError> {
    let missing = |field| ImportError::Missing { field };
    let url = parse_url(&fields.url.ok_or_else(|| missing("url"))?).map_err(ImportError::Url)?;
    let fetcher = fields.fetcher.ok_or_else(|| missing("fetcher"))?;
    let success = fields.success.ok_or_else(|| missing("success"))?;
    let At { at, is_number } = fields.attempted_at.ok_or_else(|| missing("attempted_at"))?;
    notes.looks_like_seconds =
        is_number && (1_000_000_000..LOOKS_LIKE_SECONDS_BEFORE).contains(&at.as_millis());
    let error_type = fields.error_type.map(|name| ErrorType::from_name(&name));
    check_end(success, error_type.as_ref(), fields.is_banned)?;
    let kind = error_type.as_ref().and_then(ErrorType::kind);
    // A link that is a URL loses its user info, as the URL does; any other name is the caller's.
    let link = fields
        .link
        .filter(|link| !link.is_empty())
        .map(|link| parse_url(&link).map_or(link, String::from));
    let mut attempt = Attempt {
        id: Uuid::nil(),
        link: link.unwrap_or_else(|| identity(&url).to_owned()),
        url: identity(&url).to_owned(),
        fetcher: canonical(&fetcher).to_owned(),
        success,
        is_banned: fields.is_banned.unwrap_or(kind.is_some_and(|kind| kind.is_banned())),
        error_type,
        http_status: fields.http_status,
        response_headers: fields.response_headers.unwrap_or_default(),
        duration_ms: fields.duration_ms.unwrap_or(0),
        attempted_at: at,
        source: fields.source.map(source),
        propensity: fields.propensity,
        hint: fields.hint,
        weight: fields.weight.unwrap_or(kind.map_or(1.0, |kind| kind.weight())),
        try_no: fields.try_no.unwrap_or(1),
        shadow_fetcher: fields.shadow_fetcher.map(|name| canonical(&name).to_owned()),
        heuristics: fields.heuristics.map(tags).transpose()?.unwrap_or_default(),
        rule: fields.rule.map(rule),
        confidence: fields.confidence,
        arm: fields.arm,
    };
    // Computed before the fields that depend on the time of reading or on this release's extraction
    // are filled in.
    notes.id_of_content = fields.id.is_none();
    attempt.id = fields.id.unwrap_or_else(|| content_id(&attempt));
    if attempt.heuristics.is_empty() {
        let features = UrlFeatures::extract(&url).map_err(ImportError::Url)?;
        attempt.heuristics = features.heuristics().into_iter().map(Tag::from).collect();
    }
    if let Some(landed) = fields.final_url {
        let landed = parse_url(&landed).map_err(ImportError::FinalUrl)?;
        attempt = attempt.answered_by(&landed).map_err(ImportError::FinalUrl)?;
    }
    notes.clamped = attempt.attempted_at > now;
    attempt.attempted_at = attempt.attempted_at.min(now);
    Ok(attempt)
}

/// Returns the UUIDv8 of a line's content, whatever the order and spelling of its fields.
fn content_id(attempt: &Attempt) -> Uuid {
    // This cannot fail, as in `to_json_line`.
    let content = serde_json::to_string(&Content(attempt)).unwrap_or_default();
    Uuid::new_v8(xxh3_128(content.as_bytes()).to_be_bytes())
}

fn check_end(
    success: bool,
    error_type: Option<&ErrorType>,
    is_banned: Option<bool>,
) -> Result<(), ImportError> {
    match (success, error_type, is_banned) {
        (true, Some(kind), _) => Err(ImportError::Contradiction {
            field: "error_type",
            got: format!("{:?}", kind.name()),
        }),
        (true, None, Some(true)) => {
            Err(ImportError::Contradiction { field: "is_banned", got: "true".to_owned() })
        }
        (false, Some(ErrorType::Known(kind)), Some(banned)) if banned != kind.is_banned() => {
            Err(ImportError::Ban { is_banned: banned, error_type: kind.name() })
        }
        _ => Ok(()),
    }
}

/// Returns the label, borrowed if this crate knows it.
fn source(name: String) -> Cow<'static, str> {
    match Source::from_name(&name) {
        Some(source) => Cow::Borrowed(source.name()),
        None => Cow::Owned(name),
    }
}

/// Returns the rule, borrowed if this crate knows it.
fn rule(name: String) -> Cow<'static, str> {
    match name.parse::<Rule>() {
        Ok(rule) => Cow::Borrowed(rule.name()),
        Err(_) => Cow::Owned(name),
    }
}

/// Returns each tag once: a duplicate would count twice.
fn tags(list: Vec<TagFields>) -> Result<Vec<Tag>, ImportError> {
    let invalid = |field, reason| ImportError::Invalid { field, reason };
    if list.len() > MAX_ITEMS {
        return Err(invalid(
            "heuristics".to_owned(),
            format!("must be a list of {MAX_ITEMS} at most"),
        ));
    }
    let mut tags: Vec<Tag> = Vec::with_capacity(list.len());
    for (index, item) in list.into_iter().enumerate() {
        let missing =
            |part: &str| invalid(format!("heuristics[{index}].{part}"), "must be text".to_owned());
        let kind = item.r#type.filter(|kind| !kind.is_empty()).ok_or_else(|| missing("type"))?;
        let heuristic = Heuristic::new(kind, item.value.ok_or_else(|| missing("value"))?);
        if !tags.iter().any(|tag| tag.heuristic == heuristic) {
            tags.push(Tag { heuristic, importance: item.importance.map(|share| share as f32) });
        }
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::error_kind::ErrorKind;
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
    fn absent_fields_get_their_defaults() {
        let a = read_ok(&line(r#","error_type":"timeout""#));
        assert_eq!(
            (a.link.as_str(), a.weight, a.is_banned, a.try_no),
            ("https://e.org/a/b.html", 0.5, false, 1)
        );
        assert_eq!(a.heuristic("domain_suffix"), Some("e.org|.html"));
        let a = read_ok(&line(r#","error_type":"blocked_captcha","heuristics":null"#));
        assert!(a.is_banned && a.weight == 1.0 && a.heuristic("domain") == Some("e.org"));
        let a = read_ok(&line(
            r#","error_type":"gremlins","heuristics":[{"type":"mine","value":"x"}]"#,
        ));
        assert_eq!((a.weight, a.heuristics.len(), a.heuristic("domain")), (1.0, 1, None));
        assert_eq!(read_ok(&line(r#","error_type":"not_found""#)).weight, 0.0);
        assert_eq!(read_ok(&line(r#","error_type":"","source":"","hint":null"#)).error_type, None);
    }

    #[test]
    fn times_are_rfc_3339_or_integer_milliseconds_and_never_in_the_future() {
        let with = |time: &str| {
            from_json_line(
                &format!(
                    r#"{{"url":"http://e.org","fetcher":"f","success":true,"attempted_at":{time}}}"#
                ),
                NOW,
            )
        };
        for text in
            ["1700000000123", "\"2023-11-14T22:13:20.123Z\"", "\"2023-11-14T23:13:20.1239+01:00\""]
        {
            assert_eq!(with(text).unwrap().0.attempted_at.as_millis(), 1_700_000_000_123, "{text}");
        }
        let (ahead, notes) = with("1795000000001").unwrap();
        assert!(ahead.attempted_at == NOW && notes.clamped);
        assert!(with("1700000000").unwrap().1.looks_like_seconds);
        for bad in ["\"yesterday\"", "-5", "1.5", "1e400", "true", "\"1969-12-31T23:59:59Z\""] {
            let error = with(bad).unwrap_err().to_string();
            assert!(
                error.contains("attempted_at") || error.contains("number out of range"),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn an_attempt_counts_at_the_host_that_responded() {
        let attempt = read_ok(&line(r#","final_url":"https://news.example/politics/1.html""#));
        assert_eq!(attempt.url, "https://e.org/a/b.html");
        assert_eq!(attempt.heuristic("domain"), Some("news.example"));
        assert_eq!(attempt.heuristic("redirected_by"), Some("e.org"));
        let same_host = read_ok(&line(r#","final_url":"https://www.e.org/c""#));
        assert_eq!(same_host.heuristics, read_ok(&line("")).heuristics);
        let exported = read_ok(&to_json_line(&attempt));
        assert_eq!(exported, attempt, "an export needs no `final_url`");
    }

    #[test]
    fn the_same_content_is_the_same_attempt() {
        let a = read_ok(&line(""));
        assert_eq!(a.id.get_version_num(), 8);
        let reordered = r#"{ "success":false,"fetcher":"playwright", "error_type":null,
            "attempted_at":"2026-09-21T14:13:20Z", "url":"https://e.org/a/b.html#top"}"#;
        assert_eq!(read_ok(reordered).id, a.id);
        assert_ne!(read_ok(&line(r#","duration_ms":1"#)).id, a.id);
        // A time in the future is clamped differently at each import, yet the attempt is the same.
        let ahead = line("").replace("1790000000000", "1799000000000");
        let later = from_json_line(&ahead, NOW.saturating_add(std::time::Duration::from_secs(9)))
            .unwrap()
            .0;
        assert_eq!(read_ok(&ahead).id, later.id);
    }

    #[test]
    fn a_line_without_later_fields_keeps_its_id() {
        let text = concat!(
            r#"{"id":"00000000-0000-0000-0000-000000000000","link":"https://e.org/a/b.html","url":"https://e.org/a/b.html","#,
            r#""fetcher":"playwright","success":false,"is_banned":false,"error_type":null,"http_status":null,"#,
            r#""response_headers":{},"duration_ms":0,"attempted_at":"2026-09-21T14:13:20.000Z","source":null,"#,
            r#""propensity":null,"hint":null,"weight":1.0,"try_no":1,"shadow_fetcher":null,"heuristics":[]}"#,
        );
        let plain = read_ok(&line("")).id;
        assert_eq!(plain, Uuid::new_v8(xxh3_128(text.as_bytes()).to_be_bytes()));
        for field in [r#","rule":"index""#, r#","confidence":0"#, r#","arm":"legacy""#] {
            assert_ne!(read_ok(&line(field)).id, plain, "{field}");
        }
    }

    #[test]
    fn rule_confidence_and_arm_are_read_and_foreign_rules_stay_text() {
        let a = read_ok(&line(r#","rule":"explore","confidence":0.25,"arm":"legacy""#));
        assert_eq!(
            (a.rule.as_deref(), a.confidence, a.arm),
            (Some("explore"), Some(0.25), Some(Arm::Legacy))
        );
        assert_eq!(read_ok(&line(r#","rule":"my own""#)).rule.as_deref(), Some("my own"));
        let none = read_ok(&line(r#","rule":"","confidence":null,"arm":null"#));
        assert_eq!((none.rule, none.confidence, none.arm), (None, None, None));
    }

    #[test]
    fn an_id_that_is_given_is_kept() {
        let a = read_ok(&line(r#","id":"018f8e2c-7b5a-7c3d-9e4f-0123456789ab""#));
        assert_eq!(a.id.to_string(), "018f8e2c-7b5a-7c3d-9e4f-0123456789ab");
        assert!(message(&line(r#","id":"7""#)).contains("`id` must be a UUID"));
    }

    #[test]
    fn unknown_fields_are_named_once_and_left_out() {
        let text = line(
            r#","x":1,"y":{"deep":[1,2]},"x":2,"heuristics":[{"type":"t","value":"v","z":1}]"#,
        );
        assert_eq!(
            from_json_line(&text, NOW).unwrap().1.unknown_fields,
            ["x", "y", "heuristics[].z"]
        );
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
            let rest: Vec<&str> =
                full.iter().filter(|(name, _)| *name != missing).map(|(_, text)| *text).collect();
            let text = format!("{{{}}}", rest.join(","));
            assert!(
                message(&text).starts_with(&format!("missing `{missing}`")),
                "{}",
                message(&text)
            );
        }
    }

    #[test]
    fn an_invalid_value_is_refused_with_its_field() {
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
            (r#","arm":"left""#, "`arm` must be learning or legacy"),
            (r#","confidence":1.01"#, "`confidence` must be a number from 0 to 1"),
            (r#","rule":"a\nb""#, "`rule`"),
            (r#","is_banned":"no""#, "`is_banned`"),
            (r#","source":"a\u0000b""#, "`source`"),
            (r#","link":7"#, "`link`"),
            (r#","final_url":"ftp://e.org/""#, "`final_url`: "),
            (r#","response_headers":[["a"]]"#, "`response_headers`"),
            (r#","response_headers":"a: b""#, "`response_headers`"),
            (r#","heuristics":{}"#, "`heuristics`"),
            (r#","heuristics":[{"value":"v"}]"#, "`heuristics[0].type`"),
            (r#","heuristics":[{"type":"t","value":true}]"#, "`heuristics[0].value`"),
            (
                r#","heuristics":[{"type":"t","value":"v","importance":2}]"#,
                "`heuristics[0].importance`",
            ),
            (r#","fetcher":"again""#, "duplicate field `fetcher`"),
        ] {
            let message = message(&line(extra));
            assert!(message.contains(want), "{extra}: {message}");
        }
        let long = line(&format!(r#","source":"{}""#, "s".repeat(1 << 20)));
        assert!(message(&long).contains("`source` must be at most") && message(&long).len() < 300);
        assert!(message("{\"url\":\"ftp://e.org/\"}").contains("unsupported scheme"));
        for text in [
            "",
            "[]",
            "7",
            "{",
            "\u{feff}{}",
            "nonsense",
            &"[".repeat(100_000),
            &"{\"x\":".repeat(100_000),
        ] {
            assert!(message(text).contains("not a JSON object"), "{text:.20}");
        }
    }

    #[test]
    fn a_success_that_also_failed_is_refused() {
        let yes = line("").replace("false", "true");
        assert!(
            message(&yes.replace('}', r#","error_type":"timeout"}"#))
                .contains("`success` is true although")
        );
        assert!(message(&yes.replace('}', r#","is_banned":true}"#)).contains("`is_banned`"));
        assert!(
            message(&line(r#","error_type":"not_found","is_banned":true"#))
                .contains("`is_banned` is true although")
        );
        assert!(
            message(&line(r#","error_type":"blocked_403","is_banned":false"#))
                .contains("`is_banned` is false")
        );
        assert!(
            from_json_line(&yes.replace('}', r#","is_banned":false,"error_type":null}"#), NOW)
                .is_ok()
        );
    }

    #[test]
    fn only_allowed_headers_are_stored_and_pairs_and_lists_are_read() {
        for headers in [
            r#"{"Server":"nginx","Set-Cookie":"secret","via":["a","b"]}"#,
            r#"[["Server","nginx"],["Set-Cookie","secret"],["via","a"],["via","b"]]"#,
        ] {
            let a = read_ok(&line(&format!(r#","response_headers":{headers}"#)));
            let want =
                [Header::new("Server", "nginx"), Header::new("via", "a"), Header::new("via", "b")];
            assert_eq!(a.response_headers, want);
            assert!(
                to_json_line(&a).contains(r#""response_headers":{"Server":"nginx","via":"a, b"}"#)
            );
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
        let tags = proptest::collection::vec(
            ("[a-z_]{1,9}", "\\PC{0,30}", proptest::option::of(0f32..=1.0)),
            1..6,
        );
        (
            (any::<u128>(), "[a-z0-9/.]{0,30}", "\\PC{1,40}", "[a-z_]{1,20}", end, any::<bool>()),
            (
                proptest::option::of(100u16..1000),
                0u64..1 << 53,
                0i64..NOW.as_millis(),
                names(),
                1u32..9,
            ),
            (
                proptest::option::of(1e-9f64..=1.0),
                proptest::sample::select(&[0.0, 0.5, 1.0][..]),
                names(),
                tags,
            ),
            proptest::option::of(proptest::sample::select(Hint::ALL)),
            (
                proptest::option::of(prop_oneof![
                    proptest::sample::select(Rule::ALL).prop_map(|rule| rule.name().to_owned()),
                    "[a-z_]{1,20}",
                ]),
                proptest::option::of(0f64..=1.0),
                proptest::option::of(proptest::sample::select(&Arm::ALL[..])),
            ),
        )
            .prop_map(
                |(
                    (id, path, link, fetcher, end, banned),
                    (status, ms, at, from, try_no),
                    rest,
                    hint,
                    why,
                )| {
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
                    a.response_headers = status
                        .map(|s| Header::new("Retry-After", s.to_string()))
                        .into_iter()
                        .collect();
                    a.duration_ms = ms;
                    a.source = from.map(source);
                    a.propensity = propensity;
                    a.hint = hint;
                    (a.rule, a.confidence, a.arm) = (why.0.map(rule), why.1, why.2);
                    a.weight = weight;
                    a.try_no = try_no;
                    a.shadow_fetcher = shadow.map(|name| canonical(&name).to_owned());
                    a.heuristics = Vec::new();
                    for (kind, value, importance) in tags {
                        if !a
                            .heuristics
                            .iter()
                            .any(|t: &Tag| t.heuristic.kind == kind && t.heuristic.value == value)
                        {
                            a.heuristics
                                .push(Tag { heuristic: Heuristic::new(kind, value), importance });
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
