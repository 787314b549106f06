//! Tests of a bounded selector that keeps what it evicts.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use url::Url;
use xxhash_rust::xxh3::xxh3_64;

use super::cold_entry::{decode_entry, encode_entry};
use super::cold_tier::keep_evicted;
use super::entry_groups::{EncodedGroup, encode_group};
use super::fetcher_numbers::FetcherNumbers;
use super::maintenance::verify::verify_within;
use super::maintenance::{CompactOptions, RefoldReport, compact, snapshot};
use super::{Journal, JournalOptions, load};
use crate::evidence::cold_tier::ColdTier;
use crate::evidence::{Entry, EvidenceSnapshot};
use crate::selector::{SelectContext, Selector, SelectorBuilder};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::heuristic::Heuristic;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::time::Timestamp;

pub(super) const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);
pub(super) const FETCHERS: [&str; 3] = ["direct_access", "playwright", "flare_solverr"];

/// A tier in memory that fails when it is told to.
#[derive(Clone, Debug, Default)]
struct MemoryTier {
    copies: Arc<Mutex<BTreeMap<u64, Vec<u8>>>>,
    written: Arc<AtomicU64>,
    is_full: Arc<AtomicBool>,
    is_unreadable: Arc<AtomicBool>,
}

impl ColdTier for MemoryTier {
    fn put(&self, key: u64, entry: &Entry) -> io::Result<()> {
        let mut bytes = Vec::new();
        assert!(encode_entry(entry, &FetcherNumbers::default(), &mut bytes));
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.written.fetch_add(1, Ordering::Relaxed);
        self.copies.lock().unwrap().insert(key, bytes);
        Ok(())
    }

    fn get(&self, key: u64) -> io::Result<Option<Entry>> {
        if self.is_unreadable.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let copies = self.copies.lock().unwrap();
        Ok(copies.get(&key).map(|bytes| decode_entry(bytes, &FetcherNumbers::default()).unwrap()))
    }

