//! Records of a journal can be exported and imported again, whatever a server or a caller put into
//! them.

use std::path::Path;
use std::time::Duration;

use fetchwise::attempt::bounds::{
    MAX_HEADER_BYTES, MAX_LINK_BYTES, MAX_TIME, MAX_VALUE_BYTES, Unrecordable,
};
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::json::{MAX_LINE_BYTES, Notes, from_json_line, to_json_line};
use fetchwise::attempt::{Arm, Attempt, ErrorType, Hint, STORED_HEADERS, Tag};
use fetchwise::heuristic::Heuristic;
use fetchwise::journal::{
    self, Entry, Journal, JournalError, JournalOptions, Lost, Tombstone, TombstoneTarget,
};
use fetchwise::response::Header;
use fetchwise::time::Timestamp;
use proptest::prelude::*;

const T0: Timestamp = Timestamp::from_millis(1_790_000_000_000);

fn open(dir: &Path) -> Journal {
    // Only the flush waits: each case has a separate directory.
    Journal::open(dir, JournalOptions::default().linger(Duration::from_secs(60))).unwrap().0
}

/// Returns the attempts as the journal has them after they were recorded.
fn recorded(attempts: &[Attempt]) -> Vec<Attempt> {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    for attempt in attempts {
        journal.append_attempt(attempt).unwrap();
    }
    assert_eq!(journal.lost(), Lost::default());
    journal.close().unwrap();
    let mut read = Vec::new();
    let replayed = journal::replay(dir.path(), |_, entry| match entry {
        Entry::Attempt(attempt) => read.push(attempt),
        other => panic!("{other:?}"),
    });
    replayed.unwrap();
    read
}

/// Exports and imports an attempt, and returns the result.
fn imported(attempt: &Attempt) -> Attempt {
    let line = to_json_line(attempt);
    assert!(line.len() <= MAX_LINE_BYTES, "a line of {} bytes", line.len());
    let (read, notes) =
        from_json_line(&line, MAX_TIME).unwrap_or_else(|error| panic!("{error}: {line:.300}"));
    // A small number of milliseconds looks like seconds only if it is written as a number.
    assert_eq!(notes, Notes::default());
    read
}

fn one() -> Attempt {
    let url = url::Url::parse("https://www.example.org/a/b.pdf").unwrap();
    Attempt::new(&url, "playwright", T0).unwrap().delivered()
}

#[test]
fn a_header_of_sixty_kilobytes_is_cut_and_the_rest_of_the_attempt_kept() {
    let mut attempt = one();
    attempt.response_headers = vec![
        Header::new("server", "é".repeat(30_000)),
        Header::new("Via", "a"),
        Header::new("via", "b\0c"),
        Header::new("set-cookie", "secret"),
    ];
    let kept = recorded(&[attempt.clone()]).remove(0);
    assert_eq!(kept.response_headers.len(), 2, "{:?}", kept.response_headers);
    assert_eq!(kept.response_headers[0], Header::new("Via", "a, b\u{fffd}c"));
    assert_eq!(kept.response_headers[1], Header::new("server", "é".repeat(MAX_HEADER_BYTES / 2)));
    assert_eq!(
        Attempt { response_headers: attempt.response_headers.clone(), ..kept.clone() },
        attempt
    );
    assert_eq!(imported(&kept), kept);
}

#[test]
fn links_that_are_too_long_stay_distinct() {
    let links = ["x", "y"].map(|end| format!("{}{end}", "l".repeat(MAX_LINK_BYTES)));
    let with = |link: &str| Attempt { link: link.to_owned(), ..one() };
    let kept =
        recorded(&[with(&links[0]), with(&links[1]), with(&links[0]), with("a\0b"), with("")]);
    assert!(
        kept.iter()
            .all(|attempt| attempt.link.len() <= MAX_LINK_BYTES && imported(attempt) == *attempt)
    );
    assert_eq!(kept[0].link, kept[2].link);
    assert_ne!(kept[0].link, kept[1].link);
    assert_eq!(
        (kept[3].link.as_str(), kept[4].link.as_str()),
        ("a\u{fffd}b", "https://www.example.org/a/b.pdf")
    );
}

