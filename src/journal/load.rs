//! Restore of a selector from the log: the newest good snapshot, or a checkpoint of evidence on
//! disk, and every record after it.
//!
//! Owns: [`load`], and the inspection of the log before it.
//!
//! Invariants: damage is never skipped silently.
//!
//! Must not know: how records are folded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fetchwise_log::{
    BlockFold, BlockRecord, Error as LogError, OwnedBlock, Progress, RecordRef, UnpackError,
};

use super::checkpoint_restore::{self, Restored};
use super::entry::{Entry, FetcherEntry, ImportanceEntry, LinkEntry, is_at_risk};
use super::error::JournalError;
use super::fold::{Fold, add_fetcher_name, threads};
use super::read::{ReplayReport, pass, replay};
use super::schema::{self, AttemptColumns, ColumnsRecord, RowBuffer, SchemaError};
use crate::backoff::{LinkState, MAX_RISK_LEVEL, pause};
use crate::journal::recovery_point::{FoldStart, RecoveryPoint};
use crate::selector::Selector;
use fetchwise_pace::{Level, PaceState};
use fetchwise_types::registry::MAX_FETCHERS;
use fetchwise_types::time::Timestamp;

/// Result of [`load`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LoadReport {
    /// Counts of the records read after the snapshot.
    pub replayed: ReplayReport,
    /// Sequence number of the last record that the load covers.
    pub last_seq: u64,
    /// Snapshot that the load began with, or checkpoint of evidence on disk, if any.
    pub snapshot: Option<RecoveryPoint>,
    /// State of every link that is at risk or was paused.
    pub links: HashMap<String, LinkState>,
    /// Number of consecutive pauses of each host.
    pub host_levels: HashMap<String, u8>,
    /// End of the current or last pause of each host.
    pub host_pauses: HashMap<String, Timestamp>,
    /// Importance of heuristics that analytics last wrote back.
    pub importance: Vec<ImportanceEntry>,
    /// Fetchers whose class and cost the log knows, by name.
    pub registered: Vec<FetcherEntry>,
    /// For a load of an earlier time: attempts before this were compacted away, and no snapshot is
    /// old enough to cover them, so that their effect is missing. `None` if everything is there.
    pub missing_before: Option<Timestamp>,
}

/// Result of a first inspection of the log, before there is a selector.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LogInfo {
    /// Start of the fold; none if the inspection began with a checkpoint, which a load opens
    /// itself.
    start: Option<FoldStart>,
    /// Fetchers of all attempts, in alphabetical order.
    pub fetchers: Vec<String>,
    /// Fetchers whose class and cost the log knows, by name.
    pub registered: Vec<FetcherEntry>,
}

/// Collects from the log in `dir` the names of fetchers that a selector's candidates may need.
///
/// # Errors
/// As [`replay`].
pub fn survey(dir: &Path) -> Result<LogInfo, JournalError> {
    inspect_with_progress(dir, &mut |_| {})
}

