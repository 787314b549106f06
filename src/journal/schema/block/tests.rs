//! Blocks against the records that they were packed from: each byte comes back, and a replay learns
//! the same.
//!
//! Owns: records of all kinds, and blocks that were changed or forged.

use std::path::Path;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use uuid::Uuid;

use fetchwise_log::OwnedBlock;

use super::super::codec::{decode, encode_attempt, encode_host};
use super::super::codes::{SchemaError, VERSION};
use super::super::columns::{AttemptColumns, ColumnsRecord, RowBuffer, RowError};
use super::super::records::access;
use super::super::view::{self, ClampedAttempt};
use super::*;
use crate::evidence::Observation;
use crate::evidence::evidence_snapshot::FADED;
use crate::journal::entry::Entry;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{Arm, Attempt, ErrorType, Hint, Tag};
use fetchwise_types::heuristic::Heuristic;
use fetchwise_types::response::Header;
use fetchwise_types::time::Timestamp;

const T0: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// Record as a block takes it, with its bytes.
type Stored = (u16, u16, u64, Vec<u8>);

fn stored(attempt: &Attempt) -> Stored {
    let encoded = encode_attempt(attempt).unwrap();
    (encoded.kind, VERSION, encoded.key_hash, encoded.payload.to_vec())
}

/// Packs and unpacks records; returns them and the block.
fn round(all: &[Stored]) -> (Vec<Stored>, Option<PackedBlock>) {
    // Records start at addresses divisible by 8.
    let aligned: Vec<_> = all
        .iter()
        .map(|(.., payload)| {
            let mut bytes = rkyv::util::AlignedVec::<16>::new();
            bytes.extend_from_slice(payload);
            bytes
        })
        .collect();
    let records: Vec<_> = all
        .iter()
        .zip(&aligned)
        .map(|(&(kind, schema, key_hash, _), payload)| RecordRef {
            kind,
            schema,
            key_hash,
            payload,
        })
        .collect();
    let Some(packed) = pack_exactly(&records) else { return (all.to_vec(), None) };
    (unpacked(&packed, all.len()).unwrap(), Some(packed))
}

fn unpacked(packed: &PackedBlock, records: usize) -> Result<Vec<Stored>, UnpackError> {
    let mut hot = rkyv::util::AlignedVec::<16>::new();
    hot.extend_from_slice(&packed.hot);
    let mut back = Vec::new();
    let block = Block { schema: packed.schema, records, hot: &hot, cold: &packed.cold };
    BLOCKS
        .unpack(&block, &mut |r| back.push((r.kind, r.schema, r.key_hash, r.payload.to_vec())))?;
    Ok(back)
}

/// What a fold learns from a record: its key and everything that evidence reads.
fn learned(key: u64, attempt: &impl Observation, fetcher: &str, outcome: usize) -> String {
    let mut heuristics = Vec::new();
    attempt.each_heuristic(&mut |kind, value| heuristics.push((kind, value)));
    format!("{key} {:?} {heuristics:?} {fetcher:?} {outcome}", attempt.fields())
}

/// What a fold sees of a record.
fn see(record: &RecordRef<'_>) -> String {
    let (key, RecordRef { kind, schema, payload, .. }) = (record.key_hash, *record);
    match view::attempt(kind, schema, payload) {
        Ok(Some(view)) => {
            let whole = ClampedAttempt(view, Timestamp::from_millis(i64::MAX));
            learned(key, &whole, view.fetcher(), view.outcome())
        }
        Ok(None) => format!("{key} {kind} {schema} {payload:?}"),
        // The text of the error has addresses.
        Err(SchemaError::Invalid(_)) => format!("{key} not a valid record"),
        Err(error) => format!("{key} {error}"),
    }
}

/// What a fold sees of the records of a block, one by one; `None` if the block is refused.
fn seen(packed: &PackedBlock, records: usize) -> Option<Vec<String>> {
    let all =
        unpacked(packed, records).ok()?.into_iter().map(|(kind, schema, key_hash, payload)| {
            let mut bytes = rkyv::util::AlignedVec::<16>::new();
            bytes.extend_from_slice(&payload);
            see(&RecordRef { kind, schema, key_hash, payload: &bytes })
        });
    Some(all.collect())
}

