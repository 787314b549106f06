//! The node's own global snapshot: folded from its log and published.
//!
//! Owns: when it is due, and how far the fold has come.
//!
//! Invariants: it covers published positions only, so it has nothing that is never published and no power failure takes
//! it back. The log is read once for it, and each later record once.
//!
//! Must not know: what was received from peers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use fetchwise::journal::replication::{Place, Stones, facts, fold};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::FleetError;
use crate::model::evidence_snapshot::Head;
use crate::model::global_evidence::pack;
use crate::model::intervals::Intervals;
use crate::model::options::{Options, Scope, Timing};
use crate::peer_store::node_state::State;
use crate::peer_store::with_own_past;
use crate::transport::Transport;

/// Entries with less decayed weight than this have faded.
const FADED: f64 = 0.01;

/// The node's values that a turn needs.
pub(crate) struct Around<'a> {
    pub(crate) state: &'a State,
    /// Attempts with a later time were not published.
    pub(crate) latest: Timestamp,
    pub(crate) forgot: &'a BTreeSet<u64>,
}

/// The evidence that was folded so far.
struct Folded {
    selector: Selector,
    upto: u64,
    newest: Timestamp,
    /// The positions of lost epochs that were folded from `peers/`.
    past: BTreeMap<u32, Intervals>,
    stones: Stones,
    forgot: BTreeSet<u64>,
    /// The time at which the whole log was read. Only a full read derives host signals.
    whole_at: Instant,
}

/// A snapshot that is ready to be published.
struct Ready {
    folded: Folded,
    /// None while the log's snapshot covers positions that are not published yet.
    image: Option<(u32, u64, Bytes)>,
}

/// The snapshot that was published last.
struct Said {
    epoch: u32,
    position: u64,
    at: Instant,
}

/// The publisher of the node's own global snapshot.
pub(crate) struct OwnGeneral {
    dir: PathBuf,
    like: Arc<Selector>,
    transport: Arc<dyn Transport>,
    timing: Timing,
    scope: Scope,
    folded: Option<Folded>,
    making: Option<JoinHandle<Result<Ready, FleetError>>>,
    said: Option<Said>,
    /// Whether the broker has lost the snapshot.
    pub(crate) is_wanted: bool,
    /// The number of published snapshots and their bytes.
    pub(crate) told: (u64, u64),
}

impl OwnGeneral {
    pub(crate) fn new(dir: &Path, like: &Arc<Selector>, transport: &Arc<dyn Transport>, options: &Options) -> Self {
        Self {
            dir: dir.to_owned(),
            like: Arc::clone(like),
            transport: Arc::clone(transport),
            timing: options.timing,
            scope: options.scope,
            folded: None,
            making: None,
            said: None,
            is_wanted: false,
            told: (0, 0),
        }
    }

    /// Makes the next fold start from the beginning, and its snapshot due.
    pub(crate) fn begin_anew(&mut self) {
        (self.folded, self.making, self.is_wanted) = (None, None, true);
    }

    fn is_due(&self, state: &State) -> bool {
        let Some(said) = &self.said else { return true };
        let has_more = (said.epoch, said.position) != (state.fork().epoch, state.acknowledged);
        self.is_wanted
            || said.at.elapsed() >= self.timing.general_again
            || has_more && said.at.elapsed() >= self.timing.general
    }

    /// In scope `own`, builds the snapshot in the background when it is due, and publishes it when it is ready. With
    /// `now` it does both at once.
    pub(crate) async fn turn(&mut self, around: &Around<'_>, now: bool) -> Result<(), FleetError> {
        if self.scope != Scope::Own {
            return Ok(());
        }
        match self.making.take() {
            Some(task) if now || task.is_finished() => self.say(task, around.state).await?,
            Some(task) => self.making = Some(task),
            None if !now && self.is_due(around.state) => self.making = Some(self.begin(around)),
            None => {}
        }
        if now {
            let task = self.begin(around);
            self.say(task, around.state).await?;
        }
        Ok(())
    }

    fn begin(&mut self, around: &Around<'_>) -> JoinHandle<Result<Ready, FleetError>> {
        let folded = self
            .folded
            .take()
            .filter(|folded| folded.whole_at.elapsed() < self.timing.share_every && folded.forgot == *around.forgot);
        let job = Job {
            dir: self.dir.clone(),
            state: around.state.clone(),
            like: Arc::clone(&self.like),
            folded,
            latest: around.latest,
            forgot: around.forgot.clone(),
        };
        tokio::task::spawn_blocking(move || job.run())
    }

