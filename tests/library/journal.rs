//! The journal with its snapshots and its maintenance: restores, compaction, forgetting and
//! verification.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::{Arm, Attempt, Hint, Tag};
use fetchwise::backoff::LinkState;
use fetchwise::heuristic::Heuristic;
use fetchwise::heuristic::url::ContentKind;
use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::{CompactOptions, CompactReport, Phase, RefoldReport};
use fetchwise::journal::{
    self, Durability, Entry, FetcherEntry, ImportanceEntry, Journal, JournalError, JournalOptions,
    LinkEntry, LoadReport, OpenCheck, PaceEntry, Progress, Release, ReleaseTarget, Tombstone,
    TombstoneTarget,
};
use fetchwise::registry::{Class, FetcherSpec};
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::Timestamp;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_millis(1_795_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);
const FETCHERS: [&str; 4] = ["direct_access", "playwright", "playwright_stealth", "mine"];

fn ago(days: f64) -> Timestamp {
    Timestamp::from_millis(NOW.as_millis() - (days * 86_400_000.0) as i64)
}

fn blank() -> Selector {
    Selector::builder().around(NOW).build().unwrap()
}

fn quiet() -> impl FnMut(Phase, Progress) {
    |_, _| {}
}

/// Returns the attempt with number `n`, made `days` ago.
fn attempt(n: u64, days: f64) -> Attempt {
    let (domain, path) = (n % 13, n / 13 % 3);
    let suffix = if n.is_multiple_of(5) { ".pdf" } else { "" };
    let text = format!("https://www.d{domain}.example.org/s{path}/{n}{suffix}");
    let url = url::Url::parse(&text).unwrap();
    let mut attempt = Attempt::new(&url, FETCHERS[(n / 7 % 4) as usize], ago(days)).unwrap();
    attempt.duration_ms = 10 + n % 100;
    attempt.hint = n.is_multiple_of(11).then_some(Hint::Empty);
    match n % 6 {
        0 => attempt.failed(ErrorKind::BlockedCaptcha),
        1 => attempt.failed(ErrorKind::Timeout),
        2 => attempt.failed(ErrorKind::NotFound),
        _ => attempt.delivered(),
    }
}

fn selector() -> Selector {
    Selector::builder().around(NOW).build().unwrap()
}

fn open(dir: &Path) -> Journal {
    Journal::open(dir, JournalOptions::default().segment_bytes(64 << 10)).unwrap().0
}

/// Writes a journal with these attempts and closes it.
fn write(dir: &Path, attempts: impl IntoIterator<Item = Attempt>) {
    let journal = open(dir);
    for attempt in attempts {
        journal.append_attempt(&attempt).unwrap();
    }
    journal.close().unwrap();
}

fn start(dir: &Path) -> (Selector, LoadReport) {
    let selector = selector();
    let loaded = journal::load(dir, &selector, NOW).unwrap();
    (selector, loaded)
}

fn take_snapshot(dir: &Path) -> maintenance::SnapshotReport {
    maintenance::snapshot(dir, &selector(), NOW, &mut quiet()).unwrap()
}

fn compact(dir: &Path) -> CompactReport {
    maintenance::compact(dir, &selector(), &CompactOptions::default(), NOW, &mut quiet()).unwrap()
}

fn every_key() -> Vec<(String, String)> {
    let mut keys: Vec<(String, String)> = [
        ("global", ""),
        ("site", "example.org"),
        ("suffix", ".pdf"),
        ("path_depth", "2"),
        ("hint", "empty"),
    ]
    .map(|(kind, value)| (kind.to_owned(), value.to_owned()))
    .into();
    for domain in 0..13 {
        keys.push(("domain".to_owned(), format!("d{domain}.example.org")));
        keys.push(("domain_suffix".to_owned(), format!("d{domain}.example.org|.pdf")));
        (0..3).for_each(|path| {
            keys.push(("domain_path".to_owned(), format!("d{domain}.example.org|s{path}")))
        });
    }
    keys
}

/// Asserts that two selectors have the same weights everywhere, to 1e-9.
fn assert_same(a: &Selector, b: &Selector, what: &str) {
    for (kind, value) in every_key() {
        for (page, fetcher) in [ContentKind::Page, ContentKind::File]
            .into_iter()
            .flat_map(|page| FETCHERS.map(|name| (page, name)))
        {
            let key = (kind.as_str(), value.as_str());
            let (x, y) = (a.weights(key, page, fetcher, NOW), b.weights(key, page, fetcher, NOW));
            let near = |x: f64, y: f64| (x - y).abs() <= 1e-9 * x.abs().max(y.abs()).max(1.0);
            let same =
                x.attempts == y.attempts && near(x.total, y.total) && near(x.success, y.success);
            assert!(
                same && near(x.blocked, y.blocked),
                "{what}: {key:?} {page:?} {fetcher}: {x:?} and {y:?}"
            );
            // The recent pair of a site mixes its attempts, so nothing exact can be retracted from
            // it.
            let pairs = [
                (x.recent_total, y.recent_total),
                (x.alert_total, y.alert_total),
                (x.alert_success, y.alert_success),
            ];
            let recent = what.contains("forgot") || pairs.iter().all(|(x, y)| (x - y).abs() < 1e-3);
            assert!(recent, "{what}: {key:?} {fetcher}: {x:?} and {y:?}");
        }
    }
}

fn ids(dir: &Path) -> BTreeSet<uuid::Uuid> {
    let mut all = BTreeSet::new();
    journal::ids(dir, |id| assert!(all.insert(id), "an attempt twice")).unwrap();
    all
}

