//! Tests of the journal from end to end: restarts, tombstones, and damage that it rejects.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::backoff::LinkState;
use crate::evidence::evidence_snapshot::FADED;
use crate::selector::SelectContext;
use crate::selector::Selector;
use fetchwise_types::attempt::Attempt;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::time::Timestamp;

const T0: Timestamp = Timestamp::from_millis(1_790_000_000_000);

fn minutes(n: u64) -> Timestamp {
    T0.saturating_add(Duration::from_secs(60 * n))
}

fn attempt(text: &str, fetcher: &str, at: Timestamp) -> Attempt {
    Attempt::new(&url::Url::parse(text).unwrap(), fetcher, at).unwrap()
}

fn selector() -> Selector {
    Selector::builder().around(T0).build().unwrap()
}

#[test]
fn a_second_start_knows_what_the_first_learned() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let mut live = selector();
    live.set_sink(Box::new(Arc::new(journal)));
    for n in 0..200 {
        let a = attempt(
            &format!("https://e.org/s{}/{n}", n % 3),
            ["playwright", "mine"][n % 2],
            minutes(n as u64),
        );
        let a = if n % 5 == 0 { a.failed(ErrorKind::BlockedCaptcha) } else { a.delivered() };
        live.record(a, minutes(500)).unwrap();
    }
    drop(std::mem::replace(&mut live, selector()));
    let again = selector();
    let loaded = load(dir.path(), &again, minutes(500)).unwrap();
    assert_eq!((loaded.replayed.attempts, loaded.replayed.torn_tail), (200, None));
    let weights = again.weights(("domain", "e.org"), ContentKind::Page, "mine", minutes(500));
    assert_eq!(weights.attempts, 100);
    let url = url::Url::parse("https://e.org/s1/new").unwrap();
    let take = again
        .select(&url, &SelectContext::first_attempt(minutes(500)))
        .unwrap()
        .selected()
        .unwrap();
    assert!(take.confidence > 0.5, "{take:?}");
    assert_eq!(survey(dir.path()).unwrap().fetchers, ["mine", "playwright"]);
}

#[test]
fn pauses_come_back_and_links_without_risk_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let paused =
        LinkState { paused_until: Some(minutes(10)), risk_level: 1, ..LinkState::default() };
    for (link, state) in [("a", paused), ("b", paused), ("b", LinkState::default())] {
        let (link, domain) = (link.to_owned(), "e.org".to_owned());
        journal.append_link(&LinkEntry { link, domain, state, at: T0 }).unwrap();
    }
    journal.append_host("e.org", Some(minutes(30)), T0).unwrap();
    journal.append_host("f.org", Some(minutes(30)), T0).unwrap();
    journal.append_host("f.org", None, minutes(1)).unwrap();
    journal.close().unwrap();
    let selector = selector();
    let loaded = load(dir.path(), &selector, T0).unwrap();
    assert_eq!(loaded.host_levels, HashMap::from([("e.org".to_owned(), 2)]));
    assert_eq!(loaded.links, HashMap::from([("a".to_owned(), paused)]));
    assert_eq!(selector.host_pause("e.org"), Some(minutes(30)));
    assert_eq!(selector.host_pause("f.org"), None);
}

/// A host with short pages that are complete costs one rendering, not one in each process.
#[test]
fn a_host_keeps_its_short_pages_over_starts_and_snapshots() {
    use fetchwise_types::heuristic::{Heuristic, SHORT_PAGE, SHORT_PAGE_TRUE};
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let write = |text: &str, is_short: bool| {
        let mut attempt = attempt(text, "direct_access", T0).delivered();
        if is_short {
            attempt.heuristics.push(Heuristic::new(SHORT_PAGE, SHORT_PAGE_TRUE.to_owned()).into());
        }
        journal.append_attempt(&attempt).unwrap();
    };
    write("https://short.org/1", true);
    write("https://gone.org/1", true);
    write("https://long.org/1", false);
    journal.close().unwrap();
    let known = || {
        let again = selector();
        load(dir.path(), &again, minutes(1)).unwrap();
        let is_known = |host: &&str| again.state().hosts.has_complete_short_page(host);
        ["gone.org", "long.org", "short.org"].into_iter().filter(is_known).collect::<Vec<_>>()
    };
    assert_eq!(known(), ["gone.org", "short.org"]);
    maintenance::snapshot(dir.path(), &selector(), minutes(1), &mut |_, _| {}).unwrap();
    assert_eq!(known(), ["gone.org", "short.org"], "a snapshot");
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let target = TombstoneTarget::Domain("gone.org".to_owned());
    journal.append_tombstone(&Tombstone { target, at: minutes(1) }).unwrap();
    journal.close().unwrap();
    assert_eq!(known(), ["short.org"], "a domain that is forgotten");
    maintenance::snapshot(dir.path(), &selector(), minutes(1), &mut |_, _| {}).unwrap();
    assert_eq!(known(), ["short.org"], "a snapshot on top of a snapshot");
}

