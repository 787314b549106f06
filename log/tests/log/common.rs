//! Shared code of the fault tests: a workload, its oracle, and the check that every image of the
//! log has to pass.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fetchwise_log::fs::sim::{Rng, SimFs, Survival};
use fetchwise_log::fuzzing::PlainBlocks;
use fetchwise_log::{Error, LogOptions, ManualLog, Reader, Record, Recovery};

pub(crate) const DIR: &str = "/log";

pub(crate) fn dir() -> PathBuf {
    PathBuf::from(DIR)
}

/// Returns true if the long run was requested.
pub(crate) fn full() -> bool {
    std::env::var("FETCHWISE_FAULTS").is_ok_and(|v| v == "full")
}

/// The number of rounds: `FETCHWISE_FAULTS=ci` selects the size for CI, `full` the long run; the
/// default is just large enough to detect a regression.
pub(crate) fn scaled(quick: u64, ci: u64, long: u64) -> u64 {
    match std::env::var("FETCHWISE_FAULTS").as_deref() {
        Ok("full") => long,
        Ok("ci") => ci,
        _ => quick,
    }
}

/// One line of the summary table that `make fault-suite` collects.
pub(crate) fn report(row: &str, what: &str, tried: u64, lost: u64, wrong: u64) {
    println!("FAULTS | {row} | {what} | {tried} | {lost} | {wrong} |");
}

pub(crate) fn options() -> LogOptions {
    let mut options = LogOptions::default();
    options.segment_bytes = 8 << 10;
    // Most batches of the suite have one to three records.
    options.blocks = Some(&PlainBlocks);
    options.pack_from = 2;
    // A few batches of one record are enough.
    options.repack_bytes = 512;
    options
}

/// The appended and the acknowledged records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    /// Payload of record `i + 1`.
    pub(crate) given: Vec<Vec<u8>>,
    /// The last sequence number acknowledged as durable.
    pub(crate) durable: u64,
    /// The last sequence number acknowledged as handed to the system.
    pub(crate) written: u64,
}

impl Oracle {
    pub(crate) fn append(&mut self, log: &mut ManualLog, rng: &mut Rng) {
        let len = match rng.below(20) {
            0 => 0,
            1 => rng.below(6000),
            _ => rng.below(200),
        };
        let salt = rng.draw();
        // Two thirds repeat themselves, so that they can be packed.
        let step = if salt.is_multiple_of(3) { 1 } else { 0 };
        let payload: Vec<u8> =
            (0..len).map(|i| (salt >> (i % 8 * 8)) as u8 ^ (i as u8 * step)).collect();
        let record = Record {
            kind: 1,
            schema: 1,
            key_hash: salt,
            time_ms: salt as i64 >> 20,
            payload: &payload,
        };
        let seq = log.append(record);
        self.given.truncate(seq as usize - 1);
        assert_eq!(seq as usize, self.given.len() + 1, "a sequence number was skipped");
        self.given.push(payload);
    }

    pub(crate) fn acknowledge(&mut self, log: &ManualLog) {
        self.durable = self.durable.max(log.durable_seq());
        self.written = self.written.max(log.written_seq());
    }

    /// Checks that a directory holds a prefix of the appended records, at least up to `at_least`,
    /// and nothing else.
    pub(crate) fn check(&self, fs: &SimFs, at_least: u64) -> Result<u64, String> {
        let reader =
            Reader::open_with(Arc::new(fs.clone()), Path::new(DIR)).map_err(|e| e.to_string())?;
        let reader = reader.with_blocks(&PlainBlocks);
        let mut next = 1;
        let mut wrong = None;
        let summary = reader
            .for_each(|seq, record| {
                let right = seq == next
                    && self.given.get(seq as usize - 1).is_some_and(|p| p == record.payload);
                if !right {
                    wrong.get_or_insert(format!("record {seq} after {} is wrong", next - 1));
                }
                next += 1;
            })
            .map_err(|e| e.to_string())?;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if !summary.damage.is_empty() {
            return Err(format!("misjudged as damage: {:?}", summary.damage));
        }
        if next - 1 < at_least {
            return Err(format!("acknowledged up to {at_least}, found up to {}", next - 1));
        }
        Ok(next - 1)
    }
}

/// Opens a crash image; any error is a failure of the log.
pub(crate) fn reopen(fs: &SimFs) -> Result<(ManualLog, Recovery), Error> {
    ManualLog::open(Arc::new(fs.clone()), Path::new(DIR), &options())
}

