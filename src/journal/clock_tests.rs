//! Tests of snapshots and compactions under clocks that are wrong, jump, and are put right.
//!
//! The story: a snapshot that was taken under a clock of 1970 held infinite weights, which no
//! release could read. Every command ended with exit code 3 from then on.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::fold::Fold;
use super::recovery_point::FoldStart;
use super::snapshot::SnapshotContents;
use super::*;
use crate::selector::Selector;
use fetchwise_types::attempt::Attempt;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::time::Timestamp;

/// The right time: in 2026.
const TRUTH: Timestamp = Timestamp::from_millis(1_795_000_000_000);
const DAY_MS: i64 = 86_400_000;
/// The end of 9999, the last year that a time can be written with.
const LAST_MS: i64 = 253_402_300_799_999;

fn after(days: i64) -> Timestamp {
    Timestamp::from_millis((TRUTH.as_millis() + days * DAY_MS).clamp(0, LAST_MS))
}

fn blank(half_life_days: f64, clock: Timestamp) -> Selector {
    Selector::builder().half_life_days(half_life_days).around(clock).build().unwrap()
}

/// Records `n` attempts under `clock`, as a crawl does: after a load.
fn crawl(dir: &Path, half_life_days: f64, clock: Timestamp, n: usize) {
    let (journal, _) = Journal::open(dir, JournalOptions::default()).unwrap();
    let mut live = blank(half_life_days, clock);
    load(dir, &live, clock).unwrap();
    live.set_sink(Box::new(Arc::new(journal)));
    for n in 0..n {
        let url = url::Url::parse(&format!("https://e{}.org/{n}", n % 3)).unwrap();
        let a = Attempt::new(&url, "playwright", clock).unwrap();
        let a = if n % 3 == 0 { a.failed(ErrorKind::BlockedCaptcha) } else { a.delivered() };
        live.record(a, clock).unwrap();
    }
}

/// Asserts that the log can be read under this clock, with finite weights and each of `recorded`
/// attempts counted.
fn assert_readable(dir: &Path, half_life_days: f64, clock: Timestamp, recorded: u64) {
    let selector = blank(half_life_days, clock);
    load(dir, &selector, clock).unwrap_or_else(|error| panic!("under {clock:?}: {error}"));
    for site in 0..3 {
        let weights = selector.weights(
            ("domain", &format!("e{site}.org")),
            ContentKind::Page,
            "playwright",
            clock,
        );
        let all = [
            weights.success,
            weights.total,
            weights.blocked,
            weights.recent_total,
            weights.alert_total,
        ];
        assert!(all.iter().all(|weight| weight.is_finite()), "under {clock:?}: {weights:?}");
        assert!(
            weights.success <= weights.total && weights.blocked <= weights.total,
            "under {clock:?}: {weights:?}"
        );
    }
    let mut fold = Fold::begin(FoldStart::newest(dir).unwrap(), selector.learned(), clock).unwrap();
    fold.advance(dir, blank(half_life_days, clock).learned(), u64::MAX, clock, &mut |_| {})
        .unwrap();
    let mut counted = 0;
    fold.outcome_counts.for_each(|_, _, attempts| counted += attempts);
    assert_eq!(counted, recorded, "attempts counted under {clock:?}");
}

fn is_put_off(error: &JournalError) -> bool {
    use JournalError::{ClockAhead, ClockBehind, ClockJump};
    matches!(error, ClockJump { .. } | ClockBehind { .. } | ClockAhead { .. })
}

/// Takes a snapshot, which an implausible clock may put off.
fn try_snapshot(dir: &Path, half_life_days: f64, clock: Timestamp, trust_clock: bool) -> bool {
    let options =
        maintenance::SnapshotOptions { trust_clock, ..maintenance::SnapshotOptions::default() };
    match maintenance::snapshot_with(
        dir,
        &blank(half_life_days, clock),
        &options,
        clock,
        &mut |_, _| {},
    ) {
        Ok(_) => true,
        Err(error) if is_put_off(&error) && !trust_clock => false,
        Err(error) => panic!("under {clock:?}: {error}"),
    }
}

