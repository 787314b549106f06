//! The node's own global snapshot: folded from its log and published.
//!
//! Owns: when it is due, and how far the fold has come.
//!
//! Invariants: it covers published positions only, so it has nothing that is never published and no
//! power failure takes it back. The log is read once for it, and each later record once.
//!
//! Must not know: what was received from peers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use fetchwise::evidence::Learned;
use fetchwise::journal::replication::{PositionContent, Tombstones, fold, read_positions};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::FleetError;
use crate::model::evidence_snapshot::SnapshotHead;
use crate::model::global_evidence::pack;
use crate::model::options::{Options, Scope, Timing};
use crate::model::position_set::Intervals;
use crate::peer_store::own_state_file::NodeState;
use crate::peer_store::with_own_past;
use crate::transport::Transport;

/// Entries with less decayed weight than this have faded.
const FADED: f64 = 0.01;

/// The node's values that a turn needs.
pub(crate) struct NodeContext<'a> {
    pub(crate) state: &'a NodeState,
    /// Attempts with a later time were not published.
    pub(crate) latest: Timestamp,
    pub(crate) forgot: &'a BTreeSet<u64>,
}

/// The evidence that was folded so far.
struct FoldedEvidence {
    learned: Learned,
    upto: u64,
    newest: Timestamp,
    /// The positions of lost epochs that were folded from `peers/`.
    past: BTreeMap<u32, Intervals>,
    stones: Tombstones,
    forgot: BTreeSet<u64>,
    /// The time at which the whole log was read. Only a full read derives host signals.
    whole_at: Instant,
}

/// A snapshot that is ready to be published.
struct BuiltGlobal {
    folded: FoldedEvidence,
    /// None while the log's snapshot covers positions that are not published yet.
    snapshot: Option<(u32, u64, Bytes)>,
}

/// The snapshot that was published last.
struct LastPublished {
    epoch: u32,
    position: u64,
    at: Instant,
}

/// The publisher of the node's own global snapshot.
pub(crate) struct GlobalPublisher {
    dir: PathBuf,
    like: Arc<Selector>,
    transport: Arc<dyn Transport>,
    timing: Timing,
    scope: Scope,
    folded: Option<FoldedEvidence>,
    task: Option<JoinHandle<Result<BuiltGlobal, FleetError>>>,
    last_published: Option<LastPublished>,
    /// Whether the broker has lost the snapshot.
    pub(crate) is_lost: bool,
    /// The number of published snapshots and their bytes.
    pub(crate) published: (u64, u64),
}

impl GlobalPublisher {
    pub(crate) fn new(
        dir: &Path,
        like: &Arc<Selector>,
        transport: &Arc<dyn Transport>,
        options: &Options,
    ) -> Self {
        Self {
            dir: dir.to_owned(),
            like: Arc::clone(like),
            transport: Arc::clone(transport),
            timing: options.timing,
            scope: options.scope,
            folded: None,
            task: None,
            last_published: None,
            is_lost: false,
            published: (0, 0),
        }
    }

    /// Makes the next fold start from the beginning, and its snapshot due.
    pub(crate) fn start_over(&mut self) {
        (self.folded, self.task, self.is_lost) = (None, None, true);
    }

    fn is_due(&self, state: &NodeState) -> bool {
        let Some(last_published) = &self.last_published else { return true };
        let has_more = (last_published.epoch, last_published.position)
            != (state.log_epoch().epoch, state.acknowledged);
        self.is_lost
            || last_published.at.elapsed() >= self.timing.global_max_interval
            || has_more && last_published.at.elapsed() >= self.timing.global_min_interval
    }

    /// In scope `own`, builds the snapshot in the background when it is due, and publishes it when
    /// it is ready. With `now` it does both at once.
    pub(crate) async fn turn(
        &mut self,
        around: &NodeContext<'_>,
        now: bool,
    ) -> Result<(), FleetError> {
        if self.scope != Scope::Own {
            return Ok(());
        }
        match self.task.take() {
            Some(task) if now || task.is_finished() => self.publish(task, around.state).await?,
            Some(task) => self.task = Some(task),
            None if !now && self.is_due(around.state) => self.task = Some(self.start_job(around)),
            None => {}
        }
        if now {
            let task = self.start_job(around);
            self.publish(task, around.state).await?;
        }
        Ok(())
    }

    fn start_job(
        &mut self,
        around: &NodeContext<'_>,
    ) -> JoinHandle<Result<BuiltGlobal, FleetError>> {
        let folded = self.folded.take().filter(|folded| {
            folded.whole_at.elapsed() < self.timing.snapshot_interval
                && folded.forgot == *around.forgot
        });
        let job = GlobalJob {
            dir: self.dir.clone(),
            state: around.state.clone(),
            like: Arc::clone(&self.like),
            folded,
            latest: around.latest,
            forgot: around.forgot.clone(),
        };
        tokio::task::spawn_blocking(move || job.run())
    }