/// What a fold sees of a block that it reads in columns.
fn seen_in_columns(packed: &PackedBlock, records: usize) -> Option<Vec<String>> {
    let block = OwnedBlock::new(&Block {
        schema: packed.schema,
        records,
        hot: &packed.hot,
        cold: &packed.cold,
    });
    let columns = AttemptColumns::parse(block).ok()?;
    let (mut reader, mut buffer) = (columns.reader().ok()?, RowBuffer::default());
    let mut all = Vec::new();
    for (place, &key) in columns.keys().iter().enumerate() {
        all.push(match reader.read(place, &mut buffer) {
            Ok(ColumnsRecord::Attempt(attempt)) => {
                learned(key, &attempt, attempt.fetcher(), attempt.outcome())
            }
            Ok(ColumnsRecord::Whole(record)) => see(&record),
            Err(RowError::Record(error)) => format!("{key} {error}"),
            Err(RowError::Block(_)) => return None,
        });
    }
    (all.len() == records).then_some(all)
}

fn attempt(n: u64) -> Attempt {
    let text = format!("https://www.site{n}.example.org/section{}/page-{n}.html?q={n}", n % 7);
    let mut attempt =
        Attempt::new(&url::Url::parse(&text).unwrap(), ["plain", "browser"][n as usize % 2], T0)
            .unwrap();
    attempt.id = Uuid::from_u128(u128::from(n) << 70 | 0x7000_0000_0000_8000_0000_0000_0000);
    attempt.duration_ms = 100 + n % 50;
    if n.is_multiple_of(5) { attempt.failed(ErrorKind::Blocked403) } else { attempt.delivered() }
}

/// Bytes that a release has written stay readable. `FETCHWISE_BLESS=1` writes a missing file.
#[test]
fn a_golden_block_unpacks_to_the_same_records_and_is_packed_to_the_same_bytes() {
    let mut records: Vec<Stored> = (0..20).map(attempt).map(|attempt| stored(&attempt)).collect();
    let host = encode_host("example.org", Some(T0), T0).unwrap();
    records.insert(7, (host.kind, VERSION, host.key_hash, host.payload.to_vec()));
    let mut rich = attempt(3);
    rich.link = "article 17".to_owned();
    rich.response_headers =
        vec![Header::new("Server", "cloudflare"), Header::new("CF-Ray", "8a1b2c3d4e5f-FRA")];
    rich.propensity = Some(0.02);
    rich.confidence = Some(0.25);
    rich.hint = Some(Hint::Empty);
    rich.arm = Some(Arm::Legacy);
    rich.rule = Some("my own rule".into());
    rich.source = Some("my own".into());
    rich.error_type = Some(ErrorType::from_name("gremlins"));
    rich.shadow_fetcher = Some("direct_access".to_owned());
    rich.heuristics.push(Tag { heuristic: Heuristic::flag("status_403"), importance: Some(0.75) });
    records.push(stored(&rich));
    let (back, packed) = round(&records);
    let packed = packed.unwrap();
    assert!(back == records);
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/blocks");
    for (name, bytes) in [("attempts.hot", &packed.hot), ("attempts.cold", &packed.cold)] {
        if std::env::var_os("FETCHWISE_BLESS").is_some() && !dir.join(name).exists() {
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join(name), bytes).unwrap();
        }
        assert!(std::fs::read(dir.join(name)).unwrap() == *bytes, "{name}");
    }
}

#[test]
fn a_block_of_ordinary_attempts_is_small_and_holds_none_of_them_whole() {
    let records: Vec<Stored> = (0..1000).map(attempt).map(|attempt| stored(&attempt)).collect();
    let (back, packed) = round(&records);
    assert!(back == records);
    let packed = packed.unwrap();
    let mut hot = rkyv::util::AlignedVec::<16>::new();
    hot.extend_from_slice(&packed.hot);
    assert!(access::<ArchivedHotV1>(&hot).unwrap().whole.is_empty());
    assert!(packed.hot.len() < 33_000, "{}", packed.hot.len());
    // The whole way, with the compression of the log.
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), &records);
    append(dir.path(), &records[..1]);
    let size = || fetchwise_log::Reader::open(dir.path()).unwrap().segments().next().unwrap().bytes;
    let before = size();
    pack(dir.path());
    println!("{before} bytes of 1000 attempts become {}", size());
    assert!(size() < before / 4, "{before} and {}", size());
}

