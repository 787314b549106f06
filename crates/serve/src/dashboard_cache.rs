//! A cache for the dashboard: the log's files, the time of the last sync, and results that are slow
//! to compute.
//!
//! Owns: how often the disk is read.
//!
//! Must not know: HTTP.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lru::LruCache;

use fetchwise::analytics::Importance;
use fetchwise::journal::Metrics;
use fetchwise::time::Timestamp;
use fetchwise_log::Reader;
use fetchwise_present::PauseCause;

/// The shortest time between two reads of the log's directory.
const FILES_EVERY: Duration = Duration::from_secs(5);
/// The shortest time between two rankings of heuristics.
const HEURISTICS_EVERY: Duration = Duration::from_secs(15);
/// The shortest time between two reads of the log for a rollout.
const ROLLOUT_EVERY: Duration = Duration::from_secs(30);
/// Maximum number of pauses whose causes are kept; beyond it, those that were shown least recently
/// are looked up again.
const MAX_CAUSES: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// The log's files as read from the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogFiles {
    /// The number of segments.
    pub(crate) segments: u64,
    /// Their total length, in bytes.
    pub(crate) bytes: u64,
    /// The time of the last compaction.
    pub(crate) compacted_at: Option<Timestamp>,
}

/// The cached values.
#[derive(Debug)]
pub(crate) struct DashboardCache {
    /// The start of the server.
    pub(crate) started_at: Timestamp,
    cached: Mutex<CachedValues>,
}

#[derive(Debug)]
struct CachedValues {
    files: Option<(Instant, LogFiles)>,
    heuristics: Option<(Instant, Vec<Importance>)>,
    rollout: Option<(Instant, Vec<u8>)>,
    synced: (u64, Option<Timestamp>),
    /// The causes of pauses, by host and end.
    causes: LruCache<(String, Timestamp), Option<PauseCause>>,
}

impl Default for CachedValues {
    fn default() -> Self {
        let causes = LruCache::sparse(MAX_CAUSES);
        Self { files: None, heuristics: None, rollout: None, synced: (0, None), causes }
    }
}

impl DashboardCache {
    /// Creates an empty cache for a server that starts now.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { started_at: now, cached: Mutex::default() }
    }

    /// Returns the log's files, at most [`FILES_EVERY`] old. May read the directory, so no thread
    /// that serves requests may call it.
    pub(crate) fn files(&self, dir: &Path) -> LogFiles {
        if let Some((at, files)) = self.with(|cached| cached.files)
            && at.elapsed() < FILES_EVERY
        {
            return files;
        }
        // An unreadable directory shows its last values; the log's state reports the error.
        let files = read_log_files(dir)
            .or_else(|| self.with(|cached| cached.files).map(|(_, files)| files))
            .unwrap_or_default();
        self.with(|cached| cached.files = Some((Instant::now(), files)));
        files
    }

    /// Returns the result of `work`, at most [`HEURISTICS_EVERY`] old.
    pub(crate) fn heuristics(&self, work: impl FnOnce() -> Vec<Importance>) -> Vec<Importance> {
        let known = self.with(|cached| {
            cached.heuristics.as_ref().filter(|(at, _)| at.elapsed() < HEURISTICS_EVERY).cloned()
        });
        known.map_or_else(
            || {
                let found = work();
                self.with(|cached| cached.heuristics = Some((Instant::now(), found.clone())));
                found
            },
            |(_, found)| found,
        )
    }

    /// Returns the result of a rollout as JSON, if it is at most [`ROLLOUT_EVERY`] old.
    pub(crate) fn rollout(&self) -> Option<Vec<u8>> {
        self.with(|cached| {
            cached
                .rollout
                .as_ref()
                .filter(|(at, _)| at.elapsed() < ROLLOUT_EVERY)
                .map(|(_, of)| of.clone())
        })
    }

    /// Stores the result of a rollout.
    pub(crate) fn keep_rollout(&self, found: &[u8]) {
        self.with(|cached| cached.rollout = Some((Instant::now(), found.to_vec())));
    }

    /// Returns the cause of the pause of `host` until `until`; the outer none if it was not looked
    /// up yet.
    pub(crate) fn cause(&self, host: &str, until: Timestamp) -> Option<Option<PauseCause>> {
        self.with(|cached| cached.causes.get(&(host.to_owned(), until)).cloned())
    }

    /// Stores the cause of a pause.
    pub(crate) fn keep_cause(&self, host: &str, until: Timestamp, cause: Option<PauseCause>) {
        self.with(|cached| cached.causes.put((host.to_owned(), until), cause));
    }

    /// Drops the results that were computed before something was forgotten.
    pub(crate) fn forget(&self) {
        self.with(|cached| {
            (cached.heuristics, cached.rollout) = (None, None);
            cached.causes.clear();
        });
    }

    /// Returns the time of the last sync, as precise as the calls of [`watch`](Self::watch).
    pub(crate) fn synced_at(&self) -> Option<Timestamp> {
        self.with(|cached| cached.synced.1)
    }

    /// Checks whether there was a sync since the last call.
    pub(crate) fn watch(&self, metrics: &Metrics, now: Timestamp) {
        self.with(|cached| {
            if metrics.syncs > cached.synced.0 {
                cached.synced = (metrics.syncs, Some(now));
            }
        });
    }

    fn with<T>(&self, f: impl FnOnce(&mut CachedValues) -> T) -> T {
        f(&mut self.cached.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read_log_files(dir: &Path) -> Option<LogFiles> {
    let reader = Reader::open(dir).ok()?;
    let mut files =
        LogFiles { compacted_at: reader.compacted_at().and_then(timestamp), ..LogFiles::default() };
    for segment in reader.segments() {
        files.segments += 1;
        files.bytes += segment.bytes;
    }
    Some(files)
}

fn timestamp(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok().map(Timestamp::from_millis)
}