#[test]
fn times_in_the_future_count_as_now() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let years_ahead = minutes(4 * 365 * 24 * 60);
    journal
        .append_attempt(&attempt("https://e.org/1", "playwright", years_ahead).delivered())
        .unwrap();
    journal.append_host("e.org", Some(years_ahead), years_ahead).unwrap();
    journal.close().unwrap();
    let selector = selector();
    load(dir.path(), &selector, T0).unwrap();
    let weights = selector.weights(("domain", "e.org"), ContentKind::Page, "playwright", T0);
    assert!((weights.total - 1.0).abs() < 1e-9, "{weights:?}");
    assert_eq!(selector.host_pause("e.org"), Some(minutes(24 * 60)));
}

#[test]
fn a_tombstone_covers_what_came_before_it_only() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let write = |text: &str| journal.append_attempt(&attempt(text, "f", T0).delivered()).unwrap();
    write("https://www.gone.org/1");
    write("https://kept.org/1");
    write("https://kept.org/2");
    journal.append_host("gone.org", Some(minutes(5)), T0).unwrap();
    for target in [
        TombstoneTarget::Domain("gone.org".to_owned()),
        TombstoneTarget::Link("https://kept.org/2".to_owned()),
    ] {
        journal.append_tombstone(&Tombstone { target, at: T0 }).unwrap();
    }
    write("https://www.gone.org/2");
    journal.close().unwrap();
    let mut urls = Vec::new();
    let replayed = replay(dir.path(), |_, entry| {
        if let Entry::Attempt(attempt) = entry {
            urls.push(attempt.url);
        }
    });
    assert_eq!(urls, ["https://kept.org/1", "https://www.gone.org/2"]);
    assert_eq!(replayed.unwrap().forgotten, 3);
}

#[test]
fn there_is_one_writer_and_readers_take_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    journal.append_attempt(&attempt("https://e.org/", "f", T0).delivered()).unwrap();
    journal.flush().wait().unwrap();
    let error = Journal::open(dir.path(), JournalOptions::default()).unwrap_err();
    assert!(error.is_refusal() && error.to_string().contains("locked"), "{error}");
    assert_eq!(replay(dir.path(), |_, _| {}).unwrap().attempts, 1);
}

#[test]
fn linger_sets_how_long_attempts_are_collected() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = JournalOptions::default().durability(Durability::Os);
    let (hasty, _) = Journal::open(other.path(), options.clone()).unwrap();
    let (journal, _) =
        Journal::open(dir.path(), options.linger(Duration::from_secs(86_400))).unwrap();
    for n in 1..=3 {
        let attempt = attempt(&format!("https://e.org/{n}"), "f", T0).delivered();
        journal.append_attempt(&attempt).unwrap();
        // By then a journal that collects them for the usual time would have written it.
        hasty.append_attempt(&attempt).unwrap();
        while hasty.metrics().written_seq < n {
            std::thread::yield_now();
        }
    }
    assert_eq!(journal.metrics().written_seq, 0, "nobody has asked for them yet");
    journal.flush().wait().unwrap();
    assert_eq!(journal.metrics().written_seq, 3);
}

#[test]
fn an_absent_directory_is_an_empty_journal_and_stays_absent() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent");
    assert!(survey(&absent).unwrap().fetchers.is_empty());
    assert!(!absent.exists());
}

/// Writes `attempts` attempts, closes the journal properly and returns its only segment.
fn written(dir: &Path, attempts: usize) -> std::path::PathBuf {
    let (journal, _) = Journal::open(dir, JournalOptions::default()).unwrap();
    for n in 0..attempts {
        journal
            .append_attempt(&attempt(&format!("https://e.org/{n}"), "f", T0).delivered())
            .unwrap();
        // Each in a separate frame.
        journal.flush().wait().unwrap();
    }
    journal.close().unwrap();
    let mut segments: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "fwl"));
    segments.pop().unwrap()
}

#[test]
fn a_flipped_bit_in_the_middle_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let segment = written(dir.path(), 20);
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = 4096 + 2000;
    bytes[at] ^= 4;
    std::fs::write(&segment, bytes).unwrap();
    let error = survey(dir.path()).unwrap_err();
    assert!(error.is_refusal() && error.to_string().contains("damaged"), "{error}");
    assert!(Journal::open(dir.path(), JournalOptions::default()).unwrap_err().is_refusal());
}

