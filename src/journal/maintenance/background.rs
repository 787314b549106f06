//! Background maintenance: a thread that compacts alongside a running crawl when it pays off, or
//! when the log exceeds its disk limit, and that makes checkpoints of evidence with a limit on
//! keys.
//!
//! Owns: when to compact, and when to make a checkpoint.
//!
//! Invariants: the thread never blocks callers that select or record; it shares only the disk with
//! them. Both snapshots hold the effect of a record before it is dropped.
//!
//! Must not know: how a compaction or a checkpoint works.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, channel, sync_channel,
};
use std::thread::Builder;
use std::time::{Duration, Instant};

use fetchwise_log::{
    DEFAULT_SEGMENT_BYTES, Error as LogError, Maintenance, Throttle, lower_thread_priority,
};

use super::checkpoint::{DUE_AFTER, advance, records_since};
use super::compact::{
    CompactOptions, CompactReport, DEFAULT_COMPACT_THRESHOLD, DEFAULT_RETAIN_DAYS, compact,
};
use crate::journal::error::JournalError;
use crate::journal::maintenance::disk_usage::DiskUsage;
use crate::journal::read::open;
use crate::selector::Selector;
use fetchwise_types::time::{Clock, Timestamp};

/// Rest after work, in percent of the time worked.
const REST_PERCENT: u32 = 100;
/// Interval of checks for old attempts, whose share changes slowly.
const SHARE_EVERY: Duration = Duration::from_secs(600);
/// Delay before the next try after a failure.
const FAILED_FOR: Duration = Duration::from_secs(600);
/// Interval of the checks for records that no checkpoint covers.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(30);
/// Bytes of segments from which on it is worth packing them.
const DEFAULT_PACK_BYTES: u64 = 16 << 20;
/// Longest retention that can be configured.
const FOR_EVER: Duration = Duration::from_secs(36_500 * 86_400);
/// Longest wait for the thread to stop. Unfinished work does no harm.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// Options of background maintenance.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MaintenanceOptions {
    /// Time for which raw attempts are kept.
    pub retain: Duration,
    /// Share of the log in expired segments from which on it compacts; `None` disables this.
    pub compact_threshold: Option<f64>,
    /// Bytes in finished segments that no compaction has packed, from which on it compacts to pack
    /// and merge them. They must also be the share of the log that `compact_threshold` says. `None`
    /// disables this.
    pub pack_bytes: Option<u64>,
    /// Largest disk usage of the log in bytes; `None` for no limit.
    pub max_disk_bytes: Option<u64>,
    /// Number of records after which it makes a [checkpoint](super::checkpoint()), if evidence has
    /// a limit on keys. `None` disables this.
    pub checkpoint_after: Option<u64>,
    /// Size at which the writer's segments are full, in bytes.
    pub segment_bytes: u64,
    /// Interval of the checks.
    pub check_interval: Duration,
}

impl Default for MaintenanceOptions {
    fn default() -> Self {
        Self {
            retain: Duration::from_secs(u64::from(DEFAULT_RETAIN_DAYS) * 86_400),
            compact_threshold: Some(DEFAULT_COMPACT_THRESHOLD),
            pack_bytes: Some(DEFAULT_PACK_BYTES),
            max_disk_bytes: None,
            checkpoint_after: Some(DUE_AFTER),
            segment_bytes: DEFAULT_SEGMENT_BYTES,
            check_interval: Duration::from_secs(1),
        }
    }
}

impl MaintenanceOptions {
    /// Returns a segment size that suits the disk limit: at most `segment_bytes`, and small enough
    /// that dropping whole segments helps.
    pub fn segment_bytes_within(segment_bytes: u64, max_disk_bytes: Option<u64>) -> u64 {
        max_disk_bytes.map_or(segment_bytes, |most| segment_bytes.min(most / 16).max(64 << 10))
    }

    /// Returns the disk usage in bytes above which the log is compacted. It leaves space for the
    /// segment being written, the one allocated ahead, and a third snapshot besides the two that
    /// are kept.
    fn high(&self, max_disk_bytes: u64, usage: &DiskUsage) -> u64 {
        max_disk_bytes
            .saturating_sub(self.segment_bytes.saturating_mul(3))
            .saturating_sub(usage.snapshot)
    }
}

