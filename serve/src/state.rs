//! What all requests share: the selector, the log, the detector, and what clients are allowed.
//!
//! Must not know routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;

use super::board::Board;
use super::gate::Gate;
use super::kept::Kept;
use super::missing::Missing;
use super::options::Options;
use super::visits::Visits;
use fetchwise::detect::Detector;
use fetchwise::journal::Journal;
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
    /// What the dashboard has looked up.
    pub(crate) board: Board,
    /// What clients are allowed.
    pub(crate) options: Options,
    /// Who may come in.
    pub(crate) gate: Gate,
    /// The visits under way.
    pub(crate) visits: Visits,
    /// Places for work that takes longer than a request may hold up others.
    pub(crate) workers: Semaphore,
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
            options,
            gate,
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

    /// Says that no new work is wanted.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether somebody has asked the server to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
