//! The log as a crawler sees it: append from any thread, wait or not, flush, look at its health.
//!
//! Owns: options, sequence numbers and the queue's entrance. Invariants: records get their numbers in the
//! order of each caller's calls and are written in the order of their numbers; an append blocks only under
//! [`OnFull::Block`] and only while the writer makes progress; the writer is told of whoever waits, so that it gathers
//! records at nobody's cost. Must not know: how bytes are laid out.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::directory::lock::{Guard, LOCK, acquire};
use crate::error::{AppendError, Error, WaitError};
use crate::format::{RECORD_LEN_MAX, record_len};
use crate::fs::{Fs, RealFs};
use crate::write::ack::{Acks, Gate, Goal, Health};
use crate::write::recover::{Check, Plan, Recovery, recover};
use crate::write::worker::Worker;
use crate::write::writer::WriterCounts;

/// What an acknowledgement means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The record is queued in the process.
    Memory,
    /// The operating system has it: it survives the end of the process, `kill -9` included.
    Os,
    /// As `Os`, and a power loss costs at most this interval plus the time of one sync.
    Interval(Duration),
    /// It is on disk: `fdatasync` has returned. Concurrent records share one sync.
    Sync,
}

impl Default for Durability {
    fn default() -> Self {
        Self::Interval(Duration::from_millis(100))
    }
}

/// What an append does when the queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFull {
    /// Waits for room. Never in a degraded log: there it is an error at once.
    #[default]
    Block,
    /// Returns [`AppendError::Full`].
    Error,
    /// Drops the record and counts it.
    Shed,
}

/// How to open a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// What an acknowledgement means.
    pub durability: Durability,
    /// Records that nobody waits for are gathered for this long at most, and for an eighth of an interval, so that the
    /// writer thread need not be woken and a frame written for each. Whoever waits for a record, flushes, closes, half fills
    /// the queue or finds no room in it ends it. Zero gathers nothing; so does [`Durability::Sync`].
    pub linger: Duration,
    /// A segment is sealed and the next one begun at about this many bytes.
    pub segment_bytes: u64,
    /// Bytes that may wait in the queue.
    pub queue_bytes: usize,
    /// Records that may wait in the queue; at most 16 777 214.
    pub queue_records: usize,
    /// What happens beyond that.
    pub on_full: OnFull,
    /// Identifies the layout of the records; written into each segment and compared at open.
    pub fingerprint: [u8; 16],
    /// Other fingerprints of segments that this build can read.
    pub accepts: Vec<[u8; 16]>,
    /// How much is read at open.
    pub check: Check,
    /// Begin a new segment now, not with the first record: then all that was there before can be compacted.
    pub begin_segment: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            linger: Duration::from_millis(2),
            segment_bytes: 64 << 20,
            queue_bytes: 16 << 20,
            queue_records: 1 << 16,
            on_full: OnFull::default(),
            fingerprint: [0; 16],
            accepts: Vec::new(),
            check: Check::default(),
            begin_segment: false,
        }
    }
}

/// A record to append.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The application's kind.
    pub kind: u16,
    /// The application's schema version.
    pub schema: u16,
    /// Records with one key keep their order in a parallel replay.
    pub key_hash: u64,
    /// When it happened, ms since the Unix epoch; only the latest time of a frame is stored.
    pub time_ms: i64,
    /// At most [`RECORD_LEN_MAX`] bytes.
    pub payload: &'a [u8],
}

/// A record's place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// 0 when the record was shed.
    seq: u64,
}

impl Ticket {
    /// The record's sequence number; `None` when it was shed.
    pub fn seq(self) -> Option<u64> {
        (self.seq > 0).then_some(self.seq)
    }
}

/// How the log is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Records reach the disk.
    Healthy,
    /// Writing failed. Records wait in memory up to the queue's bounds; the log tries again by itself.
    Degraded {
        /// What failed.
        reason: Arc<str>,
        /// True when the file system is full.
        storage_full: bool,
    },
    /// The writer thread has ended.
    Closed,
}