fn segment_bytes(dir: &Path) -> u64 {
    // A writer may replace its segment meanwhile.
    files(dir, ".fwl").iter().filter_map(|path| path.metadata().ok()).map(|found| found.len()).sum()
}

fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.to_string_lossy().ends_with(end));
    all.sort();
    all
}

#[test]
fn a_start_from_a_snapshot_and_its_tail_equals_a_full_replay() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), (0..3000).map(|n| attempt(n, n as f64 / 20.0)));
    let (whole, _) = start(dir.path());
    let taken = take_snapshot(dir.path());
    assert_eq!((taken.covers_seq, taken.records), (3000, 3000));
    let (from_snapshot, loaded) = start(dir.path());
    assert_eq!((loaded.replayed.entries, loaded.snapshot.unwrap().covers_seq), (0, 3000));
    assert_same(&whole, &from_snapshot, "snapshot alone");

    write(dir.path(), (3000..4000).map(|n| attempt(n, 1.0)));
    (3000..4000).for_each(|n| whole.observe(&attempt(n, 1.0)));
    let (with_tail, loaded) = start(dir.path());
    assert_eq!(loaded.replayed.attempts, 1000);
    assert_same(&whole, &with_tail, "snapshot and tail");
    // A snapshot taken from a snapshot and a tail is as good, at any landmark.
    take_snapshot(dir.path());
    let later = Selector::builder().around(ago(-200.0)).build().unwrap();
    journal::load(dir.path(), &later, NOW).unwrap();
    assert_same(&whole, &later, "another landmark");
    assert!(maintenance::verify(dir.path(), &mut quiet()).unwrap().is_sound());
}

#[test]
fn a_snapshot_holds_pauses_risk_and_importance() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let until = Some(ago(-0.1));
    let state = LinkState {
        paused_until: until,
        risk_level: 2,
        attempt_count: 9,
        last_attempt_at: Some(NOW),
        hint: None,
    };
    let link = |name: &str, state| LinkEntry {
        link: name.to_owned(),
        domain: "e.org".to_owned(),
        state,
        at: NOW,
    };
    journal.append_link(&link("bad", state)).unwrap();
    journal.append_link(&link("mended", state)).unwrap();
    journal.append_host("e.org", until, NOW).unwrap();
    journal.append_host("lifted.org", until, NOW).unwrap();
    let (kind, value) = ("suffix".to_owned(), Some(".pdf".to_owned()));
    journal.append_importance(&ImportanceEntry { kind, value, importance: 0.75, at: NOW }).unwrap();
    journal.append_attempt(&attempt(1, 0.0)).unwrap();
    journal.close().unwrap();
    take_snapshot(dir.path());
    let journal = open(dir.path());
    journal.append_link(&link("mended", LinkState::default())).unwrap();
    journal.append_host("lifted.org", None, NOW).unwrap();
    journal.close().unwrap();
    for round in ["a tail undoes what a snapshot has", "and so does the next snapshot"] {
        let (selector, loaded) = start(dir.path());
        assert_eq!(loaded.links.keys().collect::<Vec<_>>(), ["bad"], "{round}");
        assert_eq!(loaded.links["bad"], state, "{round}");
        assert_eq!(selector.host_pause("e.org"), until, "{round}");
        assert_eq!(selector.host_pause("lifted.org"), None, "{round}");
        assert_eq!(loaded.host_levels.keys().collect::<Vec<_>>(), ["e.org"], "{round}");
        assert_eq!(loaded.importance.len(), 1, "{round}");
        assert_eq!(loaded.importance[0].importance, 0.75, "{round}");
        take_snapshot(dir.path());
        assert!(maintenance::verify(dir.path(), &mut quiet()).unwrap().is_sound());
    }
}

#[test]
fn a_damaged_snapshot_is_reported_and_the_previous_one_used() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), (0..1000).map(|n| attempt(n, 2.0)));
    take_snapshot(dir.path());
    write(dir.path(), (1000..1500).map(|n| attempt(n, 1.0)));
    let newest = take_snapshot(dir.path()).file.unwrap();
    let (whole, _) = start(dir.path());
    let good = std::fs::read(&newest).unwrap();
    for at in [0, 5000, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&newest, bad).unwrap();
        let (fallen_back, loaded) = start(dir.path());
        let started = loaded.snapshot.unwrap();
        assert_eq!((started.covers_seq, loaded.replayed.attempts), (1000, 500), "byte {at}");
        assert_eq!(started.rejected.len(), 1);
        assert_same(&whole, &fallen_back, "the older snapshot");
        assert!(!maintenance::verify(dir.path(), &mut quiet()).unwrap().is_sound());
    }
    // Both are damaged, and nothing was compacted: everything is replayed.
    for file in files(dir.path(), ".fws") {
        std::fs::write(file, b"no snapshot").unwrap();
    }
    let (replayed, loaded) = start(dir.path());
    assert_eq!((loaded.replayed.attempts, loaded.snapshot.unwrap().rejected.len()), (1500, 2));
    assert_same(&whole, &replayed, "no snapshot");
    // The next snapshot replaces the damaged ones.
    take_snapshot(dir.path());
    assert!(start(dir.path()).1.snapshot.unwrap().rejected.is_empty());
}

