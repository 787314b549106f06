//! The writer thread: takes records from the queue, cuts frames, syncs when due, and retries after
//! a failure of the disk.
//!
//! Owns: the loop and its timing, and the check that the directory still exists.
//!
//! Invariants: records are written in the order of their numbers, in whatever order they arrive.
//! Records are gathered only without waiters. A degraded log leaves records in the queue, so that
//! the queue's bounds hold. All waiters are woken when the thread ends, even by a panic.
//!
//! Must not know: how bytes are laid out.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::batch::Batch;
use super::options::{Durability, LogOptions};
use super::shared::{Message, Queued, Shared};
use super::writer::Writer;
use crate::error::{Error, Lost};
use crate::format::{RecordRef, put_record, record_len};
use crate::write::ack_tracker::Health;
use crate::write::directory_lock::OwnedDir;

/// A frame is cut when it has this many bytes.
const FRAME_BYTES: usize = 1 << 20;
/// At `Memory` and `Os` nothing asks for syncs; this bounds what is kept in memory until one.
const MAX_RETAINED: usize = 8 << 20;
/// The idle time after which a sync marker is written.
const IDLE: Duration = Duration::from_millis(50);
/// The divisor of the interval that limits gathering.
const LINGER_PART: u32 = 8;
/// The interval between two checks that the directory still exists.
const LOOK: Duration = Duration::from_millis(500);
/// The time for which a log with a deleted directory stays degraded before it continues in a new
/// one, so that a host that checks a few times per second notices it.
const REMOVAL_SHOWN: Duration = Duration::from_millis(500);
const MIN_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(5);

/// The writer thread.
pub(crate) struct Worker {
    owned_dir: OwnedDir,
    writer: Writer,
    shared: Arc<Shared>,
    incoming: Receiver<Message>,
    /// Receives a message when somebody waits or the queue fills up. Then no more records are
    /// gathered.
    hurry: Receiver<()>,
    linger: Duration,
    /// The last frame was full, so there is more.
    behind: bool,
    durability: Durability,
    /// The number of the next record to be put into a frame.
    next_seq: u64,
    /// Records that overtook another caller's on the way to the queue.
    early: BTreeMap<u64, Queued>,
    batch: Option<Batch>,
    /// Since when something is written but not synced.
    dirty_since: Option<Instant>,
    last_record: Instant,
    retry: Option<Retry>,
    look_at: Instant,
    /// The directory is missing and has not been taken again yet.
    is_homeless: bool,
    /// The last removal, for the error at close.
    removed: Option<Error>,
    /// Records of earlier processes are in the directory.
    has_older: bool,
}

/// The ends of the channels that the writer thread receives from.
pub(crate) struct Inbox {
    pub(crate) incoming: Receiver<Message>,
    pub(crate) hurry: Receiver<()>,
}

#[derive(Clone, Copy)]
struct Retry {
    at: Instant,
    pause: Duration,
    last: Instant,
}

impl Worker {
    pub(crate) fn new(
        owned_dir: OwnedDir,
        writer: Writer,
        shared: Arc<Shared>,
        Inbox { incoming, hurry }: Inbox,
        options: &LogOptions,
    ) -> Self {
        let next_seq = shared.next_seq();
        Self {
            owned_dir,
            writer,
            shared,
            incoming,
            hurry,
            linger: options.linger,
            behind: false,
            durability: options.durability,
            next_seq,
            early: BTreeMap::new(),
            batch: None,
            dirty_since: None,
            last_record: Instant::now(),
            retry: None,
            look_at: Instant::now() + LOOK,
            is_homeless: false,
            removed: None,
            has_older: next_seq > 1,
        }
    }

    pub(crate) fn run(&mut self) -> Result<(), Error> {
        // Its drop tells all waiters that the thread has ended, even when it ends by a panic.
        let _ending = Ending(self.shared.clone());
        loop {
            self.receive();
            let closing = self.shared.closing.load(Ordering::SeqCst) && self.incoming.is_empty();
            if let Err(error) = self.step(closing) {
                self.degrade(&error);
                if closing {
                    let lost = self.shared.lost().and(self.unsaved());
                    return Err(Error::Unsaved { lost, source: Box::new(error) });
                }
            } else if closing {
                return match self.removed.take() {
                    Some(error) if !self.shared.gone().is_nothing() => {
                        Err(Error::Unsaved { lost: self.shared.lost(), source: Box::new(error) })
                    }
                    _ => Ok(()),
                };
            }
        }
    }

    /// What has a number, and cannot be counted on to be found on disk when this thread ends now.
    fn unsaved(&self) -> Lost {
        Lost::new(self.shared.next_seq().saturating_sub(self.writer.found_next()))
    }

