//! Fault suite, rows 3, 4, 6 and 13: power cuts and failing calls on a simulated file system.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Oracle, check_image, reopen, report, scaled, workload};
use fetchwise_log::fs::sim::{Fault, Rng, SimFs, Survival};

/// Runs a workload into a power cut at a random call, and checks images of what may be found afterwards.
fn crash_once(seed: u64, images: &mut u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let fs = SimFs::new(seed);
    let mut oracle = Oracle::default();
    let cut = rng.below(250);
    fs.fault_at(cut, Fault::PowerOff);
    let _ = workload(&fs, &mut oracle, &mut rng, 30);
    for survival in Survival::ALL {
        let rounds = if matches!(survival, Survival::All | Survival::None) { 1 } else { 5 };
        for _ in 0..rounds {
            let image = fs.crash(survival, &mut rng);
            // A process that dies leaves everything it had written.
            let at_least = if survival == Survival::All { oracle.written } else { oracle.durable };
            let what = || format!("seed {seed}, cut {cut}, {survival:?}");
            // Half of the images lose power again while they are being repaired.
            if rng.below(2) == 0 {
                let calls = image.calls();
                image.fault_at(calls + rng.below(30), Fault::PowerOff);
                let _ = reopen(&image);
                let kept = if survival == Survival::All { at_least } else { oracle.durable };
                for again in [Survival::Prefix, Survival::AnyGarbage] {
                    *images += 1;
                    // What was written but not synced was real data after the first crash, so it stays.
                    let second = image.crash(again, &mut rng);
                    check_image(&second, &oracle, kept).map_err(|e| format!("{}, again {again:?}: {e}", what()))?;
                }
            } else {
                *images += 1;
                check_image(&image, &oracle, at_least).map_err(|e| format!("{}: {e}", what()))?;
            }
        }
    }
    Ok(())
}

#[test]
fn no_power_cut_loses_or_alters_what_was_acknowledged() {
    let goal = scaled(60_000, 400_000);
    let mut images = 0;
    let mut seed = 0;
    while images < goal {
        seed += 1;
        if let Err(e) = crash_once(seed, &mut images) {
            panic!("{e}");
        }
    }
    report("3", "power cuts on the simulated file system, half of them again during recovery", images, 0, 0);
}