#[test]
fn compaction_drops_old_attempts_and_no_evidence() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), (0..4000).map(|n| attempt(n, if n % 2 == 0 { 120.0 } else { 10.0 })));
    write(dir.path(), [attempt(4000, 0.5)]);
    let ((before, _), all, bytes) = (start(dir.path()), ids(dir.path()), segment_bytes(dir.path()));
    let mut options = CompactOptions::default();
    options.dry_run = true;
    let dry = maintenance::compact(dir.path(), &selector(), &options, NOW, &mut quiet()).unwrap();
    assert_eq!(
        (ids(dir.path()).len(), segment_bytes(dir.path())),
        (all.len(), bytes),
        "a dry run changes nothing"
    );
    assert!(files(dir.path(), ".fws").is_empty());
    let done = compact(dir.path());
    assert_eq!(done.attempts, (4001, 2001));
    assert_eq!(dry.attempts, done.attempts);
    assert!((done.weight.0 - done.weight.1).abs() < 1e-9 * done.weight.0, "{:?}", done.weight);
    assert_eq!(
        (done.bytes.1, segment_bytes(dir.path()) < bytes * 6 / 10),
        (segment_bytes(dir.path()), true)
    );
    let (after, loaded) = start(dir.path());
    assert_same(&before, &after, "compaction");
    assert_eq!(loaded.replayed.entries, 0);
    assert!(maintenance::verify(dir.path(), &mut quiet()).unwrap().is_sound());
    // A second compaction has nothing to do.
    let again = compact(dir.path());
    assert_eq!((again.attempts, again.bytes.0), ((2001, 2001), again.bytes.1));
    assert_eq!(journal::maintenance::cutoff(dir.path()).unwrap(), Some(ago(90.0)));
    // Either snapshot alone is enough.
    for spoilt in files(dir.path(), ".fws") {
        let good = std::fs::read(&spoilt).unwrap();
        std::fs::write(&spoilt, &good[..good.len() / 2]).unwrap();
        assert_same(&before, &start(dir.path()).0, "one snapshot of two");
        std::fs::write(&spoilt, good).unwrap();
    }
}

#[test]
fn an_implausible_clock_is_rejected_unless_trusted() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), (0..500).map(|n| attempt(n, 10.0)));
    // The file system's clock is not ahead.
    let later = Timestamp::now().saturating_add(3 * 365 * DAY);
    let hours_ahead = later.since(ago(10.0)).as_secs() / 3600;
    let run = |trust_clock| {
        let mut options = CompactOptions::default();
        options.trust_clock = trust_clock;
        options.retain = 10 * 365 * DAY;
        maintenance::compact(dir.path(), &selector(), &options, later, &mut quiet())
    };
    let error = run(false).unwrap_err();
    assert!(
        matches!(error, JournalError::ClockJump { hours, .. } if hours == hours_ahead),
        "{error}"
    );
    assert!(error.is_refusal() && files(dir.path(), ".fws").is_empty());
    assert_eq!(run(true).unwrap().attempts, (500, 500));
}

#[test]
fn faded_evidence_is_left_out_of_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    // 365 days at a half-life of 30 leave 0.0002 of an attempt.
    write(dir.path(), [attempt(3, 365.0), attempt(4, 1.0)]);
    take_snapshot(dir.path());
    let (selector, _) = start(dir.path());
    let domain = |n: u64| {
        selector
            .weights(("domain", &format!("d{n}.example.org")), ContentKind::Page, FETCHERS[0], NOW)
            .attempts
    };
    assert_eq!((domain(3), domain(4)), (0, 1));
    assert!(maintenance::verify(dir.path(), &mut quiet()).unwrap().is_sound());
}

#[test]
fn a_changed_half_life_continues_from_the_snapshot_weights() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), (0..200).map(|n| attempt(n, 30.0)).chain([attempt(200, 0.0)]));
    let key = ("domain", "d4.example.org");
    let weight =
        |selector: &Selector, at| selector.weights(key, ContentKind::Page, FETCHERS[0], at).total;
    let old = start(dir.path()).0;
    take_snapshot(dir.path());
    let faster = Selector::builder().around(NOW).half_life_days(10.0).build().unwrap();
    journal::load(dir.path(), &faster, NOW).unwrap();
    assert!(
        (weight(&faster, NOW) - weight(&old, NOW)).abs() < 1e-9,
        "as of the snapshot nothing changes"
    );
    let later = NOW.saturating_add(10 * DAY);
    assert!(
        (weight(&faster, later) - weight(&old, NOW) / 2.0).abs() < 1e-9,
        "from then on it fades by the new one"
    );
}

fn forget(dir: &Path, target: TombstoneTarget) -> maintenance::ForgetReport {
    maintenance::forget(dir, target, NOW).unwrap()
}

fn domain(name: &str) -> TombstoneTarget {
    TombstoneTarget::Domain(name.to_owned())
}

/// Returns the attempts of [`attempt`], every third of which was redirected to the next domain.
fn redirected(n: u64) -> Attempt {
    let attempt = attempt(n, 1.0);
    let to = format!(
        "https://www.d{}.example.org/s{}/landed{}",
        (n + 1) % 13,
        n % 3,
        if n.is_multiple_of(2) { ".pdf" } else { "" }
    );
    if n.is_multiple_of(3) {
        attempt.answered_by(&url::Url::parse(&to).unwrap()).unwrap()
    } else {
        attempt
    }
}

