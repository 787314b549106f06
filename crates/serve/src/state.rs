//! What all requests share: the selector, the log, the detector, and what clients are allowed.
//!
//! Must not know routes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Semaphore;

use super::options::Options;
use super::problem::Problem;
use super::visits::Visits;
use crate::attempt_store::Kept;
use crate::auth::Gate;
use crate::dashboard_cache::Board;
use crate::fleet_membership::Membership;
use crate::unavailable_fetchers::Missing;
use fetchwise::detect::Detector;
use fetchwise::journal::Journal;
use fetchwise::rollout::Guard;
use fetchwise::selector::Selector;

/// What all requests share.
pub(crate) struct State {
    /// Who decides and learns.
    pub(crate) selector: Arc<Selector>,
    /// The log, and what is known of it.
    pub(crate) kept: Arc<Kept>,
    /// Candidates that nobody is known to have.
    pub(crate) missing: Arc<Missing>,
    /// Reads what visits report.
    pub(crate) detector: Arc<Detector>,
    /// Reads what is only to be classified: all of a page, as the command does.
    pub(crate) classifier: Arc<Detector>,
    /// Who compares the arms of a rollout, if somebody does.
    pub(crate) guard: Option<Arc<Guard>>,
    /// What the dashboard has looked up.
    pub(crate) board: Board,
    fleet: OnceLock<Arc<dyn Membership>>,
    /// What clients are allowed.
    pub(crate) options: Arc<Options>,
    /// Who may come in.
    pub(crate) gate: Arc<Gate>,
    /// The visits under way.
    pub(crate) visits: Visits,
    /// Places for work that takes longer than a request may hold up others.
    workers: Semaphore,
    /// One place for what goes through the whole log.
    pub(crate) reader: Semaphore,
    stopping: AtomicBool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("selector", &self.selector).field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl State {
    pub(crate) fn new(
        selector: Arc<Selector>,
        kept: Arc<Kept>,
        missing: Arc<Missing>,
        (detector, classifier): (Arc<Detector>, Arc<Detector>),
        guard: Option<Arc<Guard>>,
        options: Options,
        gate: Gate,
    ) -> Self {
        let visits = Visits::new(&options, gate.wants_tokens());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let board = Board::new(selector.now());
        Self {
            selector,
            board,
            kept,
            missing,
            detector,
            classifier,
            guard,
            fleet: OnceLock::new(),
            options: Arc::new(options),
            gate: Arc::new(gate),
            visits,
            workers: Semaphore::new(threads),
            reader: Semaphore::new(1),
            stopping: AtomicBool::new(false),
        }
    }

    /// The journal.
    pub(crate) fn journal(&self) -> &Arc<Journal> {
        self.kept.journal()
    }

    /// The fleet that the server's node is in, if it is in one.
    pub(crate) fn fleet(&self) -> Option<&Arc<dyn Membership>> {
        self.fleet.get()
    }

    /// Says which fleet the node is in; the first word counts.
    pub(crate) fn join(&self, fleet: Arc<dyn Membership>) {
        let _ = self.fleet.set(fleet);
    }

    /// Does work that takes longer than a request may hold up others, on a thread of its own and within the places that there are.
    ///
    /// # Errors
    /// When the server ends, or the work has panicked.
    pub(crate) async fn aside<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let _place = self.workers.acquire().await.map_err(|_| Problem::internal("the server is ending"))?;
        let state = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&state)).await;
        done.map_err(|error| Problem::internal(error.to_string()))
    }

    /// Looks at the log, up to the place `end`, on a thread of its own.
    pub(crate) fn look(self: &Arc<Self>, end: u64) {
        let state = Arc::clone(self);
        tokio::spawn(async move {
            let Ok(_place) = state.reader.acquire().await else { return };
            let kept = Arc::clone(&state.kept);
            let looked = tokio::task::spawn_blocking(move || kept.look(end)).await;
            if !matches!(looked, Ok(Ok(()))) {
                state.kept.cannot_look();
            }
        });
    }

    /// Says that no new work is wanted.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether somebody has asked the server to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
