//! Tests of starts from checkpoints: whatever happened to the log and to the files, the evidence is
//! that of an unbounded selector that reads the log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use url::Url;

use super::checkpoint_restore::{covers_seq, restore, state_name};
use super::checkpoint_state;
use super::cold_tests::{FETCHERS, attempt, builder, groups, unbounded, url};
use super::cold_tier::{checkpoint_folder, keep_evicted};
use super::fetcher_numbers::FetcherNumbers;
use super::fold::Fold;
use super::maintenance::{
    BackgroundMaintenance, CompactOptions, MaintenanceOptions, checkpoint, compact, forget,
    snapshot,
};
use super::snapshot::SnapshotContents;
use super::{Journal, JournalOptions, LoadReport, Release, ReleaseTarget, TombstoneTarget, load};
use crate::backoff::LinkState;
use crate::journal::recovery_point::FoldStart;
use crate::selector::{SelectContext, Selector, SelectorBuilder};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::heuristic::Heuristic;
use fetchwise_types::heuristic::files::FileSuffixes;
use fetchwise_types::registry::{Class, FetcherSpec};
use fetchwise_types::time::{Clock, Timestamp};

const SITES: usize = 400;
const MAX_KEYS: usize = 20;
/// A multiple of the half-life, at which attempts weigh one, so that sums of weights do not depend
/// on their order.
const AT: Timestamp = Timestamp::from_millis(691 * 30 * 86_400_000);

fn open(dir: &Path) -> Arc<Journal> {
    Arc::new(Journal::open(dir, JournalOptions::default()).unwrap().0)
}

/// Returns attempts at sites whose entries one thread folds.
fn attempts(numbers: std::ops::Range<usize>) -> impl Iterator<Item = Attempt> {
    let made =
        numbers.map(|number| Attempt { attempted_at: AT, weight: 1.0, ..attempt(number, SITES) });
    made.filter(|made| !made.url.contains("github.io") && !made.url.contains("://10."))
}

fn record(journal: &Journal, numbers: std::ops::Range<usize>) {
    attempts(numbers).for_each(|made| _ = journal.append_attempt(&made).unwrap());
}

/// Appends a record of each other kind.
fn append_others(journal: &Journal, round: usize) {
    let (name, at) = (format!("site{}.org", 4 * round), AT);
    let until = Some(AT.saturating_add(Duration::from_secs(90)));
    let state =
        LinkState { paused_until: until, risk_level: 1 + round as u8 % 3, ..LinkState::default() };
    let link = format!("https://{name}/part0/");
    journal.append_link(&super::LinkEntry { link, domain: name.clone(), state, at }).unwrap();
    journal.append_host(&name, until, at).unwrap();
    let released = format!("site{}.org", 200 + 4 * round);
    journal.append_host(&released, until, at).unwrap();
    let target = ReleaseTarget::Host(released);
    journal.append_release(&Release { target, at }).unwrap();
    let (kind, value) = ("suffix".to_owned(), Some(".pdf".to_owned()));
    journal
        .append_importance(&super::ImportanceEntry { kind, value, importance: 0.5, at })
        .unwrap();
    let spec = FetcherSpec::new(&format!("fetcher{round}"), Class::Rendering).cost(7.0);
    journal.append_fetcher(&super::FetcherEntry::of(&spec, at)).unwrap();
    let state = [round as u8; 64];
    journal.append_pace(&super::PaceEntry { level: 0, name, state, cause: 0, at }).unwrap();
}

fn bounded() -> SelectorBuilder {
    builder(Some(MAX_KEYS))
}

fn make(dir: &Path) -> super::maintenance::CheckpointReport {
    checkpoint(dir, &bounded().build().unwrap(), AT).unwrap()
}

