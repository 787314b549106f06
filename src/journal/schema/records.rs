//! Layout of the log's records, byte for byte, and conversion of attempts to and from it.
//!
//! Owns: the archived types, and the fingerprint of their layout.
//!
//! Invariants: a released layout never changes: a new version is added alongside it with a new
//! number. rkyv's format features unify over a host's whole dependency graph (one crate that
//! requests `unaligned` changes our layout). So sizes, alignments and offsets are asserted at
//! compile time, and every segment stores a fingerprint of them.
//!
//! Must not know: keys, files.
//!
//! Bytes from a file have passed the log's CRC. They are validated once more here (bytecheck)
//! before they are used, so that a forged file can only be rejected.

use std::borrow::Cow;
use std::mem::{align_of, offset_of, size_of};

use rkyv::rancor::Error as RkyvError;
use rkyv::util::AlignedVec;
use rkyv::with::{AsOwned, Map};
use rkyv::{Archive, Portable, Serialize};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

use super::codes::{
    ARM_CODES, ERROR_CODES, NONE, OTHER, RULE_CODES, SOURCE_CODES, SchemaError, TAG_KINDS, code_of,
    from_code, hint_code, hint_of,
};
use fetchwise_types::attempt::{Attempt, ErrorType, Tag};
use fetchwise_types::decision::{Rule, Source};
use fetchwise_types::heuristic::Heuristic;
use fetchwise_types::response::Header;
use fetchwise_types::time::Timestamp;

type Text<'a> = Cow<'a, str>;

/// Attempt, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct AttemptV1<'a> {
    pub(super) id: [u8; 16],
    pub(super) attempted_at: i64,
    pub(super) duration_ms: u64,
    pub(super) weight: f64,
    pub(super) propensity: Option<f64>,
    pub(super) confidence: Option<f64>,
    /// Link; `None` if it equals the URL.
    #[rkyv(with = Map<AsOwned>)]
    pub(super) link: Option<Text<'a>>,
    #[rkyv(with = AsOwned)]
    pub(super) url: Text<'a>,
    #[rkyv(with = AsOwned)]
    pub(super) fetcher: Text<'a>,
    /// Name of an error type whose number is [`OTHER`].
    #[rkyv(with = AsOwned)]
    pub(super) error_other: Text<'a>,
    /// Name of a source whose number is [`OTHER`].
    #[rkyv(with = AsOwned)]
    pub(super) source_other: Text<'a>,
    /// Name of a rule whose number is [`OTHER`].
    #[rkyv(with = AsOwned)]
    pub(super) rule_other: Text<'a>,
    #[rkyv(with = Map<AsOwned>)]
    pub(super) shadow_fetcher: Option<Text<'a>>,
    pub(super) response_headers: Vec<HeaderV1<'a>>,
    pub(super) heuristics: Vec<TagV1<'a>>,
    pub(super) try_no: u32,
    /// Status; 0 if no response came.
    pub(super) http_status: u16,
    pub(super) success: bool,
    pub(super) is_banned: bool,
    pub(super) error: u8,
    pub(super) source: u8,
    pub(super) rule: u8,
    pub(super) arm: u8,
    pub(super) hint: u8,
}

/// Response header, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct HeaderV1<'a> {
    #[rkyv(with = AsOwned)]
    pub(super) name: Text<'a>,
    #[rkyv(with = AsOwned)]
    pub(super) value: Text<'a>,
}

/// Heuristic, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct TagV1<'a> {
    /// Number in [`TAG_KINDS`], or [`OTHER`].
    pub(super) kind: u8,
    #[rkyv(with = AsOwned)]
    pub(super) kind_other: Text<'a>,
    #[rkyv(with = AsOwned)]
    pub(super) value: Text<'a>,
    pub(super) importance: Option<f32>,
}

/// State of a link, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct LinkStateV1<'a> {
    pub(super) at: i64,
    pub(super) paused_until: Option<i64>,
    pub(super) last_attempt_at: Option<i64>,
    #[rkyv(with = AsOwned)]
    pub(super) link: Text<'a>,
    #[rkyv(with = AsOwned)]
    pub(super) domain: Text<'a>,
    pub(super) attempt_count: u32,
    pub(super) risk_level: u8,
    pub(super) hint: u8,
}