    fn each_sorted(&self, f: &mut dyn FnMut(u64, Entry) -> ControlFlow<()>) -> io::Result<()> {
        let copies = self.copies.lock().unwrap().clone();
        let decode = |bytes| decode_entry(bytes, &FetcherNumbers::default()).unwrap();
        let _ = copies.iter().try_for_each(|(key, bytes)| f(*key, decode(bytes)));
        Ok(())
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

pub(super) fn builder(max_keys: Option<usize>) -> SelectorBuilder {
    Selector::builder().around(NOW).max_keys(max_keys).exact_estimates()
}

/// Returns a selector that keeps what it evicts in a folder.
fn bounded(max_keys: usize) -> (Selector, TempDir) {
    let (selector, dir) = (builder(Some(max_keys)).build().unwrap(), tempfile::tempdir().unwrap());
    keep_evicted(dir.path(), selector.learned(), &Arc::default()).unwrap();
    (selector, dir)
}

pub(super) fn unbounded() -> Selector {
    builder(None).build().unwrap()
}

pub(super) fn url(site: usize, page: usize) -> Url {
    let host = match site % 4 {
        0 => format!("site{site}.org"),
        1 => format!("www.site{site}.net"),
        2 => format!("user{site}.github.io"),
        _ => format!("10.{}.{}.7", site / 256 % 256, site % 256),
    };
    let file = ["", "list", "page.html", "text.pdf"][page % 4];
    Url::parse(&format!("https://{host}/part{}/{file}", page % 3)).unwrap()
}

/// Returns the attempt of this number: its site, its outcome and its time depend on nothing else.
pub(super) fn attempt(number: usize, sites: usize) -> Attempt {
    let random = xxh3_64(&number.to_le_bytes()) as usize;
    let at = NOW.saturating_add(Duration::from_secs(20 * number as u64));
    let mut made =
        Attempt::new(&url(random % sites, random >> 20), FETCHERS[(random >> 32) % 3], at).unwrap();
    match random >> 40 & 7 {
        0 => made.failed(ErrorKind::Blocked403),
        1 => made.failed(ErrorKind::Timeout),
        2 => {
            made.heuristics.push(Heuristic::flag("block_datadome").into());
            made.failed(ErrorKind::BlockedCaptcha)
        }
        _ => made.delivered(),
    }
}

pub(super) fn image(selector: &Selector, as_of: Timestamp) -> EvidenceSnapshot {
    selector.learned().evidence.image(&selector.learned().registry, as_of, &[])
}

/// Returns an image without the entries of the map, and these in groups as a snapshot has them.
pub(super) fn groups(selector: &Selector, as_of: Timestamp) -> (EvidenceSnapshot, Vec<Vec<u8>>) {
    let (learned, mut groups) = (selector.learned(), Vec::new());
    let mut sink = |group: EncodedGroup| {
        groups.push(group.bytes);
        Ok::<(), Infallible>(())
    };
    let Ok(image) = learned.evidence.image_in_groups(
        &learned.registry,
        (as_of, &[]),
        2,
        (encode_group, &mut sink),
    );
    (image, groups)
}

#[test]
fn decisions_and_snapshots_are_those_of_an_unbounded_selector() {
    let sites = 1000;
    let ((few, _dir), all) = (bounded(sites / 100), unbounded());
    for number in 0..4 * sites {
        let made = attempt(number, sites);
        let at = made.attempted_at;
        few.record(made.clone(), at).unwrap();
        all.record(made, at).unwrap();
        let keys = few.key_count();
        assert!(
            keys <= sites / 100 + 4,
            "{number}: {keys}, {:?}",
            few.learned().evidence.cold_counts()
        );
    }
    let now = NOW.saturating_add(Duration::from_secs(20 * 4 * sites as u64));
    assert!(few.evicted_keys() > 4 * sites as u64, "{}", few.evicted_keys());
    assert_eq!(few.learned().evidence.keys_seen(), all.key_count() as u64);
    assert_eq!(image(&few, now), image(&all, now));
    assert_eq!(groups(&few, now), groups(&all, now));
    for site in 0..sites {
        for page in 0..4 {
            let (url, context) = (url(site, page), SelectContext::first_attempt(now));
            few.prefetch([&url]);
            assert_eq!(
                few.select(&url, &context).unwrap(),
                all.select(&url, &context).unwrap(),
                "{url}"
            );
        }
        let (url, context) = (url(site, 1), SelectContext::first_attempt(now));
        let explained =
            |selector: &Selector| format!("{:?}", selector.explain(&url, &context).unwrap());
        assert_eq!(explained(&few), explained(&all));
        let domain = url.host_str().unwrap();
        assert_eq!(few.ban_rate_at(domain, 90, now), all.ban_rate_at(domain, 90, now));
    }
    assert_eq!(few.learned().evidence.cold_counts().failed_reads, 0);
}

#[test]
fn retractions_and_pauses_reach_what_was_evicted() {
    let sites = 400;
    let ((few, _dir), all) = (bounded(10), unbounded());
    let attempts: Vec<Attempt> = (0..4 * sites).map(|number| attempt(number, sites)).collect();
    let past = |site: usize| NOW.saturating_add(Duration::from_secs(site as u64));
    for selector in [&few, &all] {
        attempts.iter().for_each(|made| selector.observe(made));
        (0..sites).step_by(3).for_each(|site| {
            selector.set_host_pause(url(site, 0).host_str().unwrap(), Some(past(site)))
        });
        attempts.iter().for_each(|made| selector.observe(made));
        let learned = selector.learned();
        attempts
            .iter()
            .step_by(2)
            .for_each(|made| learned.evidence.retract(made, &learned.registry, true));
        (0..sites)
            .step_by(5)
            .for_each(|site| learned.evidence.forget_domain(url(site, 0).host_str().unwrap()));
    }
    let now = NOW.saturating_add(Duration::from_secs(20 * 4 * sites as u64));
    assert_eq!(image(&few, now), image(&all, now));
    for site in 0..sites {
        let url = url(site, 0);
        let domain = url.host_str().unwrap();
        let expected = (site % 3 == 0 && site % 5 != 0).then(|| past(site));
        assert_eq!((few.host_pause(domain), all.host_pause(domain)), (expected, expected));
        assert!(expected.is_none() || few.claim_host_trial(domain, past(site), now));
    }
}

/// All attempts have one time and one weight, so that the sums of their weights do not depend on
/// their order.
#[test]
fn no_attempt_is_lost_between_threads_that_evict_each_others_keys() {
    // With 2048 keys there are two pools.
    for (max_keys, sites, threads) in [(64, 640, 1), (64, 640, 4), (2048, 6000, 4)] {
        let ((few, _dir), all) = (bounded(max_keys), unbounded());
        let made =
            |number: usize| Attempt { attempted_at: NOW, weight: 1.0, ..attempt(number, sites) };
        let total = 3 * sites;
        (0..total).for_each(|number| all.observe(&made(number)));
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let few = &few;
            let writers: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || {
                        (thread..total).step_by(threads).for_each(|n| few.observe(&made(n)))
                    })
                })
                .collect();
            // Readers bring entries back, and take images meanwhile.
            scope.spawn(|| {
                for site in (0..sites).cycle().take_while(|_| !is_done.load(Ordering::Relaxed)) {
                    few.prefetch([&url(site, 0)]);
                    few.set_host_pause(url(site, 0).host_str().unwrap(), None);
                    if site % 600 == 0 {
                        image(few, NOW);
                    }
                }
            });
            let joined: Vec<_> =
                writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            is_done.store(true, Ordering::Relaxed);
            assert!(joined.iter().all(Result::is_ok));
        });
        assert!(few.evicted_keys() > sites as u64 / 2);
        let (few, all) = (image(&few, NOW), image(&all, NOW));
        assert_eq!((few.entries.len(), &few.days), (all.entries.len(), &all.days));
        for (own, other) in few.cells.iter().zip(&all.cells) {
            let sums = |of: &crate::evidence::evidence_snapshot::CellRow| {
                (
                    of.tag,
                    of.raw.total,
                    of.raw.success,
                    of.raw.blocked,
                    of.raw.duration,
                    of.raw.attempts,
                )
            };
            assert_eq!(sums(own), sums(other));
        }
        assert_eq!(few.cells.len(), all.cells.len());
    }
}