/// Opens a crash image, and checks it before, after, and after one more record.
pub(crate) fn check_image(fs: &SimFs, oracle: &Oracle, at_least: u64) -> Result<(), String> {
    let seen = oracle.check(fs, at_least).map_err(|e| format!("reader: {e}"))?;
    let (mut log, recovery) = reopen(fs).map_err(|e| format!("open: {e}"))?;
    if recovery.next_seq != seen + 1 {
        return Err(format!("the reader saw {seen} records, recovery {}", recovery.next_seq - 1));
    }
    let mut oracle = oracle.clone();
    oracle.given.truncate(seen as usize);
    oracle.append(&mut log, &mut Rng::new(seen));
    log.sync().map_err(|e| format!("sync: {e}"))?;
    drop(log);
    // From here on only durable records are guaranteed.
    let after = fs.crash(Survival::None, &mut Rng::new(1));
    let kept = oracle.check(&after, seen + 1).map_err(|e| format!("after repair: {e}"))?;
    if kept != seen + 1 {
        return Err(format!("after repair {kept} records instead of {}", seen + 1));
    }
    Ok(())
}

/// A random workload: opens, appends, writes, syncs, marks, closes, until `ops` are done or the
/// machine is off.
pub(crate) fn workload(
    fs: &SimFs,
    oracle: &mut Oracle,
    rng: &mut Rng,
    ops: u64,
) -> Result<(), Error> {
    let (mut log, recovery) = reopen(fs)?;
    oracle.given.truncate(recovery.next_seq as usize - 1);
    for _ in 0..ops {
        for _ in 0..rng.below(4) {
            oracle.append(&mut log, rng);
        }
        let done = match rng.below(13) {
            0..=4 => log.write(),
            5..=8 => log.sync(),
            9 => log.mark(),
            12 => log.repack(),
            10 => {
                let closed = log.close();
                if closed.is_ok() {
                    oracle.durable = oracle.given.len() as u64;
                    oracle.written = oracle.durable;
                }
                closed?;
                log = reopen(fs)?.0;
                Ok(())
            }
            _ => {
                drop(log);
                let (again, recovery) = reopen(fs)?;
                oracle.given.truncate(recovery.next_seq as usize - 1);
                log = again;
                Ok(())
            }
        };
        oracle.acknowledge(&log);
        done?;
    }
    Ok(())
}

/// The newest segment's path.
pub(crate) fn last_segment(fs: &SimFs) -> PathBuf {
    fs.files().into_iter().filter(|f| f.extension().is_some_and(|e| e == "fwl")).max().unwrap()
}

/// A fixed run through every operation of a writer. It continues after an error, as the log allows.
pub(crate) fn script(fs: &SimFs, oracle: &mut Oracle) {
    let mut rng = Rng::new(77);
    let mut errors = 0;
    for session in 0..2 {
        let Ok((mut log, recovery)) = reopen(fs) else {
            errors += 1;
            assert!(errors < 10 || fs.is_off(), "the log cannot be opened");
            if fs.is_off() {
                return;
            }
            continue;
        };
        oracle.given.truncate(recovery.next_seq as usize - 1);
        for step in 0..6 {
            let step_of = |log: &mut ManualLog| match step {
                0 | 3 => log.write(),
                1 => log.sync(),
                4 => log.repack(),
                _ => log.mark(),
            };
            let records = [2, 2, 2, 40, 8, 2][step];
            for _ in 0..records {
                oracle.append(&mut log, &mut rng);
                if step == 4 {
                    // Batches of one record, which wait to be packed. What fails here is tried
                    // again below.
                    let _ = log.write();
                }
            }
            let done = step_of(&mut log);
            oracle.acknowledge(&log);
            if done.is_err() {
                if fs.is_off() {
                    return;
                }
                let again = step_of(&mut log);
                oracle.acknowledge(&log);
                assert!(
                    again.is_ok() || fs.is_off(),
                    "a single fault must not be repeated: {again:?}"
                );
            }
        }
        if session == 0 {
            if log.close().is_ok() {
                oracle.durable = oracle.given.len() as u64;
                oracle.written = oracle.durable;
            }
        } else {
            let _ = log.sync();
            oracle.acknowledge(&log);
        }
    }
}
