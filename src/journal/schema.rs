//! The records of the log: what each kind holds, byte for byte, and how it becomes what the rest of the crate works with.
//!
//! Owns: record kinds, schema versions, the numbers that stand for names, the layout of the archived types. Invariant: bytes
//! that one release wrote are read by every later one, so a struct here never changes: a new version stands beside it with
//! its own number, and `From` leads from the old one to the new one. rkyv's format features unify over a host's whole
//! dependency graph (one crate that asks for `unaligned` changes our layout), so sizes, alignments and offsets are asserted
//! at compile time, and a fingerprint of them is stored in every segment.
//!
//! Bytes that come from a file have passed the log's CRC; here they are checked once more (bytecheck) before they are
//! looked at, so that a file made by somebody else cannot do worse than be refused.

use std::borrow::Cow;
use std::mem::{align_of, offset_of, size_of};

use rkyv::rancor::Error as RkyvError;
use rkyv::util::AlignedVec;
use rkyv::with::{AsOwned, Map};
use rkyv::{Archive, Portable, Serialize};
use uuid::Uuid;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::entry::{Entry, HostEntry, ImportanceEntry, LinkEntry, Tombstone, TombstoneTarget, domain_of_url};
use crate::attempt::outcome::ErrorKind;
use crate::attempt::{Attempt, ErrorType, Hint, Tag};
use crate::backoff::LinkState;
use crate::decision::Source;
use crate::heuristic::Heuristic;
use crate::heuristic::url::{FLAGS, site_of};
use crate::response::Header;
use crate::time::Timestamp;

mod view;

pub(crate) use view::{Clamped, attempt};

/// Numbers of the record kinds.
pub(crate) mod kind {
    pub(crate) const ATTEMPT: u16 = 1;
    pub(crate) const LINK_STATE: u16 = 2;
    pub(crate) const HOST_STATE: u16 = 3;
    pub(crate) const IMPORTANCE: u16 = 4;
    pub(crate) const TOMBSTONE: u16 = 5;
}

/// The schema version of every kind that this release writes.
pub(crate) const VERSION: u16 = 1;

/// Why a record is not what its kind says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A newer release wrote it.
    #[error("kind {kind} in version {schema}, which this release does not know")]
    Newer {
        /// The record's kind.
        kind: u16,
        /// Its schema version.
        schema: u16,
    },
    /// Its bytes are no valid archive.
    #[error("not a valid record: {0}")]
    Invalid(RkyvError),
    /// A number stands for nothing that this release knows.
    #[error("{what} has the number {code}, which this release does not know")]
    Code {
        /// What the number is of.
        what: &'static str,
        /// The number.
        code: u8,
    },
}

type Text<'a> = Cow<'a, str>;

/// An attempt, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct AttemptV1<'a> {
    id: [u8; 16],
    attempted_at: i64,
    duration_ms: u64,
    weight: f64,
    propensity: Option<f64>,
    /// None when it is the URL.
    #[rkyv(with = Map<AsOwned>)]
    link: Option<Text<'a>>,
    #[rkyv(with = AsOwned)]
    url: Text<'a>,
    #[rkyv(with = AsOwned)]
    fetcher: Text<'a>,
    /// The name of an error type whose number is [`OTHER`].
    #[rkyv(with = AsOwned)]
    error_other: Text<'a>,
    /// The same of a source.
    #[rkyv(with = AsOwned)]
    source_other: Text<'a>,
    #[rkyv(with = Map<AsOwned>)]
    shadow_fetcher: Option<Text<'a>>,
    response_headers: Vec<HeaderV1<'a>>,
    heuristics: Vec<TagV1<'a>>,
    try_no: u32,
    /// 0 when no response came.
    http_status: u16,
    success: bool,
    is_banned: bool,
    error: u8,
    source: u8,
    hint: u8,
}

/// A response header, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct HeaderV1<'a> {
    #[rkyv(with = AsOwned)]
    name: Text<'a>,
    #[rkyv(with = AsOwned)]
    value: Text<'a>,
}

/// A heuristic, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct TagV1<'a> {
    /// A number of [`TAG_KINDS`], or [`OTHER`].
    kind: u8,
    #[rkyv(with = AsOwned)]
    kind_other: Text<'a>,
    #[rkyv(with = AsOwned)]
    value: Text<'a>,
    importance: Option<f32>,
}