/// Counts since the log was opened, and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Records taken.
    pub appended: u64,
    /// Records dropped under [`OnFull::Shed`].
    pub shed: u64,
    /// Appends refused because the queue was full, under [`OnFull::Error`] or in a degraded log.
    pub refused: u64,
    /// Appends that had to wait for room.
    pub blocked: u64,
    /// The last sequence number that is in the hands of the operating system.
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
    /// Segments begun.
    pub segments: u64,
    /// Failed writes, syncs and new segments.
    pub failures: u64,
    /// Failures that were survived by going on in a new segment.
    pub heals: u64,
    /// `SEGMENTS` could not be published; no data is concerned.
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
    next_seq: AtomicU64,
    /// Where `next_seq` started.
    start_seq: u64,
    /// Everything before this sequence number shall become durable.
    pub(crate) flush_to: AtomicU64,
    pub(crate) closing: AtomicBool,
    /// Somebody asks a degraded log for another attempt now.
    pub(crate) retry_now: AtomicBool,
    shed: AtomicU64,
    refused: AtomicU64,
    blocked: AtomicU64,
    pub(crate) degraded: AtomicU64,
    counts: [AtomicU64; 7],
    /// Somebody waits for all records before this sequence number.
    pub(crate) wanted: AtomicU64,
    /// One word for a writer thread that lingers: do not.
    hurry: Sender<()>,
}

/// An open log. It is `Send` and `Sync`; share it by `Arc` or by reference.
///
/// Dropping it closes it and ignores errors; [`close`](Self::close) reports them.
///
/// ```
/// use fetchwise_log::{Log, Options, Reader, Record};
///
/// let dir = tempfile::tempdir()?;
/// let (log, recovery) = Log::open(dir.path(), Options::default())?;
/// assert_eq!(recovery.next_seq, 1);
/// let ticket = log.append(Record { kind: 1, schema: 1, key_hash: 7, time_ms: 0, payload: b"hello" })?;
/// log.wait(ticket)?;
/// log.close()?;
///
/// let reader = Reader::open(dir.path())?;
/// let summary = reader.for_each(|seq, record| assert_eq!((seq, record.payload), (1, &b"hello"[..])))?;
/// assert_eq!(summary.records, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
    queue: Sender<Message>,
    thread: Option<JoinHandle<Result<(), Error>>>,
    dir: PathBuf,
    fs: Arc<dyn Fs>,
    durability: Durability,
    on_full: OnFull,
    /// Held until the writer thread has ended.
    _lock: Guard,
}

impl Log {
    /// Opens the log in `dir` for writing, creating both when there is none, and starts its writer thread.
    ///
    /// Reads what [`Options::check`] says: at about the speed of the disk. A torn tail is repaired and reported in
    /// [`Recovery::torn`].
    ///
    /// # Errors
    ///
    /// A refusal ([`Error::is_refusal`]) when another writer has the directory, the log is damaged, or it was written with
    /// another fingerprint or by a newer release; [`Error::ReadOnly`], [`Error::StorageFull`] or [`Error::Io`] when the
    /// system says so.
    pub fn open(dir: &Path, options: Options) -> Result<(Self, Recovery), Error> {
        Self::open_with(Arc::new(RealFs), dir, options)
    }

    /// As [`open`](Self::open), on another file system.
    pub fn open_with(fs: Arc<dyn Fs>, dir: &Path, options: Options) -> Result<(Self, Recovery), Error> {
        fs.create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
        let lock = acquire(&*fs, dir, LOCK)?;
        let plan = Plan {
            fs: fs.clone(),
            dir,
            fingerprint: options.fingerprint,
            accepts: &options.accepts,
            segment_bytes: options.segment_bytes.max(crate::format::HEADER_LEN as u64 * 2),
            check: options.check,
            begin_segment: options.begin_segment,
        };
        let (writer, recovery) = recover(&plan)?;
        crate::directory::reserve::keep(&*fs, dir);
        let (queue, incoming) = crossbeam_channel::unbounded();
        let (hurry, hurried) = crossbeam_channel::bounded(1);
        let shared = Arc::new(Shared::new(&options, recovery.next_seq, hurry));
        let mut worker = Worker::new(writer, shared.clone(), incoming, hurried, &options, recovery.next_seq);
        let thread = std::thread::Builder::new()
            .name("fetchwise-log".into())
            .spawn(move || worker.run())
            .map_err(|e| Error::io("start a thread for", dir, e))?;
        let log = Self {
            shared,
            queue,
            thread: Some(thread),
            dir: dir.to_owned(),
            fs,
            durability: options.durability,
            on_full: options.on_full,
            _lock: lock,
        };
        Ok((log, recovery))
    }