/// Pause of a host, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct HostStateV1<'a> {
    pub(super) at: i64,
    pub(super) paused_until: Option<i64>,
    #[rkyv(with = AsOwned)]
    pub(super) domain: Text<'a>,
}

/// Importance of a heuristic, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct ImportanceV1<'a> {
    pub(super) at: i64,
    #[rkyv(with = AsOwned)]
    pub(super) kind: Text<'a>,
    #[rkyv(with = Map<AsOwned>)]
    pub(super) value: Option<Text<'a>>,
    pub(super) importance: f32,
}

/// Persisted pace, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct PaceV1<'a> {
    pub(super) at: i64,
    #[rkyv(with = AsOwned)]
    pub(super) name: Text<'a>,
    pub(super) state: [u8; 64],
    pub(super) level: u8,
    pub(super) cause: u8,
}

/// Tombstone, version 1: exactly one of the two fields is set.
#[derive(Archive, Serialize)]
pub(crate) struct TombstoneV1<'a> {
    pub(super) at: i64,
    #[rkyv(with = Map<AsOwned>)]
    pub(super) domain: Option<Text<'a>>,
    #[rkyv(with = Map<AsOwned>)]
    pub(super) link: Option<Text<'a>>,
}

/// End of a pause, version 1: exactly one of the two fields is set.
#[derive(Archive, Serialize)]
pub(crate) struct ReleaseV1<'a> {
    pub(super) at: i64,
    #[rkyv(with = Map<AsOwned>)]
    pub(super) domain: Option<Text<'a>>,
    #[rkyv(with = Map<AsOwned>)]
    pub(super) link: Option<Text<'a>>,
}

/// Fetcher, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct FetcherV1<'a> {
    pub(super) at: i64,
    pub(super) cost: f64,
    #[rkyv(with = AsOwned)]
    pub(super) name: Text<'a>,
    pub(super) class: u8,
}

impl<'a> From<&'a Attempt> for AttemptV1<'a> {
    fn from(a: &'a Attempt) -> Self {
        let error_code = match &a.error_type {
            None => NONE,
            Some(error) => error.kind().map_or(OTHER, |kind| code_of(&ERROR_CODES, &kind)),
        };
        let source_code = match &a.source {
            None => NONE,
            Some(name) => {
                Source::from_name(name).map_or(OTHER, |source| code_of(&SOURCE_CODES, &source))
            }
        };
        let rule_code = match a.rule.as_deref() {
            None => NONE,
            Some(name) => name.parse().map_or(OTHER, |rule: Rule| code_of(&RULE_CODES, &rule)),
        };
        let other = |code: u8, name: Option<&'a str>| match (code, name) {
            (OTHER, Some(name)) => Cow::Borrowed(name),
            _ => Cow::Borrowed(""),
        };
        Self {
            id: *a.id.as_bytes(),
            attempted_at: a.attempted_at.as_millis(),
            duration_ms: a.duration_ms,
            weight: a.weight,
            propensity: a.propensity,
            confidence: a.confidence,
            link: (a.link != a.url).then_some(Cow::Borrowed(a.link.as_str())),
            url: Cow::Borrowed(&a.url),
            fetcher: Cow::Borrowed(&a.fetcher),
            error_other: other(error_code, a.error_type.as_ref().map(ErrorType::name)),
            source_other: other(source_code, a.source.as_deref()),
            rule_other: other(rule_code, a.rule.as_deref()),
            shadow_fetcher: a.shadow_fetcher.as_deref().map(Cow::Borrowed),
            response_headers: a.response_headers.iter().map(HeaderV1::from).collect(),
            heuristics: a.heuristics.iter().map(TagV1::from).collect(),
            try_no: a.try_no,
            http_status: a.http_status.unwrap_or(0),
            success: a.success,
            is_banned: a.is_banned,
            error: error_code,
            source: source_code,
            rule: rule_code,
            arm: a.arm.map_or(NONE, |arm| code_of(&ARM_CODES, &arm)),
            hint: hint_code(a.hint),
        }
    }
}