/// Records attempts at many hosts behind three vendors, in an order that mixes hosts. One vendor
/// changes its behavior.
fn tagged_attempts(selector: &Selector) {
    for n in 0..4000u64 {
        let host = (n * 7919) % 97;
        let vendor = host % 3;
        let fetcher = ["direct_access", "playwright", "playwright_stealth"][(n % 5 % 3) as usize];
        let at = minutes(n * 20);
        let a =
            attempt(&format!("https://www{}.site{host}.org/s{}/{n}", n % 2, n % 3), fetcher, at);
        let passes = match (vendor, n > 2500) {
            (0, _) => fetcher != "direct_access",
            (1, false) | (2, true) => fetcher == "playwright_stealth",
            _ => n % 11 == 0,
        };
        let mut a = if passes { a.delivered() } else { a.failed(ErrorKind::BlockedCaptcha) };
        let shown = match passes {
            true => fetchwise_types::heuristic::Heuristic::new(
                "spa_framework",
                ["next", "vue"][(host % 2) as usize],
            ),
            false => fetchwise_types::heuristic::Heuristic::flag(
                ["block_a", "block_b", "block_c"][vendor as usize],
            ),
        };
        a.heuristics.push(shown.into());
        a.heuristics.push(fetchwise_types::heuristic::Heuristic::flag("server_nginx").into());
        selector.record(a, at).unwrap();
    }
}

/// Returns the host signals that a selector remembers, without the other evidence.
fn tags_of(selector: &Selector) -> crate::evidence::evidence_snapshot::EvidenceSnapshot {
    let image = selector.learned().evidence_snapshot(minutes(80_000), FADED);
    let mut entries = image.entries;
    entries.iter_mut().for_each(|entry| entry.attempts = 0);
    let cells = image.cells.into_iter().map(|mut cell| {
        cell.raw = crate::evidence::decayed_counts::RawCounts {
            marks: cell.raw.marks,
            ..Default::default()
        };
        cell
    });
    crate::evidence::evidence_snapshot::EvidenceSnapshot {
        entries,
        cells: cells.collect(),
        breakers: Vec::new(),
        ..image
    }
}

#[test]
fn a_replay_restores_host_signals_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let mut live = selector();
    live.set_sink(Box::new(Arc::new(journal)));
    tagged_attempts(&live);
    let learned = tags_of(&live);
    // Dropping the sink closes the journal.
    drop(live);
    let again = selector();
    load(dir.path(), &again, minutes(80_000)).unwrap();
    assert_eq!(tags_of(&again), learned);
    for name in ["block_a", "block_b", "block_c", "spa_framework=next", "spa_framework=vue"] {
        assert!(
            learned.signals.iter().any(|tag| tag == name),
            "{name} is not among {:?}",
            learned.signals
        );
    }
    assert!(learned.entries.iter().filter(|entry| entry.signals[0].is_some()).count() > 90);
    assert!(
        learned.signal_cells.iter().any(|cell| cell.raw.turned_s > 0),
        "a vendor has changed its mind"
    );
    assert!(learned.signal_cells.iter().any(|cell| cell.raw.alike.1 > 10.0));
}

#[test]
fn a_snapshot_holds_host_signals() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let mut live = selector();
    live.set_sink(Box::new(Arc::new(journal)));
    tagged_attempts(&live);
    let learned = tags_of(&live);
    drop(live);
    maintenance::snapshot(dir.path(), &selector(), minutes(80_000), &mut |_, _| {}).unwrap();
    let again = selector();
    let loaded = load(dir.path(), &again, minutes(80_000)).unwrap();
    assert!(loaded.snapshot.is_some() && loaded.replayed.attempts == 0, "{loaded:?}");
    assert_eq!(tags_of(&again), learned);
}