#[test]
fn attempts_that_were_redirected_teach_the_host_that_responded_in_a_replay_as_live() {
    let (dir, live) = (tempfile::tempdir().unwrap(), selector());
    let attempts: Vec<Attempt> = (0..600).map(redirected).collect();
    attempts.iter().for_each(|attempt| live.observe(attempt));
    write(dir.path(), attempts.clone());
    let (replayed, _) = start(dir.path());
    assert_same(&replayed, &live, "replay");
    take_snapshot(dir.path());
    assert_same(&start(dir.path()).0, &live, "snapshot");
    // Nothing is left of the domain that redirected, nor of the attempts for which it was asked.
    forget(dir.path(), domain("d3.example.org"));
    let others = selector();
    let is_of = |attempt: &&Attempt, kind| attempt.heuristic(kind) == Some("d3.example.org");
    let is_other =
        |attempt: &&Attempt| !is_of(attempt, "domain") && !is_of(attempt, "redirected_by");
    attempts.iter().filter(is_other).for_each(|attempt| others.observe(attempt));
    assert_same(&start(dir.path()).0, &others, "forgotten at once");
    compact(dir.path());
    assert_same(&start(dir.path()).0, &others, "forgotten, and compacted");
    assert!(journal_text(dir.path()).iter().all(|attempt| !attempt.url.contains("www.d3.")));
}

fn journal_text(dir: &Path) -> Vec<Attempt> {
    let mut all = Vec::new();
    journal::replay(dir, |_, entry| {
        if let Entry::Attempt(attempt) = entry {
            all.push(attempt);
        }
    })
    .unwrap();
    all
}

#[test]
fn a_forgotten_domain_leaves_evidence_at_once_and_the_disk_at_the_next_compaction() {
    let is_its = |n: &u64| *n % 13 == 5;
    let without = selector();
    (0..2000).filter(|n| !is_its(n)).for_each(|n| without.observe(&attempt(n, 20.0)));
    for snapshots in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), (0..2000).map(|n| attempt(n, 20.0)));
        (0..snapshots).for_each(|_| drop(take_snapshot(dir.path())));
        let forgot = forget(dir.path(), domain("d5.example.org"));
        assert_eq!((forgot.attempts, forgot.in_snapshot), (154, snapshots > 0));
        assert_same(&start(dir.path()).0, &without, "forgotten at once");
        let found = journal::replay(dir.path(), |_, entry| {
            assert!(
                !matches!(entry, Entry::Attempt(a) if a.heuristic("domain") == Some("d5.example.org"))
            );
        });
        assert_eq!(found.unwrap().forgotten, 154);
        assert!(maintenance::verify(dir.path(), &mut quiet()).unwrap().is_sound());
        // Forgetting twice is the same as once.
        assert!(forget(dir.path(), domain("d5.example.org")).attempts == 0);
        assert_same(&start(dir.path()).0, &without, "forgotten twice");
        let mut options = CompactOptions::default();
        options.trust_clock = true;
        let done =
            maintenance::compact(dir.path(), &selector(), &options, NOW, &mut quiet()).unwrap();
        assert_eq!((done.attempts, done.forgotten), ((2000, 1846), 154));
        assert_same(&start(dir.path()).0, &without, "forgotten, and compacted");
        let needle = b"d5.example.org/s";
        for file in [files(dir.path(), ".fwl"), files(dir.path(), ".fws")].concat() {
            let bytes = std::fs::read(&file).unwrap();
            assert!(
                !bytes.windows(needle.len()).any(|window| window == needle),
                "{}",
                file.display()
            );
        }
        // The domain can be learned again.
        write(dir.path(), [attempt(5, 0.0)]);
        let (again, _) = start(dir.path());
        assert_eq!(
            again
                .weights(("domain", "d5.example.org"), ContentKind::File, FETCHERS[0], NOW)
                .attempts,
            1
        );
        assert!(maintenance::verify(dir.path(), &mut quiet()).unwrap().is_sound());
    }
}

#[test]
fn a_forgotten_link_takes_its_attempts_and_its_risk_with_it() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), (0..300).map(|n| attempt(n, 3.0)));
    let link = attempt(42, 3.0).link;
    let journal = open(dir.path());
    let state = LinkState { risk_level: 3, ..LinkState::default() };
    let entry =
        LinkEntry { link: link.clone(), domain: "d3.example.org".to_owned(), state, at: NOW };
    journal.append_link(&entry).unwrap();
    journal.close().unwrap();
    take_snapshot(dir.path());
    let forgot = forget(dir.path(), TombstoneTarget::Link(link.clone()));
    assert_eq!((forgot.attempts, forgot.states, forgot.in_snapshot), (1, 1, true));
    let without = selector();
    (0..300).filter(|n| *n != 42).for_each(|n| without.observe(&attempt(n, 3.0)));
    let (selector, loaded) = start(dir.path());
    assert_same(&selector, &without, "a forgotten link");
    assert!(!loaded.links.contains_key(&link));
    assert!(forget(dir.path(), TombstoneTarget::Link("never seen".to_owned())).is_nothing());
}