#[test]
fn what_cannot_be_written_stays_in_memory() {
    let (sites, tier) = (400, MemoryTier::default());
    let (few, all) = (builder(Some(20)).build().unwrap(), unbounded());
    few.learned().evidence.keep_evicted_in(Box::new(tier.clone()));
    for number in 0..4 * sites {
        tier.is_full.store((300..900).contains(&number), Ordering::Relaxed);
        few.observe(&attempt(number, sites));
        all.observe(&attempt(number, sites));
    }
    let counts = few.learned().evidence.cold_counts();
    assert!(counts.failed_writes > 100 && counts.failed_reads == 0, "{counts:?}");
    let now = NOW.saturating_add(Duration::from_secs(20 * 4 * sites as u64));
    assert_eq!(image(&few, now), image(&all, now));
    assert!(few.key_count() <= 24, "the bound holds again: {}", few.key_count());
    tier.is_unreadable.store(true, Ordering::Relaxed);
    (0..sites).for_each(|site| few.prefetch([&url(site, 0)]));
    assert!(few.learned().evidence.cold_counts().failed_reads > 100);
}

#[test]
fn a_restart_a_snapshot_and_a_compaction_have_what_left_memory() {
    let (dir, sites, max_keys) = (tempfile::tempdir().unwrap(), 600, 20);
    let now = NOW.saturating_add(Duration::from_secs(20 * 3 * sites as u64));
    let open = || {
        let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
        (builder(Some(max_keys)).keep_evicted(&journal).build().unwrap(), journal)
    };
    let (mut live, journal) = open();
    live.set_sink(Box::new(Arc::new(journal)));
    // The threads of a load take turns at what sites have in common, and some of that depends on
    // the order.
    let attempts = (0..3 * sites)
        .map(|number| attempt(number, sites))
        .filter(|made| !made.url.contains("github.io"));
    for made in attempts {
        let at = made.attempted_at;
        live.record(made, at).unwrap();
    }
    let before = image(&live, now);
    assert!(live.evicted_keys() > sites as u64 && dir.path().join("cold-0").is_dir());
    drop(live);
    let check = |what: &str| {
        let all = unbounded();
        load(dir.path(), &all, now).unwrap();
        assert_eq!(image(&all, now).difference(&before), None, "{what}");
        let (few, _journal) = open();
        load(dir.path(), &few, now).unwrap();
        assert_eq!(image(&few, now).difference(&before), None, "{what}");
        // Each thread of a load may have added a key that the others did not see.
        assert!(few.key_count() <= max_keys + 16, "{what}: {}", few.key_count());
    };
    check("a restart");
    let blank = || builder(Some(max_keys)).build().unwrap();
    let taken = snapshot(dir.path(), &blank(), now, &mut |_, _| {}).unwrap();
    assert!(taken.file.is_some() && taken.entries > 500, "{taken:?}");
    check("a snapshot");
    let options = CompactOptions { retain: Duration::from_secs(3600), ..CompactOptions::default() };
    let done = compact(dir.path(), &blank(), &options, now, &mut |_, _| {}).unwrap();
    assert!(done.attempts.1 < done.attempts.0, "{done:?}");
    check("a compaction");
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("cold-1")), "{left:?}");
}