/// Collects the same and reports progress to `progress`.
///
/// # Errors
/// As [`replay`].
pub fn inspect_with_progress(
    dir: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<LogInfo, JournalError> {
    let checkpoint = checkpoint_restore::start_without_evidence(dir);
    let has_evidence = checkpoint.is_none();
    let start = checkpoint.map_or_else(|| FoldStart::newest(dir), Ok)?;
    let mut names: BTreeSet<String> =
        start.contents.iter().flat_map(|c| c.image.fetchers.iter().cloned()).collect();
    let known = start.contents.iter().flat_map(|c| c.registered.iter().cloned());
    let mut registered: BTreeMap<String, FetcherEntry> =
        known.map(|of| (of.name.clone(), of)).collect();
    let from = start.contents.as_ref().map_or(0, |contents| contents.covers_seq + 1);
    let shards = vec![FetcherNames::default(); threads()];
    let reader = start
        .reader
        .as_ref()
        .ok_or_else(|| LogError::Invalid("missing reader of the log".into()))?;
    let (shards, summary) = reader.fold_sharded(
        from,
        shards,
        |_, _| {},
        FetcherNames::take,
        &NamesInBlocks,
        progress,
    )?;
    if !summary.damage.is_empty() {
        return Err(LogError::Corrupt { dir: dir.to_owned(), damage: summary.damage }.into());
    }
    for shard in shards {
        if let Some((seq, error)) = shard.failed {
            return Err(JournalError::Record { seq, source: error });
        }
        names.extend(shard.names);
        // All of them have one key, so one thread has read them, in order.
        registered.extend(shard.registered);
    }
    let registered = registered.into_values().take(MAX_FETCHERS).collect();
    Ok(LogInfo {
        start: has_evidence.then_some(start),
        fetchers: names.into_iter().collect(),
        registered,
    })
}

/// Importance by type and value. The entry without a value is that of the whole type.
pub type Importances = HashMap<(String, Option<String>), f32>;

/// Returns the last written importance of each type and heuristic in `dir`.
///
/// # Errors
/// As [`replay`].
pub fn importances(dir: &Path) -> Result<Importances, JournalError> {
    let known =
        FoldStart::newest(dir)?.contents.map(|contents| contents.importance).unwrap_or_default();
    let mut found: Importances =
        known.into_iter().map(|of| ((of.kind, of.value), of.importance)).collect();
    pass(dir, |_, record| {
        if record.kind == schema::kind::IMPORTANCE
            && let Entry::Importance(of) =
                schema::decode(record.kind, record.schema, record.payload)?
        {
            found.insert((of.kind, of.value), of.importance);
        }
        Ok(())
    })?;
    Ok(found)
}

#[derive(Clone, Default)]
struct FetcherNames {
    names: BTreeSet<String>,
    registered: BTreeMap<String, FetcherEntry>,
    failed: Option<(u64, Arc<SchemaError>)>,
}

impl FetcherNames {
    fn take(&mut self, seq: u64, record: RecordRef<'_>) {
        match schema::attempt(record.kind, record.schema, record.payload) {
            Ok(Some(attempt)) => add_fetcher_name(&mut self.names, attempt.fetcher()),
            Ok(None) if record.kind == schema::kind::FETCHER => {
                match schema::decode(record.kind, record.schema, record.payload) {
                    Ok(Entry::Fetcher(entry)) if self.registered.len() < MAX_FETCHERS => {
                        drop(self.registered.insert(entry.name.clone(), entry));
                    }
                    Ok(_) => {}
                    Err(error) => self.failed = self.failed.take().or(Some((seq, Arc::new(error)))),
                }
            }
            Ok(None) => {}
            Err(error) if self.failed.is_none() => self.failed = Some((seq, Arc::new(error))),
            Err(_) => {}
        }
    }
}

/// The names of fetchers in blocks, which need no attempt to be read.
struct NamesInBlocks;

impl BlockFold<FetcherNames> for NamesInBlocks {
    type Prepared = AttemptColumns;

    fn prepare(&self, block: OwnedBlock) -> Result<AttemptColumns, UnpackError> {
        AttemptColumns::parse(block)
    }

    fn keys<'p>(&self, block: &'p AttemptColumns) -> &'p [u64] {
        block.keys()
    }

    fn fold(
        &self,
        all: &mut FetcherNames,
        block: &AttemptColumns,
        records: &[BlockRecord],
    ) -> Result<(), UnpackError> {
        let (mut reader, mut buffer) = (block.reader()?, RowBuffer::default());
        for &BlockRecord { seq, place, .. } in records {
            match reader.fetcher(place)? {
                Some(name) => add_fetcher_name(&mut all.names, name),
                None => {
                    if let Ok(ColumnsRecord::Whole(record)) = reader.read(place, &mut buffer) {
                        all.take(seq, record);
                    }
                }
            }
        }
        Ok(())
    }
}