/// Compacts, which an implausible clock may put off.
fn try_compact(
    dir: &Path,
    half_life_days: f64,
    clock: Timestamp,
    trust_clock: bool,
    keep: Option<u64>,
) {
    let mut options = maintenance::CompactOptions::default();
    (options.trust_clock, options.keep_bytes) = (trust_clock, keep);
    match maintenance::compact(dir, &blank(half_life_days, clock), &options, clock, &mut |_, _| {})
    {
        Ok(_) => {}
        Err(error) if is_put_off(&error) && !trust_clock => {}
        Err(error) => panic!("under {clock:?}: {error}"),
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Crawl(usize),
    Snapshot {
        trust: bool,
    },
    Compact {
        trust: bool,
    },
    /// The disk limit makes room, whatever the clock says.
    MakeRoom,
}

fn clocks() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        4 => (0..60i64).prop_map(after),
        2 => (-8000..8000i64).prop_map(after),
        2 => (0..30 * DAY_MS).prop_map(Timestamp::from_millis),
        1 => (0..LAST_MS).prop_map(Timestamp::from_millis),
        1 => (LAST_MS - 1000..=LAST_MS).prop_map(Timestamp::from_millis),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..40usize).prop_map(Step::Crawl),
        3 => any::<bool>().prop_map(|trust| Step::Snapshot { trust }),
        2 => any::<bool>().prop_map(|trust| Step::Compact { trust }),
        1 => Just(Step::MakeRoom),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..Default::default() })]

    /// Under any clocks, from 1970 to 9999 and with jumps in both directions, a log can always be
    /// read and counts every attempt.
    #[test]
    fn a_log_stays_readable_and_whole_under_any_clocks(
        half_life_days in prop_oneof![Just(7.0), Just(30.0), Just(365.0), 7.0..365.0f64],
        history in proptest::collection::vec((clocks(), steps()), 1..10),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let mut recorded = 0;
        for (clock, step) in history {
            match step {
                Step::Crawl(n) => {
                    crawl(dir, half_life_days, clock, n);
                    recorded += n as u64;
                    try_snapshot(dir, half_life_days, clock, false);
                }
                _ if recorded == 0 => continue,
                Step::Snapshot { trust } => drop(try_snapshot(dir, half_life_days, clock, trust)),
                Step::Compact { trust } => try_compact(dir, half_life_days, clock, trust, None),
                Step::MakeRoom => try_compact(dir, half_life_days, clock, true, Some(4096)),
            }
            assert_readable(dir, half_life_days, clock, recorded);
            assert_readable(dir, half_life_days, TRUTH, recorded);
            let verified = maintenance::verify(dir, &mut |_, _| {}).unwrap();
            prop_assert!(verified.is_sound(), "{:?}", verified);
        }
    }
}

/// Folds the log, changes the result, and writes it as a snapshot without any check.
fn write_unchecked(dir: &Path, change: impl Fn(&mut SnapshotContents)) {
    let selector = blank(30.0, TRUTH);
    let mut fold = Fold::begin(FoldStart::newest(dir).unwrap(), selector.learned(), TRUTH).unwrap();
    fold.advance(dir, selector.learned(), u64::MAX, TRUTH, &mut |_| {}).unwrap();
    let mut contents = fold.contents(selector.learned(), selector.priors(), TRUTH);
    change(&mut contents);
    let maintenance = fetchwise_log::Maintenance::lock(dir).unwrap();
    maintenance.write_snapshot(&contents.meta(), &snapshot::sections(&contents.encode())).unwrap();
}

/// Makes every exact weight infinite, which no reader accepts.
fn break_cells(contents: &mut SnapshotContents) {
    contents.image.cells.iter_mut().for_each(|cell| cell.raw.total = f64::INFINITY);
}

/// Records 30 attempts up to a good snapshot, and 12 up to one that cannot be decoded.
fn crawl_with_broken_snapshot(dir: &Path) {
    crawl(dir, 30.0, TRUTH, 30);
    assert!(try_snapshot(dir, 30.0, TRUTH, false));
    crawl(dir, 30.0, TRUTH, 12);
    write_unchecked(dir, break_cells);
}

