//! Fault suite, row 10: operations of every kind against a naive model, with reopening, I/O
//! failures and power cuts among the operations. A failure is shrunk to a short sequence.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::common::{DIR, dir, options, report, scaled};
use fetchwise_log::fs::sim::{Fault, Rng, SimFs, Survival};
use fetchwise_log::fuzzing::PlainBlocks;
use fetchwise_log::{
    CompactOptions, Maintenance, ManualLog, Reader, Record, Section, SnapshotMeta,
    load_snapshot_with, verify_with,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

#[derive(Clone, Debug)]
enum Op {
    Append(u16),
    Write,
    Sync,
    ResumeMark,
    Close,
    Drop,
    Snapshot(u8),
    /// The part of the durable records that may go, every how many of them stay, and whether the
    /// rest is packed.
    Compact(u8, u8, bool),
    Fault(u8, u8),
    Crash(u8, u8),
    OpenCheck,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0u16..600).prop_map(Op::Append),
        1 => (4000u16..12000).prop_map(Op::Append),
        4 => Just(Op::Write),
        4 => Just(Op::Sync),
        2 => Just(Op::ResumeMark),
        2 => Just(Op::Close),
        1 => Just(Op::Drop),
        1 => any::<u8>().prop_map(Op::Snapshot),
        2 => (any::<u8>(), 1u8..6, any::<bool>()).prop_map(|(floor, every, packs)| Op::Compact(floor, every, packs)),
        1 => (0u8..40, 0u8..4).prop_map(|(after, fault)| Op::Fault(after, fault)),
        1 => (0u8..5, any::<u8>()).prop_map(|(survival, seed)| Op::Crash(survival, seed)),
        1 => Just(Op::OpenCheck),
    ]
}

/// The naive model: all records, and those that must exist.
struct Model {
    fs: SimFs,
    log: Option<ManualLog>,
    records: BTreeMap<u64, Vec<u8>>,
    /// Records up to here are durable.
    durable: u64,
    /// Records up to here that a compaction was allowed to drop, by number.
    droppable: BTreeMap<u64, ()>,
    snapshots: Vec<u64>,
    salt: u8,
}

impl Model {
    fn arc(&self) -> Arc<SimFs> {
        Arc::new(self.fs.clone())
    }

    fn last(&self) -> u64 {
        self.records.last_key_value().map_or(0, |(seq, _)| *seq)
    }

    /// Opens the log if it is not open; false while faults keep it closed.
    fn open(&mut self) -> bool {
        if self.log.is_none() {
            match ManualLog::open(self.arc(), Path::new(DIR), &options()) {
                Ok((log, recovery)) => {
                    assert!(
                        recovery.next_seq > self.durable,
                        "{} after {}",
                        recovery.next_seq,
                        self.durable
                    );
                    assert!(recovery.next_seq <= self.last() + 1);
                    self.records.split_off(&recovery.next_seq);
                    self.log = Some(log);
                }
                Err(e) => assert!(!e.is_refusal(), "{e}"),
            }
        }
        self.log.is_some()
    }