impl LogInfo {
    /// Does the same as [`load`], and reuses what this inspection of `dir` has found.
    ///
    /// # Errors
    /// As [`replay`].
    pub fn load(
        self,
        dir: &Path,
        selector: &Selector,
        now: Timestamp,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<LoadReport, JournalError> {
        load_from(self.start, dir, selector, now, progress)
    }
}

/// Loads everything in `dir` into `selector`: evidence, and the pauses of hosts, at the time `now`.
/// Dates in the future count as the present one. No attempts may be recorded in `selector`
/// meanwhile: the threads of a load share nothing, so that none waits for another.
///
/// # Errors
/// As [`replay`].
pub fn load(dir: &Path, selector: &Selector, now: Timestamp) -> Result<LoadReport, JournalError> {
    load_with_progress(dir, selector, now, &mut |_| {})
}

/// Does the same as [`load`] and reports progress to `progress`.
///
/// # Errors
/// As [`replay`].
pub fn load_with_progress(
    dir: &Path,
    selector: &Selector,
    now: Timestamp,
    progress: &mut dyn FnMut(Progress),
) -> Result<LoadReport, JournalError> {
    load_from(None, dir, selector, now, progress)
}

fn load_from(
    start: Option<FoldStart>,
    dir: &Path,
    selector: &Selector,
    now: Timestamp,
    progress: &mut dyn FnMut(Progress),
) -> Result<LoadReport, JournalError> {
    let date = selector.clock().date_of(now);
    let (mut fold, present, started) =
        match checkpoint_restore::restore(dir, selector.learned(), date) {
            Some(Restored { contents, reader, .. }) => {
                let (present, started) =
                    (contents.now.max(date), RecoveryPoint::of_checkpoint(&contents));
                (Fold::of(contents, Some(reader), present), present, Some(started))
            }
            None => {
                let start = start.map_or_else(|| FoldStart::newest(dir), Ok)?;
                let (present, started) = (start.present(date), start.started.clone());
                (Fold::begin(start, selector.learned(), present)?, present, started)
            }
        };
    fold.advance(dir, selector.learned(), u64::MAX, present, progress)?;
    if selector.policy().remembers() {
        // A snapshot holds evidence, but not what a policy remembers of attempts. So the policy
        // observes all attempts that are still in the log.
        replay(dir, |_, entry| {
            if let Entry::Attempt(mut attempt) = entry {
                attempt.attempted_at = attempt.attempted_at.min(date);
                selector.policy().observe(&attempt);
            }
        })?;
    }
    #[cfg(feature = "metrics")]
    fold.outcome_counts.report_to(selector);
    let loaded = into_report(fold, selector, started, now);
    selector.restore_links(loaded.links.iter().map(|(link, state)| (link.clone(), *state)));
    selector.restore_host_levels(
        loaded.host_levels.iter().map(|(domain, level)| (domain.clone(), *level)),
    );
    Ok(loaded)
}

/// Converts a fold into its report, and sets the pauses of hosts in `selector`.
pub(super) fn into_report(
    fold: Fold,
    selector: &Selector,
    snapshot: Option<RecoveryPoint>,
    now: Timestamp,
) -> LoadReport {
    let backoff = selector.backoff();
    // Times in the future come from a wrong clock. They count as `now`, and no pause may be longer
    // than the settings allow.
    let longest = backoff
        .max_retry_after
        .max(pause(backoff.blocked_base.max(backoff.failed_base), MAX_RISK_LEVEL));
    // The log has dates, and the selector has times.
    let to_time_ms = selector.clock().ahead_ms().saturating_neg();
    let within = |until: Timestamp| until.moved_by(to_time_ms).min(now.saturating_add(longest));
    fold.short_page_hosts()
        .for_each(|domain| selector.state().hosts.set_complete_short_page(domain));
    let (registered, mut links) = (fold.registered(), HashMap::new());
    for (link, (_, LinkEntry { mut state, .. })) in fold.links {
        state.paused_until = state.paused_until.map(within);
        state.last_attempt_at = state.last_attempt_at.map(|at| at.moved_by(to_time_ms));
        // A link without risk is treated as an unknown one, so it need not be kept.
        if is_at_risk(&state) {
            links.insert(link, state);
        }
    }
    let (mut host_levels, mut host_pauses) = (HashMap::new(), HashMap::new());
    for (domain, (_, host)) in fold.hosts {
        selector.set_host_pause(&domain, host.paused_until.map(within));
        if let Some(until) = host.paused_until {
            host_pauses.insert(domain.clone(), within(until));
            host_levels.insert(domain, level_after(until.since(host.at), backoff.blocked_base));
        }
    }
    if let Some(pace) = selector.pace() {
        for ((level, name), (_, entry)) in &fold.paces {
            // A newer release may have added a level that this one does not know.
            if let Some(level) = Level::from_repr(*level) {
                pace.restore(level, name, &PaceState(entry.state).moved_by(to_time_ms), now);
            }
        }
    }
    let mut importance: Vec<ImportanceEntry> =
        fold.importance.into_values().map(|(_, of)| of).collect();
    importance.sort_by(|a, b| (&a.kind, &a.value).cmp(&(&b.kind, &b.value)));
    for of in &importance {
        selector.set_importance(&of.kind, of.value.as_deref(), f64::from(of.importance));
    }
    LoadReport {
        registered,
        replayed: fold.replayed,
        last_seq: fold.covers_seq,
        snapshot,
        links,
        host_levels,
        host_pauses,
        importance,
        missing_before: None,
    }
}

/// Returns the level of a host after a pause of `paused`. The pause was `base * 2^level`, and the
/// level rose after it.
pub(super) fn level_after(paused: Duration, base: Duration) -> u8 {
    let times = (paused.as_millis() / base.as_millis().max(1)).max(1);
    (times.ilog2() as u8 + 1).min(MAX_RISK_LEVEL)
}