/// Returns everything that a fold of the log has learned.
fn folded(dir: &Path, from_checkpoint: bool) -> SnapshotContents {
    let selector = if from_checkpoint { bounded() } else { builder(None) }.build().unwrap();
    let learned = selector.learned();
    let mut fold = match from_checkpoint {
        true => {
            keep_evicted(dir, learned, &Arc::default()).unwrap();
            let restored = restore(dir, learned, AT).unwrap();
            Fold::of(restored.contents, Some(restored.reader), AT)
        }
        false => Fold::begin(FoldStart::newest(dir).unwrap(), learned, AT).unwrap(),
    };
    fold.advance(dir, learned, u64::MAX, AT, &mut |_| {}).unwrap();
    fold.contents(learned, &[], AT)
}

/// Loads the log into a bounded selector and into an unbounded one, which then say the same of
/// everything.
fn check_with(dir: &Path, bounded: SelectorBuilder, what: &str) -> LoadReport {
    let all = unbounded();
    let expected = load(dir, &all, AT).unwrap();
    let journal = open(dir);
    let few = bounded.keep_evicted(&journal).build().unwrap();
    let loaded = load(dir, &few, AT).unwrap();
    let facts = |of: &LoadReport| {
        let LoadReport {
            last_seq, links, host_levels, host_pauses, importance, registered, ..
        } = of.clone();
        (last_seq, links, host_levels, host_pauses, importance, registered)
    };
    assert_eq!(facts(&loaded), facts(&expected), "{what}");
    let (own, other) = (groups(&few, AT), groups(&all, AT));
    assert_eq!(own.0.difference(&other.0), None, "{what}");
    assert_eq!(own, other, "{what}");
    assert_eq!(few.learned().evidence.keys_seen(), all.key_count() as u64, "{what}");
    for site in (0..SITES).step_by(5) {
        let (url, context) = (url(site, site), SelectContext::first_attempt(AT));
        few.prefetch([&url]);
        assert_eq!(
            few.select(&url, &context).unwrap(),
            all.select(&url, &context).unwrap(),
            "{what}: {url}"
        );
        let explained =
            |selector: &Selector| format!("{:?}", selector.explain(&url, &context).unwrap());
        assert_eq!(explained(&few), explained(&all), "{what}");
        let domain = url.host_str().unwrap();
        assert_eq!(few.ban_rate_at(domain, 90, AT), all.ban_rate_at(domain, 90, AT), "{what}");
        assert_eq!(few.host_pause(domain), all.host_pause(domain), "{what}");
    }
    assert_eq!(few.learned().evidence.cold_counts().failed_reads, 0, "{what}");
    loaded
}

fn check(dir: &Path, what: &str) -> LoadReport {
    check_with(dir, bounded(), what)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target)
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn copied(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    copy(from, to.path());
    to
}

/// Returns a directory with a log, and the same with records before and after a checkpoint.
fn with_checkpoint(records: usize) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    record(&journal, 0..records);
    append_others(&journal, 0);
    drop(journal);
    assert!(make(dir.path()).covers_seq > records as u64 / 2);
    dir
}

fn extend(dir: &Path, numbers: std::ops::Range<usize>) {
    let journal = open(dir);
    record(&journal, numbers);
    append_others(&journal, 1);
}

#[test]
fn a_start_reads_only_what_follows_the_checkpoint_and_knows_everything() {
    let dir = with_checkpoint(4 * SITES);
    let dir = dir.path();
    let loaded = check(dir, "right after");
    let covered = covers_seq(dir).unwrap();
    assert_eq!(
        (loaded.replayed.entries, loaded.snapshot.map(|start| start.covers_seq)),
        (0, Some(covered))
    );
    for round in 1..4 {
        extend(dir, round * 5 * SITES..(round * 5 + 1) * SITES);
        let loaded = check(dir, "records after it");
        assert_eq!(loaded.replayed.entries, loaded.last_seq - covers_seq(dir).unwrap());
        assert!(loaded.replayed.entries > SITES as u64 / 4);
        let made = make(dir);
        assert_eq!(
            (made.records, made.replaced),
            (loaded.replayed.entries, None),
            "the next one goes on from it"
        );
        assert_eq!(folded(dir, true), folded(dir, false));
    }
    let before = std::fs::read_dir(checkpoint_folder(dir)).unwrap().count();
    assert_eq!(make(dir).records, 0);
    assert_eq!(
        std::fs::read_dir(checkpoint_folder(dir)).unwrap().count(),
        before,
        "nothing is written again"
    );
    // Evidence that all fits into memory is there at once.
    let roomy = check_with(dir, builder(Some(10_000)), "with room for all");
    assert_eq!(roomy.replayed.entries, 0);
}