impl<'a> From<&'a Header> for HeaderV1<'a> {
    fn from(header: &'a Header) -> Self {
        Self { name: Cow::Borrowed(&header.name), value: Cow::Borrowed(&header.value) }
    }
}

impl<'a> From<&'a Tag> for TagV1<'a> {
    fn from(tag: &'a Tag) -> Self {
        let kind = code_of(&TAG_KINDS, &tag.heuristic.kind.as_ref());
        Self {
            kind,
            kind_other: Cow::Borrowed(if kind == OTHER { tag.heuristic.kind.as_ref() } else { "" }),
            value: Cow::Borrowed(&tag.heuristic.value),
            importance: tag.importance,
        }
    }
}

impl TryFrom<&ArchivedAttemptV1<'_>> for Attempt {
    type Error = SchemaError;

    fn try_from(a: &ArchivedAttemptV1<'_>) -> Result<Self, SchemaError> {
        let url = a.url.as_str().to_owned();
        let error_type = match a.error {
            NONE => None,
            OTHER => Some(ErrorType::from_name(&a.error_other)),
            code => Some(ErrorType::Known(from_code(&ERROR_CODES, code, "an error type")?)),
        };
        let source = match a.source {
            NONE => None,
            OTHER => Some(Cow::Owned(a.source_other.as_str().to_owned())),
            code => Some(Cow::Borrowed(from_code(&SOURCE_CODES, code, "a source")?.name())),
        };
        let rule = match a.rule {
            NONE => None,
            OTHER => Some(Cow::Owned(a.rule_other.as_str().to_owned())),
            code => Some(Cow::Borrowed(from_code(&RULE_CODES, code, "a rule")?.name())),
        };
        let arm = match a.arm {
            NONE => None,
            code => Some(from_code(&ARM_CODES, code, "an arm")?),
        };
        let status = a.http_status.to_native();
        Ok(Self {
            id: Uuid::from_bytes(a.id),
            link: a.link.as_ref().map_or_else(|| url.clone(), |link| link.as_str().to_owned()),
            url,
            fetcher: a.fetcher.as_str().to_owned(),
            success: a.success,
            is_banned: a.is_banned,
            error_type,
            http_status: (status != 0).then_some(status),
            response_headers: a
                .response_headers
                .iter()
                .map(|h| Header::new(h.name.as_str(), h.value.as_str()))
                .collect(),
            duration_ms: a.duration_ms.to_native(),
            attempted_at: Timestamp::from_millis(a.attempted_at.to_native()),
            source,
            propensity: a.propensity.as_ref().map(|p| p.to_native()),
            hint: hint_of(a.hint)?,
            weight: a.weight.to_native(),
            try_no: a.try_no.to_native(),
            shadow_fetcher: a.shadow_fetcher.as_ref().map(|name| name.as_str().to_owned()),
            heuristics: a.heuristics.iter().map(Tag::try_from).collect::<Result<_, _>>()?,
            rule,
            confidence: a.confidence.as_ref().map(|confidence| confidence.to_native()),
            arm,
        })
    }
}

impl TryFrom<&ArchivedTagV1<'_>> for Tag {
    type Error = SchemaError;

    fn try_from(tag: &ArchivedTagV1<'_>) -> Result<Self, SchemaError> {
        let kind = match tag.kind {
            OTHER => Cow::Owned(tag.kind_other.as_str().to_owned()),
            code => Cow::Borrowed(from_code(&TAG_KINDS, code, "a heuristic's type")?),
        };
        // Most frequent values are flags, so they are not copied.
        let value = match tag.value.as_str() {
            "true" => Cow::Borrowed("true"),
            text => Cow::Owned(text.to_owned()),
        };
        let importance = tag.importance.as_ref().map(|i| i.to_native());
        Ok(Self { heuristic: Heuristic { kind, value }, importance })
    }
}