/// Appends records to the log in a new segment.
fn append(dir: &Path, records: &[Stored]) {
    let mut options = fetchwise_log::LogOptions::default();
    options.fingerprint = super::super::fingerprint();
    options.begin_segment = true;
    let (log, _) = fetchwise_log::Log::open(dir, options).unwrap();
    for (kind, schema, key_hash, payload) in records {
        let (kind, schema, key_hash, time_ms) = (*kind, *schema, *key_hash, T0.as_millis());
        log.append(fetchwise_log::Record { kind, schema, key_hash, time_ms, payload }).unwrap();
    }
    log.close().unwrap();
}

/// Packs all segments but the last.
fn pack(dir: &Path) {
    let maintenance = fetchwise_log::Maintenance::lock(dir).unwrap();
    let mut options = fetchwise_log::CompactOptions::new(0, T0.as_millis());
    options.blocks = Some(&BLOCKS);
    maintenance.compact(&options, &mut |_, _| true, &mut |_| {}).unwrap();
}

#[test]
fn a_layout_of_a_newer_release_is_refused_as_such() {
    let (_, packed) = round(&[stored(&attempt(1))]);
    let newer = PackedBlock { schema: VERSION + 1, ..packed.unwrap() };
    assert!(matches!(unpacked(&newer, 1), Err(UnpackError::Newer(_))));
}

/// Journal of attempts in records and, if `packs`, blocks: (its directory, attempts).
fn mixed(packs: bool) -> (tempfile::TempDir, Vec<Attempt>) {
    let dir = tempfile::tempdir().unwrap();
    let all: Vec<Attempt> = (0..900).map(attempt).collect();
    for (session, some) in all.chunks(300).enumerate() {
        let records: Vec<Stored> = some.iter().map(stored).collect();
        append(dir.path(), &records);
        if session == 1 && packs {
            pack(dir.path());
        }
    }
    let reader = fetchwise_log::Reader::open(dir.path()).unwrap();
    let kinds: Vec<bool> = reader.segments().map(|segment| segment.packed).collect();
    assert!(kinds.contains(&packs) && kinds.contains(&false), "{kinds:?}");
    (dir, all)
}

#[test]
fn a_log_with_blocks_gives_the_evidence_of_one_of_records_to_the_bit() {
    let image = |packs: bool| {
        let (dir, _) = mixed(packs);
        let selector = crate::selector::Selector::builder().around(T0).build().unwrap();
        let loaded = crate::journal::load(dir.path(), &selector, T0).unwrap();
        assert_eq!((loaded.replayed.attempts, loaded.last_seq), (900, 900));
        let surveyed = crate::journal::survey(dir.path()).unwrap();
        assert_eq!(surveyed.fetchers, ["browser", "plain"]);
        (selector.learned().evidence_snapshot(T0, FADED), loaded.replayed)
    };
    assert!(image(true) == image(false));
}

/// A fold names a block that it cannot read as damage, as every other reader does.
#[test]
fn a_fold_reports_a_block_that_it_cannot_read_with_the_records_in_it() {
    struct Refuses;
    impl fetchwise_log::BlockFold<u64> for Refuses {
        type Prepared = AttemptColumns;
        fn prepare(&self, block: OwnedBlock) -> Result<AttemptColumns, UnpackError> {
            AttemptColumns::parse(block)
        }
        fn keys<'p>(&self, block: &'p AttemptColumns) -> &'p [u64] {
            block.keys()
        }
        fn fold(
            &self,
            _: &mut u64,
            _: &AttemptColumns,
            all: &[fetchwise_log::BlockRecord],
        ) -> Result<(), UnpackError> {
            if all.is_empty() { Ok(()) } else { Err(UnpackError::Bad) }
        }
    }
    let (dir, _) = mixed(true);
    let reader = fetchwise_log::Reader::open(dir.path()).unwrap();
    let count = |seen: &mut u64, _, _: RecordRef<'_>| *seen += 1;
    let folded = reader.fold_sharded(0, vec![0; 2], |_, _| {}, count, &Refuses, |_| {});
    let Err(fetchwise_log::Error::Corrupt { damage, .. }) = folded else { panic!("{folded:?}") };
    assert_eq!(damage[0].records, Some((1, 300)));
    assert_eq!(damage[0].what, "a block cannot be unpacked");
}