    /// Queues a record: one allocation and one copy. Blocks only under [`OnFull::Block`] with a full queue; in async code
    /// use another policy.
    ///
    /// # Errors
    ///
    /// [`AppendError::TooLarge`], [`AppendError::Full`], [`AppendError::Degraded`] or [`AppendError::Closed`]; the record
    /// has no place in the log then.
    pub fn append(&self, record: Record<'_>) -> Result<Ticket, AppendError> {
        if record.payload.len() > RECORD_LEN_MAX {
            return Err(AppendError::TooLarge { len: record.payload.len(), max: RECORD_LEN_MAX });
        }
        let bytes = record_len(record.payload.len()) as u64;
        if !self.shared.gate.try_enter(bytes) {
            match self.full(bytes)? {
                Some(()) => {}
                None => return Ok(Ticket { seq: 0 }),
            }
        }
        let payload = record.payload.into();
        // Relaxed: the number only has to be unique and to grow for each caller; the channel orders everything else.
        let seq = self.shared.next_seq.fetch_add(1, Ordering::Relaxed);
        let Record { kind, schema, key_hash, time_ms, .. } = record;
        let queued = Queued { seq, time_ms, kind, schema, key_hash, payload };
        self.queue.send(Message::Record(queued)).map_err(|_| AppendError::Closed)?;
        if self.shared.gate.is_crowded() {
            self.shared.hurry();
        }
        Ok(Ticket { seq })
    }

    /// The queue is full: room after all (`Some`), shed (`None`), or an error.
    fn full(&self, bytes: u64) -> Result<Option<()>, AppendError> {
        let shared = &self.shared;
        // There may be room as soon as the writer has taken what it gathers.
        shared.hurry();
        let refused = |error| {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            Err(error)
        };
        match shared.acks.health() {
            Health::Ended => return refused(AppendError::Closed),
            Health::Degraded { reason, .. } if self.on_full != OnFull::Shed => {
                return refused(AppendError::Degraded(reason));
            }
            _ => {}
        }
        match self.on_full {
            OnFull::Error => refused(AppendError::Full),
            OnFull::Shed => {
                shared.shed.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
            OnFull::Block => {
                shared.blocked.fetch_add(1, Ordering::Relaxed);
                loop {
                    if shared.gate.enter(bytes) {
                        return Ok(Some(()));
                    }
                    match shared.acks.health() {
                        Health::Degraded { reason, .. } => return refused(AppendError::Degraded(reason)),
                        Health::Ended => return refused(AppendError::Closed),
                        // It has just recovered.
                        Health::Good => std::thread::yield_now(),
                    }
                }
            }
        }
    }

    /// Blocks until the record is acknowledged at the log's durability.
    ///
    /// # Errors
    ///
    /// When the log is degraded or becomes so, or has shed the record. The record may still be written later.
    pub fn wait(&self, ticket: Ticket) -> Result<(), WaitError> {
        match ticket.seq() {
            None => Err(WaitError::Shed),
            Some(seq) => match self.goal(seq + 1) {
                Some(goal) => self.shared.wait(goal, None),
                None => Ok(()),
            },
        }
    }

    /// As [`wait`](Self::wait), as a future for any executor.
    pub fn acknowledged(&self, ticket: Ticket) -> Flush {
        let goal = ticket.seq().map(|seq| self.goal(seq + 1));
        match goal {
            None => Flush::done(self.shared.clone(), Err(WaitError::Shed)),
            Some(None) => Flush::done(self.shared.clone(), Ok(())),
            Some(Some(goal)) => Flush { shared: self.shared.clone(), goal, since: None, id: None, done: None },
        }
    }

    /// Everything appended so far, acknowledged at the log's durability: as [`acknowledged`](Self::acknowledged) for a caller
    /// who has no tickets. Asks for no sync of its own.
    pub fn settled(&self) -> Flush {
        // Relaxed: what this thread has appended, or was told of by another one, has its numbers already.
        match self.goal(self.shared.next_seq.load(Ordering::Relaxed)) {
            None => Flush::done(self.shared.clone(), Ok(())),
            Some(goal) => Flush { shared: self.shared.clone(), goal, since: None, id: None, done: None },
        }
    }

    /// Asks that everything appended so far be synced to disk, at any durability, and returns what can be awaited or
    /// [waited for](Flush::wait). The request stands even if the result is dropped. A degraded log tries once more.
    pub fn flush(&self) -> Flush {
        // Relaxed: what this thread has appended has its numbers already.
        let target = self.shared.next_seq.load(Ordering::Relaxed);
        let since = Some(self.shared.acks.failures());
        self.shared.flush_to.fetch_max(target, Ordering::SeqCst);
        self.shared.retry_now.store(true, Ordering::SeqCst);
        self.wake();
        Flush { shared: self.shared.clone(), goal: Goal::Durable(target), since, id: None, done: None }
    }

    /// Counts and gauges. Cheap.
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics()
    }