#[test]
fn a_session_that_ends_leaves_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let session =
        || bounded().clock(Arc::new(Clock::fixed(AT))).journal(dir.path()).build().unwrap();
    for round in 0..3 {
        let selector = session();
        attempts(round * SITES..(round + 1) * SITES)
            .for_each(|made| selector.record(made, AT).unwrap());
        assert!(selector.evicted_keys() > 100);
        selector.close().unwrap();
        assert!(!dir.path().join("cold-0").exists(), "the next start has nothing to remove");
        assert_eq!(check(dir.path(), "a closed session").replayed.entries, 0);
    }
    // Killed, it leaves the last one.
    let selector = session();
    attempts(0..SITES).for_each(|made| selector.record(made, AT).unwrap());
    let killed = copied(dir.path());
    drop(selector);
    check(killed.path(), "a killed session");
}

/// A checkpoint counted what a vendor had answered before the crawler was registered there, so that
/// a start from it knew less of signed requests than the process before.
#[test]
fn a_checkpoint_knows_where_the_crawler_is_registered() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(Clock::fixed(AT));
    let later = |hours: u64| AT.saturating_add(Duration::from_secs(3600 * hours));
    let with = |keys: Option<usize>| {
        let builder = builder(keys).without_pace().clock(Arc::clone(&clock));
        ["direct_signed", "playwright"]
            .iter()
            .fold(builder, |builder, name| builder.fetcher(FetcherSpec::by_name(name)))
    };
    let session = |admits: bool| {
        let selector = with(Some(MAX_KEYS)).journal(dir.path()).build().unwrap();
        // As a crawler learns it: while it runs.
        if admits {
            assert!(selector.register_at_vendor("stony", later(1)));
        }
        for host in 0..60 {
            let page = Url::parse(&format!("https://host{host}.org/")).unwrap();
            let made = |fetcher| Attempt::new(&page, fetcher, clock.now()).unwrap();
            let signed = match admits {
                true => made("direct_signed").delivered(),
                false => {
                    let mut refused = made("direct_signed").failed(ErrorKind::Blocked403);
                    refused.heuristics.push(Heuristic::flag("block_stony").into());
                    refused
                }
            };
            for attempt in [signed, made("playwright").delivered()] {
                selector.record(attempt, clock.now()).unwrap();
            }
        }
        selector.close().unwrap();
    };
    session(false);
    clock.set(later(2));
    session(true);
    let loaded = |builder: SelectorBuilder| {
        let selector = builder.build().unwrap();
        assert!(selector.register_at_vendor("stony", later(1)));
        let replayed = load(dir.path(), &selector, later(2)).unwrap().replayed.entries;
        (selector, replayed)
    };
    let (few, replayed) = loaded(with(Some(MAX_KEYS)).keep_evicted_in(dir.path()));
    let (all, _) = loaded(with(None));
    assert_eq!(replayed, 0, "there is a checkpoint");
    let image = |selector: &Selector| super::cold_tests::image(selector, later(2));
    assert_eq!(image(&few).difference(&image(&all)), None);
    let signed = |selector: &Selector| {
        let page = Url::parse("https://host7.org/other").unwrap();
        let context = SelectContext::first_attempt(later(2));
        let explained = selector.explain(&page, &context).unwrap();
        format!(
            "{:?}",
            explained.steps.iter().filter(|step| step.kind.contains("vendor")).collect::<Vec<_>>()
        )
    };
    assert_eq!(signed(&few), signed(&all));
}