/// A decision reads memory only, whatever is on disk.
#[test]
fn a_decision_alone_brings_nothing_back() {
    let (few, _dir) = bounded(10);
    (0..1000).for_each(|number| few.observe(&attempt(number, 100)));
    let before = few.learned().evidence.cold_counts();
    let context = SelectContext::first_attempt(NOW);
    (0..100).for_each(|site| drop(few.select(&url(site, 0), &context)));
    assert_eq!(few.learned().evidence.cold_counts(), before);
    let weights = |site| {
        few.weights(
            ("domain", url(site, 0).host_str().unwrap()),
            ContentKind::Page,
            FETCHERS[0],
            NOW,
        )
    };
    assert!((0..100).filter(|site| weights(*site).total > 0.0).count() > 50);
    assert!(few.learned().evidence.cold_counts().brought_back > before.brought_back);
}

/// A verification held both snapshots and the evidence of all records in memory. In a folder, it
/// finds the same.
#[test]
fn a_verification_with_most_keys_on_disk_finds_what_one_in_memory_finds() {
    let (dir, sites) = (tempfile::tempdir().unwrap(), 6000);
    let dir = dir.path();
    let write = |numbers: std::ops::Range<usize>| {
        let (journal, _) = Journal::open(dir, JournalOptions::default()).unwrap();
        // The threads of a fold take turns at what sites have in common.
        numbers
            .map(|number| attempt(number, sites))
            .filter(|made| !made.url.contains("github.io"))
            .for_each(|made| journal.append_attempt(&made).map(drop).unwrap());
        journal.close().unwrap();
    };
    let now = NOW.saturating_add(Duration::from_secs(20 * 12_000));
    let verified = || {
        let verify = |max_keys| verify_within(dir, max_keys, &mut |_, _| {}).unwrap();
        let (few, all) = (verify(50), verify(usize::MAX));
        assert_eq!(few, all);
        let left = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name());
        assert!(!left.into_iter().any(|name| name.to_string_lossy().starts_with("cold-0")));
        few.refold
    };
    write(0..9000);
    let taken = snapshot(dir, &unbounded(), now, &mut |_, _| {}).unwrap();
    assert!(taken.entries > 4096, "more than a group: {taken:?}");
    assert_eq!(verified(), RefoldReport::Same { records: taken.records });
    write(9000..12_000);
    let taken = snapshot(dir, &unbounded(), now, &mut |_, _| {}).unwrap();
    assert_eq!(verified(), RefoldReport::Same { records: taken.records });
    // A snapshot without the last group of domains, and one with a changed day.
    let found = fetchwise_log::load_snapshot(dir).unwrap().snapshot.unwrap();
    let sections: Vec<_> =
        found.sections().iter().map(|of| (of.kind, found.read(of).unwrap())).collect();
    let is_of_domains = |(kind, bytes): &(u32, Vec<u8>)| *kind == 3 && bytes[0] == 4;
    let last = sections.iter().rposition(is_of_domains).unwrap();
    let mut without = sections.clone();
    without.remove(last);
    let mut changed = sections;
    let first = changed.iter().position(is_of_domains).unwrap();
    let at = changed[first].1.len() - 3;
    changed[first].1[at] += 1;
    for sections in [without, changed] {
        let maintenance = fetchwise_log::Maintenance::lock(dir).unwrap();
        maintenance.write_snapshot(found.meta(), &super::snapshot::sections(&sections)).unwrap();
        drop(maintenance);
        let refold = verified();
        assert!(
            matches!(&refold, RefoldReport::Differs { what } if what.contains("days")),
            "{refold:?}"
        );
    }
}

