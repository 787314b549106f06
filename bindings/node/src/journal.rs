//! The journal: learned evidence survives the process. A directory has one writer.
//!
//! Invariants: waits for the disk run on another thread, except `append` on a full queue and the
//! end of the process. Once the process is ending, each record is waited for, because no later
//! moment is certain.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::{CompactOptions, SnapshotOptions};
use fetchwise::journal::{
    Acknowledgement, Health, Journal as Log, JournalOptions as Options, OpenCheck, UnknownName,
};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_bindings_core::journal_sink::SharedJournal;
use napi::Env;
use napi::bindgen_prelude::AsyncTask;
use napi_derive::napi;

use crate::convert;
use crate::errors::{Code, Failure};
use crate::thread_pool::{Work, promise};

type Result<T> = std::result::Result<T, napi::Error<Code>>;

/// A day in milliseconds.
const DAY_MS: f64 = 86_400_000.0;

static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
static ENDING: AtomicBool = AtomicBool::new(false);

/// An open log, shared by its `Journal`, its selectors and their visits.
pub struct Shared {
    pub dir: PathBuf,
    log: RwLock<Option<Log>>,
}

impl Shared {
    pub fn open(dir: &Path, options: Options) -> std::result::Result<Arc<Self>, Failure> {
        // Records that are replayed right afterwards are not checked twice. `verify` checks all of
        // them on request.
        let (log, _) = Log::open(dir, options.check(OpenCheck::Tail))?;
        let shared = Arc::new(Self { dir: dir.to_owned(), log: RwLock::new(Some(log)) });
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|known| known.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        Ok(shared)
    }

    pub fn with<T>(&self, work: impl FnOnce(&Log) -> T) -> std::result::Result<T, Failure> {
        let log = self.log.read().unwrap_or_else(PoisonError::into_inner);
        log.as_ref().map(work).ok_or_else(Failure::closed)
    }

    /// Checks that the log can be used.
    pub fn check(&self) -> std::result::Result<(), Failure> {
        self.with(|_| ())
    }

    /// Waits until `asked` is acknowledged.
    pub fn wait(
        &self,
        asked: impl FnOnce(&Log) -> Acknowledgement,
    ) -> std::result::Result<(), Failure> {
        self.with(asked)?.wait().map_err(Failure::log)
    }

    pub fn close(&self) -> std::result::Result<(), Failure> {
        let log = self.log.write().unwrap_or_else(PoisonError::into_inner).take();
        Ok(log.map_or(Ok(()), Log::close)?)
    }

    /// Writes the last records when the process ends, because nothing else would empty the queue.
    pub fn settle_if_ending(&self) {
        if ENDING.load(Ordering::Relaxed) {
            // A failure to write can no longer be reported here.
            let _ = self.wait(Log::settled);
        }
    }
}

/// The reason why a log did not accept a record, as the selector passes it on.
#[derive(Debug)]
pub struct JournalClosed;

impl std::fmt::Display for JournalClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the journal is closed")
    }
}

impl std::error::Error for JournalClosed {}

impl SharedJournal for Shared {
    type Closed = JournalClosed;

    fn with<T>(&self, work: impl FnOnce(&Log) -> T) -> std::result::Result<T, JournalClosed> {
        Self::with(self, work).map_err(|_| JournalClosed {})
    }
}

/// Makes every open journal write and sync its records. `index.js` calls it when the process, or a
/// worker thread, ends.
#[napi(catch_unwind, skip_typescript, js_name = "_settleAll")]
pub fn settle_all(process_ends: bool) {
    if process_ends {
        ENDING.store(true, Ordering::Relaxed);
    }
    let open: Vec<_> = OPEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .filter_map(Weak::upgrade)
        .collect();
    for shared in open {
        // A failure to write can no longer be reported here.
        let _ = shared.wait(Log::flush);
    }
}

