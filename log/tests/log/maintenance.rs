//! The guarantees of snapshots, compaction, verify and repair: on the simulated file system with a
//! crash at every call (fault suite, rows 1, 2, 4 and 13), and on the real one during a running
//! writer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{DIR, Oracle, dir, reopen, report, scaled};
use crate::losses::wait_for;
use fetchwise_log::fs::SyncSite;
use fetchwise_log::fs::sim::{Fault, Rng, SimFs, Survival};
use fetchwise_log::fuzzing::PlainBlocks;
use fetchwise_log::{
    CompactOptions, CompactReport, Durability, Error, Log, LogOptions, Maintenance, OnFull, Reader,
    Record, RepairOptions, Section, SectionWriter, SnapshotMeta, load_snapshot_with, repair_with,
    verify_with,
};

fn keep(seq: u64) -> bool {
    seq.is_multiple_of(3)
}

fn content(covers_seq: u64) -> Vec<u8> {
    covers_seq.to_le_bytes().repeat(40)
}

fn take_snapshot(fs: &SimFs, covers_seq: u64) -> Result<(), Error> {
    let maintenance = Maintenance::lock_with(Arc::new(fs.clone()), &dir())?;
    let meta =
        SnapshotMeta { covers_seq, landmark_ms: 5, half_life_ms: 9, ..SnapshotMeta::default() };
    let (one, two) = (content(covers_seq), content(covers_seq + 1));
    let sections = [
        Section { kind: 1, version: 1, bytes: &one },
        Section { kind: 2, version: 3, bytes: &two[..99] },
    ];
    maintenance.write_snapshot(&meta, &sections).map(|_| ())
}

fn compact(fs: &SimFs, floor_seq: u64) -> Result<CompactReport, Error> {
    let maintenance = Maintenance::lock_with(Arc::new(fs.clone()), &dir())?;
    let mut options = CompactOptions::new(floor_seq, 0);
    options.max_jump = None;
    options.blocks = Some(&PlainBlocks);
    maintenance.compact(&options, &mut |seq, _| keep(seq), &mut |_| {})
}

/// Sessions of records, each a segment or more.
fn fill(fs: &SimFs, oracle: &mut Oracle, rng: &mut Rng, sessions: u64) -> Result<(), Error> {
    for _ in 0..sessions {
        let (mut log, recovery) = reopen(fs)?;
        oracle.given.truncate(recovery.next_seq as usize - 1);
        for _ in 0..4 {
            for _ in 0..4 {
                oracle.append(&mut log, rng);
            }
            log.sync()?;
            oracle.acknowledge(&log);
        }
        log.close()?;
    }
    Ok(())
}

/// The requests and their results.
#[derive(Default)]
struct Story {
    oracle: Oracle,
    /// The highest requested floor of a compaction.
    floor_asked: u64,
    snapshot_done: u64,
    snapshot_asked: u64,
}

fn tell(fs: &SimFs, story: &mut Story) -> Result<(), Error> {
    let mut rng = Rng::new(3);
    fill(fs, &mut story.oracle, &mut rng, 3)?;
    for (snapshot, floor) in [(20, 0), (40, 20), (60, 40)] {
        story.snapshot_asked = snapshot;
        take_snapshot(fs, snapshot)?;
        story.snapshot_done = snapshot;
        if floor > 0 {
            story.floor_asked = floor;
            compact(fs, floor)?;
        }
        fill(fs, &mut story.oracle, &mut rng, 1)?;
    }
    Ok(())
}

