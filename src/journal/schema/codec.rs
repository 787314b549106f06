//! Codec between entries and records.
//!
//! Owns: the key of each record, and the conversion of entries to bytes and back.
//!
//! Invariants: encoded entries decode to the same.
//!
//! Must not know: where records are kept.

use std::borrow::Cow;

use rkyv::util::AlignedVec;
use xxhash_rust::xxh3::xxh3_64;

use super::codes::{NONE, SchemaError, VERSION, class_code, class_of, hint_code, hint_of, kind};
use super::records::{
    ArchivedAttemptV1, ArchivedFetcherV1, ArchivedHostStateV1, ArchivedImportanceV1,
    ArchivedLinkStateV1, ArchivedPaceV1, ArchivedReleaseV1, ArchivedTombstoneV1, AttemptV1,
    FetcherV1, HostStateV1, ImportanceV1, LinkStateV1, PaceV1, ReleaseV1, TombstoneV1, access,
    bytes_of, time_of,
};
use crate::backoff::LinkState;
use crate::journal::entry::{
    Entry, FetcherEntry, HostEntry, ImportanceEntry, LinkEntry, PaceEntry, Release, ReleaseTarget,
    Tombstone, TombstoneTarget, domain_of_url,
};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::heuristic::url::site_of;
use fetchwise_types::time::Timestamp;

/// Record as the log takes it.
#[derive(Debug)]
pub(crate) struct EncodedRecord {
    pub(crate) kind: u16,
    pub(crate) key_hash: u64,
    pub(crate) time: Timestamp,
    pub(crate) payload: AlignedVec,
}

/// Encodes an attempt.
pub(crate) fn encode_attempt(attempt: &Attempt) -> Result<EncodedRecord, SchemaError> {
    // All attempts of a domain have the same key, whatever tags an import has given them.
    let key_hash = match attempt.heuristic("domain") {
        Some(domain) => key_of_domain(domain),
        None => domain_of_url(&attempt.url).map_or(0, |domain| key_of_domain(&domain)),
    };
    Ok(EncodedRecord {
        kind: kind::ATTEMPT,
        key_hash,
        time: attempt.attempted_at,
        payload: bytes_of(&AttemptV1::from(attempt))?,
    })
}

/// Encodes a link's state.
pub(crate) fn encode_link(entry: &LinkEntry) -> Result<EncodedRecord, SchemaError> {
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
    Ok(EncodedRecord {
        kind: kind::LINK_STATE,
        key_hash: key_of_domain(&entry.domain),
        time: entry.at,
        payload,
    })
}

/// Encodes a host's pause.
pub(crate) fn encode_host(
    domain: &str,
    paused_until: Option<Timestamp>,
    at: Timestamp,
) -> Result<EncodedRecord, SchemaError> {
    let paused_until = paused_until.map(Timestamp::as_millis);
    let payload =
        bytes_of(&HostStateV1 { at: at.as_millis(), paused_until, domain: Cow::Borrowed(domain) })?;
    Ok(EncodedRecord { kind: kind::HOST_STATE, key_hash: key_of_domain(domain), time: at, payload })
}

/// Encodes a persisted pace.
pub(crate) fn encode_pace(entry: &PaceEntry) -> Result<EncodedRecord, SchemaError> {
    let PaceEntry { level, name, state, cause, at } = entry;
    let (name_text, state) = (Cow::Borrowed(name.as_str()), *state);
    let payload = bytes_of(&PaceV1 {
        at: at.as_millis(),
        name: name_text,
        state,
        level: *level,
        cause: *cause,
    })?;
    Ok(EncodedRecord { kind: kind::PACE, key_hash: key_of_domain(name), time: *at, payload })
}