/// A link's state, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct LinkStateV1<'a> {
    at: i64,
    paused_until: Option<i64>,
    last_attempt_at: Option<i64>,
    #[rkyv(with = AsOwned)]
    link: Text<'a>,
    #[rkyv(with = AsOwned)]
    domain: Text<'a>,
    attempt_count: u32,
    risk_level: u8,
    hint: u8,
}

/// A host's pause, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct HostStateV1<'a> {
    at: i64,
    paused_until: Option<i64>,
    #[rkyv(with = AsOwned)]
    domain: Text<'a>,
}

/// A heuristic's importance, version 1.
#[derive(Archive, Serialize)]
pub(crate) struct ImportanceV1<'a> {
    at: i64,
    #[rkyv(with = AsOwned)]
    kind: Text<'a>,
    #[rkyv(with = Map<AsOwned>)]
    value: Option<Text<'a>>,
    importance: f32,
}

/// What shall be forgotten, version 1: exactly one of the two is there.
#[derive(Archive, Serialize)]
pub(crate) struct TombstoneV1<'a> {
    at: i64,
    #[rkyv(with = Map<AsOwned>)]
    domain: Option<Text<'a>>,
    #[rkyv(with = Map<AsOwned>)]
    link: Option<Text<'a>>,
}

/// The number of nothing.
const NONE: u8 = 0;
/// The number of what has no number: its name stands beside it.
const OTHER: u8 = 255;

/// Error types by number, from 1 on. Only ever added to.
const ERROR_CODES: [ErrorKind; 19] = [
    ErrorKind::BlockedCaptcha,
    ErrorKind::Blocked403,
    ErrorKind::WrongTool,
    ErrorKind::EmptyContent,
    ErrorKind::Timeout,
    ErrorKind::NetworkError,
    ErrorKind::ServerError,
    ErrorKind::Truncated,
    ErrorKind::NotFound,
    ErrorKind::ClientError,
    ErrorKind::AuthRequired,
    ErrorKind::DnsError,
    ErrorKind::TlsError,
    ErrorKind::ProxyError,
    ErrorKind::RedirectLoop,
    ErrorKind::TooLarge,
    ErrorKind::RefusedAddress,
    ErrorKind::InvalidUrl,
    ErrorKind::Queued,
];

/// Sources by number, from 1 on. Only ever added to.
const SOURCE_CODES: [Source; 7] = [
    Source::Learned,
    Source::Inferred,
    Source::Explore,
    Source::Probe,
    Source::HardCoded,
    Source::Hinted,
    Source::Paused,
];

/// Hints by number, from 1 on. Only ever added to.
const HINT_CODES: [Hint; 4] = [Hint::Blocked, Hint::Empty, Hint::Timeout, Hint::Unknown];

/// Types of heuristics by number, from 1 on. Only ever added to.
const TAG_KINDS: [&str; 18] = [
    "domain",
    "site",
    "suffix",
    "domain_suffix",
    "domain_path",
    "path_depth",
    FLAGS[0],
    FLAGS[1],
    FLAGS[2],
    FLAGS[3],
    "content_type",
    "has_captcha",
    "has_spa",
    "spa_framework",
    "has_paywall",
    "empty_body",
    "high_script_ratio",
    "status_200",
];

fn code_of<T: PartialEq>(table: &[T], value: &T) -> u8 {
    table.iter().position(|known| known == value).map_or(OTHER, |index| index as u8 + 1)
}

fn from_code<T: Copy>(table: &[T], code: u8, what: &'static str) -> Result<T, SchemaError> {
    usize::from(code).checked_sub(1).and_then(|index| table.get(index).copied()).ok_or(SchemaError::Code { what, code })
}