/// The files of a checkpoint as a crash between any two of its steps leaves them, and damaged ones.
#[test]
fn a_crash_at_any_step_and_damage_cost_no_more_than_time() {
    let first = with_checkpoint(3 * SITES);
    extend(first.path(), 3 * SITES..4 * SITES);
    let second = copied(first.path());
    make(second.path());
    let (old, new) = (checkpoint_folder(first.path()), checkpoint_folder(second.path()));
    let files = |dir: &Path| -> Vec<String> {
        let names = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != "LOCK").collect();
        names.sort();
        names
    };
    let state =
        |dir: &Path| files(dir).into_iter().find(|name| name.starts_with("state-")).unwrap();
    let runs = |dir: &Path| {
        files(dir).into_iter().filter(|name| name.starts_with("run-")).collect::<Vec<_>>()
    };
    assert_ne!(state(&old), state(&new));
    // Each case: what the folder of the first checkpoint gets from the second one, and whether a
    // checkpoint then fits.
    let cases: Vec<(&str, Vec<String>)> = vec![
        ("nothing of the second", vec![]),
        ("its runs", runs(&new)),
        ("its runs and its state", [runs(&new), vec![state(&new)]].concat()),
        ("all of it", files(&new)),
    ];
    for (what, names) in &cases {
        let dir = copied(first.path());
        let folder = checkpoint_folder(dir.path());
        names.iter().for_each(|name| _ = std::fs::copy(new.join(name), folder.join(name)).unwrap());
        std::fs::write(folder.join(format!("tmp-{}", state(&new))), b"begun").unwrap();
        let loaded = check(dir.path(), what);
        assert!(loaded.snapshot.is_some(), "{what}: there is no need to read the whole log");
        assert_eq!(make(dir.path()).replaced, None, "{what}");
        assert_eq!(check(dir.path(), what).replayed.entries, 0);
        assert!(
            files(&folder).iter().all(|name| !name.starts_with("tmp-")),
            "{what}: {:?}",
            files(&folder)
        );
    }
    for name in files(&new) {
        for is_removed in [false, true] {
            let dir = copied(second.path());
            let file = checkpoint_folder(dir.path()).join(&name);
            if is_removed {
                std::fs::remove_file(&file).unwrap();
            } else {
                let mut bytes = std::fs::read(&file).unwrap();
                bytes[20] ^= 1;
                std::fs::write(&file, bytes).unwrap();
            }
            let loaded = check(dir.path(), &name);
            assert!(
                loaded.snapshot.is_none() && loaded.replayed.entries > 3 * SITES as u64 / 2,
                "{name}"
            );
            let made = make(dir.path());
            assert_eq!(
                made.replaced.is_some(),
                name != "MANIFEST" || !is_removed,
                "{name}: {made:?}"
            );
            assert_eq!(check(dir.path(), &name).replayed.entries, 0);
        }
    }
}

#[test]
fn a_checkpoint_of_another_log_is_not_used() {
    let dir = with_checkpoint(3 * SITES);
    let ahead = copied(dir.path());
    extend(ahead.path(), 3 * SITES..4 * SITES);
    make(ahead.path());
    let with_log_of = |other: &Path| {
        let mixed = copied(other);
        let _ = std::fs::remove_dir_all(checkpoint_folder(mixed.path()));
        copy(&checkpoint_folder(ahead.path()), &checkpoint_folder(mixed.path()));
        mixed
    };
    // A log that was brought back from a copy: it ends before the checkpoint, or goes on in another
    // way.
    let behind = with_log_of(dir.path());
    assert!(check(behind.path(), "a log that ends earlier").snapshot.is_none());
    assert!(make(behind.path()).replaced.is_some());
    let other_way = with_log_of(dir.path());
    extend(other_way.path(), 7 * SITES..9 * SITES);
    assert!(check(other_way.path(), "a log that went on in another way").snapshot.is_none());
    let stranger = tempfile::tempdir().unwrap();
    record(&open(stranger.path()), 0..6 * SITES);
    let stranger = with_log_of(stranger.path());
    assert!(check(stranger.path(), "a log of another directory").snapshot.is_none());
}

