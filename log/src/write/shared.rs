//! The state that callers and the writer thread share: messages of the queue, acknowledgements,
//! capacity, flags and counts.
//!
//! Owns: how a caller tells the writer thread about a waiter.
//!
//! Invariant: a waiter stores `wanted` before it sends `hurry`, and the writer reads `wanted`
//! before it waits for `hurry`, so no wake-up is lost.
//!
//! Must not know: files, frames.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crossbeam_channel::Sender;

use super::options::LogOptions;
use super::writer::WriterCounts;
use crate::error::{Lost, WaitError};
use crate::write::ack_tracker::{Acks, Gate, Goal};

/// Counts since the log was opened, and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Accepted records.
    pub appended: u64,
    /// Records dropped under [`OnFull::Shed`](crate::OnFull::Shed).
    pub shed: u64,
    /// Appends refused: because the queue was full, under [`OnFull::Error`](crate::OnFull::Error)
    /// or in a degraded log, or the record too large.
    pub refused: u64,
    /// Written records that were in a deleted directory or segment. Those of earlier processes are
    /// not counted.
    pub gone: u64,
    /// Appends that had to wait for room.
    pub blocked: u64,
    /// The last sequence number that the operating system has.
    pub written_seq: u64,
    /// The last sequence number that is on disk.
    pub durable_seq: u64,
    /// Records waiting in the queue.
    pub queued_records: u64,
    /// Bytes waiting in the queue.
    pub queued_bytes: u64,
    /// Frames written.
    pub frames: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// The end of the last successful sync, in milliseconds since 1970; 0 before the first.
    pub synced_ms: u64,
    /// Segments begun.
    pub segments: u64,
    /// Failed writes, syncs and new segments.
    pub failures: u64,
    /// Failures that were overcome by continuing in a new segment.
    pub heals: u64,
    /// Failed publications of `SEGMENTS`; no data is affected.
    pub manifest_failures: u64,
    /// Times the log became degraded.
    pub degraded: u64,
}

/// A record on its way to the writer thread.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) seq: u64,
    pub(crate) time_ms: i64,
    pub(crate) kind: u16,
    pub(crate) schema: u16,
    pub(crate) key_hash: u64,
    pub(crate) payload: Box<[u8]>,
}

#[derive(Debug)]
pub(crate) enum Message {
    Record(Queued),
    /// Look at the flags.
    Wake,
}

/// What callers and the writer thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) acks: Acks,
    pub(crate) gate: Gate,
    pub(super) next_seq: AtomicU64,
    /// Where `next_seq` started.
    start_seq: u64,
    /// Everything before this sequence number shall become durable.
    pub(crate) flush_to: AtomicU64,
    pub(crate) closing: AtomicBool,
    /// Somebody asks a degraded log for another attempt now.
    pub(crate) retry_now: AtomicBool,
    pub(super) shed: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) blocked: AtomicU64,
    gone: AtomicU64,
    gone_at_least: AtomicBool,
    pub(crate) degraded: AtomicU64,
    counts: [AtomicU64; 7],
    /// Good syncs, and when the last one ended.
    synced: AtomicU64,
    synced_ms: AtomicU64,
    /// Somebody waits for all records before this sequence number.
    pub(crate) wanted: AtomicU64,
    /// Tells a writer thread that gathers records to stop gathering.
    hurry: Sender<()>,
}

impl Shared {
    pub(super) fn new(options: &LogOptions, next_seq: u64, hurry: Sender<()>) -> Self {
        Self {
            acks: Acks::new(next_seq),
            gate: Gate::new(options.queue_records as u64, options.queue_bytes as u64),
            next_seq: AtomicU64::new(next_seq),
            start_seq: next_seq,
            flush_to: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            retry_now: AtomicBool::new(false),
            shed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            gone_at_least: AtomicBool::new(false),
            degraded: AtomicU64::new(0),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            synced: AtomicU64::new(0),
            synced_ms: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            hurry,
        }
    }

    /// Asks the writer thread not to wait for more records.
    pub(super) fn hurry(&self) {
        // A full channel means that an earlier request has not been received yet, and that one
        // serves for both.
        let _ = self.hurry.try_send(());
    }

    /// Asks the writer thread not to wait until it has all records before the goal. Asking once
    /// would not do: a record that has its number may not be in the queue yet. So `wanted` stands
    /// until the writer has passed it.
    pub(super) fn want(&self, goal: Goal) {
        let (Goal::Written(next_seq) | Goal::Durable(next_seq)) = goal;
        self.wanted.fetch_max(next_seq, Ordering::SeqCst);
        self.hurry();
    }

    pub(super) fn wait(&self, goal: Goal, since: Option<u64>) -> Result<(), WaitError> {
        if !self.acks.reached(goal) {
            self.want(goal);
        }
        self.acks.wait(goal, since)
    }

    /// The sequence number that the next record gets.
    pub(super) fn next_seq(&self) -> u64 {
        // Relaxed: the caller has been told by other means that the records it asks about have
        // their numbers.
        self.next_seq.load(Ordering::Relaxed)
    }

    /// Counts what went with a directory or segment.
    pub(super) fn add_gone(&self, lost: Lost) {
        self.gone.fetch_add(lost.records, Ordering::Relaxed);
        self.gone_at_least.fetch_or(lost.at_least, Ordering::Relaxed);
    }

    /// What went with directories and segments.
    pub(super) fn gone(&self) -> Lost {
        let mut lost = Lost::new(self.gone.load(Ordering::Relaxed));
        lost.at_least = self.gone_at_least.load(Ordering::Relaxed);
        lost
    }

    /// Every record so far that is not in the log and will not be.
    pub(super) fn lost(&self) -> Lost {
        let refused = self.refused.load(Ordering::Relaxed) + self.shed.load(Ordering::Relaxed);
        self.gone().and(Lost::new(refused))
    }

    /// Counts and gauges.
    // Relaxed throughout: each number was right a moment ago, and nothing is decided by them.
    pub(super) fn metrics(&self) -> Metrics {
        let count = |i: usize| self.counts[i].load(Ordering::Relaxed);
        let (queued_records, queued_bytes) = self.gate.used();
        let (shed, refused) =
            (self.shed.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed));
        Metrics {
            appended: self.next_seq.load(Ordering::Relaxed) - self.start_seq,
            shed,
            refused,
            gone: self.gone.load(Ordering::Relaxed),
            blocked: self.blocked.load(Ordering::Relaxed),
            written_seq: self.acks.written() - 1,
            durable_seq: self.acks.durable() - 1,
            queued_records,
            queued_bytes,
            frames: count(0),
            bytes: count(1),
            syncs: count(2),
            synced_ms: self.synced_ms.load(Ordering::Relaxed),
            segments: count(3),
            heals: count(4),
            failures: count(5),
            manifest_failures: count(6),
            degraded: self.degraded.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn publish_counts(&self, c: &WriterCounts) {
        let values =
            [c.frames, c.bytes, c.syncs, c.segments, c.heals, c.failures, c.manifest_failures];
        for (slot, value) in self.counts.iter().zip(values) {
            slot.store(value, Ordering::Relaxed);
        }
        if self.synced.swap(c.synced, Ordering::Relaxed) != c.synced {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.synced_ms.store(u64::try_from(now.as_millis()).unwrap_or(0), Ordering::Relaxed);
        }
    }
}