/// Checks what a crash left: every record that must be there is, every other one is right,
/// snapshots are good.
fn check(fs: &SimFs, story: &Story) -> Result<(), String> {
    let reader =
        Reader::open_with(Arc::new(fs.clone()), Path::new(DIR)).map_err(|e| e.to_string())?;
    let reader = reader.with_blocks(&PlainBlocks);
    let mut seen = Vec::new();
    let mut wrong = None;
    let summary = reader
        .for_each(|seq, record| {
            if story.oracle.given.get(seq as usize - 1).is_none_or(|p| p != record.payload) {
                wrong = Some(seq);
            }
            seen.push(seq);
        })
        .map_err(|e| e.to_string())?;
    if let Some(seq) = wrong {
        return Err(format!("record {seq} is wrong"));
    }
    if !summary.damage.is_empty() {
        return Err(format!("misjudged as damage: {:?}", summary.damage));
    }
    if !seen.windows(2).all(|w| w[0] < w[1]) {
        return Err(format!("out of order: {seen:?}"));
    }
    for seq in 1..=story.oracle.durable {
        if (seq > story.floor_asked || keep(seq)) && seen.binary_search(&seq).is_err() {
            return Err(format!("record {seq} is gone, floor {}", story.floor_asked));
        }
    }
    let search = load_snapshot_with(Arc::new(fs.clone()), Path::new(DIR))
        .map_err(|e| format!("snapshot: {e}"))?;
    if !search.rejected.is_empty() {
        return Err(format!("rejected: {:?}", search.rejected));
    }
    let covers = search.snapshot.as_ref().map_or(0, |s| s.meta().covers_seq);
    if covers != story.snapshot_done && covers != story.snapshot_asked {
        return Err(format!("snapshot {covers} instead of {}", story.snapshot_done));
    }
    if let Some(snapshot) = &search.snapshot {
        let read = |kind| snapshot.section(kind).map_err(|e| format!("section: {e}"));
        let expected = [(1, content(covers)), (3, content(covers + 1)[..99].to_vec())];
        if [read(1)?, read(2)?] != expected.map(Some) {
            return Err("a snapshot's section is wrong".into());
        }
    }
    let (log, recovery) = reopen(fs).map_err(|e| format!("open: {e}"))?;
    let next = story.oracle.given.len() as u64 + 1;
    if recovery.next_seq < story.oracle.durable + 1 || recovery.next_seq > next {
        return Err(format!("next is {}", recovery.next_seq));
    }
    drop(log);
    compact(fs, story.floor_asked).map(|_| ()).map_err(|e| format!("compact again: {e}"))
}

#[test]
fn compaction_drops_all_droppable_records_and_no_others() {
    let fs = SimFs::new(1);
    let mut story = Story::default();
    tell(&fs, &mut story).unwrap();
    check(&fs, &story).unwrap();
    let mut seen = Vec::new();
    let fs: Arc<SimFs> = Arc::new(fs);
    Reader::open_with(fs.clone(), &dir())
        .unwrap()
        .with_blocks(&PlainBlocks)
        .for_each(|seq, _| seen.push(seq))
        .unwrap();
    let floor = load_snapshot_with(fs.clone(), &dir()).unwrap().floor_seq;
    assert_eq!(floor, 40);
    let total = story.oracle.given.len() as u64;
    assert_eq!(seen, (1..=total).filter(|&s| s > 40 || keep(s)).collect::<Vec<_>>());
    assert!(verify_with(fs.clone(), &dir()).unwrap().is_sound());
    // Without anything to keep, whole segments go.
    take_snapshot(&fs, 80).unwrap();
    let maintenance = Maintenance::lock_with(fs.clone(), &dir()).unwrap();
    let mut options = CompactOptions::new(u64::MAX, 0);
    options.blocks = Some(&PlainBlocks);
    options.max_jump = None;
    options.dry_run = true;
    let before = fs.files();
    let dry = maintenance.compact(&options, &mut |_, _| false, &mut |_| {}).unwrap();
    assert_eq!(fs.files(), before);
    options.dry_run = false;
    let done = maintenance.compact(&options, &mut |_, _| false, &mut |_| {}).unwrap();
    assert!(
        done.unlinked + done.rewritten > 0
            && done.segments == dry.segments
            && done.records == dry.records
    );
    assert!(done.bytes.1 < done.bytes.0);
    assert_eq!(done.floor_seq, 60, "the older snapshot bounds the floor");
    let mut seen = Vec::new();
    Reader::open_with(fs.clone(), &dir())
        .unwrap()
        .with_blocks(&PlainBlocks)
        .for_each(|seq, _| seen.push(seq))
        .unwrap();
    assert_eq!(seen, (61..=total).collect::<Vec<_>>());
    drop(maintenance);
    let (_, recovery) = reopen(&fs).unwrap();
    assert_eq!(recovery.next_seq, total + 1);
}