#[test]
fn verify_detects_a_snapshot_that_differs_from_its_records() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), (0..500).map(|n| attempt(n, 1.0)));
    take_snapshot(dir.path());
    write(dir.path(), (500..600).map(|n| attempt(n, 1.0)));
    take_snapshot(dir.path());
    let verified = maintenance::verify(dir.path(), &mut quiet()).unwrap();
    assert_eq!((verified.attempts, verified.refold), (600, RefoldReport::Same { records: 100 }));
    // One attempt less in one day of a domain, in a snapshot with valid checksums.
    let found = fetchwise_log::load_snapshot(dir.path()).unwrap().snapshot.unwrap();
    let mut sections: Vec<(u32, u32, Vec<u8>)> = found
        .sections()
        .iter()
        .map(|section| (section.kind, section.version, found.read(section).unwrap()))
        .collect();
    // The last group of domains ends with the last day of its last domain, and the number of days
    // without an entry.
    let is_of_domains = |kind: u32, bytes: &[u8]| kind == 3 && bytes[0] == 4;
    let last = sections.iter_mut().rfind(|(kind, _, bytes)| is_of_domains(*kind, bytes));
    let group = &mut last.unwrap().2;
    let [.., attempts, _banned, 0] = &mut group[..] else { panic!("a day is missing: {group:?}") };
    *attempts -= 1;
    let maintenance = fetchwise_log::Maintenance::lock(dir.path()).unwrap();
    let sections: Vec<_> = sections
        .iter()
        .map(|(kind, version, bytes)| fetchwise_log::Section {
            kind: *kind,
            version: *version,
            bytes,
        })
        .collect();
    maintenance.write_snapshot(found.meta(), &sections).unwrap();
    let verified = maintenance::verify(dir.path(), &mut quiet()).unwrap();
    assert!(
        matches!(&verified.refold, RefoldReport::Differs { what } if what.contains("days")),
        "{:?}",
        verified.refold
    );
    assert!(!verified.is_sound());
}

#[test]
fn a_compaction_that_drops_nothing_says_of_no_attempt_that_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), (0..300).map(|n| attempt(n, 20.0)));
    let compact = |days: u32| {
        let mut options = CompactOptions::default();
        options.retain = days * DAY;
        maintenance::compact(dir.path(), &selector(), &options, NOW, &mut quiet()).unwrap().attempts
    };
    let (before, after) = compact(36_500);
    assert_eq!(before, after);
    assert_eq!(maintenance::cutoff(dir.path()).unwrap(), None);
    assert_eq!(compact(10).1, 0);
    assert_eq!(maintenance::cutoff(dir.path()).unwrap(), Some(ago(10.0)));
    // What was dropped stays dropped, however long attempts are kept from now on.
    compact(36_500);
    assert_eq!(maintenance::cutoff(dir.path()).unwrap(), Some(ago(10.0)));
}

#[test]
fn a_compaction_that_drops_nothing_adds_no_snapshot_and_leaves_fewer_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default().pack(false)).unwrap();
    // Each on a new site, so that a snapshot takes more than packing saves.
    for n in 0..300 {
        let url = url::Url::parse(&format!("https://site{n}.example.com/{n}")).unwrap();
        journal
            .append_attempt(&Attempt::new(&url, "direct_access", ago(20.0)).unwrap().delivered())
            .unwrap();
    }
    journal.close().unwrap();
    let bytes =
        || files(dir.path(), "").iter().map(|path| path.metadata().unwrap().len()).sum::<u64>();
    let before = bytes();
    let done = compact(dir.path());
    assert_eq!((done.attempts, done.snapshot_bytes, done.weight.0), ((300, 300), 0, done.weight.1));
    assert_eq!(files(dir.path(), ".fws").len(), 0);
    assert!(bytes() < before, "{} of {before}", bytes());
    // Where there are two snapshots, a newer one takes the place of the older one.
    take_snapshot(dir.path());
    write(dir.path(), (0..10).map(|n| attempt(n, 19.0)));
    take_snapshot(dir.path());
    let older = files(dir.path(), ".fws");
    write(dir.path(), (10..20).map(|n| attempt(n, 18.0)));
    assert!(compact(dir.path()).snapshot_bytes > 0);
    let newer = files(dir.path(), ".fws");
    assert_eq!((newer.len(), &newer[..1]), (2, &older[1..]));
    let (again, loaded) = start(dir.path());
    assert_eq!((ids(dir.path()).len(), loaded.replayed.attempts), (320, 0));
    drop(again);
}

#[test]
fn a_policy_with_memory_observes_attempts_covered_by_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), (0..400).map(|n| attempt(n * 13, 0.1)));
    let published = || {
        let policy = fetchwise::policy::by_name("published").unwrap();
        let selector = Selector::builder().around(NOW).policy(policy).build().unwrap();
        journal::load(dir.path(), &selector, NOW).unwrap();
        let url = url::Url::parse("https://d0.example.org/s1/new").unwrap();
        selector.select(&url, &SelectContext::first_attempt(NOW)).unwrap()
    };
    let before = published();
    take_snapshot(dir.path());
    assert_eq!(format!("{before:?}"), format!("{:?}", published()));
}

#[test]
fn a_snapshot_alongside_a_writer_without_syncs_covers_records_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), (0..100).map(|n| attempt(n, 1.0)));
    let (journal, _) =
        Journal::open(dir.path(), JournalOptions::default().durability(Durability::Os)).unwrap();
    for n in 100..200 {
        journal.append_attempt(&attempt(n, 1.0)).unwrap();
    }
    journal.settled().wait().unwrap();
    let covered = take_snapshot(dir.path()).covers_seq;
    assert!((100..=200).contains(&covered), "{covered}");
    let (known, loaded) = start(dir.path());
    assert_eq!(loaded.replayed.attempts, 200 - covered);
    let naive = selector();
    (0..200).for_each(|n| naive.observe(&attempt(n, 1.0)));
    assert_same(&naive, &known, "snapshot and tail of a living writer");
}