/// Returns a selector with a pace.
#[test]
fn a_snapshot_holds_all_entries_to_the_bit_in_groups_and_as_older_releases_wrote_them() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) =
        Journal::open(dir.path(), JournalOptions::default().durability(Durability::Os)).unwrap();
    let mut live = selector();
    live.set_sink(Box::new(Arc::new(journal)));
    tagged_attempts(&live);
    // More than two groups of entries, some with a site, a section, a block and several days.
    for n in 0..11_000u64 {
        let host = n % 9000;
        let text = format!(
            "https://{}h{host}.org/s{}/{n}.pdf",
            if host % 3 == 0 { "a." } else { "" },
            n % 2
        );
        let a = attempt(&text, ["playwright", "mine"][(n % 2) as usize], minutes(80_000 + n));
        let a = if n % 7 == 0 { a.failed(ErrorKind::BlockedCaptcha) } else { a.delivered() };
        live.record(a, minutes(100_000)).unwrap();
    }
    drop(live);
    let now = minutes(100_000);
    let loaded = || {
        let again = selector();
        let report = load(dir.path(), &again, now).unwrap();
        (
            again.learned().evidence.image(&again.learned().registry, now, &["unused".to_owned()]),
            report.snapshot.map(|snapshot| snapshot.covers_seq),
        )
    };
    let (replayed, none) = loaded();
    assert!(none.is_none() && replayed.entries.len() > 9000 && !replayed.breakers.is_empty());
    assert!(replayed.entries.iter().any(|entry| entry.site != 0 && entry.signals != [None; 4]));
    let taken = maintenance::snapshot(dir.path(), &selector(), now, &mut |_, _| {}).unwrap();
    assert_eq!(
        (taken.entries, taken.cells),
        (replayed.entries.len() as u64, replayed.cells.len() as u64)
    );
    let (grouped, seq) = loaded();
    assert_eq!(seq, Some(taken.covers_seq));
    assert!(grouped == replayed);
    let used: Vec<_> = replayed.fetchers.iter().filter(|name| *name != "unused").cloned().collect();
    assert_eq!(survey(dir.path()).unwrap().fetchers, used);
    assert!(maintenance::verify(dir.path(), &mut |_, _| {}).unwrap().is_sound());
    // The same from an image of all rows, as a node of a fleet sends it.
    let whole = recovery_point::FoldStart::newest(dir.path()).unwrap().whole().unwrap().unwrap();
    let maintenance = fetchwise_log::Maintenance::lock(dir.path()).unwrap();
    maintenance.write_snapshot(&whole.meta(), &snapshot::sections(&whole.encode())).unwrap();
    drop(maintenance);
    let (of_image, seq) = loaded();
    assert_eq!(seq, Some(taken.covers_seq));
    assert!(of_image == replayed);
}

fn paced() -> Selector {
    use fetchwise_pace::{Pace, PaceSettings};
    Selector::builder().around(T0).pace(Pace::new(PaceSettings::default())).build().unwrap()
}

#[test]
fn paces_survive_restarts_and_snapshots_and_are_forgotten_on_request() {
    use fetchwise_pace::{
        Admit, Cost, Level, Pace, PaceSettings, Response, ResponseEffect, Scope, Signal,
    };

    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let journal = Arc::new(journal);
    let pace = Pace::new(PaceSettings::default()).with_store(Box::new(Arc::clone(&journal)));
    let fetcher = selector().candidates().next().unwrap().0;
    let mut now = T0;
    for host in ["e.org", "f.org"] {
        for request in 0..40 {
            let permit = loop {
                match pace.admit(Scope::host(host), Cost::Plain, now) {
                    Admit::Go(permit) => break permit,
                    Admit::Wait(until) => now = until,
                    Admit::AtCapacity => panic!("nothing is under way"),
                }
            };
            let heard = if request == 39 { Signal::Limited } else { Signal::Content };
            let done = pace.record_response(permit, &Response::new(heard, fetcher), now);
            assert_eq!(request == 39, matches!(done, ResponseEffect::LimitHit { .. }));
        }
    }
    pace.close(now);
    let states = ["e.org", "f.org"].map(|name| pace.state(Level::Host, name).unwrap());
    let state = |name| states[usize::from(name == "f.org")];
    drop((pace, journal));
    let known = |name: &str| {
        let again = paced();
        load(dir.path(), &again, now).unwrap();
        again.pace().unwrap().state(Level::Host, name)
    };
    assert_eq!((known("e.org"), known("f.org")), (Some(state("e.org")), Some(state("f.org"))));
    let hold = || {
        let again = paced();
        load(dir.path(), &again, now).unwrap();
        again.pace().unwrap().hold(Scope::host("f.org"), now)
    };
    assert!(hold().is_some_and(|until| until > now), "a hold goes on");
    maintenance::snapshot(dir.path(), &selector(), now, &mut |_, _| {}).unwrap();
    assert_eq!(known("e.org"), Some(state("e.org")), "from a snapshot");
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let target = TombstoneTarget::Domain("e.org".to_owned());
    journal.append_tombstone(&Tombstone { target, at: now }).unwrap();
    journal.close().unwrap();
    assert_eq!((known("e.org"), known("f.org")), (None, Some(state("f.org"))));
}