#[test]
fn records_are_awaited_until_the_files_prove_them_durable() {
    let fs = SimFs::new(1);
    let (mut log, mut oracle, mut rng) = (reopen(&fs).unwrap().0, Oracle::default(), Rng::new(3));
    for _ in 0..3 {
        oracle.append(&mut log, &mut rng);
        log.sync().unwrap();
    }
    let maintenance = Maintenance::lock_with(Arc::new(fs.clone()), &dir()).unwrap();
    let await_durable = |seq| maintenance.await_durable(seq);
    // The writer knows that they are on disk, and the files do not say so yet.
    assert!(matches!(await_durable(3), Err(Error::Invalid(why)) if why.contains("up to 3")));
    log.mark().unwrap();
    await_durable(3).unwrap();
    assert!(matches!(await_durable(4), Err(Error::Invalid(_))), "there is no fourth");
}

#[test]
fn the_clock_guard_refuses_a_jump() {
    let fs = SimFs::new(1);
    tell(&fs, &mut Story::default()).unwrap();
    let newest = Reader::open_with(Arc::new(fs.clone()), &dir())
        .unwrap()
        .with_blocks(&PlainBlocks)
        .for_each(|_, _| {})
        .unwrap()
        .max_time
        .unwrap();
    let maintenance = Maintenance::lock_with(Arc::new(fs.clone()), &dir()).unwrap();
    let day = 24 * 3600 * 1000;
    let compact = |now| {
        let mut options = CompactOptions::new(60, now);
        options.blocks = Some(&PlainBlocks);
        maintenance.compact(&options, &mut |_, _| true, &mut |_| {})
    };
    assert!(matches!(compact(newest + 3 * day), Err(Error::Invalid(_))));
    compact(newest + day).unwrap();
}

fn crash_at(
    cut: u64,
    salt: u64,
    disabled: Option<SyncSite>,
    images: &mut u64,
    again: bool,
) -> Result<bool, String> {
    let fs = SimFs::new(2);
    fs.disable_sync(disabled);
    let mut story = Story::default();
    fs.fault_at(cut, Fault::PowerOff);
    let told = tell(&fs, &mut story);
    if let Err(e) = told
        && !fs.is_off()
    {
        return Err(format!("without a crash: {e}"));
    }
    for survival in Survival::ALL {
        for round in 0..if again { 1 } else { 3 } {
            let mut rng = Rng::new(cut * 31 + round + (salt << 32));
            let image = fs.crash(survival, &mut rng);
            if again {
                // The next compaction is cut off as well.
                image.fault_at(rng.below(200), Fault::PowerOff);
                let _ = compact(&image, story.floor_asked);
            }
            let image = if again { image.crash(Survival::AnyZeros, &mut rng) } else { image };
            *images += 1;
            check(&image, &story)
                .map_err(|e| format!("cut {cut}, {survival:?}, round {round}: {e}"))?;
        }
    }
    Ok(fs.is_off())
}

#[test]
fn a_crash_at_any_call_of_snapshot_and_compaction_leaves_a_good_log() {
    let mut images = 0;
    let stride = scaled(3, 1, 1);
    for again in [false, true] {
        let mut cut = 0;
        while crash_at(cut, 0, None, &mut images, again).unwrap_or_else(|e| panic!("{e}")) {
            cut += stride;
        }
    }
    report(
        "4",
        "crash at each call of snapshots and compaction, and again in the next compaction",
        images,
        0,
        0,
    );
}

#[test]
fn each_sync_call_of_maintenance_is_needed() {
    let sites = [
        SyncSite::Snapshot,
        SyncSite::SnapshotDir,
        SyncSite::SnapshotManifest,
        SyncSite::SnapshotManifestDir,
        SyncSite::Rewrite,
        SyncSite::RewriteDir,
    ];
    for site in sites {
        let (mut cut, mut salt) = (0, 0);
        let story = loop {
            match crash_at(cut, salt, Some(site), &mut 0, false) {
                Err(story) => break story,
                Ok(true) => cut += 1,
                // Some need one directory change to survive and another to be lost, which depends
                // on chance.
                Ok(false) if salt < 20 => (cut, salt) = (0, salt + 1),
                Ok(false) => panic!("nothing notices that {site:?} is switched off"),
            }
        };
        println!("MUTATION | {} | {story} |", site.name());
    }
    report("13", "sync calls of maintenance switched off, each noticed", sites.len() as u64, 0, 0);
}