impl<'a> From<&'a Attempt> for AttemptV1<'a> {
    fn from(a: &'a Attempt) -> Self {
        let error_code = match &a.error_type {
            None => NONE,
            Some(error) => error.kind().map_or(OTHER, |kind| code_of(&ERROR_CODES, &kind)),
        };
        let source_code = match &a.source {
            None => NONE,
            Some(name) => Source::from_name(name).map_or(OTHER, |source| code_of(&SOURCE_CODES, &source)),
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
            link: (a.link != a.url).then_some(Cow::Borrowed(a.link.as_str())),
            url: Cow::Borrowed(&a.url),
            fetcher: Cow::Borrowed(&a.fetcher),
            error_other: other(error_code, a.error_type.as_ref().map(ErrorType::name)),
            source_other: other(source_code, a.source.as_deref()),
            shadow_fetcher: a.shadow_fetcher.as_deref().map(Cow::Borrowed),
            response_headers: a.response_headers.iter().map(HeaderV1::from).collect(),
            heuristics: a.heuristics.iter().map(TagV1::from).collect(),
            try_no: a.try_no,
            http_status: a.http_status.unwrap_or(0),
            success: a.success,
            is_banned: a.is_banned,
            error: error_code,
            source: source_code,
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
        // Flags are most of all values that are repeated.
        let value = match tag.value.as_str() {
            "true" => Cow::Borrowed("true"),
            text => Cow::Owned(text.to_owned()),
        };
        let importance = tag.importance.as_ref().map(|i| i.to_native());
        Ok(Self { heuristic: Heuristic { kind, value }, importance })
    }
}

/// The number of a hint.
pub(crate) fn hint_code(hint: Option<Hint>) -> u8 {
    hint.map_or(NONE, |hint| code_of(&HINT_CODES, &hint))
}

/// The hint with a number.
pub(crate) fn hint_of(code: u8) -> Result<Option<Hint>, SchemaError> {
    match code {
        NONE => Ok(None),
        code => from_code(&HINT_CODES, code, "a hint").map(Some),
    }
}

fn time_of(at: rkyv::rend::i64_le) -> Timestamp {
    Timestamp::from_millis(at.to_native())
}

/// A record as the log takes it.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) kind: u16,
    pub(crate) key_hash: u64,
    pub(crate) time: Timestamp,
    pub(crate) payload: AlignedVec,
}

/// Encodes an attempt.
pub(crate) fn encode_attempt(attempt: &Attempt) -> Result<Encoded, SchemaError> {
    // All of a domain's attempts have one key, whatever else an import may have tagged them with.
    let key_hash = match attempt.heuristic("domain") {
        Some(domain) => key_of_domain(domain),
        None => domain_of_url(&attempt.url).map_or(0, |domain| key_of_domain(&domain)),
    };
    Ok(Encoded {
        kind: kind::ATTEMPT,
        key_hash,
        time: attempt.attempted_at,
        payload: bytes_of(&AttemptV1::from(attempt))?,
    })
}

/// Encodes a link's state.
pub(crate) fn encode_link(entry: &LinkEntry) -> Result<Encoded, SchemaError> {
    let state = &entry.state;
    let payload = bytes_of(&LinkStateV1 {
        at: entry.at.as_millis(),
        paused_until: state.paused_until.map(Timestamp::as_millis),
        last_attempt_at: state.last_attempt_at.map(Timestamp::as_millis),
        link: Cow::Borrowed(&entry.link),
        domain: Cow::Borrowed(&entry.domain),
        attempt_count: state.attempt_count,
        risk_level: state.risk_level,
        hint: hint_code(state.hint),
    })?;
    Ok(Encoded { kind: kind::LINK_STATE, key_hash: key_of_domain(&entry.domain), time: entry.at, payload })
}

/// Encodes a host's pause.
pub(crate) fn encode_host(
    domain: &str,
    paused_until: Option<Timestamp>,
    at: Timestamp,
) -> Result<Encoded, SchemaError> {
    let paused_until = paused_until.map(Timestamp::as_millis);
    let payload = bytes_of(&HostStateV1 { at: at.as_millis(), paused_until, domain: Cow::Borrowed(domain) })?;
    Ok(Encoded { kind: kind::HOST_STATE, key_hash: key_of_domain(domain), time: at, payload })
}

/// Encodes a heuristic's importance.
pub(crate) fn encode_importance(entry: &ImportanceEntry) -> Result<Encoded, SchemaError> {
    let payload = bytes_of(&ImportanceV1 {
        at: entry.at.as_millis(),
        kind: Cow::Borrowed(&entry.kind),
        value: entry.value.as_deref().map(Cow::Borrowed),
        importance: entry.importance,
    })?;
    Ok(Encoded { kind: kind::IMPORTANCE, key_hash: 0, time: entry.at, payload })
}

