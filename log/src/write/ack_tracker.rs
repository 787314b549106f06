//! The tracking of acknowledgements and of the queue's capacity.
//!
//! Owns: [`Acks`], through which the writer thread tells waiters how far it is, and [`Gate`],
//! through which it gives room in the queue back to callers.
//!
//! Invariants: a waiter is woken when its goal is reached, when the log degrades or when the writer
//! ends, whichever comes first; no wake-up is lost; the queue never holds more than its bounds,
//! except for a single record that alone is larger.
//!
//! Must not know: files, frames.

use std::sync::Arc;
use std::task::Waker;

use super::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering};
use crate::error::WaitError;

/// The goal of a waiter. Sequence numbers are exclusive ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Handed to the operating system.
    Written(u64),
    /// On disk.
    Durable(u64),
}

/// The health of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// Records reach the disk.
    #[default]
    Good,
    /// Writing failed, or the directory is gone. Records wait in memory up to the queue's bounds;
    /// the log retries by itself.
    Degraded {
        /// What failed.
        reason: Arc<str>,
        /// True when the file system is full.
        storage_full: bool,
    },
    /// The writer thread has ended.
    Closed,
}

#[derive(Debug, Default)]
struct Inner {
    health: Health,
    /// Counts failed attempts, so that a waiter can tell a failure after its call from one before
    /// it.
    failures: u64,
    wakers: Vec<(u64, Goal, Waker)>,
    next_id: u64,
}