/// After a successful compaction the space is gone for good: the sync of the directory after
/// unlinking.
fn space_stays_free(disabled: Option<SyncSite>) -> bool {
    let fs = SimFs::new(2);
    fs.disable_sync(disabled);
    let mut story = Story::default();
    tell(&fs, &mut story).unwrap();
    take_snapshot(&fs, 80).unwrap();
    compact(&fs, 60).unwrap();
    let count = |fs: &SimFs| fs.files().len();
    count(&fs.crash(Survival::None, &mut Rng::new(1))) <= count(&fs)
}

#[test]
fn unlinked_files_stay_unlinked() {
    assert!(space_stays_free(None));
    assert!(!space_stays_free(Some(SyncSite::UnlinkDir)));
}

#[test]
fn a_damaged_snapshot_falls_back_to_the_one_before() {
    let fs = SimFs::new(4);
    tell(&fs, &mut Story::default()).unwrap();
    let search = load_snapshot_with(Arc::new(fs.clone()), &dir()).unwrap();
    let current = search.snapshot.unwrap();
    assert_eq!(current.meta().covers_seq, 60);
    let path = current.path().to_owned();
    let good = fs.read(&path).unwrap();
    let mut tried = 0;
    let mut expect_fallback = |bytes: Vec<u8>| {
        fs.put(&path, bytes);
        let search = load_snapshot_with(Arc::new(fs.clone()), &dir()).unwrap();
        assert_eq!(search.rejected.len(), 1);
        assert_eq!(search.snapshot.unwrap().meta().covers_seq, 40);
        tried += 1;
    };
    for len in (0..good.len()).step_by(scaled(7, 1, 1) as usize) {
        expect_fallback(good[..len].to_vec());
    }
    for bit in (0..good.len() * 8).step_by(scaled(7, 1, 1) as usize) {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        expect_fallback(bytes);
    }
    report("1-2", "truncations and bit flips of a snapshot, each falling back", tried, 0, 0);
    // Without both snapshots, the records below the floor are lost, and the log reports that.
    let names: Vec<_> =
        fs.files().into_iter().filter(|f| f.extension().is_some_and(|e| e == "fws")).collect();
    assert_eq!(names.len(), 2);
    names.iter().for_each(|name| fs.lose(name));
    let error = load_snapshot_with(Arc::new(fs.clone()), &dir()).unwrap_err();
    assert!(error.is_refusal());
    assert_eq!(error.damage()[0].records, Some((1, 40)));
}

#[test]
fn a_snapshot_waits_for_the_disk_and_later_losses_are_detected() {
    // The bug: a snapshot of records that a power cut then removed hid the later records with the
    // same numbers.
    let fs = SimFs::new(4);
    let mut oracle = Oracle::default();
    let (mut log, _) = reopen(&fs).unwrap();
    for _ in 0..2 {
        oracle.append(&mut log, &mut Rng::new(1));
        log.sync().unwrap();
    }
    assert!(
        matches!(take_snapshot(&fs, 2), Err(Error::Invalid(_))),
        "nothing on disk says that record 2 is there"
    );
    log.mark().unwrap();
    take_snapshot(&fs, 2).unwrap();
    drop(log);
    let path = crate::common::last_segment(&fs);
    let bytes = fs.read(&path).unwrap();
    fs.put(&path, bytes[..4096 + 100].to_vec());
    fs.lose(&dir().join("SEGMENTS"));
    for error in [reopen(&fs).unwrap_err(), compact(&fs, 0).unwrap_err()] {
        assert!(error.is_refusal(), "{error}");
    }
    let summary = Reader::open_with(Arc::new(fs.clone()), &dir())
        .unwrap()
        .with_blocks(&PlainBlocks)
        .for_each(|_, _| {})
        .unwrap();
    assert!(summary.damage[0].records.is_some_and(|(_, last)| last >= 2), "{:?}", summary.damage);
    let options = RepairOptions::salvaging();
    assert_eq!(repair_with(Arc::new(fs.clone()), &dir(), options).unwrap().remaining, []);
    assert_eq!(reopen(&fs).unwrap().1.next_seq, 3);
}