/// Encodes a heuristic's importance.
pub(crate) fn encode_importance(entry: &ImportanceEntry) -> Result<EncodedRecord, SchemaError> {
    let payload = bytes_of(&ImportanceV1 {
        at: entry.at.as_millis(),
        kind: Cow::Borrowed(&entry.kind),
        value: entry.value.as_deref().map(Cow::Borrowed),
        importance: entry.importance,
    })?;
    Ok(EncodedRecord { kind: kind::IMPORTANCE, key_hash: 0, time: entry.at, payload })
}

/// Encodes a tombstone.
pub(crate) fn encode_tombstone(tombstone: &Tombstone) -> Result<EncodedRecord, SchemaError> {
    let (domain, link, key_hash) = match &tombstone.target {
        TombstoneTarget::Domain(domain) => (Some(domain.as_str()), None, key_of_domain(domain)),
        TombstoneTarget::Link(link) => (None, Some(link.as_str()), 0),
    };
    let (domain, link) = (domain.map(Cow::Borrowed), link.map(Cow::Borrowed));
    let payload = bytes_of(&TombstoneV1 { at: tombstone.at.as_millis(), domain, link })?;
    Ok(EncodedRecord { kind: kind::TOMBSTONE, key_hash, time: tombstone.at, payload })
}

/// Encodes the end of a pause.
pub(crate) fn encode_release(release: &Release) -> Result<EncodedRecord, SchemaError> {
    let (domain, link, key_hash) = match &release.target {
        ReleaseTarget::Host(domain) => (Some(domain.as_str()), None, key_of_domain(domain)),
        ReleaseTarget::Link(link) => (None, Some(link.as_str()), 0),
    };
    let (domain, link) = (domain.map(Cow::Borrowed), link.map(Cow::Borrowed));
    let payload = bytes_of(&ReleaseV1 { at: release.at.as_millis(), domain, link })?;
    Ok(EncodedRecord { kind: kind::RELEASE, key_hash, time: release.at, payload })
}

/// Encodes a fetcher.
pub(crate) fn encode_fetcher(entry: &FetcherEntry) -> Result<EncodedRecord, SchemaError> {
    let FetcherEntry { name, class, cost, at } = entry;
    let name = Cow::Borrowed(name.as_str());
    let payload =
        bytes_of(&FetcherV1 { at: at.as_millis(), cost: *cost, name, class: class_code(*class) })?;
    Ok(EncodedRecord { kind: kind::FETCHER, key_hash: 0, time: *at, payload })
}

/// Encodes an entry of any kind.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn encode(entry: &Entry) -> Result<EncodedRecord, SchemaError> {
    match entry {
        Entry::Attempt(attempt) => encode_attempt(attempt),
        Entry::Link(entry) => encode_link(entry),
        Entry::Host(entry) => encode_host(&entry.domain, entry.paused_until, entry.at),
        Entry::Importance(entry) => encode_importance(entry),
        Entry::Tombstone(tombstone) => encode_tombstone(tombstone),
        Entry::Pace(entry) => encode_pace(entry),
        Entry::Release(release) => encode_release(release),
        Entry::Fetcher(entry) => encode_fetcher(entry),
    }
}

fn link_entry(v: &ArchivedLinkStateV1<'_>) -> Result<LinkEntry, SchemaError> {
    let state = LinkState {
        paused_until: v.paused_until.as_ref().copied().map(time_of),
        risk_level: v.risk_level,
        attempt_count: v.attempt_count.to_native(),
        last_attempt_at: v.last_attempt_at.as_ref().copied().map(time_of),
        hint: hint_of(v.hint)?,
    };
    let (link, domain) = (v.link.as_str().to_owned(), v.domain.as_str().to_owned());
    Ok(LinkEntry { link, domain, state, at: time_of(v.at) })
}