/// Acknowledgements.
#[derive(Debug)]
pub(crate) struct Acks {
    written: AtomicU64,
    durable: AtomicU64,
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Acks {
    pub(crate) fn new(next_seq: u64) -> Self {
        Self {
            written: AtomicU64::new(next_seq),
            durable: AtomicU64::new(next_seq),
            inner: Mutex::new(Inner::default()),
            changed: Condvar::new(),
        }
    }

    /// Publishes progress. Called by the writer thread only; values never go back.
    pub(crate) fn advance(&self, written: u64, durable: u64) {
        let mut inner = self.lock();
        // Relaxed loads: only this thread stores. The Release stores pair with the Acquire loads in
        // `reached`, which takes no lock.
        let written = written.max(self.written.load(Ordering::Relaxed));
        let durable = durable.max(self.durable.load(Ordering::Relaxed));
        debug_assert!(
            durable <= written,
            "records are durable up to {durable}, and written up to {written}"
        );
        self.written.store(written, Ordering::Release);
        self.durable.store(durable, Ordering::Release);
        let ready = self.take_ready(&mut inner);
        drop(inner);
        self.changed.notify_all();
        ready.into_iter().for_each(Waker::wake);
    }

    /// Publishes the health of the writer; if it is bad, every waiter is woken.
    pub(crate) fn set_health(&self, health: Health) {
        let mut inner = self.lock();
        let bad = health != Health::Good;
        inner.health = health;
        let wakers = if bad {
            inner.failures += 1;
            std::mem::take(&mut inner.wakers)
        } else {
            Vec::new()
        };
        drop(inner);
        self.changed.notify_all();
        wakers.into_iter().for_each(|(_, _, waker)| waker.wake());
    }

    pub(crate) fn health(&self) -> Health {
        self.lock().health.clone()
    }

    /// How many attempts have failed so far; see [`wait`](Self::wait).
    pub(crate) fn failures(&self) -> u64 {
        self.lock().failures
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(crate) fn reached(&self, goal: Goal) -> bool {
        match goal {
            Goal::Written(seq) => self.written() >= seq,
            Goal::Durable(seq) => self.durable() >= seq,
        }
    }

    /// Blocks until the goal is reached. With `since`, only a failure after that count ends the
    /// wait (the caller has asked for another attempt); without, a log that is degraded already
    /// does.
    pub(crate) fn wait(&self, goal: Goal, since: Option<u64>) -> Result<(), WaitError> {
        if self.reached(goal) {
            return Ok(());
        }
        let mut inner = self.lock();
        loop {
            if let Some(outcome) = self.outcome(&inner, goal, since) {
                return outcome;
            }
            inner = self.changed.wait(inner).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// As [`wait`](Self::wait), for a future. `id` identifies the future and is set by the first
    /// call.
    pub(crate) fn poll(
        &self,
        goal: Goal,
        since: Option<u64>,
        id: &mut Option<u64>,
        waker: &Waker,
    ) -> Option<Result<(), WaitError>> {
        if self.reached(goal) {
            return Some(Ok(()));
        }
        let mut inner = self.lock();
        if let Some(outcome) = self.outcome(&inner, goal, since) {
            return Some(outcome);
        }
        let id = *id.get_or_insert_with(|| {
            inner.next_id += 1;
            inner.next_id
        });
        match inner.wakers.iter_mut().find(|(other, _, _)| *other == id) {
            Some((_, _, known)) => known.clone_from(waker),
            None => inner.wakers.push((id, goal, waker.clone())),
        }
        None
    }

    /// A future is dropped before it was done.
    pub(crate) fn forget(&self, id: u64) {
        self.lock().wakers.retain(|(other, _, _)| *other != id);
    }

    fn outcome(
        &self,
        inner: &Inner,
        goal: Goal,
        since: Option<u64>,
    ) -> Option<Result<(), WaitError>> {
        if self.reached(goal) {
            return Some(Ok(()));
        }
        match &inner.health {
            Health::Closed => Some(Err(WaitError::Closed)),
            Health::Degraded { reason, storage_full }
                if since.is_none_or(|count| inner.failures > count) =>
            {
                Some(Err(WaitError::Degraded {
                    reason: reason.clone(),
                    storage_full: *storage_full,
                }))
            }
            _ => None,
        }
    }

    fn take_ready(&self, inner: &mut Inner) -> Vec<Waker> {
        let mut ready = Vec::new();
        inner.wakers.retain(|(_, goal, waker)| {
            let reached = self.reached(*goal);
            if reached {
                ready.push(waker.clone());
            }
            !reached
        });
        ready
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Bits of [`Gate::used`] that count bytes; the rest count records.
const BYTE_BITS: u32 = 40;
const BYTE_MASK: u64 = (1 << BYTE_BITS) - 1;
const ONE_RECORD: u64 = 1 << BYTE_BITS;
/// The largest bounds that fit.
pub(crate) const MAX_RECORDS: u64 = (1 << (64 - BYTE_BITS)) - 2;
pub(crate) const MAX_BYTES: u64 = BYTE_MASK >> 1;

/// Room in the queue, counted in records and bytes.
#[derive(Debug)]
pub(crate) struct Gate {
    used: AtomicU64,
    /// Bytes of the largest record that asked for room.
    largest: AtomicU64,
    waiting: AtomicUsize,
    shut: Mutex<bool>,
    freed: Condvar,
    max_records: u64,
    max_bytes: u64,
}

impl Gate {
    pub(crate) fn new(max_records: u64, max_bytes: u64) -> Self {
        Self {
            used: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            shut: Mutex::new(false),
            freed: Condvar::new(),
            max_records: max_records.clamp(1, MAX_RECORDS),
            max_bytes: max_bytes.clamp(1, MAX_BYTES),
        }
    }

    /// Takes room for one record; returns false if there is none.
    pub(crate) fn try_enter(&self, bytes: u64) -> bool {
        // Relaxed, like every read here: a stale value costs one more turn of the loop, or a
        // refusal just after room was given back. The check before `fetch_max` spares most calls a
        // write, as most records are no larger than one before them.
        if bytes > self.largest.load(Ordering::Relaxed) {
            self.largest.fetch_max(bytes, Ordering::Relaxed);
        }
        self.take(bytes, self.used.load(Ordering::Relaxed))
    }

    fn take(&self, bytes: u64, mut used: u64) -> bool {
        let bytes = bytes.min(MAX_BYTES);
        loop {
            let (records, held) = (used >> BYTE_BITS, used & BYTE_MASK);
            // A record larger than the whole queue goes through an empty one.
            if records > 0 && (records >= self.max_records || held + bytes > self.max_bytes) {
                return false;
            }
            let taken = used + ONE_RECORD + bytes;
            match self.used.compare_exchange_weak(used, taken, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => used = now,
            }
        }
    }

    /// Takes room for one record, waiting while the writer makes progress; false when it makes
    /// none.
    pub(crate) fn enter(&self, bytes: u64) -> bool {
        if self.try_enter(bytes) {
            return true;
        }
        let mut shut = self.lock();
        // Why no wake-up is lost: this function changes `waiting` and then reads `used`, while
        // `leave` changes `used` and then reads `waiting`. All four steps are read-modify-writes,
        // so they have one order on `waiting`. If `leave` comes first there, we see the room that
        // it gave back. If we come first, `leave` sees that we wait, and wakes us.
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let entered = loop {
            if self.take(bytes, self.used.fetch_add(0, Ordering::AcqRel)) {
                break true;
            }
            if *shut {
                break false;
            }
            shut = self.freed.wait(shut).unwrap_or_else(|poisoned| poisoned.into_inner());
        };
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        entered
    }

    /// Gives back the room of `records` records.
    pub(crate) fn leave(&self, records: u64, bytes: u64) {
        if records == 0 {
            return;
        }
        self.used.fetch_sub(records * ONE_RECORD + bytes, Ordering::AcqRel);
        if self.waiting.fetch_add(0, Ordering::AcqRel) > 0 {
            // A waiter looks for room and goes to sleep under this lock. Taking it here makes sure
            // that a waiter which found no room is asleep by now, so that `notify_all` reaches it.
            drop(self.lock());
            self.freed.notify_all();
        }
    }

    /// While shut, nobody waits here: a full queue is an error at once.
    pub(crate) fn set_shut(&self, value: bool) {
        *self.lock() = value;
        self.freed.notify_all();
    }

    /// Whether more than half of the room is taken, or a record like the largest so far would find
    /// none.
    pub(crate) fn is_crowded(&self) -> bool {
        let (records, bytes) = self.used();
        let next = self.largest.load(Ordering::Relaxed).max(self.max_bytes / 2);
        records > self.max_records / 2 || bytes + next > self.max_bytes
    }

    /// Records and bytes inside.
    pub(crate) fn used(&self) -> (u64, u64) {
        let used = self.used.load(Ordering::Relaxed);
        (used >> BYTE_BITS, used & BYTE_MASK)
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.shut.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    //! Fault suite, row 11: every interleaving of the protocols above, by loom. Run with
    //! `RUSTFLAGS="--cfg loom"`.
    #![allow(clippy::unwrap_used)]

    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    fn degraded() -> Health {
        Health::Degraded { reason: "x".into(), storage_full: false }
    }

    #[test]
    fn loom_a_waiter_wakes_when_its_goal_is_reached() {
        loom::model(|| {
            let acks = Arc::new(Acks::new(1));
            let waiters: Vec<_> = [Goal::Written(2), Goal::Durable(2)]
                .into_iter()
                .map(|goal| {
                    let acks = acks.clone();
                    thread::spawn(move || {
                        acks.wait(goal, None).unwrap();
                        assert!(acks.reached(goal));
                    })
                })
                .collect();
            acks.advance(2, 1);
            acks.advance(2, 2);
            waiters.into_iter().for_each(|w| w.join().unwrap());
        });
    }

    #[test]
    fn loom_a_waiter_wakes_when_the_log_degrades_or_ends() {
        for health in [degraded(), Health::Closed] {
            loom::model(move || {
                let acks = Arc::new(Acks::new(1));
                let waiter = {
                    let acks = acks.clone();
                    thread::spawn(move || acks.wait(Goal::Durable(2), None))
                };
                acks.set_health(health.clone());
                assert!(waiter.join().unwrap().is_err());
            });
        }
    }

    #[test]
    fn loom_a_flush_of_a_degraded_log_waits_for_the_next_attempt() {
        loom::model(|| {
            let acks = Arc::new(Acks::new(1));
            acks.set_health(degraded());
            let since = Some(acks.failures());
            let waiter = {
                let acks = acks.clone();
                thread::spawn(move || acks.wait(Goal::Durable(2), since))
            };
            // The attempt succeeds.
            acks.set_health(Health::Good);
            acks.advance(2, 2);
            assert_eq!(waiter.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn loom_a_future_is_woken_or_ready() {
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::task::{Wake, Waker};
        struct Flag(AtomicBool);
        impl Wake for Flag {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        loom::model(|| {
            let acks = Arc::new(Acks::new(1));
            let flag = std::sync::Arc::new(Flag(AtomicBool::new(false)));
            let writer = {
                let acks = acks.clone();
                thread::spawn(move || acks.advance(2, 2))
            };
            let waker = Waker::from(flag.clone());
            let early = acks.poll(Goal::Durable(2), None, &mut None, &waker);
            writer.join().unwrap();
            assert!(early.is_some() || flag.0.load(Ordering::SeqCst), "nobody will poll again");
            assert!(acks.reached(Goal::Durable(2)));
        });
    }

    #[test]
    fn loom_room_given_back_reaches_a_waiting_caller() {
        loom::model(|| {
            let gate = Arc::new(Gate::new(1, 100));
            assert!(gate.try_enter(10));
            let caller = {
                let gate = gate.clone();
                thread::spawn(move || assert!(gate.enter(10)))
            };
            gate.leave(1, 10);
            caller.join().unwrap();
            assert_eq!(gate.used(), (1, 10));
        });
    }

    #[test]
    fn loom_room_given_back_reaches_one_caller_after_the_other() {
        // Three threads have too many interleavings to try all. Those with at most two preemptions
        // can be tried.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let gate = Arc::new(Gate::new(1, 100));
            assert!(gate.try_enter(10));
            let callers: Vec<_> = (0..2)
                .map(|_| {
                    let gate = gate.clone();
                    thread::spawn(move || {
                        assert!(gate.enter(10));
                        gate.leave(1, 10);
                    })
                })
                .collect();
            gate.leave(1, 10);
            callers.into_iter().for_each(|c| c.join().unwrap());
            assert_eq!(gate.used(), (0, 0));
        });
    }

    #[test]
    fn loom_a_shut_gate_lets_a_waiting_caller_go() {
        loom::model(|| {
            let gate = Arc::new(Gate::new(1, 100));
            assert!(gate.try_enter(10));
            let caller = {
                let gate = gate.clone();
                thread::spawn(move || gate.enter(10))
            };
            gate.set_shut(true);
            assert!(!caller.join().unwrap());
        });
    }

    #[test]
    fn loom_the_bounds_hold() {
        loom::model(|| {
            let gate = Arc::new(Gate::new(2, 25));
            let callers: Vec<_> = (0..2)
                .map(|_| {
                    let gate = gate.clone();
                    thread::spawn(move || gate.try_enter(20))
                })
                .collect();
            let inside =
                callers.into_iter().map(|c| c.join().unwrap()).filter(|&entered| entered).count();
            assert_eq!(inside, 1, "the second one would be over the bytes");
            assert_eq!(gate.used(), (1, 20));
        });
    }
}