#[test]
fn hundreds_of_small_segments_are_read_and_merged() {
    let fs = SimFs::new(4);
    let mut oracle = Oracle::default();
    let mut rng = Rng::new(1);
    for _ in 0..400 {
        let (mut log, _) = reopen(&fs).unwrap();
        oracle.append(&mut log, &mut rng);
        log.close().unwrap();
    }
    oracle.check(&fs, 400).unwrap();
    let done = compact(&fs, 0).unwrap();
    assert_eq!((done.segments, done.records), ((400, 2), (399, 399)));
    oracle.check(&fs, 400).unwrap();
    assert_eq!(
        fs.files().into_iter().filter(|f| f.extension().is_some_and(|e| e == "fwl")).count(),
        2
    );
}

/// Damages a log in some way.
fn hurt(fs: &SimFs, rng: &mut Rng) {
    let files: Vec<_> =
        fs.files().into_iter().filter(|f| f.extension().is_some_and(|e| e == "fwl")).collect();
    let manifest = fs.files().into_iter().find(|f| f.ends_with("SEGMENTS"));
    for _ in 0..=rng.below(3) {
        let path = &files[rng.below(files.len() as u64) as usize];
        let Some(mut bytes) = fs.read(path) else { continue };
        if bytes.is_empty() {
            continue;
        }
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(7) {
            0 => bytes.truncate(at),
            1 => {
                let end = (at + 700).min(bytes.len());
                bytes[at..end].fill(0);
            }
            2 => {
                let at = at % 256;
                bytes[at] ^= 1;
            }
            3 => bytes[..at.min(4096)].fill(7),
            4 => {
                fs.lose(path);
                continue;
            }
            5 if rng.below(3) == 0 => {
                if let Some(manifest) = &manifest {
                    fs.put(manifest, vec![1; 128]);
                }
                continue;
            }
            _ => bytes[at] ^= 1 << rng.below(8),
        }
        fs.put(path, bytes);
    }
}

#[test]
fn repair_keeps_good_records_and_reports_lost_ones() {
    let mut runs = 0;
    let mut mended = 0;
    for seed in 0..scaled(400, 1000, 4000) {
        let fs = SimFs::new(seed);
        let mut rng = Rng::new(seed);
        let mut oracle = Oracle::default();
        fill(&fs, &mut oracle, &mut rng, 4).unwrap();
        let total = oracle.given.len() as u64;
        if seed % 2 == 1 {
            take_snapshot(&fs, 20).unwrap();
            take_snapshot(&fs, 60).unwrap();
        }
        if seed % 4 == 1 {
            compact(&fs, 20).unwrap();
            fill(&fs, &mut oracle, &mut rng, 2).unwrap();
        }
        let total = total.max(oracle.given.len() as u64);
        hurt(&fs, &mut rng);
        let arc: Arc<SimFs> = Arc::new(fs.clone());
        let options = RepairOptions::everything();
        // Every second repair is killed before its end and repeated on the remains.
        if rng.below(2) == 0 {
            fs.fault_at(fs.calls() + rng.below(150), Fault::PowerOff);
            let cut = repair_with(arc.clone(), &dir(), options);
            if fs.is_off() {
                let after = fs.crash(Survival::All, &mut rng);
                let again = repair_with(Arc::new(after.clone()), &dir(), options).unwrap();
                assert_eq!(again.remaining, [], "seed {seed} after a crash");
                check_repaired(&after, &oracle, None, total, seed);
                runs += 1;
                continue;
            }
            assert!(cut.is_ok(), "seed {seed}: {cut:?}");
        }
        let before = Reader::open_with(arc.clone(), &dir()).unwrap().with_blocks(&PlainBlocks);
        let mut readable = Vec::new();
        before.for_each(|seq, _| readable.push(seq)).unwrap();
        let done = repair_with(arc, &dir(), options).unwrap();
        assert_eq!(done.remaining, [], "seed {seed}: {:?}", done.damage);
        mended += u64::from(!done.damage.is_empty());
        check_repaired(&fs, &oracle, Some(&readable), total, seed);
        runs += 1;
    }
    assert!(mended > 100);
    report("-", "repairs of logs damaged at random, some cut off and run again", runs, 0, 0);
}

