//! Round trips of the codec, and inputs that it refuses.
#![allow(clippy::unwrap_used)]

use fetchwise::attempt::Hint;
use fetchwise::backoff::{LinkState, MAX_RISK_LEVEL};
use fetchwise::evidence::RemoteAttempt;
use fetchwise::journal::replication::RemoteLinkState;
use fetchwise::time::Timestamp;
use proptest::prelude::*;

use super::*;

/// An attempt with owned texts.
#[derive(Clone, Debug)]
struct Owned {
    gap: u64,
    at: i64,
    fetcher: String,
    weight: f64,
    bits: u8,
    duration_ms: u64,
    heuristics: Vec<(String, String)>,
}

fn with<T>(owned: &Owned, f: impl FnOnce(&RemoteAttempt<'_>) -> T) -> T {
    let heuristics: Vec<(&str, &str)> =
        owned.heuristics.iter().map(|(k, v)| (&**k, &**v)).collect();
    let hints =
        [None, Some(Hint::Blocked), Some(Hint::Empty), Some(Hint::Timeout), Some(Hint::Unknown)];
    f(&RemoteAttempt {
        at: Timestamp::from_millis(owned.at),
        fetcher: &owned.fetcher,
        weight: owned.weight,
        success: owned.bits & 1 != 0,
        is_banned: owned.bits & 2 != 0,
        duration_ms: owned.duration_ms,
        hint: hints[usize::from(owned.bits >> 3) % 5],
        is_file: owned.bits & 4 != 0,
        heuristics: &heuristics,
    })
}

fn tag() -> impl Strategy<Value = (String, String)> {
    let domain = prop::sample::select(vec!["a.b.example", "b.example", "example", "x.org", ""]);
    prop_oneof![
        domain.clone().prop_map(|d| ("domain".into(), d.into())),
        domain.clone().prop_map(|d| ("site".into(), d.into())),
        (domain.clone(), "[a-z|/]{0,6}")
            .prop_map(|(d, s)| ("domain_path".into(), format!("{d}|{s}"))),
        domain.prop_map(|d| ("domain_suffix".into(), d.into())),
        "(0|00|[1-9][0-9]{0,3}|4294967295|-1|deep)".prop_map(|n| ("path_depth".into(), n)),
        ("[a-zé_]{0,9}", "\\PC{0,12}"),
    ]
}

fn owned() -> impl Strategy<Value = Owned> {
    let numbers = (0u64..4, -5_000_000_000_000i64..5_000_000_000_000, any::<u8>(), 0u64..1 << 40);
    let weight = prop_oneof![Just(1.0), Just(0.5), 1e-9..1.0f64];
    (numbers, "[a-z_]{0,8}", weight, prop::collection::vec(tag(), 0..12)).prop_map(
        |((gap, at, bits, duration_ms), fetcher, weight, heuristics)| Owned {
            gap,
            at,
            fetcher,
            weight,
            bits,
            duration_ms,
            heuristics,
        },
    )
}

/// The number of skipped positions before a link state, then the state with an owned domain.
type OwnedLink = (u64, String, u64, LinkState, i64);

fn link() -> impl Strategy<Value = OwnedLink> {
    let hints = vec![
        None,
        Some(Hint::Blocked),
        Some(Hint::Empty),
        Some(Hint::Timeout),
        Some(Hint::Unknown),
    ];
    let state = (
        prop::option::of(1i64..1 << 40),
        0..=MAX_RISK_LEVEL,
        any::<u32>(),
        prop::sample::select(hints),
    );
    let at = -5_000_000_000_000i64..5_000_000_000_000;
    (0u64..4, "[a-z.]{0,9}", any::<u64>(), state, at).prop_map(|(gap, domain, link, state, at)| {
        let (pause, risk_level, attempt_count, hint) = state;
        let paused_until = pause.map(|pause| Timestamp::from_millis(at + pause));
        (
            gap,
            domain,
            link,
            LinkState { paused_until, risk_level, attempt_count, last_attempt_at: None, hint },
            at,
        )
    })
}

fn of_link((_, domain, link, state, at): &OwnedLink) -> RemoteLinkState<'_> {
    RemoteLinkState { link: *link, domain, state: *state, at: Timestamp::from_millis(*at) }
}