#[test]
fn records_of_both_versions_and_blocks_in_one_log_give_the_evidence_of_what_was_live() {
    let (dir, all) = mixed(true);
    let mut seen = Vec::new();
    crate::journal::replay(dir.path(), |seq, entry| seen.push((seq, entry))).unwrap();
    let expected: Vec<_> = (1..).zip(all.iter().cloned().map(Entry::Attempt)).collect();
    assert!(seen == expected);
    let build = || crate::selector::Selector::builder().around(T0).build().unwrap();
    let (live, replayed) = (build(), build());
    all.iter().for_each(|attempt| live.observe(attempt));
    crate::journal::load(dir.path(), &replayed, T0).unwrap();
    for n in 0..900 {
        for key in
            [("domain", &*format!("site{n}.example.org")), ("suffix", ".html"), ("path_depth", "2")]
        {
            for fetcher in ["plain", "browser"] {
                let page = fetchwise_types::heuristic::url::ContentKind::Page;
                let of =
                    |selector: &crate::selector::Selector| selector.weights(key, page, fetcher, T0);
                let (a, b) = (of(&live), of(&replayed));
                assert_eq!(a.attempts, b.attempts, "{key:?} {fetcher}");
                let pairs = [(a.total, b.total), (a.success, b.success), (a.blocked, b.blocked)];
                assert!(
                    pairs.iter().all(|(a, b)| (a - b).abs() < 1e-9 * a.max(1.0)),
                    "{key:?} {fetcher}: {pairs:?}"
                );
            }
        }
    }
    assert!(crate::journal::maintenance::verify(dir.path(), &mut |_, _| {}).unwrap().is_sound());
    // A reader that does not know the layout says so and hands out nothing wrong.
    let reader = fetchwise_log::Reader::open(dir.path()).unwrap();
    let error = reader.for_each(|_, _| {}).unwrap_err().to_string();
    assert!(error.contains("packed records"), "{error}");
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("true".to_owned()),
        "[a-z]{1,3}",
        "[a-z]{9,12}",
        "\\PC{0,40}",
        ".{0,20}\\|.{0,9}"
    ]
}

fn url() -> impl Strategy<Value = String> {
    prop_oneof![
        "https?://(www\\.)?[a-c]{1,2}\\.(co\\.uk|org|example)(/[a-z]{0,4}){0,3}(\\.pdf|\\.html)?(\\?q=[0-9])?",
        "http://u:p@(www\\.)?h[0-9]\\.org:8080/x\\|y/",
        Just("http://[2001:db8::1]/a".to_owned()),
        Just("http://10.0.0.1/".to_owned()),
        Just("http://www.com/".to_owned()),
    ]
}

fn odd_float() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), Just(0.5), Just(-0.0), Just(f64::NAN), Just(f64::INFINITY), any::<f64>()]
}