pub(super) fn time_of(at: rkyv::rend::i64_le) -> Timestamp {
    Timestamp::from_millis(at.to_native())
}

/// Room for a record of the usual length, so that its buffer does not grow step by step.
const USUAL_LEN: usize = 512;

pub(super) fn bytes_of<T>(value: &T) -> Result<AlignedVec, SchemaError>
where
    T: for<'s> Serialize<
        rkyv::api::high::HighSerializer<
            AlignedVec,
            rkyv::ser::allocator::ArenaHandle<'s>,
            RkyvError,
        >,
    >,
{
    bytes_in(value, AlignedVec::with_capacity(USUAL_LEN))
}

/// Appends the bytes of `value` to `memory`, which has to be empty.
pub(super) fn bytes_in<T>(value: &T, memory: AlignedVec) -> Result<AlignedVec, SchemaError>
where
    T: for<'s> Serialize<
        rkyv::api::high::HighSerializer<
            AlignedVec,
            rkyv::ser::allocator::ArenaHandle<'s>,
            RkyvError,
        >,
    >,
{
    rkyv::api::high::to_bytes_in::<_, RkyvError>(value, memory).map_err(SchemaError::Invalid)
}

pub(super) fn access<'p, T>(payload: &'p [u8]) -> Result<&'p T, SchemaError>
where
    T: Portable
        + for<'v> rkyv::bytecheck::CheckBytes<rkyv::api::high::HighValidator<'v, RkyvError>>,
{
    rkyv::access::<T, RkyvError>(payload).map_err(SchemaError::Invalid)
}

macro_rules! layouts {
    ($($archived:ident: $size:literal, $align:literal, { $($field:ident: $offset:literal),+ $(,)? })+) => {
        $(const _: () = {
            assert!(size_of::<$archived<'static>>() == $size);
            assert!(align_of::<$archived<'static>>() == $align);
            $(assert!(offset_of!($archived<'static>, $field) == $offset);)+
        };)+
        /// Layout of every archived type, as text.
        const LAYOUTS: &str = concat!(
            $(stringify!($archived), ":", $size, ",", $align, "{", $(stringify!($field), ":", $offset, ",",)+ "}",)+
        );
    };
}

// The log guarantees payloads at addresses divisible by 8, so no archived type may need more.
layouts! {
    ArchivedAttemptV1: 168, 8, {
        id: 0, attempted_at: 16, duration_ms: 24, weight: 32, propensity: 40, confidence: 56, link: 72, url: 84,
        fetcher: 92, error_other: 100, source_other: 108, rule_other: 116, shadow_fetcher: 124, response_headers: 136,
        heuristics: 144, try_no: 152, http_status: 156, success: 158, is_banned: 159, error: 160, source: 161,
        rule: 162, arm: 163, hint: 164,
    }
    ArchivedHeaderV1: 16, 4, { name: 0, value: 8 }
    ArchivedTagV1: 28, 4, { kind: 0, kind_other: 4, value: 12, importance: 20 }
    ArchivedLinkStateV1: 64, 8, {
        at: 0, paused_until: 8, last_attempt_at: 24, link: 40, domain: 48, attempt_count: 56,
        risk_level: 60, hint: 61,
    }
    ArchivedHostStateV1: 32, 8, { at: 0, paused_until: 8, domain: 24 }
    ArchivedImportanceV1: 32, 8, { at: 0, kind: 8, value: 16, importance: 28 }
    ArchivedTombstoneV1: 32, 8, { at: 0, domain: 8, link: 20 }
    ArchivedPaceV1: 88, 8, { at: 0, name: 8, state: 16, level: 80, cause: 81 }
    ArchivedReleaseV1: 32, 8, { at: 0, domain: 8, link: 20 }
    ArchivedFetcherV1: 32, 8, { at: 0, cost: 8, name: 16, class: 24 }
}

/// Returns the fingerprint of the layout. Every segment stores it, and a reader refuses a segment
/// with another one.
pub(crate) fn fingerprint() -> [u8; 16] {
    xxh3_128(LAYOUTS.as_bytes()).to_le_bytes()
}