    /// Healthy or not.
    pub fn state(&self) -> State {
        match self.shared.acks.health() {
            Health::Good => State::Healthy,
            Health::Degraded { reason, storage_full } => State::Degraded { reason, storage_full },
            Health::Ended => State::Closed,
        }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The durability that the log was opened with.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// A reader of this log: everything flushed, and perhaps more.
    pub fn reader(&self) -> Result<crate::Reader, Error> {
        crate::Reader::open_with(self.fs.clone(), &self.dir)
    }

    /// Writes and syncs everything, seals the segment, and ends the writer thread. Blocks for that long.
    ///
    /// # Errors
    ///
    /// [`Error::Unsaved`] when records could not be written in a last attempt.
    pub fn close(mut self) -> Result<(), Error> {
        self.shut_down()
    }

    fn goal(&self, next_seq: u64) -> Option<Goal> {
        match self.durability {
            Durability::Memory => None,
            Durability::Os | Durability::Interval(_) => Some(Goal::Written(next_seq)),
            Durability::Sync => Some(Goal::Durable(next_seq)),
        }
    }

    /// Has the writer thread look at the flags now.
    fn wake(&self) {
        // Into the queue first: what ends the gathering has to find it there.
        let _ = self.queue.send(Message::Wake);
        self.shared.hurry();
    }

    fn shut_down(&mut self) -> Result<(), Error> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.shared.closing.store(true, Ordering::SeqCst);
        self.wake();
        thread.join().unwrap_or(Err(Error::WriterGone))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = self.shut_down();
    }
}

/// An outstanding acknowledgement: a future, and something to block on.
#[derive(Debug)]
#[must_use = "a flush that nobody waits for says nothing"]
pub struct Flush {
    shared: Arc<Shared>,
    goal: Goal,
    since: Option<u64>,
    id: Option<u64>,
    done: Option<Result<(), WaitError>>,
}

impl Flush {
    fn done(shared: Arc<Shared>, result: Result<(), WaitError>) -> Self {
        Self { shared, goal: Goal::Written(0), since: None, id: None, done: Some(result) }
    }

    /// Blocks until it is done.
    ///
    /// # Errors
    ///
    /// When the attempt failed; the records stay in memory and will be tried again.
    pub fn wait(self) -> Result<(), WaitError> {
        match &self.done {
            Some(result) => result.clone(),
            None => self.shared.wait(self.goal, self.since),
        }
    }
}