#[test]
fn a_compaction_takes_the_checkpoint_along_or_ends_it() {
    let hour = Duration::from_secs(3600);
    let dir = with_checkpoint(3 * SITES);
    extend(dir.path(), 3 * SITES..4 * SITES);
    let late = AT.saturating_add(Duration::from_secs(30 * 3600));
    for (max_keys, fits) in [(Some(MAX_KEYS), true), (None, false)] {
        let dir = copied(dir.path());
        let options = CompactOptions { retain: hour, ..CompactOptions::default() };
        let blank = builder(max_keys).build().unwrap();
        let done = compact(dir.path(), &blank, &options, late, &mut |_, _| {}).unwrap();
        assert_eq!(done.attempts.1, 0, "{done:?}");
        extend(dir.path(), 4 * SITES..5 * SITES);
        let (few, all, journal) = (bounded(), unbounded(), open(dir.path()));
        let few = few.keep_evicted(&journal).build().unwrap();
        let loaded = load(dir.path(), &few, late).unwrap();
        load(dir.path(), &all, late).unwrap();
        let restored = checkpoint_folder(dir.path())
            .join(format!("state-{:016x}", loaded.snapshot.unwrap().covers_seq));
        assert_eq!(restored.exists(), fits);
        assert!(loaded.replayed.attempts > 0 && loaded.replayed.attempts < SITES as u64);
        let image = |selector: &Selector| super::cold_tests::image(selector, late);
        assert_eq!(image(&few).difference(&image(&all)), None);
        drop((few, journal));
        let made = checkpoint(dir.path(), &bounded().build().unwrap(), late).unwrap();
        assert_eq!(made.replaced.is_none(), fits, "{made:?}");
    }
}

#[test]
fn a_snapshot_does_not_change_where_a_bounded_start_begins() {
    let dir = with_checkpoint(3 * SITES);
    extend(dir.path(), 3 * SITES..4 * SITES);
    snapshot(dir.path(), &bounded().build().unwrap(), AT, &mut |_, _| {}).unwrap();
    let loaded = check(dir.path(), "a newer snapshot");
    assert_eq!(loaded.snapshot.map(|start| start.covers_seq), covers_seq(dir.path()));
}

#[test]
fn changed_rules_read_the_log_and_changed_candidates_do_not() {
    let dir = with_checkpoint(3 * SITES);
    let dir = dir.path();
    let with = |change: &dyn Fn(SelectorBuilder) -> SelectorBuilder| {
        let journal = open(dir);
        let (few, all) = (
            change(bounded()).keep_evicted(&journal).build().unwrap(),
            change(builder(None)).build().unwrap(),
        );
        let (loaded, _) = (load(dir, &few, AT).unwrap(), load(dir, &all, AT).unwrap());
        let image = |selector: &Selector| super::cold_tests::image(selector, AT);
        assert_eq!(image(&few).difference(&image(&all)), None);
        for site in 0..SITES {
            let (url, context) = (url(site, site), SelectContext::first_attempt(AT));
            few.prefetch([&url]);
            assert_eq!(few.select(&url, &context).unwrap(), all.select(&url, &context).unwrap());
        }
        loaded.snapshot.is_some()
    };
    assert!(with(&|builder| builder));
    assert!(!with(&|builder| builder.half_life_days(10.0)), "half-life");
    assert!(
        !with(&|builder| builder.file_suffixes(FileSuffixes::default().page(".pdf").unwrap())),
        "file suffixes"
    );
    let in_another_order = |builder: SelectorBuilder| {
        let fetcher = |name: &str| FetcherSpec::by_name(name);
        let names = ["mine", FETCHERS[2], FETCHERS[0], "other", FETCHERS[1]];
        names.into_iter().fold(builder, |builder, name| builder.fetcher(fetcher(name)))
    };
    assert!(with(&in_another_order), "the order of fetchers, and new ones");
    assert!(
        !with(&|builder| builder.fetcher(FetcherSpec::new(FETCHERS[0], Class::Archive))),
        "the kind of a fetcher"
    );
    make(dir);
    check(dir, "as before");
}