/// Encodes a tombstone.
pub(crate) fn encode_tombstone(tombstone: &Tombstone) -> Result<Encoded, SchemaError> {
    let (domain, link, key_hash) = match &tombstone.target {
        TombstoneTarget::Domain(domain) => (Some(domain.as_str()), None, key_of_domain(domain)),
        TombstoneTarget::Link(link) => (None, Some(link.as_str()), 0),
    };
    let (domain, link) = (domain.map(Cow::Borrowed), link.map(Cow::Borrowed));
    let payload = bytes_of(&TombstoneV1 { at: tombstone.at.as_millis(), domain, link })?;
    Ok(Encoded { kind: kind::TOMBSTONE, key_hash, time: tombstone.at, payload })
}

/// Encodes an entry of any kind.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn encode(entry: &Entry) -> Result<Encoded, SchemaError> {
    match entry {
        Entry::Attempt(attempt) => encode_attempt(attempt),
        Entry::Link(entry) => encode_link(entry),
        Entry::Host(entry) => encode_host(&entry.domain, entry.paused_until, entry.at),
        Entry::Importance(entry) => encode_importance(entry),
        Entry::Tombstone(tombstone) => encode_tombstone(tombstone),
    }
}

/// Decodes a record of any kind.
pub(crate) fn decode(kind: u16, schema: u16, payload: &[u8]) -> Result<Entry, SchemaError> {
    if schema != VERSION {
        return Err(SchemaError::Newer { kind, schema });
    }
    Ok(match kind {
        kind::ATTEMPT => Entry::Attempt(Attempt::try_from(access::<ArchivedAttemptV1<'_>>(payload)?)?),
        kind::LINK_STATE => {
            let v = access::<ArchivedLinkStateV1<'_>>(payload)?;
            let state = LinkState {
                paused_until: v.paused_until.as_ref().copied().map(time_of),
                risk_level: v.risk_level,
                attempt_count: v.attempt_count.to_native(),
                last_attempt_at: v.last_attempt_at.as_ref().copied().map(time_of),
                hint: hint_of(v.hint)?,
            };
            let (link, domain) = (v.link.as_str().to_owned(), v.domain.as_str().to_owned());
            Entry::Link(LinkEntry { link, domain, state, at: time_of(v.at) })
        }
        kind::HOST_STATE => {
            let v = access::<ArchivedHostStateV1<'_>>(payload)?;
            let paused_until = v.paused_until.as_ref().copied().map(time_of);
            Entry::Host(HostEntry { domain: v.domain.as_str().to_owned(), paused_until, at: time_of(v.at) })
        }
        kind::IMPORTANCE => {
            let v = access::<ArchivedImportanceV1<'_>>(payload)?;
            Entry::Importance(ImportanceEntry {
                kind: v.kind.as_str().to_owned(),
                value: v.value.as_ref().map(|value| value.as_str().to_owned()),
                importance: v.importance.to_native(),
                at: time_of(v.at),
            })
        }
        kind::TOMBSTONE => {
            let v = access::<ArchivedTombstoneV1<'_>>(payload)?;
            let target = match (v.domain.as_ref(), v.link.as_ref()) {
                (Some(domain), None) => TombstoneTarget::Domain(domain.as_str().to_owned()),
                (None, Some(link)) => TombstoneTarget::Link(link.as_str().to_owned()),
                _ => return Err(SchemaError::Code { what: "a tombstone's target", code: NONE }),
            };
            Entry::Tombstone(Tombstone { target, at: time_of(v.at) })
        }
        _ => return Err(SchemaError::Newer { kind, schema }),
    })
}

/// The records of one site are replayed in order.
fn key_of_domain(domain: &str) -> u64 {
    xxh3_64(site_of(domain).as_bytes())
}

fn bytes_of<T>(value: &T) -> Result<AlignedVec, SchemaError>
where
    T: for<'s> Serialize<rkyv::api::high::HighSerializer<AlignedVec, rkyv::ser::allocator::ArenaHandle<'s>, RkyvError>>,
{
    rkyv::to_bytes::<RkyvError>(value).map_err(SchemaError::Invalid)
}

fn access<'p, T>(payload: &'p [u8]) -> Result<&'p T, SchemaError>
where
    T: Portable + for<'v> rkyv::bytecheck::CheckBytes<rkyv::api::high::HighValidator<'v, RkyvError>>,
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
        /// The layout of every archived type, as text.
        const LAYOUTS: &str = concat!(
            $(stringify!($archived), ":", $size, ",", $align, "{", $(stringify!($field), ":", $offset, ",",)+ "}",)+
        );
    };
}