/// Compacts a large log, half of which has expired, while a writer appends as fast as it can.
#[test]
fn a_log_of_single_attempts_is_small_while_it_is_written_and_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = JournalOptions::default().durability(Durability::Os).linger(Duration::ZERO);
    let (journal, _) = Journal::open(dir.path(), options).unwrap();
    for n in 1..=8_000 {
        journal.append_attempt(&attempt(n, 1.0)).unwrap();
        // The next batch holds the next attempt alone.
        journal.settled().wait().unwrap();
        // What waits to be packed, and the space allocated for it, is bounded, however long the log
        // is.
        if n >= 2_000 && n % 500 == 0 {
            let bytes = segment_bytes(dir.path());
            assert!(bytes < (640 << 10) + n * 60, "{bytes} bytes of {n} attempts");
        }
    }
    journal.close().unwrap();
    let bytes = segment_bytes(dir.path());
    assert!(bytes < 8_000 * 60, "{bytes} bytes");
    assert_eq!(ids(dir.path()).len(), 8_000);
}

#[test]
fn compaction_alongside_a_writer_at_full_speed_loses_nothing() {
    let count = match std::env::var("FETCHWISE_FAULTS").as_deref() {
        Ok("full") => 2_000_000,
        Ok("ci") => 40_000,
        _ => 10_000,
    };
    let dir = tempfile::tempdir().unwrap();
    let options = JournalOptions::default()
        .segment_bytes((count << 5).min(1 << 20))
        .durability(Durability::Os);
    let (journal, _) = Journal::open(dir.path(), options.clone()).unwrap();
    for n in 0..count {
        journal.append_attempt(&attempt(n, if n < count / 2 { 100.0 } else { 50.0 })).unwrap();
    }
    journal.close().unwrap();
    let (mirror, _) = start(dir.path());
    let bytes = segment_bytes(dir.path());
    let (journal, _) = Journal::open(dir.path(), options.check(OpenCheck::Tail)).unwrap();
    let (stop, appended) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = count;
            while !stop.load(Ordering::Relaxed) {
                let attempt = attempt(n, 0.01);
                let ticket = journal.append_attempt(&attempt).unwrap();
                mirror.observe(&attempt);
                assert!(ticket.seq().is_some());
                n += 1;
            }
            appended.store(n - count, Ordering::Relaxed);
        });
        let done = compact(dir.path());
        stop.store(true, Ordering::Relaxed);
        done
    });
    journal.close().unwrap();
    let appended = appended.load(Ordering::Relaxed);
    assert!(done.writer_active && appended > 0);
    assert!(done.attempts.0 - done.attempts.1 > count * 45 / 100, "{done:?}");
    // The old attempts. The writer has added to both sides meanwhile.
    assert!(done.bytes.0 - done.bytes.1 > bytes * 4 / 10, "{done:?} of {bytes}");
    assert!((done.weight.0 - done.weight.1).abs() <= 1e-9 * done.weight.0, "{done:?}");
    let (after, loaded) = start(dir.path());
    assert_same(&mirror, &after, "alongside a writer");
    assert!(loaded.replayed.torn_tail.is_none());
    let dropped = done.attempts.0 - done.attempts.1;
    assert_eq!(ids(dir.path()).len() as u64, count + appended - dropped);
    assert!(maintenance::verify(dir.path(), &mut quiet()).unwrap().is_sound());
    println!(
        "FAULTS | + | compaction of {count} attempts alongside a writer: {dropped} dropped, {appended} appended meanwhile \
         | 1 | 0 | 0 |"
    );
}