    /// Waits for something to do, then takes records until a frame is full or the queue is empty.
    fn receive(&mut self) {
        if self.retry.is_some() {
            // A degraded log leaves records in the queue, so that the queue's bounds also bound the
            // memory that waits.
            self.wait_for_retry();
            if !self.shared.closing.load(Ordering::SeqCst) {
                return;
            }
        }
        let first = match self.incoming.recv_deadline(self.deadline()) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => return,
            Err(RecvTimeoutError::Disconnected) => {
                return self.shared.closing.store(true, Ordering::SeqCst);
            }
        };
        if matches!(first, Message::Record(_)) {
            // The interval within which this record has to be synced begins now.
            self.dirty_since.get_or_insert_with(Instant::now);
            self.gather();
        }
        let mut freed = (0, 0);
        let mut next = Some(first);
        while let Some(message) = next {
            if let Message::Record(record) = message {
                freed = (freed.0 + 1, freed.1 + record_len(record.payload.len()) as u64);
                self.accept(record);
            }
            self.behind = freed.1 >= FRAME_BYTES as u64;
            if self.behind {
                break;
            }
            next = self.incoming.try_recv().ok();
        }
        self.shared.gate.leave(freed.0, freed.1);
        self.finish_batch();
    }

    /// Waits for more records for a short time, or until somebody asks for what is there.
    fn gather(&self) {
        let time = match self.durability {
            Durability::Sync => return,
            Durability::Interval(interval) => self.linger.min(interval / LINGER_PART),
            Durability::Memory | Durability::Os => self.linger,
        };
        let is_wanted = self.shared.wanted.load(Ordering::SeqCst) > self.next_seq;
        let is_closing = self.shared.closing.load(Ordering::SeqCst);
        if !self.behind && !is_wanted && !is_closing && !time.is_zero() {
            // A waiter stores `wanted` before it sends `hurry`. So a request that comes after the
            // check above is received here, and none is lost. A request that is left over from
            // earlier ends this gathering early and does no other harm.
            let _ = self.hurry.recv_timeout(time);
        }
    }

    fn wait_for_retry(&mut self) {
        let Some(retry) = self.retry else { return };
        loop {
            let now = Instant::now();
            let asked = self.shared.retry_now.load(Ordering::SeqCst)
                || self.shared.closing.load(Ordering::SeqCst);
            let at = if asked { retry.at.min(retry.last + MIN_RETRY) } else { retry.at };
            if now >= at || self.shared.closing.load(Ordering::SeqCst) {
                return;
            }
            // The thread cannot wait on the channel, because records stay in it until the log is
            // well again. So it sleeps in short steps, to notice a flush or close soon.
            std::thread::sleep((at - now).min(Duration::from_millis(10)));
        }
    }

    fn deadline(&self) -> Instant {
        if self.retry.is_some() {
            return Instant::now();
        }
        let sync_at = match (self.durability, self.dirty_since) {
            (Durability::Interval(interval), Some(since)) => Some(since + interval),
            _ => None,
        };
        let idle_at =
            (self.writer.is_dirty() || self.writer.is_unmarked()).then(|| self.last_record + IDLE);
        [sync_at, idle_at].into_iter().flatten().fold(self.look_at, Instant::min)
    }

    fn accept(&mut self, record: Queued) {
        if record.seq != self.next_seq {
            self.early.insert(record.seq, record);
            return;
        }
        self.put(&record);
        while let Some(entry) = self.early.first_entry() {
            if *entry.key() != self.next_seq {
                break;
            }
            let record = entry.remove();
            self.put(&record);
        }
    }

    fn put(&mut self, record: &Queued) {
        let len = record_len(record.payload.len());
        if self.batch.as_ref().is_some_and(|batch| batch.payload_len() + len > FRAME_BYTES) {
            self.finish_batch();
        }
        let next_seq = self.next_seq;
        let writer = &mut self.writer;
        let batch = self.batch.get_or_insert_with(|| Batch::new(next_seq, writer.spare()));
        let (kind, schema, key_hash) = (record.kind, record.schema, record.key_hash);
        put_record(
            &mut batch.bytes,
            &RecordRef { kind, schema, key_hash, payload: &record.payload },
        );
        batch.count += 1;
        batch.min_time = batch.min_time.min(record.time_ms);
        batch.max_time = batch.max_time.max(record.time_ms);
        self.next_seq += 1;
    }

    fn finish_batch(&mut self) {
        if let Some(batch) = self.batch.take() {
            let now = Instant::now();
            self.writer.push(batch);
            self.last_record = now;
            self.dirty_since.get_or_insert(now);
        }
    }

    /// Writes what is there and syncs when it is due.
    fn step(&mut self, closing: bool) -> Result<(), Error> {
        self.shared.retry_now.store(false, Ordering::SeqCst);
        let mut done = self.try_step(closing);
        if done.is_err() && !self.is_homeless {
            // In a deleted directory, making the next segment may be what fails first. The error
            // should name the cause.
            self.look_at = Instant::now();
            done = self.look(closing).and(done);
        }
        self.shared.publish_counts(&self.writer.counts);
        if !self.writer.is_dirty() {
            self.dirty_since = None;
        }
        if done.is_ok() && self.retry.take().is_some() {
            self.shared.acks.set_health(Health::Good);
            self.shared.gate.set_shut(false);
        }
        self.shared.acks.advance(self.writer.written_next(), self.writer.durable_next());
        done
    }

    fn try_step(&mut self, closing: bool) -> Result<(), Error> {
        self.look(closing)?;
        self.writer.pump()?;
        if closing {
            return self.writer.close();
        }
        let now = Instant::now();
        let flush = self.shared.flush_to.load(Ordering::SeqCst) > self.writer.durable_next();
        let due = match self.durability {
            Durability::Sync => true,
            Durability::Interval(interval) => {
                self.dirty_since.is_some_and(|since| now >= since + interval)
            }
            Durability::Memory | Durability::Os => self.writer.retained_bytes() >= MAX_RETAINED,
        };
        let full = self.writer.retained_bytes() >= MAX_RETAINED;
        if (flush || due || full) && self.writer.is_dirty() {
            if self.durability != Durability::Sync {
                // Those who wait for the write alone are told now, before the sync.
                self.shared.acks.advance(self.writer.written_next(), self.writer.durable_next());
            }
            self.writer.sync()?;
        }
        let idle = now >= self.last_record + IDLE && self.incoming.is_empty();
        if idle && (self.writer.is_dirty() || self.writer.is_unmarked()) {
            self.writer.mark()?;
        }
        if self.writer.is_repack_due() {
            // Nobody waits for the packing.
            self.shared.acks.advance(self.writer.written_next(), self.writer.durable_next());
            self.writer.repack()?;
        }
        Ok(())
    }

    /// Checks, when due, whether directory and segment still exist. If not, counts the lost
    /// records; the next check takes the directory again.
    fn look(&mut self, closing: bool) -> Result<(), Error> {
        let now = Instant::now();
        let is_due = now >= self.look_at || self.retry.is_some() || closing;
        // Before the first segment is begun, look in any case: the directory may have been emptied
        // since the log was opened, and a segment that continues what was in it would be damage.
        if !is_due && self.writer.has_segment() {
            return Ok(());
        }
        self.look_at = now + LOOK;
        if !self.is_homeless
            && let Some(error) = self.find_removal()?
        {
            self.is_homeless = true;
            self.removed = Some(error.clone());
            // A closing log does not check again, so it takes the directory immediately.
            if !closing {
                return Err(error);
            }
        }
        if self.is_homeless {
            self.owned_dir.retake(self.writer.identity())?;
            // The write that follows begins a new segment with everything that is in memory.
            self.is_homeless = false;
        }
        Ok(())
    }

    /// Returns what was deleted or moved away since the last check, with the number of lost
    /// records.
    fn find_removal(&mut self) -> Result<Option<Error>, Error> {
        let segment = self.writer.missing_segment().map(Path::to_owned);
        if segment.is_none() && self.owned_dir.is_held() {
            return Ok(None);
        }
        let own = self.writer.identity();
        if self.owned_dir.identity()?.is_some_and(|identity| identity.store == own.store) {
            let Some(path) = segment else {
                // Only the lock file is gone. It is taken again unless another writer came first.
                self.owned_dir.retake(own)?;
                return Ok(None);
            };
            let lost = Lost::new(self.writer.lose_segment());
            self.shared.add_gone(lost);
            return Ok(Some(Error::Removed { path, lost }));
        }
        let mut lost = Lost::new(self.writer.lose_directory());
        lost.at_least = std::mem::take(&mut self.has_older);
        self.shared.add_gone(lost);
        Ok(Some(Error::Removed { path: self.owned_dir.dir().to_owned(), lost }))
    }

    fn degrade(&mut self, error: &Error) {
        let now = Instant::now();
        if self.retry.is_none() {
            self.shared.degraded.fetch_add(1, Ordering::Relaxed);
        }
        let pause = match self.retry {
            _ if matches!(error, Error::Removed { .. }) => REMOVAL_SHOWN,
            Some(retry) => (retry.pause * 2).min(MAX_RETRY),
            None => MIN_RETRY,
        };
        self.retry = Some(Retry { at: now + pause, pause, last: now });
        let reason = error.to_string().into();
        self.shared
            .acks
            .set_health(Health::Degraded { reason, storage_full: error.is_storage_full() });
        self.shared.gate.set_shut(true);
    }
}

/// Wakes all waiters when the writer thread ends, even by a panic.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.acks.set_health(Health::Closed);
        self.0.gate.set_shut(true);
    }
}