/// An entry that came back only to be read was written again when it left memory.
#[test]
fn only_changed_entries_are_written_when_they_leave_memory() {
    let (sites, tier) = (400, MemoryTier::default());
    let few = builder(Some(20)).build().unwrap();
    few.learned().evidence.keep_evicted_in(Box::new(tier.clone()));
    (0..4 * sites).for_each(|number| few.observe(&attempt(number, sites)));
    let read_all = || {
        let before = few.learned().evidence.cold_counts().brought_back;
        for site in 0..sites {
            few.prefetch([&url(site, 0)]);
            let _ = few.host_pause(url(site, 0).host_str().unwrap());
        }
        assert!(few.learned().evidence.cold_counts().brought_back > before + sites as u64 / 2);
        tier.written.load(Ordering::Relaxed)
    };
    // What was changed and is in memory leaves it.
    let written = read_all();
    assert_eq!(read_all(), written);
    // What an attempt changes is written once.
    few.observe(&attempt(0, sites));
    let changed = read_all();
    assert!((written + 1..written + 20).contains(&changed), "{written}, {changed}");
    assert_eq!(read_all(), changed);
    let all = unbounded();
    (0..4 * sites).chain([0]).for_each(|number| all.observe(&attempt(number, sites)));
    let now = NOW.saturating_add(Duration::from_secs(20 * 4 * sites as u64));
    assert_eq!(image(&few, now), image(&all, now));
}

/// A selector that read the log of another process forgot what did not fit into memory, and so did
/// the second one on a journal.
#[test]
fn readers_and_second_selectors_keep_what_they_evict() {
    let (dir, sites) = (tempfile::tempdir().unwrap(), 600);
    let folder = |number: usize| dir.path().join(format!("cold-{number}"));
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let now = NOW.saturating_add(Duration::from_secs(20 * 4000));
    let owner = |journal: &Journal| {
        let selector = builder(Some(50)).keep_evicted(journal).build().unwrap();
        load(dir.path(), &selector, now).unwrap();
        selector
    };
    (0..1000)
        .map(|number| attempt(number, sites))
        .filter(|made| !made.url.contains("github.io"))
        .for_each(|made| journal.append_attempt(&made).map(drop).unwrap());
    journal.flush().wait().unwrap();
    let all = unbounded();
    load(dir.path(), &all, now).unwrap();
    let (first, second) = (owner(&journal), owner(&journal));
    let reader = builder(Some(50)).keep_evicted_in(dir.path()).build().unwrap();
    load(dir.path(), &reader, now).unwrap();
    assert!((0..3).all(|number| folder(number).is_dir()) && reader.evicted_keys() > 300);
    for selector in [&first, &second, &reader] {
        assert_eq!(image(selector, now).difference(&image(&all, now)), None);
    }
    drop((second, reader));
    assert!(folder(0).is_dir() && !folder(1).exists() && !folder(2).exists());
    drop(first);
    journal.close().unwrap();
    // The next reader goes on from the checkpoint of the journal's end.
    let reader = builder(Some(50)).keep_evicted_in(dir.path()).build().unwrap();
    assert_eq!(load(dir.path(), &reader, now).unwrap().replayed.entries, 0);
    assert_eq!(image(&reader, now).difference(&image(&all, now)), None);
    drop(reader);
    assert!(!folder(0).exists());
    // Where there is no directory, none is made.
    let nowhere = dir.path().join("nowhere");
    builder(Some(50)).keep_evicted_in(&nowhere).build().unwrap();
    assert!(!nowhere.exists());
    // Where no folder can be made, a reader forgets what it evicts, and an owner says why it fails.
    let blocked = tempfile::tempdir().unwrap();
    std::fs::write(blocked.path().join("cold-0"), b"a file").unwrap();
    let reader = builder(Some(50)).keep_evicted_in(blocked.path()).build().unwrap();
    assert!(!reader.learned().evidence.keeps_evicted());
    let (journal, _) = Journal::open(blocked.path(), JournalOptions::default()).unwrap();
    let failed = builder(Some(50)).keep_evicted(&journal).build().unwrap_err();
    assert!(failed.to_string().contains("cold-0"), "{failed}");
}