/// Returns the number of histories to try.
fn cases() -> u32 {
    match std::env::var("FETCHWISE_FAULTS").as_deref() {
        Ok("full") => 1500,
        Ok("ci") => 200,
        _ => 32,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Attempts(u8),
    Forget(u8),
    ForgetLink(u8),
    Snapshot,
    Compact,
    SpoilNewest,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<u8>().prop_map(Step::Attempts),
        1 => (0..13u8).prop_map(Step::Forget),
        1 => any::<u8>().prop_map(Step::ForgetLink),
        2 => Just(Step::Snapshot),
        1 => Just(Step::Compact),
        1 => Just(Step::SpoilNewest),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// After any sequence of steps, a start has the evidence of a naive list of attempts.
    #[test]
    fn any_history_of_maintenance_keeps_evidence_exact(steps in prop::collection::vec(step(), 1..14)) {
        let dir = tempfile::tempdir().unwrap();
        let (mut alive, mut next): (Vec<Attempt>, u64) = (Vec::new(), 0);
        let (mut fresh, mut what) = (true, "any history");
        for step in steps {
            match step {
                Step::Attempts(count) => {
                    let new: Vec<Attempt> = (next..next + u64::from(count)).map(|n| attempt(n, (n % 80) as f64)).collect();
                    write(dir.path(), new.clone());
                    alive.extend(new);
                    next += u64::from(count);
                    fresh = false;
                }
                Step::Forget(n) => {
                    what = "a history with something forgotten";
                    let name = format!("d{n}.example.org");
                    forget(dir.path(), domain(&name));
                    alive.retain(|attempt| attempt.heuristic("domain") != Some(&name));
                }
                Step::ForgetLink(n) => {
                    what = "a history with something forgotten";
                    let link = attempt(u64::from(n), 0.0).link;
                    forget(dir.path(), TombstoneTarget::Link(link.clone()));
                    alive.retain(|attempt| attempt.link != link);
                }
                Step::Snapshot if !fresh => drop(take_snapshot(dir.path())),
                Step::Compact if !fresh => {
                    let mut options = CompactOptions::default();
    options.trust_clock = true;
                    maintenance::compact(dir.path(), &selector(), &options, NOW, &mut quiet()).unwrap();
                }
                Step::SpoilNewest => {
                    // Only if an older snapshot is good.
                    let search = fetchwise_log::load_snapshot(dir.path()).unwrap_or_default();
                    let previous = fetchwise_log::load_previous_snapshot(dir.path()).unwrap();
                    let both_good = search.rejected.is_empty() && previous.is_some();
                    if let Some(path) = search.snapshot.map(|s| s.path().to_owned()).filter(|_| both_good) {
                        let mut bytes = std::fs::read(&path).unwrap();
                        bytes[4100] ^= 8;
                        std::fs::write(&path, bytes).unwrap();
                    }
                }
                _ => {}
            }
        }
        let naive = selector();
        alive.iter().for_each(|attempt| naive.observe(attempt));
        let (known, _) = start(dir.path());
        assert_same(&naive, &known, what);
    }
}

/// Makes a log that has all that a release can write: records and blocks of attempts with and
/// without reasons, states of links and hosts, paces, importances, what was forgotten and what an
/// operator ended, and two snapshots.
fn make_golden(dir: &Path) {
    let at = |hours: i64| Timestamp::from_millis(1_790_000_000_000 + hours * 3_600_000);
    let attempt = |n: u64| {
        let text = format!(
            "https://www.site{}.example.org/s{}/page-{n}{}",
            n % 3,
            n % 2,
            [".pdf", "", ""][n as usize % 3]
        );
        let fetcher =
            ["direct_access", "playwright", "archive_proxy", "my own fetcher"][n as usize % 4];
        let mut attempt =
            Attempt::new(&url::Url::parse(&text).unwrap(), fetcher, at(n as i64)).unwrap();
        attempt.id =
            uuid::Uuid::from_u128(0x018f_8e2c_7b5a_7c3d_9e4f_0000_0000_0000 + u128::from(n));
        attempt.duration_ms = 10 * n;
        if n.is_multiple_of(4) {
            attempt.link = format!("article {n}");
            (attempt.rule, attempt.confidence, attempt.arm) =
                (Some("my own".into()), Some(0.25), Some(Arm::Learning));
            attempt.heuristics.push(Tag {
                heuristic: Heuristic::new("video_platform", "yes".to_owned()),
                importance: Some(0.75),
            });
        }
        match n % 5 {
            0 => attempt.failed(ErrorKind::BlockedCaptcha),
            1 => attempt.failed(ErrorKind::NotFound),
            _ => attempt.delivered(),
        }
    };
    let state = LinkState {
        paused_until: Some(at(90)),
        risk_level: 2,
        attempt_count: 3,
        ..LinkState::default()
    };
    let link = |n: u64| LinkEntry {
        link: attempt(n).link,
        domain: "site1.example.org".into(),
        state,
        at: at(n as i64),
    };
    let session = |numbers: std::ops::Range<u64>, more: &dyn Fn(&Journal)| {
        let journal = open(dir);
        for n in numbers {
            journal.append_attempt(&attempt(n)).unwrap();
        }
        more(&journal);
        journal.close().unwrap();
    };
    let pace = |name: &str| PaceEntry {
        level: 1,
        name: name.into(),
        state: [7; 64],
        cause: 2,
        at: at(21),
    };
    session(0..20, &|journal| {
        journal.append_link(&link(4)).unwrap();
        journal.append_host("site2.example.org", Some(at(80)), at(20)).unwrap();
        journal.append_pace(&pace("site0.example.org")).unwrap();
        let (kind, value) = ("suffix".to_owned(), Some(".pdf".to_owned()));
        journal
            .append_importance(&ImportanceEntry { kind, value, importance: 0.5, at: at(21) })
            .unwrap();
    });
    let snapshot = |hours| {
        let blank = Selector::builder().around(at(0)).build().unwrap();
        maintenance::snapshot(dir, &blank, at(hours), &mut quiet()).unwrap();
    };
    snapshot(30);
    session(20..30, &|journal| {
        let target = TombstoneTarget::Link("article 8".to_owned());
        journal.append_tombstone(&Tombstone { target, at: at(31) }).unwrap();
        let target = ReleaseTarget::Host("site2.example.org".to_owned());
        journal.append_release(&Release { target, at: at(31) }).unwrap();
        let name = "my own fetcher".to_owned();
        journal
            .append_fetcher(&FetcherEntry { name, class: Class::Plain, cost: 1.5, at: at(31) })
            .unwrap();
    });
    snapshot(40);
    session(30..36, &|journal| {
        journal.append_link(&link(16)).unwrap();
    });
}

/// Copies the directories that releases wrote to a writable place. `FETCHWISE_BLESS=1` makes the
/// one of this layout if it is missing.
fn golden() -> Vec<(String, tempfile::TempDir)> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/journal");
    if std::env::var_os("FETCHWISE_BLESS").is_some() && !all.join("v1").exists() {
        let made = tempfile::tempdir().unwrap();
        make_golden(made.path());
        std::fs::create_dir_all(all.join("v1")).unwrap();
        for file in std::fs::read_dir(made.path()).unwrap().map(|file| file.unwrap().path()) {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            if !name.contains("LOCK") && name != "RESERVE" {
                std::fs::copy(&file, all.join("v1").join(name)).unwrap();
            }
        }
    }
    let mut copies = Vec::new();
    for release in std::fs::read_dir(all).unwrap() {
        let (release, copy) = (release.unwrap().path(), tempfile::tempdir().unwrap());
        for file in std::fs::read_dir(&release).unwrap() {
            let file = file.unwrap().path();
            std::fs::copy(&file, copy.path().join(file.file_name().unwrap())).unwrap();
        }
        copies.push((release.file_name().unwrap().to_string_lossy().into_owned(), copy));
    }
    copies
}