/// Decodes a record of any kind.
pub(crate) fn decode(kind: u16, schema: u16, payload: &[u8]) -> Result<Entry, SchemaError> {
    Ok(match (kind, schema) {
        (kind::ATTEMPT, VERSION) => {
            Entry::Attempt(Attempt::try_from(access::<ArchivedAttemptV1<'_>>(payload)?)?)
        }
        (kind::LINK_STATE, VERSION) => {
            Entry::Link(link_entry(access::<ArchivedLinkStateV1<'_>>(payload)?)?)
        }
        (kind::HOST_STATE, VERSION) => {
            let v = access::<ArchivedHostStateV1<'_>>(payload)?;
            let paused_until = v.paused_until.as_ref().copied().map(time_of);
            Entry::Host(HostEntry {
                domain: v.domain.as_str().to_owned(),
                paused_until,
                at: time_of(v.at),
            })
        }
        (kind::PACE, VERSION) => {
            let v = access::<ArchivedPaceV1<'_>>(payload)?;
            let (name, at) = (v.name.as_str().to_owned(), time_of(v.at));
            Entry::Pace(PaceEntry { level: v.level, name, state: v.state, cause: v.cause, at })
        }
        (kind::IMPORTANCE, VERSION) => {
            let v = access::<ArchivedImportanceV1<'_>>(payload)?;
            Entry::Importance(ImportanceEntry {
                kind: v.kind.as_str().to_owned(),
                value: v.value.as_ref().map(|value| value.as_str().to_owned()),
                importance: v.importance.to_native(),
                at: time_of(v.at),
            })
        }
        (kind::TOMBSTONE, VERSION) => {
            let v = access::<ArchivedTombstoneV1<'_>>(payload)?;
            let target = match (v.domain.as_ref(), v.link.as_ref()) {
                (Some(domain), None) => TombstoneTarget::Domain(domain.as_str().to_owned()),
                (None, Some(link)) => TombstoneTarget::Link(link.as_str().to_owned()),
                _ => return Err(SchemaError::Code { what: "a tombstone's target", code: NONE }),
            };
            Entry::Tombstone(Tombstone { target, at: time_of(v.at) })
        }
        (kind::RELEASE, VERSION) => {
            let v = access::<ArchivedReleaseV1<'_>>(payload)?;
            let target = match (v.domain.as_ref(), v.link.as_ref()) {
                (Some(domain), None) => ReleaseTarget::Host(domain.as_str().to_owned()),
                (None, Some(link)) => ReleaseTarget::Link(link.as_str().to_owned()),
                _ => return Err(SchemaError::Code { what: "an ended pause's target", code: NONE }),
            };
            Entry::Release(Release { target, at: time_of(v.at) })
        }
        (kind::FETCHER, VERSION) => {
            let v = access::<ArchivedFetcherV1<'_>>(payload)?;
            let (name, class) = (v.name.as_str().to_owned(), class_of(v.class)?);
            Entry::Fetcher(FetcherEntry {
                name,
                class,
                cost: v.cost.to_native(),
                at: time_of(v.at),
            })
        }
        _ => return Err(SchemaError::Newer { kind, schema }),
    })
}

/// Returns the key of a domain. Records with the same key, those of one site, are replayed in
/// order.
pub(crate) fn key_of_domain(domain: &str) -> u64 {
    xxh3_64(site_of(domain).as_bytes())
}

#[cfg(test)]
mod tests {

    use super::super::records::fingerprint;
    use super::*;
    use fetchwise_types::attempt::error_kind::ErrorKind;
    use fetchwise_types::attempt::{Arm, ErrorType, Hint, Tag};
    use fetchwise_types::heuristic::Heuristic;
    use fetchwise_types::registry::Class;
    use fetchwise_types::response::Header;
    use proptest::prelude::*;
    use uuid::Uuid;

    const T0: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    /// Returns one entry of each kind, with a different value in every field.
    fn one_of_each() -> Vec<(&'static str, Entry)> {
        let url = url::Url::parse("https://www.example.org/static/docs/a.pdf?page=2").unwrap();
        let mut full =
            Attempt::new(&url, "playwright_stealth", T0).unwrap().failed(ErrorKind::BlockedCaptcha);
        full.id = Uuid::from_u128(0x018f_8e2c_7b5a_7c3d_9e4f_0123_4567_89ab);
        full.link = "article 17".to_owned();
        full.http_status = Some(403);
        full.response_headers =
            vec![Header::new("Server", "cloudflare"), Header::new("CF-Ray", "8a1b2c3d4e5f-FRA")];
        full.duration_ms = 1234;
        full.source = Some(Cow::Borrowed("explore"));
        full.propensity = Some(0.02);
        full.hint = Some(Hint::Empty);
        full.try_no = 2;
        full.shadow_fetcher = Some("direct_access".to_owned());
        full.heuristics
            .push(Tag { heuristic: Heuristic::flag("status_403"), importance: Some(0.75) });
        full.rule = Some(Cow::Borrowed("last_ditch"));
        full.confidence = Some(0.25);
        full.arm = Some(Arm::Legacy);
        let mut own = Attempt::new(&url, "mine", T0).unwrap();
        own.id = Uuid::from_u128(1);
        own.error_type = Some(ErrorType::from_name("gremlins"));
        own.source = Some(Cow::Borrowed("my own"));
        own.rule = Some(Cow::Borrowed("my own rule"));
        let state = LinkState {
            paused_until: Some(Timestamp::from_millis(1_790_000_600_000)),
            risk_level: 3,
            attempt_count: 17,
            last_attempt_at: Some(T0),
            hint: Some(Hint::Timeout),
        };
        let link = "https://www.example.org/a".to_owned();
        let target = TombstoneTarget::Domain("example.org".to_owned());
        let state_of_pace = std::array::from_fn(|n| n as u8);
        let pace = PaceEntry {
            level: 1,
            name: "example.org".to_owned(),
            state: state_of_pace,
            cause: 2,
            at: T0,
        };
        let (kind, value) = ("suffix".to_owned(), Some(".pdf".to_owned()));
        vec![
            ("attempt-full", Entry::Attempt(full)),
            ("attempt-own", Entry::Attempt(own)),
            (
                "link",
                Entry::Link(LinkEntry {
                    link: link.clone(),
                    domain: "example.org".to_owned(),
                    state,
                    at: T0,
                }),
            ),
            (
                "host",
                Entry::Host(HostEntry {
                    domain: "example.org".to_owned(),
                    paused_until: Some(T0),
                    at: T0,
                }),
            ),
            (
                "importance",
                Entry::Importance(ImportanceEntry { kind, value, importance: 0.5, at: T0 }),
            ),
            ("tombstone", Entry::Tombstone(Tombstone { target, at: T0 })),
            ("pace", Entry::Pace(pace)),
            (
                "tombstone-link",
                Entry::Tombstone(Tombstone { target: TombstoneTarget::Link(link.clone()), at: T0 }),
            ),
            (
                "release",
                Entry::Release(Release {
                    target: ReleaseTarget::Host("example.org".to_owned()),
                    at: T0,
                }),
            ),
            ("release-link", Entry::Release(Release { target: ReleaseTarget::Link(link), at: T0 })),
            (
                "fetcher",
                Entry::Fetcher(FetcherEntry {
                    name: "http".to_owned(),
                    class: Class::Plain,
                    cost: 1.5,
                    at: T0,
                }),
            ),
        ]
    }

    fn encode(entry: &Entry) -> EncodedRecord {
        super::encode(entry).unwrap()
    }

    fn golden(name: &str) -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/records").join(name)
    }

    #[test]
    fn all_attempts_of_a_domain_have_one_key_whatever_tags_an_import_gives() {
        let attempt =
            |text: &str| Attempt::new(&url::Url::parse(text).unwrap(), "mine", T0).unwrap();
        let key = |attempt: Attempt| encode(&Entry::Attempt(attempt)).key_hash;
        let mut odd = attempt("https://blog.example.org/b");
        for tag in odd.heuristics.iter_mut().filter(|tag| tag.heuristic.kind == "site") {
            tag.heuristic = Heuristic::new("site", "elsewhere.org".to_owned());
        }
        assert_eq!(key(odd), key(attempt("https://blog.example.org/a")));
        assert_eq!(
            key(attempt("https://example.org/a")),
            key(attempt("https://blog.example.org/a"))
        );
        assert_ne!(
            key(attempt("https://elsewhere.org/a")),
            key(attempt("https://blog.example.org/a"))
        );
    }

    /// Bytes that a release has written stay readable with the same meaning. `FETCHWISE_BLESS=1`
    /// writes missing files and never changes an existing one.
    #[test]
    fn golden_records_decode_to_the_same_and_encode_to_the_same_bytes() {
        for (name, entry) in one_of_each() {
            let path = golden(&format!("{name}.bin"));
            let encoded = encode(&entry);
            if std::env::var_os("FETCHWISE_BLESS").is_some() && !path.exists() {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &encoded.payload).unwrap();
            }
            let bytes = read_golden(name);
            assert_eq!(decode(encoded.kind, VERSION, &bytes).unwrap(), entry, "{name}");
            assert_eq!(&encoded.payload[..], &bytes[..], "{name}");
        }
    }

    fn read_golden(name: &str) -> AlignedVec {
        let mut bytes = AlignedVec::new();
        bytes.extend_from_slice(&std::fs::read(golden(&format!("{name}.bin"))).unwrap());
        bytes
    }

    #[cfg(feature = "json")]
    #[test]
    fn golden_attempts_have_the_golden_json() {
        for (name, entry) in one_of_each() {
            let Entry::Attempt(attempt) = entry else { continue };
            let path = golden(&format!("{name}.json"));
            let line = fetchwise_types::attempt::json::to_json_line(&attempt);
            if std::env::var_os("FETCHWISE_BLESS").is_some() && !path.exists() {
                std::fs::write(&path, format!("{line}\n")).unwrap();
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap().trim_end(), line, "{name}");
        }
    }

    /// Fails if another crate of the dependency graph has changed the rkyv format, or somebody a
    /// released layout.
    #[test]
    fn the_layout_is_the_released_one() {
        let released = [
            0x84, 0x8e, 0xb4, 0xa7, 0x20, 0xbb, 0x72, 0x9a, 0x67, 0x3a, 0x43, 0x9e, 0x55, 0xbc,
            0x23, 0x63,
        ];
        assert_eq!(fingerprint(), released, "{:#04x?}", fingerprint());
    }

    #[test]
    fn newer_versions_are_reported_as_newer() {
        let encoded = encode(&one_of_each()[0].1);
        assert!(matches!(
            decode(1, 2, &encoded.payload),
            Err(SchemaError::Newer { kind: 1, schema: 2 })
        ));
        assert!(matches!(
            super::super::view::attempt(1, 2, &encoded.payload),
            Err(SchemaError::Newer { .. })
        ));
        assert!((2..=8).all(|kind| matches!(
            decode(kind, 2, &encoded.payload),
            Err(SchemaError::Newer { .. })
        )));
        assert!(matches!(
            decode(77, 1, &encoded.payload),
            Err(SchemaError::Newer { kind: 77, .. })
        ));
    }

    proptest! {
        /// bytecheck keeps damaged bytes memory-safe. Only the CRC detects all of the damage.
        #[test]
        fn damaged_bytes_never_panic(which in 0usize..11, flips in proptest::collection::vec((any::<u16>(), 0u8..8), 1..4)) {
            let entry = &one_of_each()[which].1;
            let encoded = encode(entry);
            let mut bytes = encoded.payload.clone();
            for (at, bit) in flips {
                let at = usize::from(at) % bytes.len();
                bytes[at] ^= 1 << bit;
            }
            let _ = decode(encoded.kind, VERSION, &bytes);
            let _ = decode(encoded.kind, VERSION, &bytes[..bytes.len() / 2]);
            let _ = super::super::view::attempt(encoded.kind, VERSION, &bytes);
        }
    }
}
