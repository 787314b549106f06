//! BackgroundMaintenance by itself: a thread that compacts beside the running crawl when it is worth it, or when the log takes too much room.
//!
//! Owns: when. Invariants: it never holds up whoever selects and records, with whom it shares the disk only; what it drops is in both
//! snapshots before. Must not know how a compaction goes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use fetchwise_log::{Brake, Error as LogError, SEGMENT_BYTES_DEFAULT, give_way};

use super::compact::{COMPACT_THRESHOLD_DEFAULT, CompactOptions, CompactReport, RETAIN_DAYS_DEFAULT, compact};
use crate::journal::error::JournalError;
use crate::journal::maintenance::disk_usage::DiskUsage;
use crate::journal::read::open;
use crate::selector::Selector;
use fetchwise_types::time::{Clock, Timestamp};

/// It rests for as long as it works.
const REST_PERCENT: u32 = 100;
/// The share of old attempts changes slowly: it is looked at this often.
const SHARE_EVERY: Duration = Duration::from_secs(600);
/// After something went wrong it is left alone for so long.
const FAILED_FOR: Duration = Duration::from_secs(600);
/// As long as can be configured.
const FOR_EVER: Duration = Duration::from_secs(36_500 * 86_400);
/// Whoever stops it waits for so long at most. What is left undone then is no harm.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// When and how upkeep compacts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UpkeepOptions {
    /// Raw attempts are kept for so long.
    pub retain: Duration,
    /// The share of the log in segments that are older as a whole, from which on it compacts; none: never.
    pub compact_threshold: Option<f64>,
    /// What the log may take on the disk, in bytes; none: whatever it takes.
    pub max_disk_bytes: Option<u64>,
    /// The size at which the writer's segments are full.
    pub segment_bytes: u64,
    /// How often it looks.
    pub look_every: Duration,
}

impl Default for UpkeepOptions {
    fn default() -> Self {
        Self {
            retain: Duration::from_secs(u64::from(RETAIN_DAYS_DEFAULT) * 86_400),
            compact_threshold: Some(COMPACT_THRESHOLD_DEFAULT),
            max_disk_bytes: None,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            look_every: Duration::from_secs(1),
        }
    }
}

impl UpkeepOptions {
    /// The size of segments that goes with a bound on the disk: of at most `segment_bytes`, and small enough that dropping whole
    /// ones helps.
    pub fn segment_bytes_within(segment_bytes: u64, max_disk_bytes: Option<u64>) -> u64 {
        max_disk_bytes.map_or(segment_bytes, |most| segment_bytes.min(most / 16).max(64 << 10))
    }

    /// How many bytes the log may have before upkeep makes room. A segment that is being written, the one allocated ahead, and a
    /// third snapshot beside the two that are kept must still fit in.
    fn high(&self, max_disk_bytes: u64, room: &DiskUsage) -> u64 {
        max_disk_bytes.saturating_sub(self.segment_bytes.saturating_mul(3)).saturating_sub(room.snapshot)
    }
}

/// Why it compacted.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Cause {
    /// So large a share was old.
    Old {
        /// From 0 to 1.
        share: f64,
    },
    /// The log took so much room.
    Full {
        /// In bytes.
        taken: u64,
    },
}

/// What upkeep did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum MaintenanceEvent {
    /// It compacted.
    Compacted {
        /// Why.
        cause: Cause,
        /// What came of it.
        done: CompactReport,
        /// How long it took.
        took: Duration,
    },
    /// All raw attempts that could go are gone, and there is still no room for more: evidence alone is so large. Said once.
    Beyond {
        /// What it takes, in bytes.
        taken: u64,
        /// What it may take.
        max_disk_bytes: u64,
    },
    /// It could not; it tries again after a while.
    Failed(JournalError),
}

/// BackgroundMaintenance that is running. Dropping it stops it.
///
/// Memory: while it compacts, as much again as the evidence takes, and a snapshot's bytes.
///
/// ```
/// use std::sync::Arc;
/// use fetchwise::journal::{Journal, JournalOptions, maintain::{BackgroundMaintenance, UpkeepOptions}};
/// use fetchwise::selector::Selector;
/// use fetchwise::time::Clock;
///
/// # let dir = tempfile::tempdir().unwrap();
/// let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
/// // A new selector with the same half-life and priors as the crawler's, whenever one is needed.
/// let blank = || Ok(Selector::builder().build()?);
/// let tell = |did| eprintln!("{did:?}");
/// let upkeep = BackgroundMaintenance::start(dir.path(), UpkeepOptions::default(), Arc::new(Clock::System), blank, tell)?;
/// // ... the crawl goes on ...
/// upkeep.stop();
/// journal.close().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct BackgroundMaintenance {
    brake: Arc<Brake>,
    wake: Option<SyncSender<()>>,
    ended: Receiver<()>,
}

