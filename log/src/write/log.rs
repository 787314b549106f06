//! The log's public interface: appends from any thread, acknowledgements, flushes, health.
//!
//! Owns: sequence numbers, and appending to the queue.
//!
//! Invariants: records get their numbers in the order of each caller's calls and are written in the
//! order of their numbers. An append blocks only under [`OnFull::Block`] and only while the writer
//! makes progress. A waiter ends the gathering of records.
//!
//! Must not know: how bytes are laid out.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;

use super::options::{Durability, LogOptions, OnFull, Record};
use super::recover::{Plan, Recovery, recover};
use super::shared::{Message, Metrics, Queued, Shared};
use super::worker::{Inbox, Worker};
use crate::error::{AppendError, Error, Lost, WaitError};
use crate::format::{BlockFormat, MAX_RECORD_LEN, record_len};
use crate::fs::{Fs, RealFs};
use crate::read::reader::Reader;
use crate::write::ack_future::Acknowledgement;
use crate::write::ack_tracker::{Goal, Health};
use crate::write::directory_lock::OwnedDir;

/// The position of a record in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// 0 when the record was shed.
    seq: u64,
}

impl Ticket {
    /// Returns the record's sequence number; `None` if it was shed.
    pub fn seq(self) -> Option<u64> {
        (self.seq > 0).then_some(self.seq)
    }
}

/// An open log. It is `Send` and `Sync`; share it by `Arc` or by reference.
///
/// Dropping it closes it and ignores errors; [`close`](Self::close) reports them.
///
/// ```
/// use fetchwise_log::{Log, LogOptions, Reader, Record};
///
/// let dir = tempfile::tempdir()?;
/// let (log, recovery) = Log::open(dir.path(), LogOptions::default())?;
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
    blocks: Option<&'static dyn BlockFormat>,
}

impl Log {
    /// Opens the log in `dir` for writing and starts its writer thread. Creates directory and log
    /// if they do not exist.
    ///
    /// Reads as much as [`LogOptions::check`] requires, at about the speed of the disk. A torn tail
    /// is repaired and reported in [`Recovery::torn`].
    ///
    /// # Errors
    ///
    /// A refusal ([`Error::is_refusal`]) if another writer has the directory, the log is damaged,
    /// or it was written with another fingerprint or by a newer release; [`Error::ReadOnly`],
    /// [`Error::StorageFull`] or [`Error::Io`] for the system's errors.
    pub fn open(dir: &Path, options: LogOptions) -> Result<(Self, Recovery), Error> {
        Self::open_with(Arc::new(RealFs), dir, options)
    }

