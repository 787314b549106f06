//! Operations of every kind against a naive model, with reopening, I/O failures and power cuts
//! among the operations.
//!
//! Owns: the model, which the rest of the fault suite uses, too.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fetchwise_cold::{ColdStore, Error};
use fetchwise_log::fs::sim::{Fault, Rng, SimFs, Survival};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

use crate::basics::{content, key, options};

pub(crate) const DIR: &str = "/cold";
/// The number of keys: few, so that they have many values.
const KEYS: u64 = 150;

pub(crate) type Entries = BTreeMap<u64, Vec<u8>>;

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
pub(crate) fn report(what: &str, tried: u64) {
    println!("FAULTS | + | cold store: {what} | {tried} | 0 | 0 |");
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Put(u8, u16),
    /// Every key from here on.
    PutMany(u8),
    Remove(u8),
    Get(u8),
    Iterate(u8, u8),
    Maintain,
    Settle,
    Checkpoint,
    Clear,
    Reopen,
    /// A fault after some calls.
    Fault(u8, u8),
    /// What survives, and a seed.
    Crash(u8, u8),
}

impl Op {
    /// Any operation but faults and crashes.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let at = rng.draw() as u8;
        match rng.below(24) {
            0..9 => Self::Put(at, rng.below(300) as u16),
            9 => Self::Put(at, rng.below(12_000) as u16),
            10..12 => Self::PutMany(at),
            12..15 => Self::Remove(at),
            15 => Self::Get(at),
            16 => Self::Iterate(at, rng.draw() as u8),
            17..20 => Self::Maintain,
            20 => Self::Settle,
            21..23 => Self::Checkpoint,
            _ if rng.below(3) == 0 => Self::Clear,
            _ => Self::Reopen,
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (any::<u8>(), 0u16..300).prop_map(|(key, len)| Op::Put(key, len)),
        1 => (any::<u8>(), 3000u16..12_000).prop_map(|(key, len)| Op::Put(key, len)),
        2 => any::<u8>().prop_map(Op::PutMany),
        3 => any::<u8>().prop_map(Op::Remove),
        3 => any::<u8>().prop_map(Op::Get),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(first, last)| Op::Iterate(first, last)),
        3 => Just(Op::Maintain),
        1 => Just(Op::Settle),
        2 => Just(Op::Checkpoint),
        1 => Just(Op::Clear),
        1 => Just(Op::Reopen),
        1 => (0u8..40, 0u8..4).prop_map(|(after, fault)| Op::Fault(after, fault)),
        1 => (0u8..5, any::<u8>()).prop_map(|(survival, seed)| Op::Crash(survival, seed)),
    ]
}

/// What a store may have when it is opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Checkpoint {
    tag: Option<Vec<u8>>,
    entries: Entries,
}

/// The naive model: what the store has, and what it may have after a crash.
pub(crate) struct Model {
    pub(crate) fs: SimFs,
    pub(crate) store: Option<ColdStore>,
    pub(crate) entries: Entries,
    /// The last checkpoint, and those after it that failed.
    pub(crate) possible: Vec<Checkpoint>,
    salt: u64,
}