fn odd_attempt() -> impl Strategy<Value = Attempt> {
    let numbers = (any::<u128>(), any::<bool>(), any::<i64>(), any::<u64>(), any::<u16>(), 0u32..3);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), 0u8..6);
    let texts = (of(text()), of(text()), of(text()), of(text()), of(text()), text());
    let lists = (vec((text(), text()), 0..3), vec((text(), text(), of(any::<f32>())), 0..4));
    let floats = (odd_float(), of(odd_float()), of(odd_float()));
    (url(), numbers, flags, texts, lists, floats).prop_filter_map(
        "a URL",
        |(url, numbers, flags, texts, lists, floats)| {
            let (id, is_near, at, took, status, try_no) = numbers;
            let at = if is_near { T0.as_millis() + at % 100_000 } else { at };
            let at = Timestamp::from_millis(at);
            let mut a = Attempt::new(&url::Url::parse(&url).ok()?, "plain", at).ok()?;
            (a.id, a.duration_ms) =
                (Uuid::from_u128(id), if is_near { took % 100_000 } else { took });
            // A record writes no status as 0.
            (a.http_status, a.try_no) = ((status % 3 == 1).then_some(status), try_no);
            let (success, is_banned, has_fetcher, hint) = flags;
            (a.success, a.is_banned) = (success, is_banned);
            a.hint = [
                None,
                Some(Hint::Blocked),
                Some(Hint::Empty),
                Some(Hint::Timeout),
                Some(Hint::Unknown),
                None,
            ][usize::from(hint)];
            let (link, error, source, rule, shadow, fetcher) = texts;
            a.link = link.unwrap_or_else(|| a.url.clone());
            a.error_type = error.map(|name| ErrorType::from_name(&name));
            (a.source, a.rule) = (source.map(Into::into), rule.map(Into::into));
            a.shadow_fetcher = shadow;
            if has_fetcher {
                a.fetcher = fetcher;
            }
            let (headers, tags) = lists;
            a.response_headers =
                headers.iter().map(|(name, value)| Header::new(name, value)).collect();
            for (kind, value, importance) in tags {
                a.heuristics.push(Tag { heuristic: Heuristic::new(kind, value), importance });
            }
            (a.weight, a.propensity, a.confidence) = floats;
            Some(a)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.div_ceil(4), ..ProptestConfig::default() })]
    /// Equal in every byte, so in every field.
    #[test]
    fn any_attempts_come_back_exactly(odd in vec(odd_attempt(), 1..40), plain in 0u64..20) {
        let mut records: Vec<Stored> = odd.iter().map(stored).collect();
        records.extend((0..plain).map(|n| stored(&attempt(n))));
        let (back, packed) = round(&records);
        // Such attempts are stored whole, and there is no block of nothing else.
        let is_whole = |a: &Attempt| u32::try_from(a.duration_ms).is_err() || a.shadow_fetcher.as_deref() == Some("");
        prop_assert!(packed.is_some() || plain == 0 && odd.iter().all(is_whole));
        prop_assert!(back == records);
        if let Some(packed) = packed {
            prop_assert_eq!(seen(&packed, records.len()), seen_in_columns(&packed, records.len()));
        }
        for ((kind, schema, _, payload), attempt) in back.iter().zip(&odd) {
            let Ok(Entry::Attempt(back)) = decode(*kind, *schema, payload) else { panic!("not an attempt") };
            // NaN is not equal to itself.
            prop_assert_eq!(format!("{back:?}"), format!("{attempt:?}"));
        }
    }

    /// Records of other kinds and versions, and bytes that are no record, are kept as they are.
    #[test]
    fn any_records_come_back_exactly(
        odd in vec((0u16..4, 0u16..4, any::<u64>(), vec(any::<u8>(), 0..300)), 0..20),
        at in 0usize..20,
        flip in (any::<u16>(), 0u8..8),
    ) {
        let mut records: Vec<Stored> = odd;
        let place = at.min(records.len());
        records.insert(place, stored(&attempt(1)));
        // A record that decodes, but is not what this release would write.
        let mut other = stored(&attempt(2));
        let byte = usize::from(flip.0) % other.3.len();
        other.3[byte] ^= 1 << flip.1;
        records.insert(place, other);
        let (back, packed) = round(&records);
        prop_assert!(packed.is_some() && back == records);
    }

    /// Bytes that passed the checksum may still be wrong: they are refused or read, and never
    /// panic. Whether their records are made or not is the same.
    #[test]
    fn damaged_blocks_never_panic(
        odd in vec(odd_attempt(), 0..4),
        flips in vec((any::<u32>(), 0u8..8), 1..6),
        cut in any::<u16>(),
    ) {
        let mut records: Vec<Stored> = (0..12).map(|n| stored(&attempt(n))).collect();
        records.extend(odd.iter().map(stored));
        let (_, packed) = round(&records);
        let mut packed = packed.unwrap();
        for (at, bit) in flips {
            let (at, cold) = (at as usize, packed.hot.len());
            match at % (cold + packed.cold.len()) {
                at if at < cold => packed.hot[at] ^= 1 << bit,
                at => packed.cold[at - cold] ^= 1 << bit,
            }
        }
        prop_assert_eq!(seen(&packed, records.len()), seen_in_columns(&packed, records.len()));
        packed.cold.truncate(usize::from(cut) % packed.cold.len());
        prop_assert!(unpacked(&packed, records.len()).is_err());
        prop_assert!(seen_in_columns(&packed, records.len()).is_none());
    }
}