// The log promises payloads at addresses divisible by 8: no archived type may need more.
layouts! {
    ArchivedAttemptV1: 144, 8, {
        id: 0, attempted_at: 16, duration_ms: 24, weight: 32, propensity: 40, link: 56, url: 68, fetcher: 76,
        error_other: 84, source_other: 92, shadow_fetcher: 100, response_headers: 112, heuristics: 120, try_no: 128,
        http_status: 132, success: 134, is_banned: 135, error: 136, source: 137, hint: 138,
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
}

/// Identifies the layout of the records that this release writes. It stands in every segment.
pub(crate) fn fingerprint() -> [u8; 16] {
    xxh3_128(LAYOUTS.as_bytes()).to_le_bytes()
}

/// The fingerprints of every layout that a release ever wrote; only ever added to. A build whose own is not among them has been
/// given another rkyv format by somebody else in its dependency graph, or has changed a type that may not change: a test fails.
pub(crate) const RELEASED: [[u8; 16]; 1] = [FINGERPRINT_V1];

/// The layout of release 0.1.
const FINGERPRINT_V1: [u8; 16] =
    [0x3c, 0x63, 0x20, 0x55, 0x79, 0xff, 0x70, 0xd7, 0xaf, 0x39, 0xa4, 0xc3, 0x26, 0x36, 0x95, 0x19];

/// The fingerprints of segments that this build can read, its own first.
pub(crate) fn readable() -> Vec<[u8; 16]> {
    let mut all = vec![fingerprint()];
    all.extend(RELEASED);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T0: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    /// One of each kind, with every field set to something of its own.
    fn one_of_each() -> Vec<(&'static str, Entry)> {
        let url = url::Url::parse("https://www.example.org/static/docs/a.pdf?page=2").unwrap();
        let mut full = Attempt::new(&url, "playwright_stealth", T0).unwrap().failed(ErrorKind::BlockedCaptcha);
        full.id = Uuid::from_u128(0x018f_8e2c_7b5a_7c3d_9e4f_0123_4567_89ab);
        full.link = "article 17".to_owned();
        full.http_status = Some(403);
        full.response_headers = vec![Header::new("Server", "cloudflare"), Header::new("CF-Ray", "8a1b2c3d4e5f-FRA")];
        full.duration_ms = 1234;
        full.source = Some(Cow::Borrowed("explore"));
        full.propensity = Some(0.02);
        full.hint = Some(Hint::Empty);
        full.try_no = 2;
        full.shadow_fetcher = Some("direct_access".to_owned());
        full.heuristics.push(Tag { heuristic: Heuristic::flag("status_403"), importance: Some(0.75) });
        let mut own = Attempt::new(&url, "mine", T0).unwrap();
        own.id = Uuid::from_u128(1);
        own.error_type = Some(ErrorType::from_name("gremlins"));
        own.source = Some(Cow::Borrowed("my own"));
        let state = LinkState {
            paused_until: Some(Timestamp::from_millis(1_790_000_600_000)),
            risk_level: 3,
            attempt_count: 17,
            last_attempt_at: Some(T0),
            hint: Some(Hint::Timeout),
        };
        let link = "https://www.example.org/a".to_owned();
        let target = TombstoneTarget::Domain("example.org".to_owned());
        let (kind, value) = ("suffix".to_owned(), Some(".pdf".to_owned()));
        vec![
            ("attempt-full-v1", Entry::Attempt(full)),
            ("attempt-own-v1", Entry::Attempt(own)),
            ("link-v1", Entry::Link(LinkEntry { link: link.clone(), domain: "example.org".to_owned(), state, at: T0 })),
            ("host-v1", Entry::Host(HostEntry { domain: "example.org".to_owned(), paused_until: Some(T0), at: T0 })),
            ("importance-v1", Entry::Importance(ImportanceEntry { kind, value, importance: 0.5, at: T0 })),
            ("tombstone-v1", Entry::Tombstone(Tombstone { target, at: T0 })),
            ("tombstone-link-v1", Entry::Tombstone(Tombstone { target: TombstoneTarget::Link(link), at: T0 })),
        ]
    }

    fn encode(entry: &Entry) -> Encoded {
        super::encode(entry).unwrap()
    }

    fn golden(name: &str) -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/records").join(name)
    }

    #[test]
    fn all_attempts_of_a_domain_have_one_key_however_an_import_tagged_them() {
        let attempt = |text: &str| Attempt::new(&url::Url::parse(text).unwrap(), "mine", T0).unwrap();
        let key = |attempt: Attempt| encode(&Entry::Attempt(attempt)).key_hash;
        let mut odd = attempt("https://blog.example.org/b");
        for tag in odd.heuristics.iter_mut().filter(|tag| tag.heuristic.kind == "site") {
            tag.heuristic = Heuristic::new("site", "elsewhere.org".to_owned());
        }
        assert_eq!(key(odd), key(attempt("https://blog.example.org/a")));
        assert_eq!(key(attempt("https://example.org/a")), key(attempt("https://blog.example.org/a")));
        assert_ne!(key(attempt("https://elsewhere.org/a")), key(attempt("https://blog.example.org/a")));
    }

    /// Bytes that a release has written stay readable and stay what they are. `FETCHWISE_BLESS=1` writes files that are
    /// missing; it never changes one that exists.
    #[test]
    fn golden_records_decode_to_the_same_and_encode_to_the_same_bytes() {
        for (name, entry) in one_of_each() {
            let path = golden(&format!("{name}.bin"));
            let encoded = encode(&entry);
            if std::env::var_os("FETCHWISE_BLESS").is_some() && !path.exists() {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &encoded.payload).unwrap();
            }
            let mut bytes = AlignedVec::<16>::new();
            bytes.extend_from_slice(&std::fs::read(&path).unwrap());
            assert_eq!(decode(encoded.kind, VERSION, &bytes).unwrap(), entry, "{name}");
            assert_eq!(&encoded.payload[..], &bytes[..], "{name}");
        }
    }

    #[cfg(feature = "json")]
    #[test]
    fn golden_attempts_have_the_golden_json() {
        for (name, entry) in one_of_each() {
            let Entry::Attempt(attempt) = entry else { continue };
            let path = golden(&format!("{name}.json"));
            let line = crate::attempt::json::to_json_line(&attempt);
            if std::env::var_os("FETCHWISE_BLESS").is_some() && !path.exists() {
                std::fs::write(&path, format!("{line}\n")).unwrap();
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap().trim_end(), line, "{name}");
        }
    }

    #[test]
    fn the_layout_is_one_that_was_released() {
        // A new version of a record adds its layout's fingerprint to the list, and takes none away.
        assert!(RELEASED.contains(&fingerprint()));
        assert_eq!(RELEASED[0], FINGERPRINT_V1);
    }

    #[test]
    fn every_error_type_source_and_hint_has_a_number() {
        assert!(ErrorKind::ALL.iter().all(|kind| code_of(&ERROR_CODES, kind) != OTHER));
        assert!(Source::ALL.iter().all(|source| code_of(&SOURCE_CODES, source) != OTHER));
        assert!(Hint::ALL.iter().all(|hint| code_of(&HINT_CODES, hint) != OTHER));
    }

    #[test]
    fn what_is_newer_is_said_to_be() {
        let encoded = encode(&one_of_each()[0].1);
        assert!(matches!(decode(1, 2, &encoded.payload), Err(SchemaError::Newer { kind: 1, schema: 2 })));
        assert!(matches!(decode(77, 1, &encoded.payload), Err(SchemaError::Newer { kind: 77, .. })));
    }

    proptest! {
        /// bytecheck keeps damaged bytes memory-safe; that they are noticed at all is the CRC's work.
        #[test]
        fn damaged_bytes_never_panic(which in 0usize..7, flips in proptest::collection::vec((any::<u16>(), 0u8..8), 1..4)) {
            let entry = &one_of_each()[which].1;
            let encoded = encode(entry);
            let mut bytes = encoded.payload.clone();
            for (at, bit) in flips {
                let at = usize::from(at) % bytes.len();
                bytes[at] ^= 1 << bit;
            }
            let _ = decode(encoded.kind, VERSION, &bytes);
            let _ = decode(encoded.kind, VERSION, &bytes[..bytes.len() / 2]);
            let _ = attempt(encoded.kind, VERSION, &bytes);
        }
    }
}