/// A disk that failed under evicted evidence showed in a counter and nowhere else.
#[test]
fn a_disk_that_fails_under_evicted_evidence_is_in_the_health_until_it_works_again() {
    use super::Health;
    use fetchwise_testsite::poll::until_blocking;

    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let few = builder(Some(20)).keep_evicted(&journal).build().unwrap();
    let (folder, elsewhere, sites) = (dir.path().join("cold-0"), dir.path().join("moved"), 4000);
    let mut number = 0;
    let mut observe = || {
        (number..number + 500).for_each(|number| few.observe(&attempt(number, sites)));
        number += 500;
    };
    observe();
    assert_eq!(journal.health(), Health::Good);
    // No file can be made.
    std::fs::rename(&folder, &elsewhere).unwrap();
    until_blocking("the failure shows", || {
        observe();
        journal.health() != Health::Good
    });
    let said = |what: &str| match journal.health() {
        Health::Degraded { reason, storage_full: false } => {
            assert!(reason.starts_with("evidence on disk: cannot "), "{reason}");
            assert!(
                reason.contains(folder.to_str().unwrap()) && reason.ends_with(what),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    };
    said("it stays in memory until the disk accepts it; check the disk");
    assert_eq!(journal.log_health(), Health::Good, "attempts reach the disk");
    // The thread that writes tries again by itself.
    std::fs::rename(&elsewhere, &folder).unwrap();
    until_blocking("the health is good again", || journal.health() == Health::Good);
    until_blocking("there are files", || {
        observe();
        std::fs::read_dir(&folder).unwrap().count() > 3
    });
    for file in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_some() {
            std::fs::write(&file, vec![0; file.metadata().unwrap().len() as usize]).unwrap();
        }
    }
    until_blocking("wrong bytes are found", || {
        (0..sites)
            .inspect(|site| few.prefetch([&url(*site, 0)]))
            .any(|_| journal.evidence_health() != Health::Good)
    });
    let Health::Degraded { reason, .. } = journal.evidence_health() else { panic!() };
    assert!(reason.contains("restart fetchwise") || reason.contains("check the disk"), "{reason}");
}

/// A start removed what a killed process had left before it went on: gigabytes, in seconds.
#[test]
fn what_a_killed_process_has_left_is_removed_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("cold-0");
    std::fs::create_dir(&folder).unwrap();
    // Whatever is in it, nothing of it counts.
    let left = [folder.join("run-0000000000000007.fwc"), folder.join("MANIFEST")];
    left.iter().for_each(|file| std::fs::write(file, b"left").unwrap());
    // That of a reader which was killed goes as a whole, and one that somebody has stays.
    let (killed, held) = (dir.path().join("cold-5"), dir.path().join("cold-6"));
    std::fs::create_dir(&killed).unwrap();
    let _held = fetchwise_cold::ColdStore::open_empty(&held, Default::default()).unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let few = builder(Some(20)).keep_evicted(&journal).build().unwrap();
    fetchwise_testsite::poll::until_blocking("the files are gone", || {
        left.iter().all(|file| !file.exists()) && !killed.exists()
    });
    assert!(held.is_dir());
    (0..1000).for_each(|number| few.observe(&attempt(number, 400)));
    assert!(few.learned().evidence.keys_seen() > 400);
    assert_eq!(journal.health(), super::Health::Good);
}