#[test]
fn closing_a_selector_returns_the_error_of_its_store() {
    let mut selector = selector();
    selector.set_on_close(|| Err(crate::Error::Journal("the disk is full".into())));
    assert_eq!(selector.close().unwrap_err().to_string(), "the disk is full");
}

/// Step of a history that blocks and daily counts are computed from.
#[derive(Clone, Debug)]
enum Happened {
    /// An attempt on a site on this day. `end` is an index into [`ENDS`].
    Attempt {
        site: usize,
        day: u16,
        end: usize,
    },
    /// A domain, or one of its links, is forgotten.
    Forget {
        site: usize,
        link: bool,
    },
    Snapshot,
    /// Attempts older than this number of days are compacted away.
    Compact {
        days: u64,
    },
    /// The process ends and another one begins.
    Restart,
}

const SITES: [&str; 3] = ["a.org", "b.example.org", "example.org"];
const ENDS: [Option<ErrorKind>; 5] = [
    None,
    Some(ErrorKind::Blocked403),
    // These two move no weight; the second is a block.
    Some(ErrorKind::NotFound),
    Some(ErrorKind::RateLimited),
    Some(ErrorKind::BlockedCaptcha),
];

fn happened() -> impl proptest::strategy::Strategy<Value = Happened> {
    use proptest::prelude::*;
    prop_oneof![
        12 => (0..SITES.len(), 0..200u16, 0..ENDS.len()).prop_map(|(site, day, end)| Happened::Attempt { site, day, end }),
        1 => (0..SITES.len(), any::<bool>()).prop_map(|(site, link)| Happened::Forget { site, link }),
        1 => Just(Happened::Snapshot),
        1 => (1..150u64).prop_map(|days| Happened::Compact { days }),
        2 => Just(Happened::Restart),
    ]
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 12, ..Default::default() })]

    /// Ban rates are the same live, after a replay, and through snapshots and compactions. They
    /// equal those computed from all attempts.
    #[test]
    fn ban_rates_are_the_same_live_replayed_and_from_snapshots(
        events in proptest::collection::vec(happened(), 1..50),
        days in 1..100u32,
    ) {
        use std::collections::BTreeMap;
        let dir = tempfile::tempdir().unwrap();
        let now = minutes(200 * 24 * 60);
        let open = || {
            let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
            let mut live = selector();
            load(dir.path(), &live, now).unwrap();
            live.set_sink(Box::new(Arc::new(journal)));
            live
        };
        let mut live = Some(open());
        // Attempts and blocks by site, day, link, and whether the attempts themselves are gone from
        // the log.
        let mut model: BTreeMap<(usize, u16, bool, bool), (u64, u64)> = BTreeMap::new();
        let at_day = |day: u16| minutes(u64::from(day) * 24 * 60 + 7);
        for event in events {
            match event {
                Happened::Attempt { site, day, end } => {
                    let at = at_day(day);
                    // Every other day's attempts use another link.
                    let is_odd = day % 2 == 1;
                    let a = attempt(&format!("https://{}/{}", SITES[site], u8::from(is_odd)), "playwright", at);
                    let a = ENDS[end].map_or(a.clone().delivered(), |kind| a.failed(kind));
                    let counted = model.entry((site, day, is_odd, false)).or_default();
                    *counted = (counted.0 + 1, counted.1 + u64::from(a.is_banned));
                    live.as_ref().unwrap().record(a, now).unwrap();
                }
                Happened::Forget { site, link } => {
                    drop(live.take());
                    let target = match link {
                        true => TombstoneTarget::Link(format!("https://{}/1", SITES[site])),
                        false => TombstoneTarget::Domain(SITES[site].to_owned()),
                    };
                    // Nobody can tell which link a compacted attempt belonged to.
                    model.retain(|(of, _, is_odd, is_gone), _| *of != site || link && (!*is_odd || *is_gone));
                    maintenance::forget(dir.path(), target, now).unwrap();
                    live = Some(open());
                }
                Happened::Snapshot => {
                    drop(live.take());
                    maintenance::snapshot(dir.path(), &selector(), now, &mut |_, _| {}).unwrap();
                    live = Some(open());
                }
                Happened::Compact { days } => {
                    drop(live.take());
                    let mut options = maintenance::CompactOptions::default();
                    (options.retain, options.trust_clock) = (Duration::from_secs(days * 86_400), true);
                    let done = maintenance::compact(dir.path(), &selector(), &options, now, &mut |_, _| {}).unwrap();
                    for ((site, day, is_odd, is_gone), counted) in std::mem::take(&mut model) {
                        let is_gone = is_gone || at_day(day) < done.cutoff;
                        let known = model.entry((site, day, is_odd, is_gone)).or_default();
                        *known = (known.0 + counted.0, known.1 + counted.1);
                    }
                    live = Some(open());
                }
                Happened::Restart => {
                    drop(live.take());
                    live = Some(open());
                }
            }
        }
        for (site, name) in SITES.into_iter().enumerate() {
            let kept = |day: u16| (201 - u32::from(day)) <= days.min(90);
            let want = model.iter().filter(|((of, day, ..), _)| *of == site && kept(*day));
            let want = want.fold((0, 0), |sum, (_, n)| (sum.0 + n.0, sum.1 + n.1));
            let rate = live.as_ref().unwrap().ban_rate_at(name, days, now);
            proptest::prop_assert_eq!((rate.attempts, rate.banned), want, "{}", name);
        }
    }
}