/// Cause of a compaction.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum CompactCause {
    /// A large share of the log had expired.
    Expired {
        /// Share from 0 to 1.
        share: f64,
    },
    /// A large share of the log was in segments of a writer.
    Unpacked {
        /// Share from 0 to 1.
        share: f64,
    },
    /// The log exceeded its disk limit.
    Full {
        /// Disk usage in bytes.
        taken: u64,
    },
}

/// Event of background maintenance.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum MaintenanceEvent {
    /// A compaction finished.
    CompactionFinished {
        /// Cause of the compaction.
        cause: CompactCause,
        /// Report of the compaction.
        done: CompactReport,
        /// Duration of the compaction.
        took: Duration,
    },
    /// All raw attempts that could go are gone, and the log still exceeds its limit, because
    /// evidence alone is that large. Reported once.
    OverLimit {
        /// Disk usage in bytes.
        taken: u64,
        /// Disk limit in bytes.
        max_disk_bytes: u64,
    },
    /// A check or a compaction failed. It is tried again after a while.
    Failed(JournalError),
}

/// Handle of running background maintenance. Dropping it stops the thread.
///
/// Memory: during a compaction, a second copy of the evidence, and the bytes of a snapshot.
///
/// ```
/// use std::sync::Arc;
/// use fetchwise::journal::{Journal, JournalOptions, maintenance::{BackgroundMaintenance, MaintenanceOptions}};
/// use fetchwise::selector::Selector;
/// use fetchwise::time::Clock;
///
/// # let dir = tempfile::tempdir().unwrap();
/// let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
/// // A new selector with the same half-life and priors as the crawler's, whenever one is needed.
/// let blank = || Ok(Selector::builder().build()?);
/// let on_event = |event| eprintln!("{event:?}");
/// let (options, clock) = (MaintenanceOptions::default(), Arc::new(Clock::System));
/// let background = BackgroundMaintenance::start(dir.path(), options, clock, blank, on_event)?;
/// // ... the crawl goes on ...
/// background.stop();
/// journal.close().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct BackgroundMaintenance {
    throttle: Arc<Throttle>,
    wake: Option<SyncSender<()>>,
    ended: Receiver<()>,
}

impl BackgroundMaintenance {
    /// Starts a thread alongside the writer of `dir`. The thread calls `on_event` with each event.
    /// Without a disk limit it has low priority. With one it has the priority of the caller: a
    /// crawl that keeps the processors busy leaves a thread of low priority a few percent of one,
    /// and the log would outgrow its limit meanwhile, whatever the thread works at.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        dir: &Path,
        options: MaintenanceOptions,
        clock: Arc<Clock>,
        blank: impl Fn() -> Result<Selector, crate::error::Error> + Send + 'static,
        on_event: impl FnMut(MaintenanceEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let throttle = Arc::new(Throttle::new(REST_PERCENT));
        let (wake, woken) = sync_channel(1);
        let (at_end, ended) = channel();
        let worker = Worker {
            dir: dir.to_owned(),
            options,
            clock,
            throttle: Arc::clone(&throttle),
            blank: Box::new(blank),
            on_event: Box::new(on_event),
            share_checked_at: None,
            checkpoint_checked_at: None,
            not_before: None,
            stuck_at_bytes: 0,
        };
        Builder::new().name("fetchwise-upkeep".to_owned()).spawn(move || {
            if worker.options.max_disk_bytes.is_none() {
                lower_thread_priority();
            }
            worker.run(&woken);
            // Nobody may be waiting any more.
            let _ = at_end.send(());
        })?;
        Ok(Self { throttle, wake: Some(wake), ended })
    }

    /// Starts a check now, including the one for old attempts.
    pub fn check_now(&self) {
        if let Some(wake) = &self.wake {
            // Fails if a check is already requested, or if the thread has ended.
            let _ = wake.try_send(());
        }
    }

    /// Stops the thread. A running compaction stops between two records, which leaves the log
    /// intact. Call this before closing the journal.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.throttle.stop();
        if self.wake.take().is_some() {
            let _ = self.ended.recv_timeout(STOP_WAIT);
        }
    }
}

impl Drop for BackgroundMaintenance {
    fn drop(&mut self) {
        self.end();
    }
}

