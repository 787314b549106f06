//! What the log teaches a new process: the newest good snapshot, and every record behind it.
//!
//! Owns: [`load`], and the look at the log that goes before it. Invariant: damage is never skipped in silence. Must not know how
//! records are folded.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fetchwise_log::{Error as LogError, Progress, RecordRef};

use super::entry::{Entry, ImportanceEntry, LinkEntry, is_at_risk};
use super::error::JournalError;
use super::fold::{Fold, note, threads};
use super::read::{Replayed, pass, replay};
use super::schema::{self, SchemaError};
use crate::backoff::{LinkState, RISK_LEVEL_MAX, pause};
use crate::journal::recovery_point::{Start, Started};
use crate::selector::Selector;
use fetchwise_pace::{Level, State};
use fetchwise_types::time::Timestamp;

/// What [`load`] brought back.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Loaded {
    /// Counts of what was read behind the snapshot.
    pub replayed: Replayed,
    /// The snapshot that it began with, if any.
    pub snapshot: Option<Started>,
    /// The state of every link that is at risk or was paused.
    pub links: HashMap<String, LinkState>,
    /// How often each host has been paused in a row.
    pub host_levels: HashMap<String, u8>,
    /// Until when each host is, or was, paused.
    pub host_pauses: HashMap<String, Timestamp>,
    /// What analytics last wrote back about heuristics.
    pub importance: Vec<ImportanceEntry>,
    /// Of an earlier time only: attempts before this were compacted away, and no snapshot is old enough to have what they taught, so
    /// that it is missing. None when everything is there.
    pub missing_before: Option<Timestamp>,
}

/// What a first look at the log shows, before there is a selector.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Survey {
    start: Start,
    /// The fetchers of all attempts, in alphabetical order.
    pub fetchers: Vec<String>,
}

/// Looks through the log in `dir` for the names that a selector's candidates may need.
///
/// # Errors
/// As [`replay`].
pub fn survey(dir: &Path) -> Result<Survey, JournalError> {
    survey_showing(dir, &mut |_| {})
}