#[test]
fn a_snapshot_next_to_its_writer_covers_what_it_is_told_to_await() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    for n in 1..4 {
        journal
            .append_attempt(&attempt(&format!("https://e.org/{n}"), "playwright", minutes(n)))
            .unwrap();
        // The files prove this later: with the next records, or once the writer has been idle.
        journal.flush().wait().unwrap();
        let options =
            maintenance::SnapshotOptions { await_seq: journal.durable_seq(), ..Default::default() };
        let taken = maintenance::snapshot_with(
            dir.path(),
            &selector(),
            &options,
            minutes(4),
            &mut |_, _| {},
        )
        .unwrap();
        assert_eq!((taken.covers_seq, taken.records), (n, 1));
    }
}

#[test]
fn a_pause_ended_by_an_operator_stays_ended_after_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let open = |now| {
        let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
        let mut live = selector();
        load(dir.path(), &live, now).unwrap();
        live.set_sink(Box::new(Arc::new(journal)));
        live
    };
    let state = LinkState {
        paused_until: Some(minutes(40)),
        risk_level: 2,
        hint: Some(fetchwise_types::attempt::Hint::Blocked),
        ..LinkState::default()
    };
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    for domain in ["e.org", "f.org"] {
        journal.append_host(domain, Some(minutes(30)), T0).unwrap();
    }
    for link in ["article 17", "https://e.org/a"] {
        journal
            .append_link(&LinkEntry { link: link.into(), domain: "e.org".into(), state, at: T0 })
            .unwrap();
    }
    journal.close().unwrap();

    let live = open(minutes(1));
    let paused = |of: &Selector, now| {
        of.paused_hosts(now).into_iter().map(|host| host.domain).collect::<Vec<_>>()
    };
    assert_eq!(paused(&live, minutes(1)), ["e.org", "f.org"]);
    assert_eq!(paused(&live, minutes(30)), [""; 0], "they have ended by themselves");
    assert_eq!(live.unpause_host("e.org", minutes(1)), Some(minutes(30)));
    assert_eq!(live.unpause_host("e.org", minutes(1)), None, "it is not paused any more");
    assert_eq!(live.unpause_host("unheard.of", minutes(1)), None);
    assert_eq!(live.unpause_link("article 17", minutes(1)), Some(minutes(40)));
    assert_eq!(live.unpause_link("article 17", minutes(1)), None);
    let seen = |of: &Selector| {
        let links: Vec<_> =
            of.links_at_risk().into_iter().map(|of| (of.link, of.domain, of.state)).collect();
        (paused(of, minutes(1)), links)
    };
    let before = seen(&live);
    assert_eq!(before.0, ["f.org"]);
    assert_eq!(before.1[0].2, LinkState { paused_until: None, ..state });
    assert_eq!(before.1[1].1.as_deref(), Some("e.org"));
    drop(live);
    assert_eq!(seen(&open(minutes(1))), before, "a replay");
    maintenance::snapshot(dir.path(), &selector(), minutes(1), &mut |_, _| {}).unwrap();
    assert_eq!(seen(&open(minutes(1))), before, "a snapshot");
    let mut acts = Vec::new();
    replay(dir.path(), |_, entry| acts.extend(matches!(entry, Entry::Release(_)).then_some(entry)))
        .unwrap();
    assert_eq!(acts.len(), 2, "who looks back sees that it was done: {acts:?}");

    // Later blocks begin with the shortest pause, and hold.
    let live = open(minutes(2));
    live.sink().unwrap().host_pause("e.org", Some(minutes(20)), minutes(2));
    drop(live);
    assert_eq!(paused(&open(minutes(3)), minutes(3)), ["e.org", "f.org"]);
}