/// Returns the link states of a message.
fn links_of(batch: &Batch) -> Vec<(u64, OwnedLink)> {
    let mut all = Vec::new();
    batch.each_link(|position, link| {
        all.push((
            position,
            (0, link.domain.to_owned(), link.link, link.state, link.at.as_millis()),
        ));
    });
    all
}

fn encoded(all: &[Owned], first: u64, top: u64) -> (Header, bytes::Bytes) {
    let mut builder = Builder::new(3, first / 2, first);
    for owned in all {
        (0..owned.gap).for_each(|_| builder.skip());
        with(owned, |fact| builder.push(fact, 7 * owned.gap));
    }
    if all.is_empty() {
        builder.skip();
    }
    builder.finish(top).unwrap()
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(all in prop::collection::vec(owned(), 0..40), first in 1u64..1 << 50, top in any::<u64>()) {
        let (header, body) = encoded(&all, first, top);
        let batch = Batch::decode(&body).unwrap();
        prop_assert_eq!(batch.header(), &header);
        let seen = peek(&body).unwrap();
        prop_assert_eq!((seen.epoch, seen.first, seen.last, seen.count), (header.epoch, header.first, header.last, header.count));
        let (mut index, mut position) = (0, first);
        let mut failed = None;
        batch.each(|at, fact, link| {
            let owned: &Owned = &all[index];
            position += owned.gap;
            let link_is = if fact.is_banned { 7 * owned.gap } else { 0 };
            if at != position || link != link_is || !with(owned, |was| was == fact) {
                failed = Some(format!("{owned:?} became {fact:?} at {at}"));
            }
            (index, position) = (index + 1, position + 1);
        });
        prop_assert_eq!(failed, None);
        prop_assert_eq!(index, all.len());
    }

    #[test]
    fn link_states_travel_among_attempts(
        all in prop::collection::vec((prop::option::of(owned()), link()), 1..20),
        egress in "(|eu|[a-zé]{1,9})",
        first in 1u64..1 << 50
    ) {
        let mut builder = Builder::new(3, 0, first).behind(&egress);
        let mut expected = Vec::new();
        for (fact, link) in &all {
            fact.iter().for_each(|owned| with(owned, |fact| builder.push(fact, 0)));
            (0..link.0).for_each(|_| builder.skip());
            expected.push((builder.next(), (0, link.1.clone(), link.2, link.3, link.4)));
            builder.link(&of_link(link));
        }
        let (header, body) = builder.finish(0).unwrap();
        let batch = Batch::decode(&body).unwrap();
        prop_assert_eq!((links_of(&batch), batch.links(), batch.egress()), (expected, all.len(), &*egress));
        let facts: Vec<&Owned> = all.iter().filter_map(|(fact, _)| fact.as_ref()).collect();
        let (mut index, mut same) = (0, true);
        batch.each(|_, fact, _| {
            same &= with(facts[index], |was| was == fact);
            index += 1;
        });
        prop_assert!(same && index == facts.len() && header.count as usize == index);
    }

    #[test]
    fn any_bytes_decode_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), raw in any::<bool>()) {
        let _ = Batch::decode(&bytes);
        if raw {
            // As a frame after a matching header.
            bytes = whole(&bytes, 3, 1, 9);
        }
        let _ = Batch::decode(&bytes);
    }

    #[test]
    fn a_changed_byte_is_noticed(all in prop::collection::vec(owned(), 1..10), at in any::<prop::sample::Index>(), by in 1u8..) {
        let (_, body) = encoded(&all, 5, 0);
        let mut body = body.to_vec();
        let at = at.index(body.len());
        body[at] ^= by;
        // Newer releases may use a greater minor version and flags.
        prop_assert!(Batch::decode(&body).is_err());
    }
}

/// Builds a message with these bytes as its columns.
fn whole(raw: &[u8], count: u32, first: u64, last: u64) -> Vec<u8> {
    let frame = zstd::bulk::compress(raw, 1).unwrap();
    let mut body = MAGIC.to_vec();
    body.extend([1, 0, 0, 0]);
    body.extend(1u32.to_le_bytes());
    body.extend(first.to_le_bytes());
    body.extend(last.to_le_bytes());
    body.extend(i64::MIN.to_le_bytes());
    body.extend(count.to_le_bytes());
    body.extend((raw.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&body), &frame);
    body.extend(crc.to_le_bytes());
    body.extend(frame);
    body
}