/// Sets errors of the disk aside. Everything else that a store reports is wrong: nobody changes its
/// bytes.
fn unless_failed<T>(result: Result<T, Error>) -> Result<Option<T>, String> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::Io { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Opens a store and checks that it has one of the possible contents; nothing if the disk fails.
pub(crate) fn open(
    fs: &SimFs,
    possible: &[Checkpoint],
) -> Result<Option<(ColdStore, Checkpoint)>, String> {
    let opened =
        unless_failed(ColdStore::open_with(Arc::new(fs.clone()), Path::new(DIR), options()))?;
    let Some(store) = opened else { return Ok(None) };
    let Some(entries) = unless_failed(content(&store))? else { return Ok(None) };
    let found = Checkpoint { tag: store.tag().map(<[u8]>::to_vec), entries };
    if possible.contains(&found) {
        return Ok(Some((store, found)));
    }
    let tags: Vec<_> = possible.iter().map(|checkpoint| &checkpoint.tag).collect();
    Err(format!(
        "opened with tag {:?} and {} entries, possible are {tags:?}",
        found.tag,
        found.entries.len()
    ))
}

impl Model {
    pub(crate) fn new(seed: u64) -> Self {
        let (fs, possible) = (SimFs::new(seed), vec![Checkpoint::default()]);
        Self { fs, store: None, entries: Entries::new(), possible, salt: seed << 32 }
    }

    /// Opens the store, unless the disk fails.
    pub(crate) fn reopen(&mut self) -> Result<(), String> {
        self.store = None;
        if let Some((store, found)) = open(&self.fs, &self.possible)? {
            (self.store, self.entries) = (Some(store), found.entries);
        }
        Ok(())
    }

    /// Makes a checkpoint. While it is being made, either may be what a crash leaves.
    pub(crate) fn checkpoint(&mut self) -> Result<bool, String> {
        let Some(store) = &self.store else { return Ok(false) };
        self.salt += 1;
        let tag = self.salt.to_le_bytes().to_vec();
        self.possible.push(Checkpoint { tag: Some(tag.clone()), entries: self.entries.clone() });
        let is_made = unless_failed(store.checkpoint(&tag))?.is_some();
        if is_made {
            self.possible.drain(..self.possible.len() - 1);
        }
        Ok(is_made)
    }

    fn put(&mut self, at: u8, len: u16) -> Result<(), String> {
        let Some(store) = &self.store else { return Ok(()) };
        self.salt += 1;
        let value: Vec<u8> = (0..len).map(|at| (self.salt >> (at % 4 * 8)) as u8).collect();
        let key = key(u64::from(at) % KEYS);
        if unless_failed(store.put(key, &value))?.is_some() {
            self.entries.insert(key, value);
        }
        Ok(())
    }

    pub(crate) fn apply(&mut self, op: &Op) -> Result<(), String> {
        let Some(store) = &self.store else { return self.reopen() };
        match *op {
            Op::Put(at, len) => self.put(at, len)?,
            Op::PutMany(from) => (from..=u8::MAX).try_for_each(|at| self.put(at, 60))?,
            Op::Remove(at) => {
                let key = key(u64::from(at) % KEYS);
                if unless_failed(store.remove(key))?.is_some() {
                    self.entries.remove(&key);
                }
            }
            Op::Get(at) => {
                let key = key(u64::from(at) % (2 * KEYS));
                let expected = self.entries.get(&key);
                match unless_failed(store.get(key, <[u8]>::to_vec))? {
                    Some(found) if found.as_ref() != expected => {
                        return Err(format!("{key}: {found:?}"));
                    }
                    _ => {}
                }
            }
            Op::Iterate(first, last) => {
                self.iterate(u64::from(first) << 56..=u64::from(last) << 56)?
            }
            Op::Maintain => drop(unless_failed(store.maintain())?),
            Op::Settle => while unless_failed(store.maintain())? == Some(true) {},
            Op::Checkpoint => drop(self.checkpoint()?),
            Op::Clear => {
                store.clear();
                self.entries.clear();
            }
            Op::Reopen => self.reopen()?,
            Op::Fault(after, fault) => {
                let fault =
                    [Fault::Eio, Fault::Enospc, Fault::Eintr, Fault::Short][usize::from(fault) % 4];
                self.fs.fault_at(self.fs.calls() + u64::from(after), fault);
            }
            Op::Crash(survival, seed) => {
                let survival = Survival::ALL[usize::from(survival) % 5];
                self.fs = self.fs.crash(survival, &mut Rng::new(u64::from(seed)));
                self.reopen()?;
                // All that is there is durable now.
                let tag = self.store.as_ref().and_then(|store| store.tag()).map(<[u8]>::to_vec);
                self.possible = vec![Checkpoint { tag, entries: self.entries.clone() }];
            }
        }
        Ok(())
    }

    fn iterate(&self, keys: std::ops::RangeInclusive<u64>) -> Result<(), String> {
        let Some(store) = &self.store else { return Ok(()) };
        let mut found = Vec::new();
        let iterated = store.for_each_sorted(keys.clone(), |key, value| {
            found.push((key, value.to_vec()));
            Ok(())
        });
        let is_read = unless_failed(iterated)?.is_some();
        let expected = self
            .entries
            .iter()
            .filter(|(key, _)| keys.contains(key))
            .map(|(key, value)| (*key, value.clone()));
        if is_read && !expected.eq(found.iter().cloned()) {
            return Err(format!("{} entries found in {keys:?}", found.len()));
        }
        Ok(())
    }

    /// Checks everything on a disk that works again.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        self.fs.clear_faults();
        if self.store.is_none() {
            self.reopen()?;
        }
        self.iterate(0..=u64::MAX)?;
        (0..=u8::MAX).try_for_each(|at| self.apply(&Op::Get(at)))?;
        if !self.checkpoint()? {
            return Err("no checkpoint on a disk that works".to_owned());
        }
        open(&self.fs.crash(Survival::None, &mut Rng::new(1)), &self.possible).map(|_| ())
    }
}

#[test]
fn operations_in_any_order_agree_with_the_model() {
    let cases = scaled(80, 2000, 20_000) as u32;
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(11),
        ..Default::default()
    };
    let tried = std::cell::Cell::new(0);
    let result = TestRunner::new(config).run(&prop::collection::vec(op(), 1..120), |ops| {
        let mut model = Model::new(7);
        for (at, op) in ops.iter().enumerate() {
            tried.set(tried.get() + 1);
            model.apply(op).map_err(|e| TestCaseError::fail(format!("{at}, {op:?}: {e}")))?;
        }
        model.check().map_err(TestCaseError::fail)
    });
    result.unwrap();
    report(
        "operations against a model, with reopening, faults and power cuts among them",
        tried.get(),
    );
}