/// As [`survey`], telling `progress` how far it is.
///
/// # Errors
/// As [`replay`].
pub fn survey_showing(dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Survey, JournalError> {
    let start = Start::newest(dir)?;
    let mut names: BTreeSet<String> = start.contents.iter().flat_map(|c| c.image.fetchers.iter().cloned()).collect();
    let from = start.contents.as_ref().map_or(0, |contents| contents.covers_seq + 1);
    let shards = vec![Names::default(); threads()];
    let reader = start.reader.as_ref().ok_or_else(|| LogError::Invalid("a start without a reader".into()))?;
    let (shards, summary) = reader.for_each_sharded(from, shards, |_, _| {}, Names::take, progress)?;
    if !summary.damage.is_empty() {
        return Err(LogError::Corrupt { dir: dir.to_owned(), damage: summary.damage }.into());
    }
    for shard in shards {
        if let Some((seq, error)) = shard.failed {
            return Err(JournalError::Record { seq, source: error });
        }
        names.extend(shard.names);
    }
    Ok(Survey { start, fetchers: names.into_iter().collect() })
}

/// Importance by type and value; without a value that of the type.
pub type Importances = HashMap<(String, Option<String>), f32>;

/// The importance of each type and heuristic in `dir`, as it was written back last.
///
/// # Errors
/// As [`replay`].
pub fn importances(dir: &Path) -> Result<Importances, JournalError> {
    let known = Start::newest(dir)?.contents.map(|contents| contents.importance).unwrap_or_default();
    let mut found: Importances = known.into_iter().map(|of| ((of.kind, of.value), of.importance)).collect();
    pass(dir, |_, record| {
        if record.kind == schema::kind::IMPORTANCE
            && let Entry::Importance(of) = schema::decode(record.kind, record.schema, record.payload)?
        {
            found.insert((of.kind, of.value), of.importance);
        }
        Ok(())
    })?;
    Ok(found)
}

#[derive(Clone, Default)]
struct Names {
    names: Vec<String>,
    failed: Option<(u64, Arc<SchemaError>)>,
}

impl Names {
    fn take(&mut self, seq: u64, record: RecordRef<'_>) {
        match schema::attempt(record.kind, record.schema, record.payload) {
            Ok(Some(attempt)) => note(&mut self.names, attempt.fetcher()),
            Ok(None) => {}
            Err(error) if self.failed.is_none() => self.failed = Some((seq, Arc::new(error))),
            Err(_) => {}
        }
    }
}

impl Survey {
    /// As [`load`], without a further look at what this survey of `dir` has found.
    ///
    /// # Errors
    /// As [`replay`].
    pub fn load(
        self,
        dir: &Path,
        selector: &Selector,
        now: Timestamp,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Loaded, JournalError> {
        load_from(self.start, dir, selector, now, progress)
    }
}

/// Teaches `selector` everything in `dir`: evidence, and the pauses of hosts. What bears a time after `now` counts as of now.
/// Nobody may record attempts in `selector` meanwhile: the threads of a load share nothing, so none of them waits for another.
///
/// # Errors
/// As [`replay`].
pub fn load(dir: &Path, selector: &Selector, now: Timestamp) -> Result<Loaded, JournalError> {
    load_showing(dir, selector, now, &mut |_| {})
}

/// As [`load`], telling `progress` how far it is.
///
/// # Errors
/// As [`replay`].
pub fn load_showing(
    dir: &Path,
    selector: &Selector,
    now: Timestamp,
    progress: &mut dyn FnMut(Progress),
) -> Result<Loaded, JournalError> {
    load_from(Start::newest(dir)?, dir, selector, now, progress)
}

fn load_from(
    start: Start,
    dir: &Path,
    selector: &Selector,
    now: Timestamp,
    progress: &mut dyn FnMut(Progress),
) -> Result<Loaded, JournalError> {
    let started = start.started.clone();
    let mut fold = Fold::begin(start, selector);
    fold.advance(dir, selector, u64::MAX, now, progress)?;
    if selector.policy_remembers() {
        // A snapshot holds evidence, but not what a policy has remembered of attempts. So the policy is shown all attempts that are
        // still in the log.
        replay(dir, |_, entry| {
            if let Entry::Attempt(mut attempt) = entry {
                attempt.attempted_at = attempt.attempted_at.min(now);
                selector.show_policy(&attempt);
            }
        })?;
    }
    #[cfg(feature = "metrics")]
    fold.tally.tell(selector);
    let loaded = into_loaded(fold, selector, started, now);
    selector.restore_links(loaded.links.iter().map(|(link, state)| (link.clone(), *state)));
    selector.restore_host_levels(loaded.host_levels.iter().map(|(domain, level)| (domain.clone(), *level)));
    Ok(loaded)
}

/// What a fold brings back, with the pauses of hosts set in `selector`.
pub(super) fn into_loaded(fold: Fold, selector: &Selector, snapshot: Option<Started>, now: Timestamp) -> Loaded {
    let backoff = selector.backoff();
    // Times in the future come from a wrong clock. They count as of now, and no pause may be longer than the settings allow.
    let longest = backoff.retry_after_max.max(pause(backoff.blocked_base.max(backoff.failed_base), RISK_LEVEL_MAX));
    let within = |until: Timestamp| until.min(now.saturating_add(longest));
    let mut links = HashMap::new();
    for (link, (_, LinkEntry { mut state, .. })) in fold.links {
        state.paused_until = state.paused_until.map(within);
        // A link without risk is treated as one that was never seen, so it need not be kept.
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
            // A level that a newer release has made up is nobody's here.
            if let Some(level) = Level::from_repr(*level) {
                pace.restore(level, name, &State(entry.state), now);
            }
        }
    }
    let mut importance: Vec<ImportanceEntry> = fold.importance.into_values().map(|(_, of)| of).collect();
    importance.sort_by(|a, b| (&a.kind, &a.value).cmp(&(&b.kind, &b.value)));
    for of in &importance {
        selector.set_importance(&of.kind, of.value.as_deref(), f64::from(of.importance));
    }
    Loaded { replayed: fold.replayed, snapshot, links, host_levels, host_pauses, importance, missing_before: None }
}

/// The level of a host after a pause of `paused`: it was `base * 2^level`, and the level rose after it.
fn level_after(paused: Duration, base: Duration) -> u8 {
    let times = (paused.as_millis() / base.as_millis().max(1)).max(1);
    (times.ilog2() as u8 + 1).min(RISK_LEVEL_MAX)
}