#[test]
fn a_query_returns_what_a_replay_returns() {
    use std::ops::ControlFlow;
    let dir = tempfile::tempdir().unwrap();
    for part in 0..6u64 {
        let (journal, _) =
            Journal::open(dir.path(), JournalOptions::default().begin_segment()).unwrap();
        for n in 0..20u64 {
            let at = minutes(part * 1000 + n);
            let a = attempt(&format!("https://s{}.org/{}", n % 3, n % 7), "playwright", at);
            let a = if n % 4 == 0 { a.failed(ErrorKind::Timeout) } else { a.delivered() };
            journal.append_attempt(&a).unwrap();
        }
        // A tombstone comes after what it covers, in the same part or in a later one.
        let target = match part {
            2 => TombstoneTarget::Link("https://s1.org/4".to_owned()),
            4 => TombstoneTarget::Domain("s2.org".to_owned()),
            _ => TombstoneTarget::Domain("unheard.of".to_owned()),
        };
        journal.append_tombstone(&Tombstone { target, at: minutes(part * 1000 + 30) }).unwrap();
        journal.close().unwrap();
    }
    let all = |wanted: &AttemptQuery| {
        let mut all = Vec::new();
        replay(dir.path(), |seq, entry| {
            if let Entry::Attempt(attempt) = entry {
                let fits = wanted.since.is_none_or(|since| attempt.attempted_at >= since)
                    && wanted.until.is_none_or(|until| attempt.attempted_at <= until)
                    && wanted
                        .domain
                        .as_deref()
                        .is_none_or(|domain| attempt.heuristic("domain") == Some(domain))
                    && (wanted.ended.is_none() || attempt.error_type.is_some());
                all.extend(fits.then_some((seq, attempt)));
            }
        })
        .unwrap();
        all
    };
    let look = |wanted: &AttemptQuery, order, limit| {
        let mut seen = Vec::new();
        let found = attempts(dir.path(), wanted, order, limit, |seq, attempt| {
            seen.push((seq, attempt));
            ControlFlow::Continue(())
        });
        let found = found.unwrap();
        assert_eq!(found.shown, seen.len() as u64);
        (seen, found)
    };
    let times = [None, Some(minutes(1005)), Some(minutes(2500)), Some(minutes(5010))];
    for since in times {
        for until in times {
            for (domain, ended) in [
                (None, None),
                (Some("s2.org".to_owned()), None),
                (None, Some(OutcomeFilter::Error("timeout".to_owned()))),
            ] {
                let wanted =
                    AttemptQuery { since, until, domain, ended, ..AttemptQuery::default() };
                let mut want = all(&wanted);
                assert_eq!(look(&wanted, Order::OldestFirst, None).0, want, "{wanted:?}");
                assert_eq!(
                    look(&wanted, Order::OldestFirst, Some(7)).0,
                    want[..want.len().min(7)],
                    "{wanted:?}"
                );
                want.reverse();
                for limit in [1, 7, 1000] {
                    let first = &want[..want.len().min(limit as usize)];
                    assert_eq!(
                        look(&wanted, Order::NewestFirst, Some(limit)).0,
                        first,
                        "{wanted:?} {limit}"
                    );
                }
            }
        }
    }
    let recent = AttemptQuery { since: Some(minutes(4000)), ..AttemptQuery::default() };
    let (_, found) = look(&recent, Order::NewestFirst, None);
    assert_eq!(found.segments, (6, 2));
    assert!(found.bytes.1 < found.bytes.0 / 2, "{found:?}");
    let (seen, found) = look(&AttemptQuery::default(), Order::NewestFirst, Some(3));
    assert_eq!((found.segments.1, seen.len()), (1, 3));
    assert_eq!(look(&AttemptQuery::default(), Order::NewestFirst, Some(0)).1.segments.1, 0);

    // Page by page, each from the end of the last one.
    for order in [Order::NewestFirst, Order::OldestFirst] {
        let mut wanted =
            AttemptQuery { domain: Some("s0.org".to_owned()), ..AttemptQuery::default() };
        let whole = look(&wanted, order, None).0;
        let mut paged = Vec::new();
        loop {
            let (page, found) = look(&wanted, order, Some(7));
            let Some((last, _)) = page.last().cloned() else { break };
            let is_early = paged.len() < 14;
            assert!(
                is_early || order == Order::NewestFirst || found.segments.1 < found.segments.0,
                "{found:?}"
            );
            paged.extend(page);
            match order {
                Order::NewestFirst => wanted.before_seq = Some(last),
                Order::OldestFirst => wanted.after_seq = Some(last),
            }
        }
        assert!(paged == whole && paged.len() > 30, "{} of {}", paged.len(), whole.len());
    }

    // By id, and with the rest of its fetch.
    let (seq, one) = seen[1].clone();
    assert_eq!(super::attempt(dir.path(), one.id).unwrap(), Some((seq, one.clone())));
    assert_eq!(super::attempt(dir.path(), uuid::Uuid::nil()).unwrap(), None);
    assert_eq!(fetch_of(dir.path(), &(seq, one.clone())).unwrap(), [(seq, one)]);
}