#[test]
fn a_link_is_forgotten_by_its_callers_id() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    for link in ["https://me:secret@e.org/#x".to_owned(), "l".repeat(MAX_LINK_BYTES + 9)] {
        journal.append_attempt(&Attempt { link: link.clone(), ..one() }).unwrap();
        journal
            .append_tombstone(&Tombstone { target: TombstoneTarget::Link(link), at: T0 })
            .unwrap();
    }
    journal.close().unwrap();
    let mut left = 0;
    journal::replay(dir.path(), |_, entry| left += usize::from(matches!(entry, Entry::Attempt(_))))
        .unwrap();
    assert_eq!(left, 0);
}

#[test]
fn an_ordinary_attempt_is_recorded_unchanged() {
    let mut attempt = one().failed(ErrorKind::BlockedCaptcha);
    attempt.response_headers = vec![Header::new("cf-ray", "1"), Header::new("server", "nginx")];
    attempt.http_status = Some(403);
    assert!(matches!(attempt.bounded(), Ok(std::borrow::Cow::Borrowed(_))));
    assert_eq!(recorded(&[attempt.clone()]), [attempt]);
}

/// Each attempt at a port, an address or an escaped path was copied, and its URL parsed again.
#[test]
fn an_attempt_at_any_url_as_it_was_parsed_is_not_copied() {
    for url in [
        "http://127.0.0.1:8080/a",
        "https://example.org:8443/",
        "http://example.org/a%20b/c?d=%2F",
        "http://example.org/a.b/c..d/e.?f=..",
        "https://[::1]:1/",
        "https://b\u{fc}cher.example/\u{fc}",
        "http://example.org?a",
        "http://E.org:80/../a/%2e%2E/b/./c#d",
        "http://0x7f.1:0080/[a]|'b'?'c'",
    ] {
        let url = url::Url::parse(url).unwrap();
        let attempt = Attempt::new(&url, "playwright", T0).unwrap().delivered();
        assert!(matches!(attempt.bounded(), Ok(std::borrow::Cow::Borrowed(_))), "{url}");
    }
    for text in [
        "http://example.org:80/a",
        "https://example.org:443/a",
        "http://example.org:08443/a",
        "http://example.org:+8443/a",
        "http://127.0.0.01/a",
        "http://127.1/a",
        "http://1.2.3/a",
        "http://example.org/a/%2e%2E/b",
        "http://example.org/a/.%2e/b",
        "http://example.org/%2e",
        "http://example.org/a/./b",
        "http://example.org/a?.=/../'",
    ] {
        let parsed = fetchwise::heuristic::url::parse(text).ok().map(String::from);
        let attempt = Attempt { url: text.to_owned(), ..one() };
        let kept = attempt.bounded().ok().map(|kept| kept.into_owned().url);
        assert_eq!(kept, parsed, "{text}");
    }
}

#[test]
fn unrecordable_attempts_are_rejected_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let no_url = Attempt { url: "mailto:me@e.org".to_owned(), ..one() };
    let no_fetcher = Attempt { fetcher: String::new(), ..one() };
    let refused = |attempt: &Attempt| match journal.append_attempt(attempt) {
        Err(JournalError::Unrecordable(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused(&no_url), Unrecordable::Url(_)));
    assert_eq!(refused(&no_fetcher), Unrecordable::NoFetcher);
    assert_eq!(journal.lost(), Lost::new(2));
    journal.close().unwrap();
}

/// Text of any length, with every character that may cause trouble.
fn text() -> impl Strategy<Value = String> {
    let wild = proptest::collection::vec(
        prop_oneof![
            any::<char>(),
            Just('\0'),
            Just('\u{1}'),
            Just('\u{85}'),
            Just('"'),
            Just('é'),
            Just('\u{10ffff}')
        ],
        0..12,
    );
    let long = prop_oneof![4 => Just(1), 1 => proptest::sample::select(&[50, 600, 3000, 9000][..])];
    let plain = proptest::sample::select(
        &["", "true", "timeout", "simple_http", "explore", "domain", "x\0", "~"][..],
    );
    prop_oneof![
        2 => (wild, long).prop_map(|(chars, times)| chars.into_iter().collect::<String>().repeat(times)),
        1 => plain.prop_map(str::to_owned),
    ]
}