#[test]
fn what_is_forgotten_stays_forgotten() {
    let dir = with_checkpoint(3 * SITES);
    let dir = dir.path();
    for (site, what) in [(4, "a domain"), (8, "another one, after the next checkpoint")] {
        let domain = format!("site{site}.org");
        let forgot = forget(dir, TombstoneTarget::Domain(domain.clone()), AT).unwrap();
        assert!(forgot.attempts > 0);
        let loaded = check(dir, what);
        assert_eq!((loaded.replayed.forgotten > 0, loaded.snapshot.is_some()), (true, true));
        make(dir);
        assert_eq!(check(dir, what).replayed.entries, 0);
    }
    forget(dir, TombstoneTarget::Link("https://site0.org/part0/".to_owned()), AT).unwrap();
    check(dir, "a link");
}

#[test]
fn checkpoints_alongside_a_recorder_have_each_attempt_once() {
    let dir = with_checkpoint(SITES);
    let (journal, is_done) = (open(dir.path()), AtomicBool::new(false));
    let made = std::thread::scope(|scope| {
        let checkpoints = scope.spawn(|| {
            let mut made = 0;
            while !is_done.load(Ordering::Relaxed) {
                made += u64::from(make(dir.path()).records > 0);
            }
            made
        });
        for round in 1..5 {
            record(&journal, round * 3 * SITES..(round + 1) * 3 * SITES);
            let covered = covers_seq(dir.path());
            journal.flush().wait().unwrap();
            // Each round goes into another checkpoint at least.
            while covers_seq(dir.path()) == covered {
                std::thread::yield_now();
            }
        }
        is_done.store(true, Ordering::Relaxed);
        checkpoints.join()
    });
    assert!(made.unwrap() >= 3);
    drop(journal);
    check(dir.path(), "after a recorder");
    make(dir.path());
    assert_eq!(folded(dir.path(), true), folded(dir.path(), false));
}

#[test]
fn background_maintenance_makes_one_when_it_is_due() {
    let dir = with_checkpoint(SITES);
    let before = covers_seq(dir.path());
    let journal = open(dir.path());
    record(&journal, SITES..3 * SITES);
    journal.flush().wait().unwrap();
    let mut options = MaintenanceOptions::default();
    (options.compact_threshold, options.check_interval) = (None, Duration::from_millis(1));
    options.checkpoint_after = Some(SITES as u64 / 4);
    let (blank, clock) = (|| bounded().build(), Arc::new(Clock::fixed(AT)));
    let background = BackgroundMaintenance::start(dir.path(), options, clock, blank, |event| {
        panic!("{event:?}")
    })
    .unwrap();
    while covers_seq(dir.path()) == before {
        std::thread::yield_now();
    }
    background.stop();
    drop(journal);
    assert!(check(dir.path(), "a checkpoint in the background").snapshot.is_some());
}

/// Its checksum protects the state from damage, so these bytes are what a bug might have written.
#[test]
fn a_state_that_is_cut_or_changed_is_rejected_or_restored() {
    let dir = with_checkpoint(SITES);
    let state = checkpoint_folder(dir.path()).join(state_name(covers_seq(dir.path()).unwrap()));
    let bytes = std::fs::read(state).unwrap();
    assert!((0..bytes.len()).all(|len| checkpoint_state::decode(&bytes[..len], 1).is_none()));
    for place in (0..bytes.len()).step_by(3) {
        let mut changed = bytes.clone();
        changed[place] ^= 1 << (place % 8);
        let Some(state) = checkpoint_state::decode(&changed, 1) else { continue };
        let learned = bounded().build().unwrap();
        let learned = learned.learned();
        if let Some(fetchers) = FetcherNumbers::of(&state.fetchers, &learned.registry)
            && state.restore(&learned.evidence, &fetchers).is_none()
        {
            assert!(learned.evidence.is_blank(), "what is not valid changes nothing");
        }
    }
}