    fn acknowledge(&mut self) {
        if let Some(log) = &self.log {
            self.durable = self.durable.max(log.durable_seq());
        }
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Append(len) if self.open() => {
                self.salt = self.salt.wrapping_add(1);
                let payload = vec![self.salt; usize::from(*len)];
                let record =
                    Record { kind: 1, schema: 1, key_hash: 0, time_ms: 0, payload: &payload };
                let seq = self.log.as_mut().unwrap().append(record);
                assert_eq!(seq, self.last() + 1);
                self.records.insert(seq, payload);
            }
            Op::Write | Op::Sync | Op::ResumeMark if self.open() => {
                let log = self.log.as_mut().unwrap();
                let done = match op {
                    Op::Write => log.write(),
                    Op::Sync => log.sync(),
                    _ => log.mark(),
                };
                let durable = log.durable_seq();
                self.acknowledge();
                if done.is_ok() && !matches!(op, Op::Write) {
                    assert_eq!(durable, self.last());
                }
            }
            Op::Close if self.open() => {
                let last = self.last();
                if self.log.take().unwrap().close().is_ok() {
                    self.durable = last;
                }
            }
            Op::Drop => self.log = None,
            Op::Snapshot(share) => {
                let covers_seq = self.durable * u64::from(*share) / 255;
                let meta = SnapshotMeta { covers_seq, ..SnapshotMeta::default() };
                let bytes = covers_seq.to_le_bytes();
                let sections = [Section { kind: 1, version: 1, bytes: &bytes }];
                if let Ok(maintenance) = Maintenance::lock_with(self.arc(), &dir()) {
                    // A failure at the very end may come after the publication.
                    let _ = maintenance.write_snapshot(&meta, &sections);
                    self.snapshots.push(covers_seq);
                }
            }
            Op::Compact(share, every, packs) => {
                let floor = self.durable * u64::from(*share) / 255;
                let mut options = CompactOptions::new(floor, 0);
                options.max_jump = None;
                options.small_bytes = 5000;
                options.segment_bytes = 20_000;
                options.blocks = Some(&PlainBlocks);
                options.pack = *packs;
                let drops = |seq: u64| !seq.is_multiple_of(u64::from(*every));
                self.droppable.extend((1..=floor).filter(|seq| drops(*seq)).map(|seq| (seq, ())));
                if let Ok(maintenance) = Maintenance::lock_with(self.arc(), &dir()) {
                    match maintenance.compact(&options, &mut |seq, _| !drops(seq), &mut |_| {}) {
                        Ok(done) => assert!(done.floor_seq <= floor.max(done.floor_seq)),
                        Err(e) => assert!(!e.is_refusal(), "{e}"),
                    }
                }
            }
            Op::Fault(after, fault) => {
                let fault =
                    [Fault::Eio, Fault::Enospc, Fault::Eintr, Fault::Short][usize::from(*fault)];
                self.fs.fault_at(self.fs.calls() + u64::from(*after), fault);
            }
            Op::Crash(survival, seed) => {
                let survival = Survival::ALL[usize::from(*survival)];
                self.log = None;
                self.fs = self.fs.crash(survival, &mut Rng::new(u64::from(*seed)));
                self.check();
            }
            Op::OpenCheck => self.check(),
            _ => {}
        }
    }

    /// Reads everything and compares. Faults are suspended meanwhile.
    fn check(&mut self) {
        self.fs.clear_faults();
        let mut seen = BTreeMap::new();
        let reader = Reader::open_with(self.arc(), &dir()).unwrap().with_blocks(&PlainBlocks);
        let summary = reader
            .for_each(|seq, r| assert!(seen.insert(seq, r.payload.to_vec()).is_none()))
            .unwrap();
        assert_eq!(summary.damage, []);
        for (seq, payload) in &seen {
            assert_eq!(self.records.get(seq), Some(payload), "record {seq}");
        }
        for seq in 1..=self.durable {
            assert!(
                seen.contains_key(&seq) || self.droppable.contains_key(&seq),
                "record {seq} is gone"
            );
        }
        let search = load_snapshot_with(self.arc(), &dir()).unwrap();
        assert!(search.rejected.is_empty(), "{:?}", search.rejected);
        if let Some(snapshot) = search.snapshot {
            assert!(self.snapshots.contains(&snapshot.meta().covers_seq));
            assert!(snapshot.meta().covers_seq >= search.floor_seq);
        }
        assert!(verify_with(self.arc(), &dir()).unwrap().is_sound());
    }
}

#[test]
fn any_operations_in_any_order_agree_with_the_model() {
    let cases = scaled(300, 1000, 4000) as u32;
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let ops = std::cell::Cell::new(0u64);
    runner
        .run(&prop::collection::vec(op(), 1..200), |story| {
            let mut model = Model {
                fs: SimFs::new(1),
                log: None,
                records: BTreeMap::new(),
                durable: 0,
                droppable: BTreeMap::new(),
                snapshots: Vec::new(),
                salt: 0,
            };
            for op in &story {
                model.step(op);
            }
            model.check();
            model.log = None;
            assert!(model.open());
            ops.set(ops.get() + story.len() as u64);
            Ok(())
        })
        .unwrap();
    report(
        "10",
        "operations against a model, with reopening, faults and power cuts among them",
        ops.get(),
        0,
        0,
    );
}