fn urls() -> impl Strategy<Value = String> {
    let host = prop_oneof![
        Just("e.org".to_owned()),
        Just("E.org:443".to_owned()),
        Just("127.1".to_owned()),
        Just("0x7f.1:8080".to_owned()),
        Just("[::1]".to_owned()),
        Just("bücher.example".to_owned()),
        Just("xn--bcher-kva.example.".to_owned()),
        "[a-z0-9.-]{1,12}",
    ];
    let user = prop_oneof![4 => Just(""), 1 => Just("me:secret@")];
    (user, host, "[/.a-zA-Z0-9%?=&#'\\\\ é~:@;-]{0,40}", prop_oneof![6 => Just(1), 1 => Just(2000)])
        .prop_map(|(user, host, path, times)| {
            format!("https://{user}{host}/{}", path.repeat(times))
        })
        .prop_filter("a URL that can be fetched", |text| {
            fetchwise::heuristic::url::parse(text).is_ok()
        })
}

fn attempts() -> impl Strategy<Value = Attempt> {
    let ends = prop_oneof![
        Just(None),
        proptest::sample::select(ErrorKind::ALL).prop_map(|kind| Some(ErrorType::Known(kind))),
        text().prop_map(|name| Some(ErrorType::Other(name.into()))),
    ];
    let names = prop_oneof![
        proptest::sample::select(STORED_HEADERS).prop_map(str::to_owned),
        proptest::sample::select(STORED_HEADERS).prop_map(str::to_uppercase),
        text(),
    ];
    let headers = proptest::collection::vec((names, text()), 0..9);
    let importance = proptest::option::of(prop_oneof![0f32..=1.0, any::<f32>()]);
    let tags = prop_oneof![
        9 => proptest::collection::vec((text(), text(), importance.clone()), 0..6),
        1 => proptest::collection::vec((text(), text(), importance), 250..400),
    ];
    let shares = (any::<f64>(), proptest::option::of(prop_oneof![any::<f64>(), 0f64..=1.0]));
    (
        (
            any::<bool>(),
            urls(),
            prop_oneof![text(), urls()],
            text(),
            ends,
            any::<bool>(),
            any::<bool>(),
        ),
        (
            proptest::option::of(any::<u16>()),
            any::<u64>(),
            any::<i64>(),
            proptest::option::of(text()),
            any::<u32>(),
        ),
        (shares, proptest::option::of(text()), tags, headers),
        proptest::option::of(proptest::sample::select(Hint::ALL)),
        (
            proptest::option::of(prop_oneof![text(), Just("last_ditch".to_owned())]),
            proptest::option::of(prop_oneof![any::<f64>(), 0f64..=1.0]),
            proptest::option::of(proptest::sample::select(&Arm::ALL[..])),
        ),
    )
        .prop_map(
            |(
                (known, url, link, fetcher, end, success, banned),
                (status, ms, at, from, try_no),
                rest,
                hint,
                why,
            )| {
                let ((weight, propensity), shadow, tags, headers) = rest;
                let mut a = one();
                a.id = if known { a.id } else { uuid::Uuid::nil() };
                (a.url, a.link, a.success, a.is_banned, a.error_type) =
                    (url, link, success, banned, end);
                a.fetcher = if fetcher.is_empty() { "f".to_owned() } else { fetcher };
                (a.http_status, a.duration_ms, a.attempted_at) =
                    (status, ms, Timestamp::from_millis(at));
                (a.source, a.try_no, a.hint, a.shadow_fetcher) =
                    (from.map(Into::into), try_no, hint, shadow);
                (a.weight, a.propensity) = (weight, propensity);
                (a.rule, a.confidence, a.arm) = (why.0.map(Into::into), why.1, why.2);
                a.heuristics = tags
                    .into_iter()
                    .map(|(kind, value, importance)| Tag {
                        heuristic: Heuristic::new(kind, value),
                        importance,
                    })
                    .collect();
                a.response_headers =
                    headers.into_iter().map(|(name, value)| Header::new(name, value)).collect();
                a
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any attempt, recorded, exported and imported, is accepted and equal. Recording it again
    /// after the import changes nothing.
    #[test]
    fn any_attempt_recorded_exported_and_imported_is_the_same(attempt in attempts()) {
        let kept = recorded(std::slice::from_ref(&attempt)).remove(0);
        prop_assert!(kept.heuristics.iter().all(|tag| tag.heuristic.value.len() <= MAX_VALUE_BYTES));
        let again = imported(&kept);
        prop_assert_eq!(&again, &kept);
        prop_assert_eq!(recorded(std::slice::from_ref(&again)).remove(0), kept);
    }
}