impl BackgroundMaintenance {
    /// Starts it beside the writer of `dir`, in a thread of low priority. `tell` is told what it did, from that thread.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(
        dir: &Path,
        options: UpkeepOptions,
        clock: Arc<Clock>,
        blank: impl Fn() -> Result<Selector, crate::error::Error> + Send + 'static,
        tell: impl FnMut(MaintenanceEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let brake = Arc::new(Brake::new(REST_PERCENT));
        let (wake, woken) = sync_channel(1);
        let (at_end, ended) = channel();
        let worker = Worker {
            dir: dir.to_owned(),
            options,
            clock,
            brake: Arc::clone(&brake),
            blank: Box::new(blank),
            tell: Box::new(tell),
            share_at: None,
            not_before: None,
            stuck_at: 0,
        };
        Builder::new().name("fetchwise-upkeep".to_owned()).spawn(move || {
            give_way();
            worker.run(&woken);
            // Nobody may be waiting any more.
            let _ = at_end.send(());
        })?;
        Ok(Self { brake, wake: Some(wake), ended })
    }

    /// Looks now, at the share of old attempts, too.
    pub fn look(&self) {
        if let Some(wake) = &self.wake {
            // It has been asked already, or has ended.
            let _ = wake.try_send(());
        }
    }

    /// Stops it: between two records of a compaction, which leaves the log whole. To be called before the journal is closed.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.brake.stop();
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
    options: UpkeepOptions,
    clock: Arc<Clock>,
    brake: Arc<Brake>,
    blank: Box<dyn Fn() -> Result<Selector, crate::error::Error> + Send>,
    tell: Box<dyn FnMut(MaintenanceEvent) + Send>,
    /// When the share of old attempts was looked at.
    share_at: Option<Instant>,
    /// Not to be tried before, as it has just failed.
    not_before: Option<Instant>,
    /// What the log took when nothing more could be dropped.
    stuck_at: u64,
}

impl Worker {
    fn run(mut self, woken: &Receiver<()>) {
        loop {
            match woken.recv_timeout(self.options.look_every) {
                Ok(()) => self.share_at = None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.brake.is_stopped() || matches!(woken.try_recv(), Err(TryRecvError::Disconnected)) {
                return;
            }
            if self.not_before.is_some_and(|at| Instant::now() < at) {
                continue;
            }
            match self.look() {
                Ok(()) => {}
                // It was told to, or a command or another process is at it: the next look will tell.
                Err(JournalError::Log(LogError::Stopped | LogError::Locked { .. } | LogError::Replaced { .. })) => {}
                Err(error) => {
                    self.not_before = Some(Instant::now() + FAILED_FOR);
                    (self.tell)(MaintenanceEvent::Failed(error));
                }
            }
        }
    }

    fn look(&mut self) -> Result<(), JournalError> {
        if let Some(most) = self.options.max_disk_bytes {
            self.make_room(most)?;
        }
        let is_due = self.share_at.is_none_or(|at| at.elapsed() >= SHARE_EVERY);
        if let Some(least) = self.options.compact_threshold.filter(|_| is_due) {
            self.share_at = Some(Instant::now());
            let share = expired_share(&self.dir, self.clock.now(), self.options.retain)?;
            if share >= least {
                self.compact(Cause::Old { share }, None)?;
            }
        }
        Ok(())
    }

    fn make_room(&mut self, most: u64) -> Result<(), JournalError> {
        let room = self.room()?;
        let high = self.options.high(most, &room);
        if room.total <= high || room.total <= self.stuck_at.saturating_add(self.options.segment_bytes) {
            return Ok(());
        }
        // Down to two thirds, so that there is peace for a while.
        let keep = (high / 3 * 2).saturating_sub(room.total - room.sealed);
        self.brake.set_rest(if room.total > most { 0 } else { REST_PERCENT });
        self.compact(Cause::Full { taken: room.total }, Some(keep))?;
        let after = self.room()?;
        // What a crawl has written meanwhile can go the next time. What is in no sealed segment cannot.
        if after.total - after.sealed <= self.options.high(most, &after) {
            self.stuck_at = 0;
            return Ok(());
        }
        if self.stuck_at == 0 {
            (self.tell)(MaintenanceEvent::Beyond { taken: after.total, max_disk_bytes: most });
        }
        self.stuck_at = after.total;
        Ok(())
    }

    fn room(&self) -> Result<DiskUsage, JournalError> {
        let failed =
            |source: io::Error| LogError::Io { action: "read", path: self.dir.clone(), source: Arc::new(source) };
        DiskUsage::taken(&self.dir).map_err(|source| failed(source).into())
    }

    fn compact(&mut self, cause: Cause, keep_bytes: Option<u64>) -> Result<(), JournalError> {
        let begun = Instant::now();
        let selector = match (self.blank)() {
            Ok(selector) => selector,
            Err(error) => return Err(LogError::Invalid(error.to_string()).into()),
        };
        let options = CompactOptions {
            // DiskUsage is needed whatever the time is, and what goes is the oldest by any clock. Age is looked at apart from that.
            retain: if keep_bytes.is_some() { FOR_EVER } else { self.options.retain },
            trust_clock: keep_bytes.is_some(),
            keep_bytes,
            segment_bytes: Some(self.options.segment_bytes),
            brake: Some(Arc::clone(&self.brake)),
            ..CompactOptions::default()
        };
        let done = compact(&self.dir, &selector, &options, self.clock.now(), &mut |_, _| {})?;
        (self.tell)(MaintenanceEvent::Compacted { cause, done, took: begun.elapsed() });
        Ok(())
    }
}

/// The share of the log's bytes that is in segments whose newest record is older than `retain`. Segments that their writer could not
/// seal do not count as old. Cost: a few bytes of each segment are read.
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