impl Future for Flush {
    type Output = Result<(), WaitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(result) = &this.done {
            return Poll::Ready(result.clone());
        }
        match this.shared.acks.poll(this.goal, this.since, &mut this.id, cx.waker()) {
            Some(result) => {
                this.done = Some(result.clone());
                Poll::Ready(result)
            }
            None => {
                this.shared.want(this.goal);
                Poll::Pending
            }
        }
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        if let (Some(id), None) = (self.id, &self.done) {
            self.shared.acks.forget(id);
        }
    }
}

impl Shared {
    fn new(options: &Options, next_seq: u64, hurry: Sender<()>) -> Self {
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
            degraded: AtomicU64::new(0),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            wanted: AtomicU64::new(0),
            hurry,
        }
    }

    /// Asks the writer thread not to wait for more records.
    fn hurry(&self) {
        // Full means that the word is there already.
        let _ = self.hurry.try_send(());
    }

    /// Asks it for the same until it has all records before the goal: one that was numbered may not be in the queue yet.
    fn want(&self, goal: Goal) {
        let (Goal::Written(next_seq) | Goal::Durable(next_seq)) = goal;
        self.wanted.fetch_max(next_seq, Ordering::SeqCst);
        self.hurry();
    }

    fn wait(&self, goal: Goal, since: Option<u64>) -> Result<(), WaitError> {
        if !self.acks.reached(goal) {
            self.want(goal);
        }
        self.acks.wait(goal, since)
    }

    // Relaxed throughout: each number is right for some moment of late, and nothing is decided by them.
    fn metrics(&self) -> Metrics {
        let count = |i: usize| self.counts[i].load(Ordering::Relaxed);
        let (queued_records, queued_bytes) = self.gate.used();
        let (shed, refused) = (self.shed.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed));
        Metrics {
            appended: self.next_seq.load(Ordering::Relaxed) - self.start_seq,
            shed,
            refused,
            blocked: self.blocked.load(Ordering::Relaxed),
            written_seq: self.acks.written() - 1,
            durable_seq: self.acks.durable() - 1,
            queued_records,
            queued_bytes,
            frames: count(0),
            bytes: count(1),
            syncs: count(2),
            segments: count(3),
            heals: count(4),
            failures: count(5),
            manifest_failures: count(6),
            degraded: self.degraded.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn publish_counts(&self, c: &WriterCounts) {
        let values = [c.frames, c.bytes, c.syncs, c.segments, c.heals, c.failures, c.manifest_failures];
        for (slot, value) in self.counts.iter().zip(values) {
            slot.store(value, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Instant;

    use super::*;

    #[test]
    fn a_number_that_is_late_in_the_queue_does_not_make_who_waits_for_a_later_one_wait_longer() {
        let linger = Duration::from_secs(60);
        for flushes in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let options = Options { durability: Durability::Os, linger, ..Options::default() };
            let begun = Instant::now();
            let (log, _) = Log::open(dir.path(), options).unwrap();
            let payload = [0; 8];
            // A thread that has room and a number, and is held up before the queue.
            assert!(log.shared.gate.try_enter(record_len(payload.len()) as u64));
            let late = log.shared.next_seq.fetch_add(1, Ordering::Relaxed);
            let ticket = log.append(Record { kind: 1, schema: 1, key_hash: 0, time_ms: 0, payload: &payload }).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| if flushes { log.flush().wait() } else { log.wait(ticket) }.unwrap());
                // Until the word has ended the gathering of the later one, and is used up.
                while log.metrics().queued_records > 1 && begun.elapsed() < linger {
                    std::thread::yield_now();
                }
                let queued = Queued { seq: late, time_ms: 0, kind: 1, schema: 1, key_hash: 0, payload: payload.into() };
                log.queue.send(Message::Record(queued)).unwrap();
            });
            assert!(begun.elapsed() < linger, "it waited for more records");
            log.close().unwrap();
        }
    }
}