    async fn publish(
        &mut self,
        task: JoinHandle<Result<BuiltGlobal, FleetError>>,
        state: &NodeState,
    ) -> Result<(), FleetError> {
        let ready = task.await.map_err(|_| FleetError::Left)??;
        self.folded = Some(ready.folded);
        let Some((epoch, position, bytes)) = ready.snapshot else { return Ok(()) };
        let len = bytes.len() as u64;
        self.transport.publish_global(state.node_id, bytes).await?;
        self.published = (self.published.0 + 1, self.published.1 + len);
        (self.last_published, self.is_lost) =
            (Some(LastPublished { epoch, position, at: Instant::now() }), false);
        Ok(())
    }
}

/// Everything needed to build a snapshot.
struct GlobalJob {
    dir: PathBuf,
    state: NodeState,
    like: Arc<Selector>,
    folded: Option<FoldedEvidence>,
    latest: Timestamp,
    forgot: BTreeSet<u64>,
}

impl GlobalJob {
    /// Folds the log and builds the snapshot. Blocks: the first time and after a domain was
    /// forgotten for a fold of the whole log, with as much memory as the node's own evidence; else
    /// for the new records.
    fn run(mut self) -> Result<BuiltGlobal, FleetError> {
        let upto = self.state.acknowledged;
        let mut folded = match self.folded.take() {
            Some(mut folded) => match self.fold_new(&mut folded, upto)? {
                true => folded,
                false => self.fold_all(upto)?,
            },
            None => self.fold_all(upto)?,
        };
        folded.forgot.clone_from(&self.forgot);
        // The positions that a snapshot of the log covers beyond that are published soon.
        let snapshot = if folded.upto == upto { Some(self.snapshot(&folded)?) } else { None };
        Ok(BuiltGlobal { folded, snapshot })
    }

    fn snapshot(&self, folded: &FoldedEvidence) -> Result<(u32, u64, Bytes), FleetError> {
        let fork = self.state.log_epoch();
        let mut covers = self.state.own();
        covers.insert(fork.epoch, Intervals::of(fork.base + 1, folded.upto));
        folded.past.iter().for_each(|(epoch, seen)| covers.entry(*epoch).or_default().extend(seen));
        let (epoch, base, half_life_ms) =
            (fork.epoch, fork.base, self.like.learned().half_life_ms());
        let head = SnapshotHead { epoch, base, covers, half_life_ms, ..SnapshotHead::default() };
        let share = folded.learned.evidence_snapshot(folded.newest.min(self.latest), FADED);
        let bytes = pack(&head, &share).map_err(|error| FleetError::io(&self.dir, error))?;
        Ok((epoch, folded.upto, bytes))
    }

    /// Folds the new records. Returns false if a domain was forgotten, or if records were dropped
    /// before they were read.
    fn fold_new(&self, folded: &mut FoldedEvidence, upto: u64) -> Result<bool, FleetError> {
        if folded.upto >= upto {
            return Ok(true);
        }
        let (mut is_whole, learned, mut newest) = (true, &folded.learned, folded.newest);
        read_positions(
            &self.dir,
            (folded.upto + 1, upto),
            self.like.learned(),
            &mut folded.stones,
            |seq, place| match place {
                PositionContent::RemoteAttempt(fact, _) if !self.state.withheld.contains(seq) => {
                    newest = newest.max(fact.at);
                    learned.receive_global_part(&fact);
                }
                PositionContent::RemoteAttempt(..)
                | PositionContent::Link(_)
                | PositionContent::Nothing => {}
                PositionContent::ForgottenDomain(..) | PositionContent::Gone => is_whole = false,
            },
        )?;
        (folded.newest, folded.upto) = (newest, upto);
        Ok(is_whole)
    }

    fn blank(&self) -> Result<Learned, FleetError> {
        self.like.learned().empty_copy().map_err(|error| FleetError::Selector(error.to_string()))
    }

    /// Folds the whole log.
    fn fold_all(&self, upto: u64) -> Result<FoldedEvidence, FleetError> {
        let leaves_out = |seq: u64| self.state.withheld.contains(seq);
        let is_any_out = !self.state.withheld.runs().is_empty();
        let leaves_out: Option<&dyn Fn(u64) -> bool> =
            if is_any_out { Some(&leaves_out) } else { None };
        let folded = fold(&self.dir, &self.blank()?, upto, leaves_out, self.latest)?;
        let (upto, mut past) = (folded.upto, BTreeMap::new());
        let share = with_own_past(&self.dir, &self.state, &self.blank()?, folded.share, &mut past)?;
        let learned = self.blank()?;
        learned.add_snapshot(&share.global_part());
        let (newest, forgot) = (share.as_of(), self.forgot.clone());
        Ok(FoldedEvidence {
            learned,
            upto,
            newest,
            past,
            stones: Tombstones::default(),
            forgot,
            whole_at: Instant::now(),
        })
    }
}