/// Options of a journal.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct JournalOptions {
    /// `memory`, `os` (survives `kill -9`; the default), `interval:250ms` or `sync`.
    pub durability: Option<String>,
    /// The effect of a full queue on the caller: `block` (the default), `error` or `shed`.
    #[napi(ts_type = "'block' | 'error' | 'shed'")]
    pub on_full: Option<String>,
    /// The time for which the writer collects records before it writes, in milliseconds.
    pub linger: Option<f64>,
    /// The maximum size of a log file.
    pub segment_bytes: Option<f64>,
}

impl JournalOptions {
    pub fn options(self) -> std::result::Result<Options, Failure> {
        let invalid = |error: UnknownName| Failure::value(error);
        let mut options = Options::default();
        if let Some(name) = self.durability {
            options = options.durability(name.parse().map_err(invalid)?);
        }
        if let Some(name) = self.on_full {
            options = options.on_full(name.parse().map_err(invalid)?);
        }
        if let Some(ms) = self.linger {
            options = options.linger(convert::span("linger", ms)?);
        }
        if let Some(bytes) = self.segment_bytes {
            options = options.segment_bytes(convert::count("segmentBytes", bytes, 1 << 40)?);
        }
        Ok(options)
    }
}

/// The result of a compaction.
#[napi(object)]
pub struct CompactReport {
    /// Attempts before and after.
    pub attempts: Vec<f64>,
    /// Bytes before and after.
    pub bytes: Vec<f64>,
}

/// The result of a check of everything on disk.
#[napi(object)]
pub struct Verified {
    /// Whether the log is sound.
    pub sound: bool,
    /// The number of attempts found.
    pub attempts: f64,
}

/// Options of a compaction.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct CompactionOptions {
    /// Older attempts are dropped from the log; their evidence stays.
    pub retain_days: Option<f64>,
    /// Whether to report only, without changes.
    pub dry_run: Option<bool>,
}

/// Counts and gauges of a log since it was opened.
#[napi(object)]
pub struct JournalMetrics {
    /// Accepted records.
    pub appended: f64,
    /// Records dropped because the queue was full.
    pub shed: f64,
    /// Rejected records.
    pub refused: f64,
    /// Times that a caller waited for a full queue.
    pub blocked: f64,
    /// Records in the queue.
    pub queued: f64,
    /// Bytes written.
    pub bytes: f64,
    /// Syncs of the disk.
    pub syncs: f64,
    /// Failed writes.
    pub failures: f64,
}

/// A directory of attempts, pauses and paces, open for writing.
///
/// Pass it to a `Selector`, which replays its attempts and records into it. A directory has one
/// writer: a second one gets `ERR_FETCHWISE_LOCKED`, with the `pid` of the holder.
#[napi]
pub struct Journal {
    pub(crate) shared: Arc<Shared>,
}

/// Returns a selector that keeps all evidence, for maintenance.
fn blank() -> std::result::Result<Selector, Failure> {
    Ok(Selector::builder().without_pace().build()?)
}

#[napi]
impl Journal {
    /// Opens the journal in `dir`, and creates the directory if it is missing.
    #[napi(catch_unwind, constructor)]
    pub fn new(env: &Env, dir: String, options: Option<JournalOptions>) -> napi::Result<Self> {
        let opened = options
            .unwrap_or_default()
            .options()
            .and_then(|options| Shared::open(Path::new(&dir), options));
        opened.map(|shared| Self { shared }).map_err(|failure| failure.into_js(env))
    }