#[test]
fn logs_of_every_release_are_read_verified_and_continued() {
    let copies = golden();
    assert!(copies.iter().any(|(name, _)| name == "v1"));
    for (name, copy) in copies {
        let dir = copy.path();
        let at = Timestamp::from_millis(1_790_100_000_000);
        let (naive, known) = (
            Selector::builder().around(at).build().unwrap(),
            Selector::builder().around(at).build().unwrap(),
        );
        let mut count = 0;
        journal::replay(dir, |_, entry| {
            if let Entry::Attempt(attempt) = entry {
                naive.observe(&attempt);
                count += 1;
            }
        })
        .unwrap();
        let loaded = journal::load(dir, &known, at).unwrap();
        assert!(loaded.snapshot.unwrap().covers_seq > 0, "{name}");
        let mut seen = 0;
        for fetcher in ["direct_access", "playwright", "archive_proxy", "my own fetcher"] {
            for key in [
                ("global", ""),
                ("site", "example.org"),
                ("domain", "site1.example.org"),
                ("video_platform", "yes"),
            ] {
                for page in [ContentKind::Page, ContentKind::File] {
                    let (a, b) = (
                        naive.weights(key, page, fetcher, at),
                        known.weights(key, page, fetcher, at),
                    );
                    assert!(
                        a.attempts == b.attempts && (a.total - b.total).abs() < 1e-9,
                        "{name} {key:?}: {a:?} {b:?}"
                    );
                    seen += u64::from(a.attempts);
                }
            }
        }
        assert!(seen > count, "{name}: {seen}");
        assert!(maintenance::verify(dir, &mut quiet()).unwrap().is_sound(), "{name}");
        write(dir, [attempt(1, 0.0)]);
        take_snapshot(dir);
        assert!(maintenance::verify(dir, &mut quiet()).unwrap().is_sound(), "{name}");
        assert_eq!(journal::replay(dir, |_, _| {}).unwrap().attempts, count + 1, "{name}");
        let mut options = CompactOptions::default();
        options.retain = 10 * DAY;
        let done = maintenance::compact(dir, &selector(), &options, NOW, &mut quiet()).unwrap();
        assert!(done.attempts.0 > count && done.attempts.1 == 1, "{name}: {:?}", done.attempts);
        assert!(maintenance::verify(dir, &mut quiet()).unwrap().is_sound(), "{name}");
    }
}

#[test]
fn a_log_knows_the_class_and_the_cost_of_its_fetchers() {
    let dir = tempfile::tempdir().unwrap();
    let session = |specs: &[FetcherSpec]| {
        let builder = Selector::builder().around(NOW).journal(dir.path());
        specs
            .iter()
            .cloned()
            .fold(builder, |builder, spec| builder.fetcher(spec))
            .build()
            .unwrap()
            .close()
            .unwrap();
    };
    let known = || -> Vec<(String, Class, f64)> {
        let surveyed = journal::survey(dir.path()).unwrap().registered;
        let loaded = journal::load(dir.path(), &blank(), NOW).unwrap().registered;
        assert_eq!(surveyed, loaded);
        loaded.into_iter().map(|of| (of.name, of.class, of.cost)).collect()
    };
    let count = || {
        let mut count = 0;
        journal::replay(dir.path(), |_, entry| {
            count += u32::from(matches!(entry, Entry::Fetcher(_)))
        })
        .unwrap();
        count
    };
    // What the name says already needs no entry, and neither does what the log says.
    session(&[FetcherSpec::by_name("direct_access"), FetcherSpec::by_name("unheard_of")]);
    assert_eq!((known(), count()), (Vec::new(), 0));
    let http = FetcherSpec::plain("http");
    session(&[http.clone(), FetcherSpec::by_name("playwright").cost(12.0)]);
    session(&[http.clone(), FetcherSpec::by_name("playwright").cost(12.0)]);
    let both = vec![
        ("http".to_owned(), Class::Plain, 1.0),
        ("playwright".to_owned(), Class::Rendering, 12.0),
    ];
    assert_eq!((known(), count()), (both, 2));
    // The last entry counts, and snapshots and compactions keep it. An attempt that expires makes
    // the compaction take them.
    write(dir.path(), [attempt(1, 100.0)]);
    session(&[http.cost(1.5), FetcherSpec::by_name("playwright")]);
    let last = vec![
        ("http".to_owned(), Class::Plain, 1.5),
        ("playwright".to_owned(), Class::Rendering, 20.0),
    ];
    assert_eq!((known(), count()), (last.clone(), 4));
    maintenance::snapshot(dir.path(), &blank(), NOW, &mut quiet()).unwrap();
    assert_eq!(known(), last);
    maintenance::compact(dir.path(), &blank(), &CompactOptions::default(), NOW, &mut quiet())
        .unwrap();
    assert_eq!((known(), count()), (last.clone(), 0));
    session(&[FetcherSpec::plain("http").cost(1.5), FetcherSpec::by_name("playwright")]);
    assert_eq!((known(), count()), (last, 0));
}

#[test]
fn a_cost_that_no_selector_takes_is_not_believed() {
    let entry = |cost| FetcherEntry { name: "http".to_owned(), class: Class::Plain, cost, at: NOW };
    for cost in [f64::NAN, f64::INFINITY, 0.0, -3.0] {
        assert_eq!(entry(cost).spec(), FetcherSpec::plain("http"), "{cost}");
    }
    assert_eq!(entry(2.5).spec(), FetcherSpec::plain("http").cost(2.5));
}