#[test]
fn a_snapshot_that_cannot_be_decoded_is_replaced_by_the_one_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    crawl_with_broken_snapshot(dir);
    assert_readable(dir, 30.0, TRUTH, 42);
    let loaded = load(dir, &blank(30.0, TRUTH), TRUTH).unwrap();
    let start = loaded.snapshot.unwrap();
    assert_eq!((start.covers_seq, start.rejected.len(), loaded.replayed.attempts), (30, 1, 12));
    assert!(!maintenance::verify(dir, &mut |_, _| {}).unwrap().is_sound());
    // The next snapshot does not keep it as the previous one.
    assert!(try_snapshot(dir, 30.0, TRUTH, false));
    crawl(dir, 30.0, TRUTH, 5);
    assert!(try_snapshot(dir, 30.0, TRUTH, false));
    assert!(maintenance::verify(dir, &mut |_, _| {}).unwrap().is_sound());
    assert_readable(dir, 30.0, TRUTH, 47);
}

#[test]
fn snapshots_that_cannot_be_decoded_are_replaced_by_the_records() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for n in [20, 10] {
        crawl(dir, 30.0, TRUTH, n);
        write_unchecked(dir, break_cells);
    }
    assert_readable(dir, 30.0, TRUTH, 30);
    assert_eq!(load(dir, &blank(30.0, TRUTH), TRUTH).unwrap().replayed.attempts, 30);
}

#[test]
fn repair_sets_a_snapshot_aside_that_cannot_be_decoded() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    crawl_with_broken_snapshot(dir);
    let looked = maintenance::repair(dir, maintenance::RepairOptions::default()).unwrap();
    assert_eq!(
        (looked.damage.len(), looked.remaining.len(), looked.quarantined.len()),
        (1, 1, 1),
        "{looked:?}"
    );
    let repaired = maintenance::repair(dir, maintenance::RepairOptions::salvaging()).unwrap();
    assert!(repaired.remaining.is_empty() && repaired.quarantined.len() == 1, "{repaired:?}");
    assert!(maintenance::verify(dir, &mut |_, _| {}).unwrap().is_sound());
    assert_readable(dir, 30.0, TRUTH, 42);
}

#[test]
fn evidence_below_the_floor_is_salvaged_as_far_as_possible_and_the_log_works_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    crawl(dir, 30.0, after(-200), 30);
    crawl(dir, 30.0, TRUTH, 12);
    try_compact(dir, 30.0, TRUTH, true, None);
    crawl(dir, 30.0, TRUTH, 5);
    write_unchecked(dir, break_cells);
    write_unchecked(dir, break_cells);
    let error = load(dir, &blank(30.0, TRUTH), TRUTH).unwrap_err();
    assert!(error.is_refusal(), "{error}");
    let repaired = maintenance::repair(dir, maintenance::RepairOptions::salvaging()).unwrap();
    assert!(repaired.remaining.is_empty(), "{repaired:?}");
    // The records that the compaction had dropped are gone.
    assert_readable(dir, 30.0, TRUTH, 17);
    crawl(dir, 30.0, TRUTH, 3);
    assert!(try_snapshot(dir, 30.0, TRUTH, false));
    assert_readable(dir, 30.0, TRUTH, 20);
}

#[test]
fn what_is_known_survives_a_start_in_1970() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let weights_at = |clock: Timestamp| {
        let selector = blank(30.0, clock);
        load(dir, &selector, clock).unwrap();
        selector.weights(("domain", "e1.org"), ContentKind::Page, "playwright", TRUTH)
    };
    crawl(dir, 30.0, TRUTH, 30);
    assert!(try_snapshot(dir, 30.0, TRUTH, false));
    let known = weights_at(TRUTH);
    let board = Timestamp::from_millis(60_000);
    crawl(dir, 30.0, board, 9);
    assert!(!try_snapshot(dir, 30.0, board, false), "a snapshot is put off");
    // The disk is full, so that a compaction cannot wait.
    try_compact(dir, 30.0, board, true, Some(1));
    for clock in [board, TRUTH] {
        let weights = weights_at(clock);
        let same = |a: f64, b: f64| (a - b).abs() < 1e-3 * b;
        assert!(
            same(weights.total, known.total) && same(weights.alert_total, known.alert_total),
            "{weights:?}"
        );
    }
    assert!(try_snapshot(dir, 30.0, after(1), false), "the clock is right again");
    assert_readable(dir, 30.0, TRUTH, 39);
}
