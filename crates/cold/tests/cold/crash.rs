//! Power cuts, failing calls and missing syncs on a simulated file system.

use fetchwise_log::fs::SyncSite;
use fetchwise_log::fs::sim::{Fault, Rng, SimFs, Survival};

use crate::model::{Checkpoint, Model, Op, open, report, scaled};

/// A run of operations that is the same each time; errors of the disk do not end it.
fn script(model: &mut Model, ops: usize) -> Result<(), String> {
    let mut rng = Rng::new(5);
    for _ in 0..ops {
        let op = Op::draw(&mut rng);
        model.apply(&op).map_err(|e| format!("{op:?}: {e}"))?;
        if model.fs.is_off() {
            break;
        }
    }
    Ok(())
}

/// Checks an image of the disk, possibly after another power cut while it was opened.
fn check_image(
    image: &SimFs,
    possible: &[Checkpoint],
    second: Option<(u64, Survival)>,
) -> Result<(), String> {
    let Some((cut, survival)) = second else {
        return open(image, possible)?
            .map(|_| ())
            .ok_or_else(|| "the disk works, and it did not open".to_owned());
    };
    image.fault_at(cut, Fault::PowerOff);
    open(image, possible)?;
    check_image(&image.crash(survival, &mut Rng::new(cut)), possible, None)
}

/// Runs operations into a power cut at a random call, and checks possible images of the disk after
/// it.
fn crash_once(seed: u64, disabled: Option<SyncSite>, images: &mut u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut model = Model::new(seed);
    model.fs.disable_sync(disabled);
    let cut = rng.below(200);
    model.fs.fault_at(cut, Fault::PowerOff);
    for _ in 0..100 {
        let op = Op::draw(&mut rng);
        model.apply(&op).map_err(|e| format!("seed {seed}, {op:?}: {e}"))?;
    }
    for survival in Survival::ALL {
        let rounds = if matches!(survival, Survival::All | Survival::None) { 1 } else { 4 };
        for round in 0..rounds {
            *images += 1;
            let image = model.fs.crash(survival, &mut rng);
            let second =
                (round % 2 == 1).then(|| (rng.below(30), Survival::ALL[rng.below(5) as usize]));
            check_image(&image, &model.possible, second).map_err(|e| {
                format!("seed {seed}, cut {cut}, {survival:?}, again {second:?}: {e}")
            })?;
        }
    }
    Ok(())
}

#[test]
fn no_power_cut_leaves_anything_but_a_checkpoint() {
    let goal = scaled(4000, 60_000, 500_000);
    let (mut images, mut seed) = (0, 0);
    while images < goal {
        seed += 1;
        if let Err(e) = crash_once(seed, None, &mut images) {
            panic!("{e}");
        }
    }
    report("power cuts, half of them again while the store is opened", images);
}

#[test]
fn each_sync_call_is_needed() {
    let sites = [
        SyncSite::Snapshot,
        SyncSite::SnapshotDir,
        SyncSite::SnapshotManifest,
        SyncSite::SnapshotManifestDir,
        SyncSite::LogDirParent,
    ];
    for site in sites {
        let (mut images, mut seed, mut found) = (0, 0, Ok(()));
        while found.is_ok() && seed < 2000 {
            seed += 1;
            found = crash_once(seed, Some(site), &mut images);
        }
        let Err(story) = found else { panic!("nothing notices that {site:?} is switched off") };
        println!("MUTATION | cold store: {} | {story} |", site.name());
    }
    report("sync calls switched off, each noticed", sites.len() as u64);
}

#[test]
fn a_crash_at_each_call_and_again_at_each_call_of_the_next_opening() {
    let ops = 150;
    let mut clean = Model::new(9);
    script(&mut clean, ops).unwrap();
    let (calls, stride) = (clean.fs.calls(), scaled(8, 3, 1));
    assert!(calls > 250, "{calls} calls are too few");
    let mut images = 0;
    for cut in (0..=calls).step_by(stride as usize) {
        let mut model = Model::new(9);
        model.fs.fault_at(cut, Fault::PowerOff);
        script(&mut model, ops).unwrap();
        for survival in Survival::ALL {
            let image = || model.fs.crash(survival, &mut Rng::new(cut));
            let whole = image();
            check_image(&whole, &model.possible, None)
                .unwrap_or_else(|e| panic!("cut {cut}, {survival:?}: {e}"));
            for second in (cut % stride..whole.calls()).step_by(stride as usize) {
                images += 1;
                let again = Survival::ALL[(second % 5) as usize];
                check_image(&image(), &model.possible, Some((second, again))).unwrap_or_else(|e| {
                    panic!("cut {cut}, {survival:?}, then {second}, {again:?}: {e}")
                });
            }
        }
    }
    report("crash at each call, and again at each call of the next opening", images);
}