fn check_repaired(fs: &SimFs, oracle: &Oracle, readable: Option<&[u64]>, total: u64, seed: u64) {
    let mut kept = Vec::new();
    let reader = Reader::open_with(Arc::new(fs.clone()), &dir()).unwrap().with_blocks(&PlainBlocks);
    let summary = reader
        .for_each(|seq, record| {
            assert_eq!(record.payload, oracle.given[seq as usize - 1], "seed {seed}: record {seq}");
            kept.push(seq);
        })
        .unwrap();
    assert_eq!(summary.damage, [], "seed {seed}");
    assert!(kept.windows(2).all(|w| w[0] < w[1]), "seed {seed}");
    for seq in readable.unwrap_or_default() {
        assert!(
            kept.binary_search(seq).is_ok(),
            "seed {seed}: record {seq} could be read before the repair"
        );
    }
    let (_, recovery) = reopen(fs).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert!(recovery.next_seq <= total + 1, "seed {seed}");
    assert!(recovery.next_seq > kept.last().copied().unwrap_or(0), "seed {seed}");
}

#[test]
fn repair_without_salvage_changes_nothing_but_the_quarantine() {
    let fs = SimFs::new(9);
    let mut oracle = Oracle::default();
    fill(&fs, &mut oracle, &mut Rng::new(1), 3).unwrap();
    let path = fs.files().into_iter().find(|f| f.extension().is_some_and(|e| e == "fwl")).unwrap();
    let mut bytes = fs.read(&path).unwrap();
    bytes[4096 + 60] ^= 1;
    fs.put(&path, bytes.clone());
    let report = repair_with(Arc::new(fs.clone()), &dir(), RepairOptions::default()).unwrap();
    assert_eq!(report.damage, report.remaining);
    assert_eq!(report.quarantined.len(), 1);
    let saved = fs.read(&report.quarantined[0]).unwrap();
    assert_eq!(saved, bytes[4096..4096 + saved.len()]);
    assert_eq!(fs.read(&path).unwrap(), bytes);
    assert!(reopen(&fs).is_err());
}

/// The bytes that repair removes are durably in quarantine before the log changes.
fn quarantine_is_durable(disabled: Option<SyncSite>) -> bool {
    let mut durable = true;
    for cut in 0..200 {
        let fs = SimFs::new(9);
        let mut oracle = Oracle::default();
        fill(&fs, &mut oracle, &mut Rng::new(1), 3).unwrap();
        let path =
            fs.files().into_iter().find(|f| f.extension().is_some_and(|e| e == "fwl")).unwrap();
        let mut bytes = fs.read(&path).unwrap();
        bytes[4096 + 60] ^= 1;
        fs.put(&path, bytes.clone());
        fs.disable_sync(disabled);
        fs.fault_at(fs.calls() + cut, Fault::PowerOff);
        let _ = repair_with(Arc::new(fs.clone()), &dir(), RepairOptions::salvaging());
        let after = fs.crash(Survival::None, &mut Rng::new(1));
        let changed = after.read(&path) != Some(bytes.clone());
        let saved = after.files().into_iter().filter(|f| f.starts_with("/log/quarantine"));
        let found = saved
            .filter_map(|f| after.read(&f))
            .any(|saved| !saved.is_empty() && bytes[4096..].starts_with(&saved));
        durable &= found || !changed;
    }
    durable
}

#[test]
fn repair_quarantines_before_it_changes_anything() {
    assert!(quarantine_is_durable(None));
    for site in [SyncSite::Quarantine, SyncSite::QuarantineDir] {
        assert!(
            !quarantine_is_durable(Some(site)),
            "nothing notices that {site:?} is switched off"
        );
    }
    report("13", "sync calls of repair and of unlinking switched off, each noticed", 3, 0, 0);
}