#[test]
fn evidence_as_of_a_time_equals_that_of_a_log_that_ends_there() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let mut live = selector();
    live.set_sink(Box::new(Arc::new(journal)));
    for n in 0..90u64 {
        let a = attempt(
            &format!("https://s{}.org/{}", n % 3, n % 5),
            ["playwright", "mine"][n as usize % 2],
            minutes(n),
        );
        let a = if n % 4 == 0 { a.failed(ErrorKind::BlockedCaptcha) } else { a.delivered() };
        live.record(a, minutes(n)).unwrap();
        if n == 40 {
            live.sink().unwrap().host_pause("s1.org", Some(minutes(60)), minutes(40));
        }
        if n == 50 {
            live.sink().unwrap().host_pause("s1.org", None, minutes(50));
        }
    }
    drop(live);
    let image = |moment, now| {
        let then = selector();
        let loaded = load_at(dir.path(), &then, moment, now, &mut |_| {}).unwrap();
        (then.learned().evidence_snapshot(now, FADED), loaded, then)
    };
    // Another journal, which ends there.
    let ends = |until: u64| {
        let other = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(other.path(), JournalOptions::default()).unwrap();
        replay(dir.path(), |_, entry| {
            if let Entry::Attempt(attempt) = entry
                && attempt.attempted_at <= minutes(until)
            {
                journal.append_attempt(&attempt).unwrap();
            }
        })
        .unwrap();
        journal.close().unwrap();
        let then = selector();
        load(other.path(), &then, minutes(until)).unwrap();
        then.learned().evidence_snapshot(minutes(until), FADED)
    };
    let (seen, loaded, then) = image(AsOf::At(minutes(45)), minutes(45));
    assert_eq!(seen.difference(&ends(45)), None);
    assert_eq!(seen.days, ends(45).days);
    assert_eq!((loaded.replayed.attempts, loaded.missing_before), (46, None));
    assert_eq!(then.paused_hosts(minutes(45)).len(), 1, "as it was then");
    assert!(image(AsOf::At(minutes(55)), minutes(55)).2.paused_hosts(minutes(55)).is_empty());
    // The 21st record is the attempt of minute 20.
    assert_eq!(image(AsOf::Before(21), minutes(20)).0.difference(&ends(19)), None);
    // From a snapshot that is old enough, and not from a newer one.
    maintenance::snapshot(dir.path(), &selector(), minutes(89), &mut |_, _| {}).unwrap();
    let (seen, loaded, _) = image(AsOf::At(minutes(45)), minutes(45));
    assert_eq!((seen.difference(&ends(45)), loaded.snapshot), (None, None));
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    journal.append_attempt(&attempt("https://s0.org/x", "mine", minutes(95)).delivered()).unwrap();
    journal.close().unwrap();
    let (seen, loaded, _) = image(AsOf::At(minutes(92)), minutes(92));
    assert_eq!(
        (seen.difference(&ends(92)), loaded.snapshot.map(|started| started.covers_seq)),
        (None, Some(92))
    );

    maintenance::forget(dir.path(), TombstoneTarget::Domain("s2.org".to_owned()), minutes(96))
        .unwrap();
    for (moment, now) in
        [(AsOf::At(minutes(45)), 45), (AsOf::Before(21), 19), (AsOf::At(minutes(92)), 92)]
    {
        let (seen, ..) = image(moment, minutes(now));
        // `ends` is built from what a replay still returns.
        assert_eq!(seen.difference(&ends(now)), None, "{moment:?}");
    }
    maintenance::forget(
        dir.path(),
        TombstoneTarget::Link("https://s0.org/0".to_owned()),
        minutes(97),
    )
    .unwrap();
    for (moment, now) in
        [(AsOf::At(minutes(45)), 45), (AsOf::Before(21), 19), (AsOf::At(minutes(92)), 92)]
    {
        let (seen, ..) = image(moment, minutes(now));
        assert_eq!(seen.days, ends(now).days, "{moment:?}");
        assert!((seen.weight() - ends(now).weight()).abs() < 1e-9, "{moment:?}");
    }
}
