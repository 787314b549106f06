//! What the dashboard asks for beside figures: the log's files, when it was last synced, and what took long to work out.
//!
//! Owns how often the disk is looked at. Must not know about HTTP.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fetchwise::analytics::Importance;
use fetchwise::journal::Metrics;
use fetchwise::time::Timestamp;
use fetchwise_log::Reader;

/// The log's files are looked at no more often than this.
const FILES_EVERY: Duration = Duration::from_secs(5);
/// Heuristics are sorted no more often than this.
const HEURISTICS_EVERY: Duration = Duration::from_secs(15);
/// The log is read for a rollout no more often than this.
const ROLLOUT_EVERY: Duration = Duration::from_secs(30);

/// What a look at the log's files has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// Segments of the log.
    pub(crate) segments: u64,
    /// Their lengths together.
    pub(crate) bytes: u64,
    /// When raw attempts were last compacted away.
    pub(crate) compacted_at: Option<Timestamp>,
}

/// What is kept between two questions.
#[derive(Debug)]
pub(crate) struct Board {
    /// When the server began.
    pub(crate) started_at: Timestamp,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    files: Option<(Instant, Files)>,
    heuristics: Option<(Instant, Vec<Importance>)>,
    rollout: Option<(Instant, Vec<u8>)>,
    synced: (u64, Option<Timestamp>),
}

impl Board {
    /// For a server that begins now.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { started_at: now, kept: Mutex::default() }
    }

    /// The log's files as they were a moment ago at most. Reads the directory: not for a thread that has to answer others.
    pub(crate) fn files(&self, dir: &Path) -> Files {
        if let Some((at, files)) = self.with(|kept| kept.files)
            && at.elapsed() < FILES_EVERY
        {
            return files;
        }
        // What cannot be read now is shown as it was: the log's state says what is wrong with it.
        let files = look(dir).or_else(|| self.with(|kept| kept.files).map(|(_, files)| files)).unwrap_or_default();
        self.with(|kept| kept.files = Some((Instant::now(), files)));
        files
    }

    /// What `work` has found a moment ago at most.
    pub(crate) fn heuristics(&self, work: impl FnOnce() -> Vec<Importance>) -> Vec<Importance> {
        let known =
            self.with(|kept| kept.heuristics.as_ref().filter(|(at, _)| at.elapsed() < HEURISTICS_EVERY).cloned());
        known.map_or_else(
            || {
                let found = work();
                self.with(|kept| kept.heuristics = Some((Instant::now(), found.clone())));
                found
            },
            |(_, found)| found,
        )
    }

    /// What a rollout has come to, as JSON, if it was worked out a moment ago.
    pub(crate) fn rollout(&self) -> Option<Vec<u8>> {
        self.with(|kept| kept.rollout.as_ref().filter(|(at, _)| at.elapsed() < ROLLOUT_EVERY).map(|(_, of)| of.clone()))
    }

    /// Keeps what a rollout has come to.
    pub(crate) fn keep_rollout(&self, found: &[u8]) {
        self.with(|kept| kept.rollout = Some((Instant::now(), found.to_vec())));
    }

    /// Nobody is shown any more what was worked out before something was forgotten.
    pub(crate) fn forget(&self) {
        self.with(|kept| (kept.heuristics, kept.rollout) = (None, None));
    }

    /// When the last sync was seen. [`Board::watch`] has to look often enough.
    pub(crate) fn synced_at(&self) -> Option<Timestamp> {
        self.with(|kept| kept.synced.1)
    }

    /// Sees whether there was a sync since the last time.
    pub(crate) fn watch(&self, metrics: &Metrics, now: Timestamp) {
        self.with(|kept| {
            if metrics.syncs > kept.synced.0 {
                kept.synced = (metrics.syncs, Some(now));
            }
        });
    }

    fn with<T>(&self, f: impl FnOnce(&mut Kept) -> T) -> T {
        f(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn look(dir: &Path) -> Option<Files> {
    let reader = Reader::open(dir).ok()?;
    let mut files = Files::default();
    let mut newest = None;
    for segment in reader.segments() {
        files.segments += 1;
        files.bytes += segment.bytes;
        if segment.rewritten {
            newest = newest.max(modified(&dir.join(segment.file)));
        }
    }
    if newest.is_none() && reader.floor_seq() > 0 {
        // Everything that was compacted is gone, and the snapshot has what it taught.
        newest = modified(&dir.join("SNAPSHOT"));
    }
    files.compacted_at = newest;
    Some(files)
}

fn modified(path: &Path) -> Option<Timestamp> {
    let since = path.metadata().ok()?.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok().map(Timestamp::from_millis)
}