#[test]
fn compaction_runs_during_a_writer_and_readers() {
    let tmp = tempfile::tempdir().unwrap();
    let mut options = LogOptions::default();
    options.durability = Durability::Os;
    options.segment_bytes = 64 << 10;
    options.on_full = OnFull::Block;
    // The writer packs some batches, and maintenance packs what it keeps.
    options.blocks = Some(&PlainBlocks);
    options.pack_from = 20;
    let (log, _) = Log::open(tmp.path(), options).unwrap();
    let (stop, passes) = (AtomicBool::new(false), AtomicU64::new(0));
    let append = |seq: u64| {
        let payload = seq.to_le_bytes().repeat(8);
        log.append(Record { kind: 1, schema: 1, key_hash: seq, time_ms: 0, payload: &payload })
            .unwrap()
    };
    (1..=5000).for_each(|seq| {
        append(seq);
    });
    log.flush().wait().unwrap();
    let mut floor = 0;
    let mut last = 0;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut seq = 5001;
            while !stop.load(Ordering::SeqCst) {
                append(seq);
                seq += 1;
                if seq % 100 == 0 {
                    log.flush().wait().unwrap();
                }
            }
            seq - 1
        });
        let reader = scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let mut previous = 0;
                match Reader::open(tmp.path()).unwrap().with_blocks(&PlainBlocks).for_each(
                    |seq, r| {
                        assert_eq!(r.payload[..8], seq.to_le_bytes());
                        assert!(seq > previous);
                        previous = seq;
                    },
                ) {
                    Ok(summary) => assert_eq!(summary.damage, []),
                    Err(Error::Replaced { .. }) => continue,
                    Err(e) => panic!("{e}"),
                }
                passes.fetch_add(1, Ordering::SeqCst);
            }
        });
        for round in 1..=8u64 {
            let maintenance = Maintenance::lock(tmp.path()).unwrap();
            let covers_seq = log.metrics().durable_seq;
            let meta = SnapshotMeta { covers_seq, ..SnapshotMeta::default() };
            maintenance
                .write_snapshot(&meta, &[Section { kind: 1, version: 1, bytes: &[1; 100] }])
                .unwrap();
            let mut options = CompactOptions::new(500 * round, 0);
            options.max_jump = None;
            options.small_bytes = 32 << 10;
            options.blocks = Some(&PlainBlocks);
            let done =
                maintenance.compact(&options, &mut |seq, _| seq % 10 == 0, &mut |_| {}).unwrap();
            floor = done.floor_seq;
            let before = passes.load(Ordering::SeqCst);
            wait_for("a reader reads everything", || passes.load(Ordering::SeqCst) > before);
        }
        stop.store(true, Ordering::SeqCst);
        last = writer.join().unwrap();
        reader.join().unwrap();
    });
    log.close().unwrap();
    assert!(floor > 0);
    let mut seen = Vec::new();
    let reader = Reader::open(tmp.path()).unwrap().with_blocks(&PlainBlocks);
    let summary = reader.for_each(|seq, _| seen.push(seq)).unwrap();
    assert_eq!(summary.damage, []);
    for seq in 1..=last {
        assert!(
            (seq <= floor && seq % 10 != 0) || seen.binary_search(&seq).is_ok(),
            "record {seq} of {last} is gone"
        );
    }
    assert!(fetchwise_log::verify(tmp.path()).unwrap().is_sound());
}

#[test]
fn a_large_log_is_compacted_while_a_writer_appends_at_full_speed() {
    if !crate::common::full() {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let mut options = LogOptions::default();
    options.durability = Durability::Os;
    options.segment_bytes = 16 << 20;
    let (log, _) = Log::open(tmp.path(), options).unwrap();
    let append = |seq: u64| {
        let mut payload = [7; 263];
        payload[..8].copy_from_slice(&seq.to_le_bytes());
        log.append(Record { kind: 1, schema: 1, key_hash: seq, time_ms: 0, payload: &payload })
            .unwrap();
    };
    let records = 2_000_000;
    (1..=records).for_each(append);
    log.flush().wait().unwrap();
    let stop = AtomicBool::new(false);
    let (mut last, mut done, mut took) = (0, CompactReport::default(), std::time::Duration::ZERO);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut seq = records;
            while !stop.load(Ordering::SeqCst) {
                seq += 1;
                append(seq);
            }
            seq
        });
        let maintenance = Maintenance::lock(tmp.path()).unwrap();
        for covers_seq in [records - 1, records] {
            let meta = SnapshotMeta { covers_seq, ..SnapshotMeta::default() };
            maintenance
                .write_snapshot(&meta, &[Section { kind: 1, version: 1, bytes: b"x" }])
                .unwrap();
        }
        let mut options = CompactOptions::new(records / 2, 0);
        options.max_jump = None;
        let start = std::time::Instant::now();
        done = maintenance.compact(&options, &mut |_, _| false, &mut |_| {}).unwrap();
        took = start.elapsed();
        stop.store(true, Ordering::SeqCst);
        last = writer.join().unwrap();
    });
    log.close().unwrap();
    let mut next = records / 2 + 1;
    let summary = Reader::open(tmp.path())
        .unwrap()
        .for_each(|seq, record| {
            assert_eq!((seq, &record.payload[..8]), (next, &seq.to_le_bytes()[..]));
            next += 1;
        })
        .unwrap();
    assert_eq!((summary.damage, next), (vec![], last + 1));
    assert!(done.bytes.0 - done.bytes.1 > records / 2 * 260);
    println!("{done:?} in {took:?}, {} records appended meanwhile", last - records);
    report(
        "-",
        "records that a compaction of 2 M during a running writer had to keep or drop",
        records,
        0,
        0,
    );
}