struct Worker {
    dir: PathBuf,
    options: MaintenanceOptions,
    clock: Arc<Clock>,
    throttle: Arc<Throttle>,
    blank: Box<dyn Fn() -> Result<Selector, crate::error::Error> + Send>,
    on_event: Box<dyn FnMut(MaintenanceEvent) + Send>,
    /// Time of the last check for old attempts.
    share_checked_at: Option<Instant>,
    /// Time of the last check for records that no checkpoint covers.
    checkpoint_checked_at: Option<Instant>,
    /// Time of the next try after a failure.
    not_before: Option<Instant>,
    /// Disk usage at which nothing more could be dropped.
    stuck_at_bytes: u64,
}

impl Worker {
    fn run(mut self, woken: &Receiver<()>) {
        loop {
            match woken.recv_timeout(self.options.check_interval) {
                Ok(()) => self.share_checked_at = None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.throttle.is_stopped()
                || matches!(woken.try_recv(), Err(TryRecvError::Disconnected))
            {
                return;
            }
            if self.not_before.is_some_and(|at| Instant::now() < at) {
                continue;
            }
            match self.check() {
                Ok(()) => {}
                // Stopped, or a command or another process is working on the log. The next check
                // finds out.
                Err(JournalError::Log(
                    LogError::Stopped | LogError::Locked { .. } | LogError::Replaced { .. },
                )) => {
                    self.share_checked_at = None;
                }
                Err(error) => {
                    self.not_before = Some(Instant::now() + FAILED_FOR);
                    (self.on_event)(MaintenanceEvent::Failed(error));
                }
            }
        }
    }

    fn check(&mut self) -> Result<(), JournalError> {
        self.throttle.set_rest_percent(REST_PERCENT);
        if let Some(most) = self.options.max_disk_bytes {
            self.shrink(most)?;
        }
        if let Some(records) = self.options.checkpoint_after {
            self.checkpoint_if_due(records)?;
        }
        let is_due = self.share_checked_at.is_none_or(|at| at.elapsed() >= SHARE_EVERY);
        if let Some(least) = self.options.compact_threshold.filter(|_| is_due) {
            self.share_checked_at = Some(Instant::now());
            let share = expired_share(&self.dir, self.clock.date(), self.options.retain)?;
            if share >= least {
                self.compact(CompactCause::Expired { share }, None, true)?;
            } else if let Some(share) = self.unpacked_share()?.filter(|share| *share >= least) {
                self.compact(CompactCause::Unpacked { share }, None, true)?;
            }
        }
        Ok(())
    }

    fn checkpoint_if_due(&mut self, records: u64) -> Result<(), JournalError> {
        if self.checkpoint_checked_at.is_some_and(|at| at.elapsed() < CHECKPOINT_EVERY) {
            return Ok(());
        }
        self.checkpoint_checked_at = Some(Instant::now());
        if records_since(&self.dir)? < records {
            return Ok(());
        }
        let _lock = Maintenance::lock(&self.dir)?;
        let like = self.blank_selector()?;
        if like.learned().max_keys().is_none() {
            self.options.checkpoint_after = None;
            return Ok(());
        }
        match advance(&self.dir, like.learned(), self.clock.date(), Some(&self.throttle)) {
            Err(error @ JournalError::Log(LogError::Stopped | LogError::Replaced { .. })) => {
                Err(error)
            }
            // The log is not affected, so the rest goes on.
            Err(error) => {
                crate::trace::checkpoint_failed(&error);
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    fn blank_selector(&self) -> Result<Selector, JournalError> {
        (self.blank)().map_err(|error| LogError::Invalid(error.to_string()).into())
    }

    /// Returns the share of the log's bytes in finished segments that maintenance has not packed;
    /// `None` if these are too few. A writer's segments are small and may hold batches that are not
    /// packed, so they count.
    fn unpacked_share(&self) -> Result<Option<f64>, JournalError> {
        let Some(least) = self.options.pack_bytes else { return Ok(None) };
        let (mut unpacked, mut total) = (0, 0);
        for segment in open(&self.dir)?.segments() {
            total += segment.bytes;
            let is_packed = segment.packed && segment.rewritten;
            unpacked += if segment.next_seq.is_none() || is_packed { 0 } else { segment.bytes };
        }
        Ok((unpacked > 0 && unpacked >= least).then(|| unpacked as f64 / total as f64))
    }

    fn shrink(&mut self, most: u64) -> Result<(), JournalError> {
        let usage = self.usage()?;
        let high = self.options.high(most, &usage);
        if usage.total <= high
            || usage.total <= self.stuck_at_bytes.saturating_add(self.options.segment_bytes)
        {
            return Ok(());
        }
        // Down to two thirds, so that the next compaction is some time away.
        let keep = (high / 3 * 2).saturating_sub(usage.total - usage.sealed);
        // Packing takes longer than cutting. Beyond the bound, the crawl may be faster than the
        // packing, and a compaction that is interrupted has gained nothing: the log would grow
        // without end. So it is cut first, and packed once there is time.
        let is_beyond = usage.total > most;
        if is_beyond {
            self.throttle.set_rest_percent(0);
        }
        self.compact(CompactCause::Full { taken: usage.total }, Some(keep), !is_beyond)?;
        let after = self.usage()?;
        // The next compaction can drop what a crawl has written meanwhile. Only sealed segments can
        // shrink.
        if after.total - after.sealed <= self.options.high(most, &after) {
            self.stuck_at_bytes = 0;
            return Ok(());
        }
        if self.stuck_at_bytes == 0 {
            (self.on_event)(MaintenanceEvent::OverLimit {
                taken: after.total,
                max_disk_bytes: most,
            });
        }
        self.stuck_at_bytes = after.total;
        Ok(())
    }

    fn usage(&self) -> Result<DiskUsage, JournalError> {
        let failed = |source: io::Error| LogError::Io {
            action: "read",
            path: self.dir.clone(),
            source: Arc::new(source),
        };
        DiskUsage::measure(&self.dir).map_err(|source| failed(source).into())
    }

    fn compact(
        &mut self,
        cause: CompactCause,
        keep_bytes: Option<u64>,
        pack: bool,
    ) -> Result<(), JournalError> {
        let begun = Instant::now();
        let selector = self.blank_selector()?;
        let options = CompactOptions {
            // The limit holds whatever the time is, and the oldest attempts by any clock go. A
            // separate check handles age.
            retain: if keep_bytes.is_some() { FOR_EVER } else { self.options.retain },
            trust_clock: keep_bytes.is_some(),
            keep_bytes,
            pack,
            segment_bytes: Some(self.options.segment_bytes),
            throttle: Some(Arc::clone(&self.throttle)),
            ..CompactOptions::default()
        };
        let done = compact(&self.dir, &selector, &options, self.clock.date(), &mut |_, _| {})?;
        (self.on_event)(MaintenanceEvent::CompactionFinished {
            cause,
            done,
            took: begun.elapsed(),
        });
        Ok(())
    }
}

/// Returns the share of the log's bytes in segments whose newest record is older than `retain`.
/// Segments that their writer could not seal do not count as old. Cost: reading a few bytes of each
/// segment.
///
/// # Errors
/// As [`snapshot`](super::snapshot).
pub fn expired_share(dir: &Path, now: Timestamp, retain: Duration) -> Result<f64, JournalError> {
    let cutoff = now.as_millis().saturating_sub_unsigned(retain.as_millis() as u64);
    let reader = open(dir)?;
    let (mut old, mut total) = (0, 0);
    for (index, segment) in reader.segments().enumerate() {
        total += segment.bytes;
        if reader.newest_time(index)?.is_some_and(|newest| newest < cutoff) {
            old += segment.bytes;
        }
    }
    Ok(if total == 0 { 0.0 } else { old as f64 / total as f64 })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::journal::{Journal, JournalOptions};

    #[test]
    fn only_a_log_without_a_disk_limit_is_maintained_at_a_low_priority() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        for max_disk_bytes in [None, Some(u64::MAX)] {
            let dir = tempfile::tempdir().unwrap();
            let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
            // A checkpoint is due at once, and begins with a blank selector.
            let options = MaintenanceOptions {
                max_disk_bytes,
                checkpoint_after: Some(0),
                ..MaintenanceOptions::default()
            };
            let (send, seen) = channel();
            let blank = move || {
                let _ = send.send(nice());
                Selector::builder().build()
            };
            let background = BackgroundMaintenance::start(
                dir.path(),
                options,
                Arc::new(Clock::System),
                blank,
                |_| {},
            )
            .unwrap();
            background.check_now();
            assert_eq!(seen.recv().unwrap() > nice(), max_disk_bytes.is_none());
            background.stop();
            journal.close().unwrap();
        }
    }
}