    /// Resolves when everything recorded so far is on disk.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn flush(&self) -> AsyncTask<Work<(), ()>> {
        let shared = Arc::clone(&self.shared);
        promise(move || shared.wait(Log::flush), |()| ())
    }

    /// Resolves when everything recorded so far is acknowledged at the journal's durability. By
    /// default it then survives `kill -9`.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn settled(&self) -> AsyncTask<Work<(), ()>> {
        let shared = Arc::clone(&self.shared);
        promise(move || shared.wait(Log::settled), |()| ())
    }

    /// The synchronous `flush`: blocks until everything is on disk.
    #[napi(catch_unwind)]
    pub fn flush_sync(&self) -> Result<()> {
        Ok(self.shared.wait(Log::flush)?)
    }

    /// Writes a snapshot of all evidence so far, so that the next start reads less. Resolves to the
    /// number of records since the previous snapshot.
    #[napi(catch_unwind, ts_return_type = "Promise<number>")]
    pub fn snapshot(&self) -> AsyncTask<Work<f64, f64>> {
        let shared = Arc::clone(&self.shared);
        let work = move || {
            shared.wait(Log::flush)?;
            let mut options = SnapshotOptions::default();
            options.await_seq = shared.with(Log::durable_seq)?;
            let taken = maintenance::snapshot_with(
                &shared.dir,
                &blank()?,
                &options,
                Timestamp::date(),
                &mut |_, _| {},
            )?;
            Ok(taken.records as f64)
        };
        promise(work, |records| records)
    }

    /// Drops old attempts from the log. Their evidence stays, in a snapshot. Works alongside the
    /// writer.
    #[napi(catch_unwind, ts_return_type = "Promise<CompactReport>")]
    pub fn compact(
        &self,
        options: Option<CompactionOptions>,
    ) -> Result<AsyncTask<Work<CompactReport, CompactReport>>> {
        let (shared, given) = (Arc::clone(&self.shared), options.unwrap_or_default());
        let mut options = CompactOptions::default();
        options.dry_run = given.dry_run.unwrap_or_default();
        if let Some(days) = given.retain_days {
            options.retain = convert::span("retainDays", days * DAY_MS)?;
        }
        let work = move || {
            shared.wait(Log::flush)?;
            let done = maintenance::compact(
                &shared.dir,
                &blank()?,
                &options,
                Timestamp::date(),
                &mut |_, _| {},
            )?;
            let (attempts, bytes) = (done.attempts, done.bytes);
            Ok(CompactReport {
                attempts: vec![attempts.0 as f64, attempts.1 as f64],
                bytes: vec![bytes.0 as f64, bytes.1 as f64],
            })
        };
        Ok(promise(work, |done| done))
    }

    /// Reads everything on disk and checks whether it is sound.
    #[napi(catch_unwind, ts_return_type = "Promise<Verified>")]
    pub fn verify(&self) -> AsyncTask<Work<Verified, Verified>> {
        let shared = Arc::clone(&self.shared);
        let work = move || {
            shared.wait(Log::flush)?;
            let verified = maintenance::verify(&shared.dir, &mut |_, _| {})?;
            Ok(Verified { sound: verified.is_sound(), attempts: verified.attempts as f64 })
        };
        promise(work, |verified| verified)
    }

    /// Returns the counts and gauges of the log since it was opened.
    #[napi(catch_unwind)]
    pub fn metrics(&self) -> Result<JournalMetrics> {
        let of = self.shared.with(Log::metrics)?;
        Ok(JournalMetrics {
            appended: of.appended as f64,
            shed: of.shed as f64,
            refused: of.refused as f64,
            blocked: of.blocked as f64,
            queued: of.queued_records as f64,
            bytes: of.bytes as f64,
            syncs: of.syncs as f64,
            failures: of.failures as f64,
        })
    }

    /// Returns `good`, `closed`, or the reason why attempts do not reach the disk.
    #[napi(catch_unwind, getter)]
    pub fn health(&self) -> String {
        match self.shared.with(Log::health) {
            Ok(Health::Good) => "good".to_owned(),
            Ok(Health::Degraded { reason, .. }) => reason.to_string(),
            Ok(_) | Err(_) => "closed".to_owned(),
        }
    }

    /// The directory.
    #[napi(catch_unwind, getter)]
    pub fn dir(&self) -> String {
        self.shared.dir.to_string_lossy().into_owned()
    }

    /// Writes and syncs the remaining records, and unlocks the directory. A second call does
    /// nothing.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn close(&self) -> AsyncTask<Work<(), ()>> {
        let shared = Arc::clone(&self.shared);
        promise(move || shared.close(), |()| ())
    }

    /// The synchronous `close`.
    #[napi(catch_unwind)]
    pub fn close_sync(&self) -> Result<()> {
        Ok(self.shared.close()?)
    }
}