fn log_of_two_records(fs: &SimFs) {
    let mut options = LogOptions::default();
    options.durability = Durability::Sync;
    let (log, _) = Log::open_with(Arc::new(fs.clone()), &dir(), options).unwrap();
    for _ in 0..2 {
        let record = Record { kind: 1, schema: 1, key_hash: 1, time_ms: 1, payload: b"x" };
        log.append(record).unwrap();
    }
    log.close().unwrap();
}

/// A snapshot was in memory as a whole from its opening on.
#[test]
fn sections_are_read_when_they_are_asked_for_and_checked_again() {
    let fs = SimFs::new(1);
    log_of_two_records(&fs);
    take_snapshot(&fs, 1).unwrap();
    let found = load_snapshot_with(Arc::new(fs.clone()), &dir()).unwrap().snapshot.unwrap();
    let lens: Vec<_> = found.sections().iter().map(|of| (of.kind, of.version, of.len)).collect();
    assert_eq!(lens, [(1, 1, 320), (2, 3, 99)]);
    let good = fs.read(found.path()).unwrap();
    let mut bytes = good.clone();
    bytes[4096 + 32 + 5] ^= 1;
    fs.put(found.path(), bytes);
    match found.section(1) {
        Err(Error::Corrupt { damage, .. }) => assert_eq!(damage[0].offset, 4096 + 32),
        other => panic!("{other:?}"),
    }
    assert_eq!(found.section(2).unwrap(), Some((3, content(2)[..99].to_vec())));
    fs.put(found.path(), good);
    assert_eq!(found.section(1).unwrap(), Some((1, content(1))));
    // It stays readable when it is no longer one of the two that are kept.
    (0..2).for_each(|_| take_snapshot(&fs, 2).unwrap());
    assert!(!fs.files().contains(&found.path().to_owned()));
    assert_eq!(found.section(1).unwrap(), Some((1, content(1))));
}

#[test]
fn a_prepared_snapshot_counts_once_it_has_its_name_and_leaves_nothing_without_one() {
    let fs = SimFs::new(1);
    log_of_two_records(&fs);
    let maintenance = Maintenance::lock_with(Arc::new(fs.clone()), &dir()).unwrap();
    let meta = SnapshotMeta { covers_seq: 1, ..SnapshotMeta::default() };
    let bytes = content(1);
    let prepare = || {
        let mut fill = |to: &mut SectionWriter<'_>| {
            (0..3).try_for_each(|kind| to.put(Section { kind, version: 1, bytes: &bytes }))
        };
        maintenance.prepare_snapshot(&meta, &mut fill, &|_| Ok(None)).unwrap()
    };
    let newest = || load_snapshot_with(Arc::new(fs.clone()), &dir()).unwrap().snapshot;
    let is_there = || fs.files().iter().any(|file| file.to_str().unwrap().contains("tmp-snap"));
    let prepared = prepare();
    assert!(is_there() && newest().is_none());
    drop(prepared);
    assert!(!is_there());
    let path = maintenance.publish_snapshot(prepare(), &|_| Ok(None)).unwrap();
    assert!(!is_there());
    let found = newest().unwrap();
    assert_eq!((found.path(), found.sections().len()), (&*path, 3));
    // An error while it is filled leaves what was there.
    let mut refuse = |_: &mut SectionWriter<'_>| Err(Error::Invalid("no".into()));
    assert!(maintenance.fill_snapshot(&meta, &mut refuse, &|_| Ok(None)).is_err());
    assert!(!is_there() && newest().unwrap().path() == path);
}