    /// As [`open`](Self::open), on another file system.
    pub fn open_with(
        fs: Arc<dyn Fs>,
        dir: &Path,
        options: LogOptions,
    ) -> Result<(Self, Recovery), Error> {
        let owned_dir = OwnedDir::take(fs.clone(), dir)?;
        let plan = Plan {
            fs: fs.clone(),
            dir,
            fingerprint: options.fingerprint,
            accepts: &options.accepts,
            segment_bytes: options.segment_bytes.max(crate::format::HEADER_LEN as u64 * 2),
            check: options.check,
            begin_segment: options.begin_segment,
            blocks: options.blocks,
            pack_from: options.pack_from,
            repack_bytes: options.repack_bytes,
        };
        let (writer, recovery) = recover(&plan)?;
        crate::directory::reserve::keep(&*fs, dir);
        let (queue, incoming) = crossbeam_channel::unbounded();
        let (hurry, hurried) = crossbeam_channel::bounded(1);
        let shared = Arc::new(Shared::new(&options, recovery.next_seq, hurry));
        let mut worker = Worker::new(
            owned_dir,
            writer,
            shared.clone(),
            Inbox { incoming, hurry: hurried },
            &options,
        );
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
            blocks: options.blocks,
        };
        Ok((log, recovery))
    }

    /// Queues a record: one allocation and one copy. Blocks only under [`OnFull::Block`] with a
    /// full queue; in async code use another policy.
    ///
    /// # Errors
    ///
    /// [`AppendError::TooLarge`], [`AppendError::Full`], [`AppendError::Degraded`] or
    /// [`AppendError::Closed`]; the record is then not in the log.
    pub fn append(&self, record: Record<'_>) -> Result<Ticket, AppendError> {
        if record.payload.len() > MAX_RECORD_LEN {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            return Err(AppendError::TooLarge { len: record.payload.len(), max: MAX_RECORD_LEN });
        }
        let bytes = record_len(record.payload.len()) as u64;
        if !self.shared.gate.try_enter(bytes) {
            match self.full(bytes)? {
                Some(()) => {}
                None => return Ok(Ticket { seq: 0 }),
            }
        }
        let payload = record.payload.into();
        // Relaxed: the number only has to be unique and to grow for each caller; the channel orders
        // everything else.
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
        // The writer may be gathering records. Once it takes those that are there, the queue has
        // room again.
        shared.hurry();
        let refused = |error| {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            Err(error)
        };
        match shared.acks.health() {
            Health::Closed => return refused(AppendError::Closed),
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
                        Health::Degraded { reason, .. } => {
                            return refused(AppendError::Degraded(reason));
                        }
                        Health::Closed => return refused(AppendError::Closed),
                        // The log has recovered since the last look, so there may be room now.
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
    /// If the log is degraded or becomes degraded, or has shed the record. The record may still be
    /// written later.
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
    pub fn acknowledged(&self, ticket: Ticket) -> Acknowledgement {
        let goal = ticket.seq().map(|seq| self.goal(seq + 1));
        match goal {
            None => Acknowledgement::done(self.shared.clone(), Err(WaitError::Shed)),
            Some(None) => Acknowledgement::done(self.shared.clone(), Ok(())),
            Some(Some(goal)) => Acknowledgement::pending(self.shared.clone(), goal, None),
        }
    }

    /// Returns the acknowledgement of all records appended so far, at the log's durability: as
    /// [`acknowledged`](Self::acknowledged), without tickets. Causes no separate sync.
    pub fn settled(&self) -> Acknowledgement {
        // Relaxed: records that this thread has appended, or that another thread has told it of,
        // have their numbers already.
        match self.goal(self.shared.next_seq.load(Ordering::Relaxed)) {
            None => Acknowledgement::done(self.shared.clone(), Ok(())),
            Some(goal) => Acknowledgement::pending(self.shared.clone(), goal, None),
        }
    }

    /// Requests a sync of all records appended so far, at any durability, and returns a future that
    /// threads can also [wait for](Acknowledgement::wait). The request stands even if the result is
    /// dropped. A degraded log retries once.
    pub fn flush(&self) -> Acknowledgement {
        // Relaxed: the records that this thread has appended have their numbers already.
        let target = self.shared.next_seq.load(Ordering::Relaxed);
        let since = Some(self.shared.acks.failures());
        self.shared.flush_to.fetch_max(target, Ordering::SeqCst);
        self.shared.retry_now.store(true, Ordering::SeqCst);
        self.wake();
        Acknowledgement::pending(self.shared.clone(), Goal::Durable(target), since)
    }

    /// Returns counts and gauges. Cheap.
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics()
    }

    /// Returns the number of records lost since the log was opened: refused ones, shed ones, and
    /// those in a deleted directory or segment. Records that wait in memory do not count;
    /// [`Error::Unsaved`] of [`close`](Self::close) includes them.
    pub fn lost(&self) -> Lost {
        self.shared.lost()
    }

    /// Returns the last sequence number that is known to be on disk and survives a power loss; 0
    /// before the first.
    pub fn durable_seq(&self) -> u64 {
        self.shared.acks.durable().saturating_sub(1)
    }

    /// Returns the sequence number that the next record gets.
    pub fn next_seq(&self) -> u64 {
        self.shared.next_seq()
    }

    /// Returns whether records reach the disk.
    pub fn health(&self) -> Health {
        self.shared.acks.health()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the durability that the log was opened with.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Returns a reader of this log: it sees all flushed records, and perhaps more.
    pub fn reader(&self) -> Result<Reader, Error> {
        let reader = Reader::open_with(self.fs.clone(), &self.dir)?;
        Ok(match self.blocks {
            Some(format) => reader.with_blocks(format),
            None => reader,
        })
    }

    /// Writes and syncs everything, seals the segment, and ends the writer thread. Blocks for that
    /// long.
    ///
    /// # Errors
    ///
    /// [`Error::Unsaved`] if records could not be written in a last attempt, or were deleted with
    /// their directory.
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

    /// Makes the writer thread check the flags now.
    fn wake(&self) {
        // The message goes into the queue before `hurry` is sent. When `hurry` ends the gathering,
        // the writer then finds it there.
        let _ = self.queue.send(Message::Wake);
        self.shared.hurry();
    }

    fn shut_down(&mut self) -> Result<(), Error> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.shared.closing.store(true, Ordering::SeqCst);
        self.wake();
        thread.join().unwrap_or_else(|_| {
            // The thread has panicked, which is a bug. What became of the records that it had taken
            // is not known.
            let unwritten = self.shared.next_seq().saturating_sub(self.shared.acks.written());
            let mut lost = self.shared.lost().and(Lost::new(unwritten));
            lost.at_least = true;
            Err(Error::Unsaved { lost, source: Box::new(Error::WriterGone) })
        })
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = self.shut_down();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    #[test]
    fn a_number_that_is_late_in_the_queue_does_not_make_who_waits_for_a_later_one_wait_longer() {
        // A test that waits for it never ends.
        let linger = Duration::from_secs(86_400);
        for flushes in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let options =
                LogOptions { durability: Durability::Os, linger, ..LogOptions::default() };
            let (log, _) = Log::open(dir.path(), options).unwrap();
            let payload = [0; 8];
            // Stands for a thread that has taken room and a number, and has not sent its record to
            // the queue yet.
            assert!(log.shared.gate.try_enter(record_len(payload.len()) as u64));
            let late = log.shared.next_seq.fetch_add(1, Ordering::Relaxed);
            let ticket = log
                .append(Record { kind: 1, schema: 1, key_hash: 0, time_ms: 0, payload: &payload })
                .unwrap();
            std::thread::scope(|scope| {
                scope
                    .spawn(|| if flushes { log.flush().wait() } else { log.wait(ticket) }.unwrap());
                // Wait until `hurry` has been received and has ended the gathering of the later
                // record.
                while log.metrics().queued_records > 1 {
                    std::thread::yield_now();
                }
                let queued = Queued {
                    seq: late,
                    time_ms: 0,
                    kind: 1,
                    schema: 1,
                    key_hash: 0,
                    payload: payload.into(),
                };
                log.queue.send(Message::Record(queued)).unwrap();
            });
            log.close().unwrap();
        }
    }
}