#[test]
fn every_call_may_fail_once() {
    let ops = 150;
    let mut clean = Model::new(9);
    script(&mut clean, ops).unwrap();
    let mut runs = 0;
    for fault in [Fault::Eio, Fault::Enospc, Fault::Eintr, Fault::Short] {
        for call in (0..=clean.fs.calls()).step_by(scaled(7, 1, 1) as usize) {
            runs += 1;
            let mut model = Model::new(9);
            model.fs.fault_at(call, fault);
            script(&mut model, ops)
                .and_then(|()| {
                    for survival in Survival::ALL {
                        check_image(
                            &model.fs.crash(survival, &mut Rng::new(call)),
                            &model.possible,
                            None,
                        )
                        .map_err(|e| format!("{survival:?}: {e}"))?;
                    }
                    model.check()
                })
                .unwrap_or_else(|e| panic!("{fault:?} at call {call}: {e}"));
        }
    }
    report("EIO, ENOSPC, EINTR, short read or write at each call", runs);
}

/// Story: while a run was being written in steps, buffers were written, too, and the sync of their
/// name failed. The later sync of the run's own name succeeded without making it durable, and a
/// power cut left a checkpoint without one of its runs.
#[test]
fn a_run_that_is_being_written_when_a_sync_fails_is_in_no_checkpoint() {
    let merging = || {
        let mut model = Model::new(3);
        model.reopen().unwrap();
        for from in [0, 90, 30, 150, 60] {
            model.apply(&Op::PutMany(from)).unwrap();
        }
        assert!(model.checkpoint().unwrap());
        (0..3).for_each(|_| model.apply(&Op::Maintain).unwrap());
        model
    };
    let finish = |model: &mut Model| {
        [Op::PutMany(10), Op::Maintain, Op::PutMany(20), Op::Settle]
            .iter()
            .try_for_each(|op| model.apply(op))?;
        model.checkpoint().map(drop)
    };
    let mut whole = merging();
    let first = whole.fs.calls();
    finish(&mut whole).unwrap();
    for call in first..whole.fs.calls() {
        let mut model = merging();
        model.fs.fault_at(call, Fault::Eio);
        finish(&mut model).unwrap();
        for survival in Survival::ALL {
            check_image(&model.fs.crash(survival, &mut Rng::new(call)), &model.possible, None)
                .unwrap_or_else(|e| panic!("call {call}, {survival:?}: {e}"));
        }
    }
}

/// Story: a checkpoint whose last sync failed was opened, the runs of the former one were removed,
/// and a power cut brought the former manifest back, without its runs.
#[test]
fn a_checkpoint_that_is_visible_and_not_durable_is_made_durable_before_files_are_removed() {
    let second_checkpoint = |failing_call: Option<u64>| {
        let mut model = Model::new(3);
        model.reopen().unwrap();
        model.apply(&Op::PutMany(0)).unwrap();
        assert!(model.checkpoint().unwrap());
        model.apply(&Op::Clear).unwrap();
        model.apply(&Op::PutMany(200)).unwrap();
        failing_call.into_iter().for_each(|call| model.fs.fault_at(call, Fault::Eio));
        let is_made = model.checkpoint().unwrap();
        (model, is_made)
    };
    let calls = second_checkpoint(None).0.fs.calls();
    // After its last sync a checkpoint only removes files, which may fail.
    let (mut failed, _) = (0..calls)
        .rev()
        .map(|call| second_checkpoint(Some(call)))
        .find(|(_, is_made)| !is_made)
        .unwrap();
    assert_eq!(failed.possible.len(), 2);
    failed.reopen().unwrap();
    assert_eq!(failed.entries.len(), 56, "the new checkpoint is visible");
    for survival in Survival::ALL {
        check_image(&failed.fs.crash(survival, &mut Rng::new(1)), &failed.possible, None).unwrap();
    }
}