    async fn say(&mut self, task: JoinHandle<Result<Ready, FleetError>>, state: &State) -> Result<(), FleetError> {
        let ready = task.await.map_err(|_| FleetError::Ended)??;
        self.folded = Some(ready.folded);
        let Some((epoch, position, bytes)) = ready.image else { return Ok(()) };
        let len = bytes.len() as u64;
        self.transport.put_general(state.origin, bytes).await?;
        self.told = (self.told.0 + 1, self.told.1 + len);
        (self.said, self.is_wanted) = (Some(Said { epoch, position, at: Instant::now() }), false);
        Ok(())
    }
}

/// Everything needed to build a snapshot.
struct Job {
    dir: PathBuf,
    state: State,
    like: Arc<Selector>,
    folded: Option<Folded>,
    latest: Timestamp,
    forgot: BTreeSet<u64>,
}

impl Job {
    /// Folds the log and builds the snapshot. Blocks: the first time and after a domain was forgotten for a fold of the
    /// whole log, with as much memory as the node's own evidence; else for the new records.
    fn run(mut self) -> Result<Ready, FleetError> {
        let upto = self.state.acknowledged;
        let mut folded = match self.folded.take() {
            Some(mut folded) => match self.go_on(&mut folded, upto)? {
                true => folded,
                false => self.whole(upto)?,
            },
            None => self.whole(upto)?,
        };
        folded.forgot.clone_from(&self.forgot);
        // The positions that a snapshot of the log covers beyond that are published soon.
        let image = if folded.upto == upto { Some(self.image(&folded)?) } else { None };
        Ok(Ready { folded, image })
    }

    fn image(&self, folded: &Folded) -> Result<(u32, u64, Bytes), FleetError> {
        let fork = self.state.fork();
        let mut covers = self.state.own();
        covers.insert(fork.epoch, Intervals::of(fork.base + 1, folded.upto));
        folded.past.iter().for_each(|(epoch, seen)| covers.entry(*epoch).or_default().extend(seen));
        let (epoch, base, half_life_ms) = (fork.epoch, fork.base, self.like.half_life_ms());
        let head = Head { epoch, base, covers, half_life_ms, ..Head::default() };
        let share = folded.selector.share(folded.newest.min(self.latest), FADED);
        let bytes = pack(&head, &share).map_err(|error| FleetError::io(&self.dir, error))?;
        Ok((epoch, folded.upto, bytes))
    }

    /// Folds the new records. Returns false if a domain was forgotten, or if records were dropped before they were
    /// read.
    fn go_on(&self, folded: &mut Folded, upto: u64) -> Result<bool, FleetError> {
        if folded.upto >= upto {
            return Ok(true);
        }
        let (mut is_whole, selector, mut newest) = (true, &folded.selector, folded.newest);
        facts(&self.dir, (folded.upto + 1, upto), &self.like, &mut folded.stones, |seq, place| match place {
            Place::Fact(fact, _) if !self.state.withheld.contains(seq) => {
                newest = newest.max(fact.at);
                selector.learn_general(&fact);
            }
            Place::Fact(..) | Place::Link(_) | Place::Nothing => {}
            Place::Forgotten(..) | Place::Gone => is_whole = false,
        })?;
        (folded.newest, folded.upto) = (newest, upto);
        Ok(is_whole)
    }

    fn blank(&self) -> Result<Selector, FleetError> {
        self.like.blank().map_err(|error| FleetError::Selector(error.to_string()))
    }

    /// Folds the whole log.
    fn whole(&self, upto: u64) -> Result<Folded, FleetError> {
        let leaves_out = |seq: u64| self.state.withheld.contains(seq);
        let is_any_out = !self.state.withheld.runs().is_empty();
        let leaves_out: Option<&dyn Fn(u64) -> bool> = if is_any_out { Some(&leaves_out) } else { None };
        let folded = fold(&self.dir, &self.blank()?, upto, leaves_out, self.latest)?;
        let (upto, mut past) = (folded.upto, BTreeMap::new());
        let share = with_own_past(&self.dir, &self.state, &self.blank()?, folded.share, &mut past)?;
        let selector = self.blank()?;
        selector.take_share(&share.general());
        let (newest, forgot) = (share.as_of(), self.forgot.clone());
        Ok(Folded { selector, upto, newest, past, stones: Stones::default(), forgot, whole_at: Instant::now() })
    }
}