#[test]
fn a_newer_release_is_reported_and_its_additions_are_skipped() {
    let (header, body) = encoded(&[], 9, 0);
    let mut newer = body.to_vec();
    newer[4] = 2;
    assert_eq!(Batch::decode(&newer).unwrap_err(), DecodeError::Newer(2));
    assert_eq!(peek(&newer).unwrap_err(), DecodeError::Newer(2));
    // A reader that does not know link states skips them: they come last, in separate columns.
    let mut with_links = Builder::new(3, 0, 9).behind("eu");
    with_links.link(&RemoteLinkState {
        link: 7,
        domain: "e.org",
        state: LinkState::default(),
        at: Timestamp::from_millis(5),
    });
    let (_, body) = with_links.finish(0).unwrap();
    let raw_len = u32::from_le_bytes(body[40..44].try_into().unwrap()) as usize;
    let mut raw = zstd::bulk::decompress(&body[48..], raw_len).unwrap();
    assert_eq!(Batch::decode(&whole(&raw, 0, 9, 9)).unwrap().links(), 1);
    let kind =
        |raw: &[u8], kind: u8, len: u8| raw.windows(2).position(|two| *two == [kind, len]).unwrap();
    for (known, len) in [(column::LINK_STATES, 15), (column::EGRESS, 1)] {
        let place = kind(&raw, known, len);
        raw[place] = 180 + known;
    }
    let batch = Batch::decode(&whole(&raw, 0, 9, 9)).unwrap();
    assert_eq!((batch.links(), batch.egress(), batch.header().last), (0, "", 9));
    // A column of an unknown kind, and one of an unused kind.
    let unknown = whole(&[200, 3, 1, 2, 3, 40, 0], 0, 9, 9);
    assert_eq!((Batch::decode(&unknown).unwrap().header().first, header.first), (9, 9));
}

#[test]
fn oversized_content_is_refused() {
    let mut large = whole(&vec![0; MAX_RAW + 1], 0, 1, 1);
    assert_eq!(Batch::decode(&large).unwrap_err(), DecodeError::TooLarge);
    large = whole(&[], MAX_ATTEMPTS as u32 + 1, 1, u64::MAX - 1);
    assert_eq!(Batch::decode(&large).unwrap_err(), DecodeError::TooLarge);
    // The declared length is shorter than the real one.
    let mut lying = whole(&vec![7; 100_000], 0, 1, 1);
    lying[40..44].copy_from_slice(&10u32.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&lying[..44]), &lying[48..]);
    lying[44..48].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Batch::decode(&lying).unwrap_err(), DecodeError::Malformed("frame"));
    assert_eq!(Batch::decode(&vec![0; 2 << 20]).unwrap_err(), DecodeError::Foreign);
    // More link states than allowed at valid positions, and one at an invalid position.
    let mut rows = vec![column::LINK_STATES];
    let row = |offset: u64| {
        let mut row = Vec::new();
        put_varint(&mut row, offset);
        row.extend_from_slice(&[1, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        row
    };
    let many: Vec<u8> = (0..=MAX_ATTEMPTS as u64).flat_map(row).collect();
    put_varint(&mut rows, many.len() as u64);
    rows.extend(many);
    assert_eq!(Batch::decode(&whole(&rows, 0, 1, 1 << 30)).unwrap_err(), DecodeError::TooLarge);
    let one = [vec![column::LINK_STATES, 15], row(9)].concat();
    assert_eq!(Batch::decode(&whole(&one, 0, 1, 10)).unwrap().links(), 1);
    assert_eq!(
        Batch::decode(&whole(&one, 0, 1, 9)).unwrap_err(),
        DecodeError::Malformed("positions")
    );
    for (count, first, last) in [(2, 5, 5), (0, 0, 5), (0, 6, 5), (0, 1, u64::MAX)] {
        assert_eq!(
            Batch::decode(&whole(&[], count, first, last)).unwrap_err(),
            DecodeError::Malformed("positions")
        );
    }
}
